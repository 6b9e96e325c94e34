//! Typed reads, many views at once, rows, and views that are read ahead, on every backend.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringmain::backends::fault::Faults;
use ringmain::{BackendKind, ContiguousMemmap, Engine, Error, Index, Item, Kind};

use support::{engines_for, engines_with, temp_dir};

/// Big-endian `u16` from `first` on, after `lead` bytes.
fn write_numbers(path: &Path, lead: usize, count: u16) {
    let numbers = (0..count).flat_map(u16::to_be_bytes);
    let bytes: Vec<u8> = vec![0xFF; lead].into_iter().chain(numbers).collect();
    std::fs::write(path, bytes).unwrap();
}

fn numbers(engine: &Engine, path: &Path, lead: u64) -> ContiguousMemmap {
    let dtype: ringmain::DType = ">u2".parse().unwrap();
    engine.open_raw(path, dtype, &[300, 10], lead).unwrap()
}

/// Buffers of `direct` and `uring` began at an odd address if the array began at an odd offset.
/// Code that worked on `pread` panicked there.
#[test]
fn buffers_are_aligned_for_their_elements_on_every_backend() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    std::fs::write(&path, (0..50_000u32).map(|at| at as u8).collect::<Vec<u8>>()).unwrap();
    for engine in engines_for(&path) {
        for (kind, itemsize) in [(Kind::F32, 4), (Kind::F64, 8), (Kind::Complex128, 16)] {
            for offset in [0u64, 1, 2, 4, 8, 511, 512, 4095, 4097] {
                let view = engine.open_raw(&path, kind, &[1000], offset).unwrap();
                let buffer = view.read_buffer().unwrap();
                let what = format!("{} {kind:?} at {offset}", engine.backend().kind());
                assert!(buffer.as_ptr().addr().is_multiple_of(itemsize), "{what}");
                let expected = (offset..offset + buffer.len() as u64).map(|at| at as u8);
                assert!(buffer.iter().copied().eq(expected), "{what}");
            }
        }
    }
}

#[test]
fn typed_reads_convert_the_byte_order_and_byte_reads_do_not() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 3, 3000);
    for engine in engines_for(&path) {
        let array = numbers(&engine, &path, 3);
        let mut elements = [0u16; 10];
        array.at(-1).unwrap().read_into(&mut elements).unwrap();
        assert_eq!(elements, std::array::from_fn(|at| 2990 + at as u16));
        let mut bytes = [0; 20];
        array.at(0).unwrap().read_bytes_into(&mut bytes).unwrap();
        assert_eq!(bytes[18..], [0, 9]);

        let (first, last) = (array.at(0).unwrap(), array.at(299).unwrap());
        let mut both = [0u16; 20];
        engine.read_many(&[&last, &first], &mut both).unwrap();
        assert_eq!((both[0], both[10]), (2990, 0));
        let mut both = [0; 40];
        engine.read_many_bytes(&[last, first], &mut both).unwrap();
        assert_eq!((both[1], both[39]), ((2990u16 & 0xFF) as u8, 9));

        let selection = [[299usize, 0].into(), [9].into()];
        let mut elements = [0u16; 2];
        array.read_selection_into(&selection, &mut elements).unwrap();
        assert_eq!(elements, [2999, 9]);
        assert_eq!(array.read_selection::<u16>(&selection).unwrap().elements, elements);
        let mut bytes = [0; 4];
        array.read_selection_bytes_into(&selection, &mut bytes).unwrap();
        assert_eq!(bytes, [(2999 >> 8) as u8, (2999 & 0xFF) as u8, 0, 9]);
        let error = array.read_selection_into(&selection, &mut [0u16; 3]).unwrap_err();
        assert!(matches!(error, Error::BufferSize { needed: 4, given: 6, .. }), "{error}");
        let error = array.read_selection_into(&selection, &mut [0i16; 2]).unwrap_err();
        assert!(matches!(error, Error::ElementType { .. }), "{error}");
    }
}

