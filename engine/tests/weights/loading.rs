//! The promises of loading: order, types, progress, reuse of memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringmain::backends::{PoolOptions, WhenSpent};
use ringmain::weights::{Dtype, LoadOptions, LoadProgress, Tensor, Weights};
use ringmain::{BackendKind, BufferPool, Engine};
use ringmain::{Error, Item};

use crate::model::{Model, bytes_of};
use crate::support::engines_for;

fn names<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<String> {
    tensors.into_iter().map(|tensor| tensor.name().to_owned()).collect()
}

#[test]
fn tensors_are_loaded_in_the_order_of_the_file() {
    let model = Model::of_bytes(40, 5000);
    for engine in engines_for(&model.path()) {
        let weights = Weights::open(&engine, model.path()).unwrap();
        for window_bytes in [0, 1, 20_000, 1 << 20] {
            let load = weights.load(LoadOptions::new().window_bytes(window_bytes)).unwrap();
            let tensors: Vec<_> = load.collect::<Result<_, _>>().unwrap();
            let expected: Vec<_> = model.specs.iter().map(|spec| spec.0.clone()).collect();
            assert_eq!(names(&tensors), expected);
            for tensor in &tensors {
                assert_eq!(tensor.bytes(), bytes_of(tensor.name(), tensor.bytes().len()));
            }
        }
    }
}

#[test]
fn selected_tensors_are_loaded_once_with_progress() {
    let model = Model::of_bytes(10, 3000);
    let weights = Weights::open(&Engine::new().unwrap(), model.path()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let report = {
        let told = Arc::clone(&told);
        move |progress: LoadProgress| told.lock().unwrap().push(progress)
    };
    let wanted = ["layer.7.weight", "layer.2.weight", "layer.7.weight"];
    let mut load = weights.load(LoadOptions::new().only(wanted).progress(report)).unwrap();
    let tensors: Vec<_> = load.by_ref().map(Result::unwrap).collect();
    assert_eq!(names(&tensors), ["layer.2.weight", "layer.7.weight"]);
    let sizes: Vec<_> = tensors.iter().map(|tensor| tensor.bytes().len() as u64).collect();
    let bytes = sizes[0] + sizes[1];
    let told = told.lock().unwrap();
    let first = LoadProgress { tensors_done: 1, tensors: 2, bytes_done: sizes[0], bytes };
    assert_eq!(*told, [first, LoadProgress { tensors_done: 2, bytes_done: bytes, ..first }]);
    assert_eq!(load.progress(), told[1]);
    let missing = weights.load(LoadOptions::new().only(["layer.77.weight"])).unwrap_err();
    assert!(matches!(missing, Error::NoSuchItem { .. }), "{missing}");
}

#[test]
fn elements_smaller_than_a_byte_can_be_read() {
    let specs = vec![
        ("f4".to_owned(), "F4", vec![6, 8], 24),
        ("f6".to_owned(), "F6_E2M3", vec![8, 2, 3], 36),
        ("odd".to_owned(), "F4", vec![4, 3], 6),
        ("other".to_owned(), "F6_E3M2", vec![4], 3),
    ];
    let model = Model::new(specs);
    for engine in engines_for(&model.path()) {
        let weights = Weights::open(&engine, model.path()).unwrap();
        for (name, _, shape, nbytes) in &model.specs {
            let tensor = weights.read(name).unwrap();
            assert_eq!(
                (tensor.shape(), tensor.bytes()),
                (&shape[..], &bytes_of(name, *nbytes)[..])
            );
            let view = weights.view(name).unwrap_err();
            assert!(matches!(view, Error::ElementType { .. }), "{view}");
            assert!(tensor.as_slice::<u8>().is_err() && tensor.to_vec::<u8>().is_err());
        }
        assert_eq!(weights.info("f4").unwrap().dtype(), Dtype::F4);
        let rows = weights.read_rows("f4", 1..3).unwrap();
        assert_eq!((rows.shape(), rows.bytes()), (&[2, 8][..], &bytes_of("f4", 24)[4..12]));
        let rows = weights.read_rows("f6", 2..6).unwrap();
        assert_eq!((rows.shape(), rows.bytes()), (&[4, 2, 3][..], &bytes_of("f6", 36)[9..27]));
        // Rows have three elements of four bits: every second row begins inside a byte.
        assert_eq!(weights.read_rows("odd", 2..4).unwrap().bytes(), &bytes_of("odd", 6)[3..]);
        let split = weights.read_rows("odd", 1..3).unwrap_err();
        let rows = Item::TensorRows { tensor: "odd".into(), rows: 1..3 };
        assert_eq!(split.item(), Some(&rows), "{split}");
    }
}

#[test]
fn elements_are_aligned_in_memory_even_if_not_in_the_file() {
    // One byte comes before them, so they begin at odd offsets in the file.
    let specs = vec![
        ("pad".to_owned(), "U8", vec![1], 1),
        ("f32".to_owned(), "F32", vec![3000], 12_000),
        ("f64".to_owned(), "F64", vec![2, 5], 80),
    ];
    let model = Model::new(specs);
    for engine in engines_for(&model.path()) {
        let weights = Weights::open(&engine, model.path()).unwrap();
        let (small, large) = (weights.read("f32").unwrap(), weights.read("f64").unwrap());
        let values = small.as_slice::<f32>().unwrap();
        assert_eq!(small.to_vec::<f32>().unwrap().len(), 3000);
        assert_eq!(bytemuck_bytes(values), bytes_of("f32", 12_000));
        assert_eq!(large.as_slice::<f64>().unwrap().len(), 10);
        let other = small.as_slice::<i32>().unwrap_err();
        assert!(matches!(other, Error::ElementType { .. }), "{other}");
    }
}

fn bytemuck_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn pool_memory_is_reused_within_its_limit() {
    let model = Model::of_bytes(12, 50_000);
    for engine in engines_for(&model.path()) {
        let weights = Weights::open(&engine, model.path()).unwrap();
        let limit_bytes = weights.pool_bytes();
        let pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() }).unwrap();
        for _ in 0..3 {
            let load = weights.load(LoadOptions::new().pool(&pool).window_bytes(100_000)).unwrap();
            let tensors: Vec<_> = load.map(Result::unwrap).collect();
            assert!(pool.stats().in_use_bytes <= limit_bytes);
            assert_eq!(tensors.len(), 12);
        }
        assert_eq!(pool.stats().fresh, 12, "{}: {:?}", engine.backend().kind(), pool.stats());
    }
}

