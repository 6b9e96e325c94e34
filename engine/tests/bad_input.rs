//! Impossible requests are refused with an error that gives the reason, before anything is read.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringmain::backends::fault::Faults;
use ringmain::{
    BackendKind, ContiguousMemmap, Engine, Error, Index, Kind, MemmapArrayInfo, Result, Select,
};
use tempfile::TempDir;

/// An engine that counts its reads, and 60 bytes to read.
struct Counted {
    _dir: TempDir,
    path: PathBuf,
    engine: Engine,
    faults: Arc<Faults>,
}

impl Counted {
    fn new() -> Self {
        let dir = support::temp_dir();
        let path = dir.path().join("bytes");
        std::fs::write(&path, (0..60).collect::<Vec<u8>>()).unwrap();
        let faults = Arc::new(Faults::default());
        let engine = faults.below(|| Engine::builder().backend(BackendKind::Pread).build());
        Self { _dir: dir, path, engine: engine.unwrap(), faults }
    }

    /// Returns a view of bytes of shape 3 × 4 × 5.
    fn view(&self) -> ContiguousMemmap {
        self.engine.open_raw(&self.path, Kind::U8, &[3, 4, 5], 0).unwrap()
    }

    fn reads(&self) -> u64 {
        self.faults.decisions.load(Ordering::Relaxed)
    }
}

/// Asserts that the outcome is this error, and that nothing was read since the test began.
macro_rules! refused {
    ($counted:expr, $outcome:expr, $error:pat) => {
        let outcome = &$outcome;
        assert!(matches!(outcome, Err($error)), "{outcome:?} is not {}", stringify!($error));
        assert_eq!($counted.reads(), 0, "it read before it refused");
    };
}

#[test]
fn a_read_is_counted() {
    let counted = Counted::new();
    assert_eq!(counted.view().at(0).unwrap().read_vec::<u8>().unwrap().len(), 20);
    assert_eq!(counted.reads(), 1);
}

#[test]
fn arrays_that_no_file_can_hold_are_refused() {
    let counted = Counted::new();
    let open =
        |shape: &[usize], offset| counted.engine.open_raw(&counted.path, Kind::F64, shape, offset);
    refused!(counted, open(&[usize::MAX], 0), Error::Overflow { .. });
    refused!(counted, open(&[1 << 40, 1 << 40], 0), Error::Overflow { .. });
    refused!(counted, open(&[0, usize::MAX, usize::MAX], 0), Error::Overflow { .. });
    // The message named the shape as the cause.
    for (shape, offset) in [(1, u64::MAX), (0, u64::MAX), (1, i64::MAX as u64 - 7)] {
        refused!(counted, open(&[shape], offset), Error::InvalidOption { option: "offset", .. });
    }
    refused!(counted, open(&[1; 65], 0), Error::Shape { .. });
}

#[test]
fn arrays_that_are_not_in_the_file_are_refused() {
    let counted = Counted::new();
    let open =
        |shape: &[usize], offset| counted.engine.open_raw(&counted.path, Kind::F32, shape, offset);
    assert!(open(&[3, 5], 0).is_ok());
    assert!(open(&[0], 60).is_ok());
    refused!(counted, open(&[4, 4], 0), Error::OutsideFile { len: 64, file_len: 60, .. });
    refused!(counted, open(&[3, 5], 1), Error::OutsideFile { offset: 1, .. });
    refused!(counted, open(&[], 57), Error::OutsideFile { .. });
    refused!(counted, open(&[0], 61), Error::OutsideFile { .. });
    refused!(counted, open(&[1 << 50], 1 << 50), Error::OutsideFile { .. });
}

#[test]
fn rows_that_the_file_cannot_count_are_refused() {
    let counted = Counted::new();
    let open =
        |row_shape: &[usize]| counted.engine.open_rows(&counted.path, Kind::U16, row_shape, 0);
    assert_eq!(open(&[3]).unwrap().shape(), [10, 3]);
    refused!(counted, open(&[7]), Error::Shape { .. });
    // The message did not name the shape.
    let empty = open(&[0, 4]);
    refused!(counted, empty, Error::Shape { .. });
    let message = empty.unwrap_err().to_string();
    assert!(message.contains("rows of shape [0, 4] have 0 bytes"), "{message}");
}