#[test]
fn typed_reads_refuse_other_types_and_sizes() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 0, 3000);
    let engine = Engine::new().unwrap();
    let row = numbers(&engine, &path, 0).at(0).unwrap();
    let error = row.read_into(&mut [0f32; 5]).unwrap_err();
    assert!(matches!(error, Error::ElementType { .. }), "{error}");
    let error = row.read_into(&mut [0u16; 9]).unwrap_err();
    assert!(matches!(error, Error::BufferSize { needed: 20, given: 18, .. }), "{error}");
    let error = engine.read_many(&[&row, &row], &mut [0u16; 10]).unwrap_err();
    assert!(matches!(error, Error::BufferSize { needed: 40, given: 20, .. }), "{error}");
    let error = engine.read_many_bytes_into(&[&row, &row], &mut [&mut [0; 20]]).unwrap_err();
    assert!(
        error.to_string().contains("cannot be 1 slice: it must have a slice for each of 2 views")
    );
    // The errors did not say which view does not fit.
    let mut parts: [&mut [u8]; 2] = [&mut [0; 20], &mut [0; 19]];
    let error = engine.read_many_bytes_into(&[&row, &row], &mut parts).unwrap_err();
    assert_eq!(error.item(), Some(&Item::View(1)), "{error}");
    let other_type = row.view(Kind::U8).unwrap();
    let error = engine.read_many(&[&row, &other_type], &mut [0u16; 20]).unwrap_err();
    assert_eq!((error.path(), error.item()), (Some(&*path), Some(&Item::View(1))), "{error}");
    let other = Engine::new().unwrap();
    let error = other.read_many(&[&row], &mut [0u16; 10]).unwrap_err();
    assert!(error.to_string().contains("another engine opened it"), "{error}");
}

#[test]
fn bools_are_read_as_bools() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    std::fs::write(&path, [0, 1, 2, 255]).unwrap();
    let view = Engine::new().unwrap().open_raw(&path, Kind::Bool, &[4], 0).unwrap();
    let mut flags = [false; 4];
    view.read_into(&mut flags).unwrap();
    assert_eq!(flags, [false, true, true, true]);
}

#[test]
fn rows_and_chunks_are_views_of_all_elements() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 0, 3000);
    let array = numbers(&Engine::new().unwrap(), &path, 0);
    let rows: Vec<u16> =
        array.rows().unwrap().flat_map(|row| row.read_vec::<u16>().unwrap()).collect();
    assert!(rows.iter().copied().eq(0..3000));
    for size in [1, 7, 300, 1000] {
        let chunks = array.chunks(size).unwrap();
        assert_eq!(chunks.len(), 300usize.div_ceil(size));
        let all: Vec<u16> = chunks.flat_map(|rows| rows.read_vec::<u16>().unwrap()).collect();
        assert_eq!(all, rows, "{size}");
    }
    assert_eq!(array.rows().unwrap().next_back().unwrap().read_vec::<u16>().unwrap()[9], 2999);
    assert!(matches!(array.t().rows().map(drop), Err(Error::NonContiguous { .. })));
    let empty = array.index(&[(0..0).into()]).unwrap();
    assert_eq!((empty.rows().unwrap().len(), empty.chunks(3).unwrap().len()), (0, 0));
}

#[test]
fn the_number_of_rows_follows_from_the_file() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    std::fs::write(&path, [7; 1000]).unwrap();
    let engine = Engine::new().unwrap();
    assert_eq!(engine.open_rows(&path, Kind::U16, &[], 0).unwrap().shape(), [500]);
    assert_eq!(engine.open_rows(&path, Kind::F32, &[5, 2], 40).unwrap().shape(), [24, 5, 2]);
    assert_eq!(engine.open_rows(&path, Kind::U8, &[], 1000).unwrap().shape(), [0]);
    // The message said "rows of 4" for single elements, and not that these are bytes.
    for (row_shape, offset, units) in
        [(&[3][..], 0, "rows of 12 bytes"), (&[][..], 999, "elements of 4 bytes")]
    {
        let error = engine.open_rows(&path, Kind::F32, row_shape, offset).unwrap_err();
        let expected = format!("are not a whole number of {units}");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}