/// A caller that holds all of a small pool gets an error, and can continue.
#[test]
fn an_exhausted_pool_is_an_error_until_memory_is_returned() {
    let model = Model::of_bytes(6, 50_000);
    let engine = Engine::builder().backend(BackendKind::Pread).build().unwrap();
    let weights = Weights::open(&engine, model.path()).unwrap();
    let options = PoolOptions { limit_bytes: 100_000, when_spent: WhenSpent::Fail };
    let pool = BufferPool::new(options).unwrap();
    let spent = weights.read_all_from(&pool).unwrap_err();
    assert!(matches!(spent, Error::MemorySpent { limit_bytes: 100_000, .. }), "{spent}");
    assert_eq!(pool.stats().in_use_bytes, 0);
    // One tensor at a time fits, with any window.
    for window_bytes in [0, 1, 1 << 30] {
        let options = LoadOptions::new().pool(&pool).window_bytes(window_bytes);
        // A load whose caller holds all memory fails in the end.
        assert_eq!(weights.load(options).unwrap().filter(|tensor| tensor.is_ok()).count(), 6);
    }
}

/// Buffers of one model fit the next of the same shape, even if its header has another length.
#[test]
fn a_pool_serves_models_with_headers_of_any_length() {
    let engine = Engine::new().unwrap();
    let models = [1, 40].map(|name_len| {
        let spec = |at: usize| (format!("{at:0name_len$}"), "U8", vec![1 << 20], 1 << 20);
        Model::new((0..5).map(spec).collect())
    });
    let open = |model: &Model| Weights::open(&engine, model.path()).unwrap();
    let [a, b] = [open(&models[0]), open(&models[1])];
    assert_eq!(a.pool_bytes(), b.pool_bytes());
    let limit_bytes = a.pool_bytes();
    let pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() }).unwrap();
    for weights in [&a, &b, &a] {
        assert_eq!(weights.read_all_from(&pool).unwrap().len(), 5);
    }
    assert_eq!(pool.stats().fresh, 5, "{:?}", pool.stats());
}

/// The shape is valid in the format, but no array view can have it.
#[test]
fn a_tensor_without_a_view_can_be_read() {
    let model = Model::new(vec![("long".to_owned(), "F32", vec![0, 1 << 40, 1 << 40], 0)]);
    let weights = Weights::open(&Engine::new().unwrap(), model.path()).unwrap();
    assert_eq!(weights.read("long").unwrap().bytes(), bytes_of("long", 0));
    let error = weights.view("long").unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    assert!(error.to_string().contains("tensor `long`"), "{error}");
}

/// A list of axes takes more memory than its text, so the header has a limit: that of NumPy.
#[test]
fn a_tensor_of_more_axes_than_numpy_has_is_refused() {
    let model = Model::new(vec![("axes".to_owned(), "U8", vec![1; 70], 1)]);
    let error = Weights::open(&Engine::new().unwrap(), model.path()).unwrap_err();
    assert!(matches!(error, Error::Format { .. }), "{error}");
    assert!(error.to_string().contains("tensor `axes`"), "{error}");
}

