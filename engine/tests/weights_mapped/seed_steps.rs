//! Ten steps that verify mapped weights from end to end.

use std::sync::Arc;
use std::thread;

use ringmain::Engine;
use ringmain::Error;
use ringmain::weights::{
    GdsProbe, MappedWeights, Prefer, SourceKind, WeightCache, WeightSource, probe_gds,
};
use safetensors::SafeTensors;
use sha2::{Digest, Sha256};

use crate::{promise, support, vector, write_file};

const MIXED: &str = "mixed.safetensors";

#[test]
fn seed_step_01_open_maps_a_safetensors_file() {
    let weights = MappedWeights::open(vector(MIXED), promise()).unwrap();
    assert_eq!(weights.nbytes() as u64, vector(MIXED).metadata().unwrap().len());
    assert_eq!(weights.path(), std::path::absolute(vector(MIXED)).unwrap());
    assert_eq!(weights.label(), MIXED);
    assert!(weights.unmet().is_empty() && !weights.is_locked());
    assert_eq!(weights.with_label("the test model").label(), "the test model");
}

#[test]
fn seed_step_02_as_bytes_is_the_contents_of_the_file() {
    let weights = MappedWeights::open(vector(MIXED), promise()).unwrap();
    assert_eq!(weights.as_bytes(), std::fs::read(vector(MIXED)).unwrap());
}

#[test]
fn seed_step_03_slice_returns_the_bytes_asked_for() {
    let (weights, bytes) = mixed();
    for (offset, len) in [(0, 1), (8, 100), (4095, 2), (bytes.len() - 1, 1), (bytes.len(), 0)] {
        assert_eq!(weights.slice(offset, len).unwrap(), &bytes[offset..offset + len]);
    }
}

#[test]
fn seed_step_04_slice_outside_the_file_is_an_error() {
    let (weights, bytes) = mixed();
    let size = bytes.len();
    let outside = [(size, 1), (0, size + 1), (size + 1, 0), (1, usize::MAX), (usize::MAX, 1)];
    for (offset, len) in outside.into_iter().chain([(usize::MAX, usize::MAX)]) {
        let error = weights.slice(offset, len).unwrap_err();
        let Error::OutsideFile { offset: told, file_len, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*told, *file_len), (offset as u64, size as u64));
        assert!(error.to_string().contains(MIXED), "{error}");
    }
}

#[test]
fn seed_step_05_many_threads_read_one_mapping() {
    let (weights, bytes) = mixed();
    thread::scope(|scope| {
        for first in 0..8 {
            let (weights, bytes) = (&weights, &bytes);
            scope.spawn(move || {
                for offset in (first..bytes.len() - 16).step_by(7) {
                    assert_eq!(weights.slice(offset, 16).unwrap(), &bytes[offset..offset + 16]);
                }
            });
        }
    });
}

#[test]
fn seed_step_06_drop_unmaps_the_file() {
    let dir = support::temp_dir();
    let path = dir.path().join("dropped.safetensors");
    for _ in 0..100 {
        write_file(&path, 10_000);
        let weights = MappedWeights::open(&path, promise()).unwrap();
        weights.populate().unwrap();
        #[cfg(target_os = "linux")]
        assert_eq!(crate::system::uses_of(&path), 2, "a mapping and a descriptor");
        drop(weights);
        #[cfg(target_os = "linux")]
        assert_eq!(crate::system::uses_of(&path), 0);
        // Windows does not shorten a mapped file.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1).unwrap();
    }
}

#[test]
fn seed_step_07_source_takes_gds_where_there_is_some_and_mmap_otherwise() {
    let source = WeightSource::open(vector(MIXED), Prefer::Gds(promise())).unwrap();
    // It fills memory of a GPU, not of the host, so it is reported and passed over.
    assert_eq!(source.passed_over()[0].what, "gds");
    let reason = &source.passed_over()[0].reason;
    match probe_gds() {
        GdsProbe::Available { .. } => {
            assert!(reason.contains("`Gds` reads into a GPU"), "{reason}")
        }
        missing => assert_eq!(*reason, missing.to_string()),
    }
    assert_eq!((source.kind(), source.source_type()), (SourceKind::Mmap, "mmap"));
    assert!(!source.is_gds());
    assert!(source.to_string().contains("by mmap; not by gds: "), "{source}");
    let (_, bytes) = mixed();
    assert_eq!(&*source.get_tensor_bytes(100, 200).unwrap(), &bytes[100..300]);

    let source = WeightSource::open(vector(MIXED), Prefer::Mmap(promise())).unwrap();
    assert!(source.passed_over().is_empty(), "{source}");
}