#[test]
fn views_are_read_ahead_in_order() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 1, 3000);
    for engine in engines_for(&path) {
        let array = numbers(&engine, &path, 1);
        let mut order: Vec<ContiguousMemmap> = array.rows().unwrap().collect();
        order.reverse();
        order.push(array.index(&[(0..0).into()]).unwrap());
        order.push(array.t());
        for window_bytes in [0, 1, 100, 1 << 20] {
            let read = engine.read_ahead(order.clone(), window_bytes).unwrap();
            let buffers: Vec<_> = read.map(Result::unwrap).collect();
            assert_eq!(buffers.len(), order.len());
            for (buffer, view) in buffers.iter().zip(&order) {
                let mut expected = vec![0; view.nbytes()];
                view.read_bytes_into(&mut expected).unwrap();
                assert_eq!(&buffer[..], expected, "{}", engine.backend().kind());
            }
        }
    }
}

#[test]
fn an_error_is_delivered_in_order_and_ends_the_iteration() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 0, 3000);
    let engine = Engine::new().unwrap();
    let array = numbers(&engine, &path, 0);
    let rows: Vec<_> = array.rows().unwrap().collect();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(20 * 150).unwrap();
    for window_bytes in [0, 1 << 20] {
        let mut read = engine.read_ahead(rows.clone(), window_bytes).unwrap();
        assert_eq!(read.by_ref().take_while(Result::is_ok).count(), 150, "{window_bytes}");
        assert!(read.next().is_none());
    }
}

#[test]
fn a_read_without_free_memory_waits_for_the_configured_time() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 0, 3000);
    let small = |builder: ringmain::EngineBuilder| {
        builder.memory_limit_bytes(16 << 10).memory_patience(Duration::from_millis(20))
    };
    for engine in engines_with(&path, small) {
        let array = numbers(&engine, &path, 0);
        let start = Instant::now();
        let mut held = Vec::new();
        let error = loop {
            match array.at(0).unwrap().read_buffer() {
                Ok(buffer) => held.push(buffer),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::MemorySpent { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}

#[test]
fn hints_cover_the_bytes_of_a_view() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 0, 3000);
    for engine in engines_for(&path) {
        let array = numbers(&engine, &path, 0);
        for view in [array.at(3).unwrap(), array.t(), array.index(&[Index::from(..0)]).unwrap()] {
            view.prefetch().unwrap();
            let mut bytes = vec![0; view.nbytes()];
            view.read_bytes_into(&mut bytes).unwrap();
            view.release().unwrap();
        }
    }
}

/// The message blamed buffers that are in use, although there were none.
#[test]
fn a_view_larger_than_all_buffers_says_so() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 0, 30_000);
    let engine = Engine::builder().memory_limit_bytes(16 << 10).build().unwrap();
    let view = engine.open_raw(&path, Kind::U16, &[30_000], 0).unwrap();
    let error = view.read_buffer().unwrap_err();
    assert!(matches!(error, Error::MemorySpent { in_use_bytes: 0, .. }), "{error}");
    let message = error.to_string();
    for part in ["does not fit in the engine's", "memory_limit_bytes", "`read_vec`"] {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
    assert!(!message.contains("drop"), "there is nothing to drop: {message}");
    assert_eq!(view.read_vec::<u16>().unwrap().len(), 30_000);
}

/// Such a view waited for memory that the pool can never have, and kept others from reading ahead.
#[test]
fn a_view_larger_than_all_buffers_is_not_read_ahead() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 0, 3000);
    let engine = Engine::builder().memory_limit_bytes(8192).build().unwrap();
    let error = engine.read_ahead(vec![numbers(&engine, &path, 0)], 1).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "views", .. }), "{error}");
}