#[test]
fn missing_files_are_refused() {
    let counted = Counted::new();
    let directory = counted.path.parent().unwrap();
    let missing = directory.join("missing");
    let open = |path: &Path| counted.engine.open_raw(path, Kind::U8, &[1], 0);
    refused!(counted, open(&missing), Error::NotFound { .. });
    refused!(counted, counted.engine.open_npy(&missing), Error::NotFound { .. });
    refused!(counted, open(directory), Error::Backend { .. });
    refused!(counted, counted.engine.open_npy(directory), Error::Backend { .. });
    let info = |filename: &str, dtype: &str| MemmapArrayInfo {
        filename: filename.into(),
        offset: 0,
        shape: vec![2],
        dtype: dtype.into(),
    };
    let exca = |info: &MemmapArrayInfo| counted.engine.open_exca(directory, info);
    assert!(exca(&info("bytes", "float32")).is_ok());
    refused!(counted, exca(&info("missing", "float32")), Error::NotFound { .. });
    refused!(counted, exca(&info("bytes", "float31")), Error::UnknownDType { .. });
    refused!(counted, exca(&info("bytes", "object")), Error::UnknownDType { .. });
}

#[test]
fn indices_that_are_out_of_range_are_refused() {
    let counted = Counted::new();
    let view = counted.view();
    for index in [3, -4, i64::MAX, i64::MIN] {
        refused!(counted, view.at(index), Error::IndexOutOfRange { axis: 0, len: 3, .. });
    }
    for index in [5, -6, i64::MAX, i64::MIN] {
        let deep = view.index(&[Index::Ellipsis, index.into()]);
        refused!(counted, deep, Error::IndexOutOfRange { axis: 2, len: 5, .. });
    }
    refused!(counted, view.at(3usize), Error::IndexOutOfRange { axis: 0, index: 3, .. });
    let empty = view.index(&[(0..0).into()]).unwrap();
    refused!(counted, empty.at(0), Error::IndexOutOfRange { len: 0, .. });
    refused!(counted, view.index(&[Index::ALL; 4]), Error::TooManyIndices { given: 4, ndim: 3 });
    refused!(counted, view.index(&[Index::Ellipsis; 2]), Error::InvalidIndex { .. });
    let still = Index::slice(None, None, 0);
    refused!(counted, view.index(&[still]), Error::InvalidIndex { .. });
    let scalar = view.index(&[0.into(), 0.into(), 0.into()]).unwrap();
    refused!(counted, scalar.at(0), Error::TooManyIndices { given: 1, ndim: 0 });
    let column = view.index(&[Index::ALL, 0.into()]);
    refused!(counted, column, Error::NonContiguous { .. });
    let message = column.unwrap_err().to_string();
    assert!(message.contains("read_selection"), "the way out is missing in: {message}");
}

#[test]
fn shapes_and_types_that_do_not_fit_are_refused() {
    let counted = Counted::new();
    let view = counted.view();
    for shape in [&[61][..], &[7, -1], &[-1, -1], &[-2, 30], &[0, -1], &[], &[i64::MAX, 4]] {
        refused!(counted, view.reshape(shape), Error::Shape { .. });
    }
    refused!(counted, view.t().ravel(), Error::Shape { .. });
    refused!(counted, view.transpose(&[0, 1]), Error::Shape { .. });
    refused!(counted, view.transpose(&[0, 1, 1]), Error::Shape { .. });
    refused!(counted, view.transpose(&[1, 2, 3]), Error::Shape { .. });
    refused!(counted, view.swapaxes(0, 3), Error::Shape { .. });
    refused!(counted, view.squeeze(Some(0)), Error::Shape { .. });
    refused!(counted, view.squeeze(Some(3)), Error::Shape { .. });
    refused!(counted, view.view(Kind::F32), Error::Shape { .. });
    refused!(counted, view.t().view(Kind::U16), Error::Shape { .. });
    assert_eq!(view.ravel().unwrap().view(Kind::F32).unwrap().shape(), [15]);
}

#[test]
fn memory_of_another_size_is_refused() {
    let counted = Counted::new();
    let (view, engine) = (counted.view(), &counted.engine);
    for len in [0, 59, 61] {
        let mut bytes = vec![0; len];
        refused!(counted, view.read_bytes_into(&mut bytes), Error::BufferSize { needed: 60, .. });
        refused!(counted, view.t().read_bytes_into(&mut bytes), Error::BufferSize { .. });
        refused!(
            counted,
            view.read_selection_bytes_into(&[], &mut bytes),
            Error::BufferSize { .. }
        );
        let many = engine.read_many_bytes(&[view.at(0).unwrap(), view.clone()], &mut bytes);
        refused!(counted, many, Error::BufferSize { needed: 80, .. });
        let parts = engine.read_many_bytes_into(std::slice::from_ref(&view), &mut [&mut bytes]);
        refused!(counted, parts, Error::BufferSize { .. });
    }
    let none = engine.read_many_bytes_into(&[view], &mut []);
    refused!(counted, none, Error::InvalidOption { option: "dst", .. });
}