#[test]
fn seed_step_08_cache_evicts_old_entries_when_it_is_full() {
    let dir = support::temp_dir();
    let paths: Vec<_> = (0..5).map(|at| dir.path().join(format!("{at}.safetensors"))).collect();
    paths.iter().for_each(|path| drop(write_file(path, 1000)));
    let cache = WeightCache::new(3000, promise());
    for path in &paths {
        cache.get_or_open(path).unwrap();
        assert!(cache.stats().total_size <= 3000);
    }
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.total_size, stats.evictions), (3, 3000, 2));
    for (path, is_kept) in paths.iter().zip([false, false, true, true, true]).rev() {
        let misses = cache.stats().misses;
        cache.get_or_open(path).unwrap();
        assert_eq!(cache.stats().misses == misses, is_kept, "{}", path.display());
    }
}

#[test]
fn seed_step_09_safetensors_loads_tensors_from_a_mapping() {
    let weights = Arc::new(MappedWeights::open(vector(MIXED), promise()).unwrap());
    let tensors = SafeTensors::deserialize(weights.as_bytes()).unwrap();
    let tensor = tensors.tensor("a.f32").unwrap();
    assert_eq!((tensor.shape(), tensor.dtype()), (&[17, 33][..], safetensors::Dtype::F32));
    let sum = Sha256::digest(tensor.data()).into_iter().map(|byte| format!("{byte:02x}"));
    let expected = "1c8eb72699798a8321d4c2119e9ed3c585765028de42caca37dd82a70f68c57e";
    assert_eq!(sum.collect::<String>(), expected);

    // The crate and this library find the same tensors.
    assert_eq!(weights.tensors().unwrap().len(), tensors.len());
    for info in weights.tensors().unwrap() {
        let tensor = tensors.tensor(info.name()).unwrap();
        assert_eq!((info.dtype(), info.shape()), (tensor.dtype(), tensor.shape()));
        let ours = weights.tensor(info.name()).unwrap();
        assert_eq!((ours.as_ptr(), ours), (tensor.data().as_ptr(), tensor.data()));
    }
    let error = weights.tensor("none").unwrap_err();
    assert!(matches!(error, Error::NoSuchItem { .. }), "{error:?}");

    // Each tensor is a part of the mapping, and the same in every other way.
    let engine = Engine::new().unwrap();
    let sources = [
        WeightSource::from_mapped(Arc::clone(&weights)),
        WeightSource::open(vector(MIXED), Prefer::Buffer).unwrap(),
        WeightSource::open(vector(MIXED), Prefer::Backend(engine)).unwrap(),
    ];
    for (name, tensor) in tensors.tensors() {
        let offset = tensor.data().as_ptr().addr() - weights.as_bytes().as_ptr().addr();
        for source in &sources {
            source.prepare_tensor(offset, tensor.data().len()).unwrap();
            let bytes = source.get_tensor_bytes(offset, tensor.data().len()).unwrap();
            assert_eq!(*bytes, *tensor.data(), "{name} by {}", source.source_type());
        }
    }
}

/// Twelve models, with every page touched, in the memory of two.
#[cfg(target_os = "linux")]
#[test]
fn seed_step_10_memory_stays_bounded_during_loading() {
    use crate::system::{MODEL_BYTES, MODELS, loading_growth_bytes, write_models};
    const SLACK_BYTES: u64 = 8 << 20;
    let dir = support::temp_dir();
    write_models(dir.path());
    let limit = 2 * MODEL_BYTES + SLACK_BYTES;
    let growth = loading_growth_bytes(dir.path(), 2 * MODEL_BYTES);
    assert!(growth <= limit, "grew by {growth} bytes");
    // The kernel may evict some pages of the first models before the last one is loaded.
    let growth = loading_growth_bytes(dir.path(), MODELS * MODEL_BYTES);
    assert!(growth > limit, "the limit would not have caught {growth} bytes");
}

fn mixed() -> (MappedWeights, Vec<u8>) {
    let bytes = std::fs::read(vector(MIXED)).unwrap();
    (MappedWeights::open(vector(MIXED), promise()).unwrap(), bytes)
}