/// Without patience for its callers an engine still reads through its backend's small memory, for
/// which the backend's own threads wait.
#[test]
fn impatient_callers_do_not_make_a_backend_impatient() {
    let dir = temp_dir();
    let path = dir.path().join("a");
    write_numbers(&path, 1, 3000);
    let impatient = |builder: ringmain::EngineBuilder| {
        builder.memory_limit_bytes(16 << 10).memory_patience(Duration::ZERO)
    };
    for engine in engines_with(&path, impatient) {
        let array = numbers(&engine, &path, 1);
        let rows: Vec<_> = array.rows().unwrap().collect();
        let mut elements = vec![0u16; 3000];
        engine.read_many(&rows, &mut elements).unwrap();
        assert!(elements.iter().copied().eq(0..3000), "{}", engine.backend().kind());
    }
}

/// The error named the file of the first view, and counted only the views that are read as one batch.
#[test]
fn an_error_names_the_file_and_the_view_that_failed() {
    let dir = temp_dir();
    let good = dir.path().join("good");
    write_numbers(&good, 0, 3000);
    for engine in engines_for(&good) {
        let kind = engine.backend().kind();
        if kind == BackendKind::Memory {
            continue; // a copy does not change
        }
        let bad = dir.path().join(format!("bad-{kind}"));
        write_numbers(&bad, 0, 3000);
        let whole = numbers(&engine, &good, 0);
        let row = numbers(&engine, &bad, 0).at(299).unwrap();
        let cut = std::fs::File::options().write(true).open(&bad).and_then(|file| file.set_len(20));
        if let Err(error) = cut {
            // Only Windows refuses to cut a mapped file.
            assert_eq!(std::env::consts::OS, "windows", "{kind}: {error}");
            continue;
        }
        // The first view has its axes in another order, so it is not part of the batch.
        let views = vec![whole.t(), whole.at(0).unwrap(), row];

        let error = engine.read_many(&views, &mut [0u16; 3020]).unwrap_err();
        assert_eq!(error.path(), Some(&*bad), "{kind}: {error}");
        assert!(!error.to_string().contains("good"), "{kind}: {error}");
        let index = error.backend_error().and_then(ringmain::backends::Error::index);
        assert_eq!(index, Some(2), "{kind}: {error}");

        for window_bytes in [0, 1 << 20] {
            let mut read = engine.read_ahead(views.clone(), window_bytes).unwrap();
            assert!(read.next().unwrap().is_ok() && read.next().unwrap().is_ok(), "{kind}");
            let error = read.next().unwrap().unwrap_err();
            assert_eq!(error.path(), Some(&*bad), "{kind}: {error}");
        }
    }
}

/// After a failed group only its first view was read alone, and the rest was read together again: a
/// thousand views before a damaged one took half a million reads.
#[test]
fn views_before_one_that_fails_are_read_alone_once() {
    const ROWS: usize = 1000;
    let dir = temp_dir();
    let path = dir.path().join("a");
    std::fs::write(&path, vec![1; 10 * ROWS]).unwrap();
    let faults = Arc::new(Faults::default()); // none, but it counts the reads
    let engine = faults.below(|| Engine::builder().backend(BackendKind::Pread).build()).unwrap();
    let array = engine.open_raw(&path, Kind::U8, &[ROWS, 10], 0).unwrap();
    let rows = array.rows().unwrap();
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(10 * ROWS as u64 - 1)
        .unwrap();
    let mut read = engine.read_ahead(rows, 1 << 20).unwrap();
    assert_eq!(read.by_ref().take_while(Result::is_ok).count(), ROWS - 1);
    let reads = faults.decisions.load(Ordering::Relaxed);
    assert!(reads <= 3 * ROWS as u64, "{reads} reads");
}