#[test]
fn rows_outside_the_tensor_are_an_error() {
    let specs = vec![
        ("w".to_owned(), "U8", vec![4, 2], 8),
        ("scalar".to_owned(), "F32", vec![], 4),
        ("empty".to_owned(), "F32", vec![0, 3], 0),
    ];
    let model = Model::new(specs);
    let weights = Weights::open(&Engine::new().unwrap(), model.path()).unwrap();
    #[allow(clippy::reversed_empty_ranges)] // on purpose
    for (name, rows) in [("w", 0..5), ("w", 3..1), ("w", 5..5), ("scalar", 0..1), ("empty", 0..1)] {
        let error = weights.read_rows(name, rows).unwrap_err();
        assert!(matches!(error, Error::NoSuchItem { .. }), "{error}");
    }
    assert_eq!(weights.read_rows("w", 4..4).unwrap().shape(), [0, 2]);
    assert!(weights.read_rows("empty", 0..0).unwrap().bytes().is_empty());
    assert_eq!(weights.read("scalar").unwrap().shape(), [0usize; 0]);
}

#[test]
fn a_wrong_name_or_size_is_an_error_with_a_suggestion() {
    let model = Model::of_bytes(3, 10);
    let weights = Weights::open(&Engine::new().unwrap(), model.path()).unwrap();
    let error = weights.read("Layer.1.weight").unwrap_err();
    assert_eq!(error.tensor(), Some("Layer.1.weight"));
    assert!(error.to_string().contains("did you mean `layer.1.weight`"), "{error}");
    let error = weights.read("layer.1.wieght").unwrap_err();
    assert!(error.to_string().contains("did you mean `layer.1.weight`"), "{error}");
    let error = weights.read("nothing.like.it").unwrap_err();
    assert!(!error.to_string().contains("did you mean"), "{error}");
    let error = weights.read_bytes_into("layer.0.weight", &mut [0; 9]).unwrap_err();
    assert!(matches!(error, Error::BufferSize { needed: 10, given: 9, .. }), "{error}");
    let error = weights.read_into("layer.0.weight", &mut [0u8; 11]).unwrap_err();
    assert!(matches!(error, Error::BufferSize { needed: 10, given: 11, .. }), "{error}");
    let wrong_types = [
        weights.read_into("layer.0.weight", &mut [0f32; 10]).unwrap_err(),
        weights.read("layer.0.weight").unwrap().to_vec::<f32>().unwrap_err(),
    ];
    for error in wrong_types {
        assert_eq!(error.tensor(), Some("layer.0.weight"));
        assert!(error.to_string().contains("`read_as`"), "no way out: {error}");
    }
    let converted = weights.view("layer.0.weight").unwrap().read_as::<f32>().unwrap();
    assert_eq!(converted.len(), 10);
}

/// Options could not be cloned, and the wait for memory could not be set.
#[test]
fn options_can_be_used_twice_and_have_a_patience() {
    let model = Model::of_bytes(2, 50_000);
    let weights = Weights::open(&Engine::new().unwrap(), model.path()).unwrap();
    let limit_bytes = weights.pool_bytes() / 2;
    let pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() }).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let options = LoadOptions::new().pool(&pool).patience(Duration::from_millis(20)).progress(
        move |_progress| {
            counted.fetch_add(1, Ordering::Relaxed);
        },
    );
    let started = Instant::now();
    for options in [options.clone(), options] {
        // The tensor that is kept holds all of the pool.
        let outcomes: Vec<_> = weights.load(options).unwrap().collect();
        assert!(matches!(outcomes[..], [Ok(_), Err(Error::MemorySpent { .. })]), "{outcomes:?}");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

/// Mapped tensors need no copy; backends that do not map return none.
#[test]
fn mapped_tensors_have_their_bytes() {
    let model = Model::of_bytes(3, 10_000);
    for engine in engines_for(&model.path()) {
        let weights = Weights::open(&engine, model.path()).unwrap();
        let mapped = weights.map("layer.2.weight").unwrap();
        let is_mmap = engine.backend().kind() == BackendKind::Mmap;
        assert_eq!(mapped.is_some(), is_mmap, "{}", engine.backend().kind());
        if let Some(range) = mapped {
            let mut bytes = vec![0; range.len()];
            assert!(range.copy_to(&mut bytes));
            assert_eq!(bytes, bytes_of("layer.2.weight", bytes.len()));
        }
        weights.prefetch("layer.1.weight").unwrap();
    }
}