#[test]
fn elements_of_another_type_are_refused() {
    let counted = Counted::new();
    let view = counted.view();
    refused!(counted, view.read_vec::<f32>(), Error::ElementType { .. });
    refused!(counted, view.read_vec::<i8>(), Error::ElementType { .. });
    refused!(counted, view.read_selection::<u16>(&[]), Error::ElementType { .. });
    refused!(counted, view.read_as::<ringmain::F8>(), Error::ElementType { .. });
    let open = |kind: Kind| counted.engine.open_raw(&counted.path, kind, &[3], 0).unwrap();
    refused!(counted, open(Kind::Complex128).read_as::<f64>(), Error::ElementType { .. });
    refused!(counted, open(Kind::Complex64).t().read_as::<u8>(), Error::ElementType { .. });
    refused!(counted, open(Kind::U8).read_scalar::<u8>(), Error::Shape { .. });
}

#[test]
fn views_of_different_engines_are_not_one_batch() {
    let (counted, other) = (Counted::new(), Counted::new());
    let views = [counted.view(), other.view()];
    let outcome = counted.engine.read_many_bytes(&views, &mut [0; 120]);
    refused!(counted, outcome, Error::InvalidOption { option: "views", .. });
    assert_eq!(other.reads(), 0);
    let clone = counted.engine.clone();
    clone.read_many_bytes(&[counted.view()], &mut [0; 60]).unwrap();
}

#[test]
fn selections_out_of_range_are_refused() {
    let counted = Counted::new();
    let view = counted.view();
    let read = |selection: &[Select]| view.read_selection::<u8>(selection);
    refused!(counted, read(&[vec![0, 3].into()]), Error::IndexOutOfRange { axis: 0, .. });
    refused!(counted, read(&[(..).into(), vec![i64::MIN].into()]), Error::IndexOutOfRange { .. });
    refused!(counted, read(&[vec![true; 4].into()]), Error::InvalidIndex { .. });
    refused!(counted, read(&[Index::slice(None, None, 0).into()]), Error::InvalidIndex { .. });
    refused!(counted, read(&vec![vec![0].into(); 4]), Error::TooManyIndices { .. });
    // A list may repeat elements until their number overflows, or exceeds the memory.
    let often = |count: usize| Select::List(vec![0; count]);
    let too_many = [often(1 << 22), often(1 << 22), often(1 << 22)];
    refused!(counted, read(&too_many), Error::Overflow { .. });
    refused!(counted, view.read_selection_bytes_into(&too_many, &mut []), Error::Overflow { .. });
    let too_large = [often(1 << 19), often(1 << 19), often(1 << 19)];
    refused!(counted, read(&too_large), Error::OutOfMemory { .. });
}

/// Returns a `.npy` file of version 1.0.
fn npy(descr: &str, shape: &str, data_bytes: usize) -> Vec<u8> {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let len = (dict.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], dict.as_bytes(), &vec![7; data_bytes]].concat()
}

#[test]
fn wrong_npy_files_are_refused_on_every_backend() {
    let dir = support::temp_dir();
    let path = dir.path().join("a.npy");
    std::fs::write(&path, npy("<f4", "(2, 3)", 24)).unwrap();
    for engine in support::engines_for(&path) {
        let open = |bytes: Vec<u8>| -> Result<ContiguousMemmap> {
            // A new file each time: Windows does not release a mapped file.
            let (_, path) = tempfile::NamedTempFile::new_in(dir.path()).unwrap().keep().unwrap();
            std::fs::write(&path, bytes).unwrap();
            engine.open_npy(path)
        };
        macro_rules! refused {
            ($bytes:expr, $error:pat) => {
                let outcome = open($bytes);
                assert!(matches!(outcome, Err($error)), "{outcome:?}");
            };
        }
        assert_eq!(open(npy("<f4", "(2, 3)", 24)).unwrap().read_buffer().unwrap()[..], [7; 24]);
        assert_eq!(open(npy("<f4", "(2, 3)", 25)).unwrap().shape(), [2, 3]);
        refused!(Vec::new(), Error::Format { .. });
        refused!(b"not an array".to_vec(), Error::Format { .. });
        refused!(npy("<f4", "(2, -3)", 24), Error::Format { .. });
        refused!(npy("<M8[ns]", "(3,)", 24), Error::Format { .. });
        refused!(npy("<f4", "(99999999999999999999,)", 24), Error::Format { .. });
        refused!(npy("<f4", "(2, 3)", 23), Error::OutsideFile { len: 24, .. });
        refused!(npy("<f4", "(1048576, 1048576)", 24), Error::OutsideFile { .. });
        // These were errors of the caller's request, without the file.
        refused!(npy("<f4", "(4294967296, 4294967296)", 24), Error::Format { .. });
        refused!(npy("<f4", "(0, 9223372036854775807)", 24), Error::Format { .. });
        refused!(npy("<f4", "(18446744073709551615,)", 24), Error::Format { .. });
        let axes = format!("({})", "1,".repeat(65));
        refused!(npy("<f4", &axes, 4), Error::Format { .. });
        let mut long = npy("<f4", "(2, 3)", 24);
        long[8..10].copy_from_slice(&u16::MAX.to_le_bytes());
        refused!(long, Error::Format { .. });
    }
}

