//! Views with gaps, in reverse order or overlapping, and reads that are stopped.

// Clippy allows this in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use ringmain::{Buffer, ContiguousMemmap, Engine, Error, Index, Kind};

const LEN: usize = 6 << 20;

/// Returns a file in which every two bytes hold their own position, in units of two.
fn file() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = support::temp_dir();
    let path = dir.path().join("numbers");
    let bytes: Vec<u8> = (0..LEN / 2).flat_map(|at| (at as u16).to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

#[test]
fn strided_views_are_read_correctly() {
    let (_dir, path) = file();
    let engine = Engine::new().unwrap();
    let open = |shape: &[usize], strides: &[isize], offset| {
        engine.open_strided(&path, Kind::U16, shape, strides, offset)
    };
    let read = |view: &ContiguousMemmap| view.read_vec::<u16>().unwrap();
    let column = open(&[4], &[20], 6).unwrap();
    assert_eq!(read(&column), [3, 13, 23, 33]);
    assert_eq!(*column.read_buffer().unwrap(), [3, 0, 13, 0, 23, 0, 33, 0]);
    assert_eq!(column.read_as::<f32>().unwrap(), [3.0, 13.0, 23.0, 33.0]);
    assert_eq!(read(&column.index(&[(1..2).into()]).unwrap()), [13]);
    let part = column.index(&[(1..3).into()]);
    assert!(matches!(part, Err(Error::NonContiguous { .. })));
    assert_eq!(read(&open(&[4], &[-2], 6).unwrap()), [3, 2, 1, 0]);
    let windows = open(&[3, 3], &[2, 2], 2).unwrap();
    assert_eq!(read(&windows), [1, 2, 3, 2, 3, 4, 3, 4, 5]);
    assert_eq!(read(&windows.index(&[1.into()]).unwrap()), [2, 3, 4]);
    assert_eq!(read(&open(&[2, 2], &[0, 6], 2).unwrap()), [1, 4, 1, 4]);
    let mut bytes = [0; 12];
    engine.read_many_bytes(&[column, open(&[2], &[2], 0).unwrap()], &mut bytes).unwrap();
    assert_eq!(bytes, [3, 0, 13, 0, 23, 0, 33, 0, 0, 0, 1, 0]);
    for (strides, offset) in [([2], LEN as u64 - 4), ([LEN as isize], 0)] {
        assert!(matches!(open(&[3], &strides, offset), Err(Error::OutsideFile { .. })));
    }
    // The messages said that the view is larger than any file.
    let error = open(&[3], &[-2], 2).unwrap_err();
    assert!(error.to_string().contains("begins 2 bytes before the start of the file"), "{error}");
    let error = open(&[0], &[2], u64::MAX).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "offset", .. }), "{error}");
}

/// Runs were read to addresses in scratch memory that the device could not write to, so a device backend
/// read every byte through another buffer first.
#[test]
fn scratch_memory_begins_where_the_device_can_write() {
    const ROWS: usize = LEN / 64 - 1;
    let (_dir, path) = file();
    for engine in support::engines_for(&path) {
        let rows = engine.open_raw(&path, Kind::U16, &[ROWS, 32], 6).unwrap();
        let expected: Vec<u16> = (0..ROWS).map(|row| (3 + row * 32 + 7) as u16).collect();
        let column = rows.read_selection::<u16>(&[Index::ALL.into(), 7.into()]).unwrap();
        assert!(column.elements == expected, "{}", engine.backend().kind());
        assert!(rows.t().read_vec::<u16>().unwrap()[7 * ROWS..][..ROWS] == expected);
        assert_eq!(rows.read_as::<f32>().unwrap()[7], 10.0);
        let bounced = engine.stats().ways.bounced;
        // Three times the file was read. Only the ends of long reads are not whole blocks.
        assert!(bounced.bytes <= 3 * LEN as u64 / 16, "{}: {bounced:?}", engine.backend().kind());
    }
}

/// Without scratch memory for two runs, each run is read by itself.
#[test]
fn runs_are_read_with_as_little_memory_as_an_engine_can_have() {
    let (_dir, path) = file();
    for engine in support::engines_with(&path, |builder| builder.memory_limit_bytes(8192)) {
        let rows = engine.open_raw(&path, Kind::U16, &[LEN / 4096, 2048], 0).unwrap();
        let near =
            rows.read_selection::<u16>(&[(0..9).into(), Index::slice(None, None, 512).into()]);
        let expected: Vec<u16> = (0..36).map(|at| at * 512).collect();
        assert_eq!(near.unwrap().elements, expected, "{}", engine.backend().kind());
    }
}

#[test]
fn a_read_can_be_stopped() {
    let (_dir, path) = file();
    // With so little memory, data passes through it in many parts.
    let engine = Engine::builder().memory_limit_bytes(64 << 10).build().unwrap();
    let rows = engine.open_raw(&path, Kind::U16, &[LEN / 4096, 2048], 0).unwrap();
    let mut dst = vec![0xAA; LEN];
    let mut asked = 0;
    let mut twice = || {
        asked += 1;
        asked < 2
    };
    assert!(!rows.t().read_bytes_into_while(&mut dst, &mut twice).unwrap());
    assert!(dst[LEN - 2..] == [0xAA; 2] && dst[..2] == [0; 2]);
    assert!(rows.t().read_bytes_into_while(&mut dst, || true).unwrap());
    assert!(!rows.read_bytes_into_while(&mut dst, || false).unwrap());
    for view in [rows.t(), rows.clone(), rows.index(&[(3..3).into()]).unwrap()] {
        let read = |go_on: bool| view.read_buffer_while(4, Buffer::unpooled, || go_on).unwrap();
        let mut expected = vec![0; view.nbytes()];
        view.read_bytes_into(&mut expected).unwrap();
        assert!(read(true).unwrap()[..] == expected);
        assert_eq!(read(false).is_none(), !view.is_empty());
    }

    let elements = engine.open_raw(&path, Kind::U16, &[LEN / 4, 2], 0).unwrap();
    let mut dst = vec![0; LEN / 2];
    let column = [Index::ALL.into(), 1.into()];
    asked = 0;
    let mut once = || {
        asked += 1;
        false
    };
    assert!(!elements.read_selection_bytes_into_while(&column, &mut dst, &mut once).unwrap());
    assert_eq!(asked, 1);
    let offsets: Vec<u64> = (0..LEN as u64 / 4).rev().map(|at| 4 * at).collect();
    assert!(!elements.read_runs_bytes_into_while(&offsets, 2, &mut dst, || false).unwrap());
    assert!(elements.read_runs_bytes_into_while(&offsets, 2, &mut dst, || true).unwrap());
    assert!(
        dst.as_chunks()
            .0
            .iter()
            .zip(&offsets)
            .all(|(pair, offset)| { u16::from_le_bytes(*pair) == (offset / 2) as u16 })
    );
    let far = [u64::MAX - 1];
    assert!(elements.read_runs_bytes_into_while(&far, 2, &mut dst[..2], || true).is_err());
}