#[test]
fn npy_headers_longer_than_a_page_are_read() {
    let dir = support::temp_dir();
    let path = dir.path().join("a.npy");
    let padding = " ".repeat(100_000);
    let dict = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }}{padding}\n");
    let len = (dict.len() as u32).to_le_bytes();
    let file = [b"\x93NUMPY\x02\x00", &len[..], dict.as_bytes(), &[1, 0, 2, 0]].concat();
    std::fs::write(&path, &file).unwrap();
    for engine in support::engines_for(&path) {
        assert_eq!(engine.open_npy(&path).unwrap().read_vec::<u16>().unwrap(), [1, 2]);
    }
    let short = dir.path().join("short.npy");
    std::fs::write(&short, &file[..50_000]).unwrap();
    for engine in support::engines_for(&short) {
        assert!(matches!(engine.open_npy(&short), Err(Error::Format { .. })));
    }
}

/// Windows does not allow truncating a mapped file.
#[cfg(unix)]
#[test]
fn a_file_truncated_under_a_view_ends_early() {
    let dir = support::temp_dir();
    let path = dir.path().join("bytes");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    for engine in support::engines_for(&path) {
        let kind = engine.backend().kind();
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let view = engine.open_raw(&path, Kind::U8, &[10, 10_000], 0).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(35_000).unwrap();
        if kind == BackendKind::Memory {
            assert_eq!(view.read_vec::<u8>().unwrap(), [7; 100_000], "a copy does not change");
            continue;
        }
        let is_past_end = |outcome: &Result<()>| {
            let error = outcome.as_ref().err().and_then(Error::backend_error);
            matches!(error, Some(ringmain::backends::Error::PastEnd { .. }))
        };
        let column = [(..).into(), vec![5].into()];
        for outcome in [
            view.read_vec::<u8>().map(drop),
            view.t().read_vec::<u8>().map(drop),
            view.read_as::<u64>().map(drop),
            view.read_buffer().map(drop),
            view.at(3).unwrap().read_vec::<u8>().map(drop),
            view.index(&[9.into(), 0.into()]).unwrap().read_scalar::<u8>().map(drop),
            view.read_selection::<u8>(&column).map(drop),
            engine.read_many_bytes(&[view.at(0).unwrap(), view.at(9).unwrap()], &mut [0; 20_000]),
        ] {
            assert!(is_past_end(&outcome), "{kind}: {outcome:?}");
        }
        assert_eq!(view.at(2).unwrap().read_vec::<u8>().unwrap(), [7; 10_000], "{kind}");
    }
}

/// exca appends to its files while they are read.
#[test]
fn a_file_that_grows_can_be_read_to_its_new_end() {
    let dir = support::temp_dir();
    let path = dir.path().join("arrays.data");
    std::fs::write(&path, [1; 10_000]).unwrap();
    for engine in support::engines_for(&path) {
        let kind = engine.backend().kind();
        let data = dir.path().join(format!("{kind}.data"));
        let info = |offset: u64, len: usize| MemmapArrayInfo {
            filename: data.file_name().unwrap().into(),
            offset,
            shape: vec![len],
            dtype: "uint8".into(),
        };
        std::fs::write(&data, [1; 10_000]).unwrap();
        let first = engine.open_exca(dir.path(), &info(0, 10_000)).unwrap();
        assert_eq!(first.read_vec::<u8>().unwrap(), [1; 10_000], "{kind}");
        let too_early = engine.open_exca(dir.path(), &info(10_000, 10_000));
        assert!(matches!(too_early, Err(Error::OutsideFile { .. })), "{kind}: {too_early:?}");
        append(&data, &[2; 10_000]);
        let second = engine.open_exca(dir.path(), &info(10_000, 10_000)).unwrap();
        assert_eq!(second.read_vec::<u8>().unwrap(), [2; 10_000], "{kind}");
        assert_eq!(first.read_vec::<u8>().unwrap(), [1; 10_000], "{kind}");
        let mut both = [0; 20_000];
        engine.read_many_bytes(&[first, second], &mut both).unwrap();
        assert_eq!((both[9_999], both[10_000]), (1, 2), "{kind}");
    }
}

fn append(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}
