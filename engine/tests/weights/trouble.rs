//! Files that change while they are loaded, and devices that fail: an error, never wrong bytes.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringmain::Error;
use ringmain::backends::fault::Faults;
use ringmain::backends::{
    self, BackendOptions, FileChange, Read, ReadBackend, forward_to, open_backend,
};
use ringmain::weights::{LoadOptions, Weights};
use ringmain::{BackendKind, Engine};

use crate::model::{Model, bytes_of, file};
use crate::support::engines_for;

/// A change of the file.
type Mishap = (&'static str, fn(&Path) -> std::io::Result<()>);

const MISHAPS: [Mishap; 4] = [
    ("truncated", |path| File::options().write(true).open(path)?.set_len(40_000)),
    ("replaced", |path| {
        let other = path.with_extension("other");
        std::fs::copy(path, &other)?;
        std::fs::rename(other, path)
    }),
    ("written to", |path| {
        let mut file = File::options().write(true).open(path)?;
        file.seek(SeekFrom::Start(50_000))?;
        file.write_all(&[0x40; 1000])
    }),
    ("removed", |path| std::fs::remove_file(path)),
];

/// On Windows a file that is removed while it is open exists until it is closed.
fn may_go_unnoticed(name: &str) -> bool {
    cfg!(windows) && name == "removed"
}

#[test]
fn a_file_that_changes_after_it_was_opened_is_an_error() {
    for (name, happen) in MISHAPS {
        let kinds = engines_for(&Model::of_bytes(1, 1).path());
        for engine in kinds {
            // A copy in memory never changes.
            if engine.backend().kind() == BackendKind::Memory {
                continue;
            }
            let model = Model::of_bytes(20, 5000);
            model.make_old();
            let weights = Weights::open(&engine, model.path()).unwrap();
            let what = format!("{name} on {}", engine.backend().kind());
            let mut load = weights.load(LoadOptions::new().window_bytes(1)).unwrap();
            assert!(load.next().unwrap().is_ok(), "{what}");
            if let Err(error) = happen(&model.path()) {
                // Only Windows refuses to change a mapped file.
                assert_eq!(std::env::consts::OS, "windows", "{what}: {error}");
                continue;
            }
            if may_go_unnoticed(name) {
                continue;
            }
            let is_it = |error: Error| {
                let fits =
                    matches!(&error, Error::Changed { change, .. } if change.to_string() == name);
                assert!(fits, "{what}: {error:?}");
                assert_eq!(error.path(), Some(&*model.path()), "{what}");
            };
            is_it(weights.read_all().unwrap_err());
            is_it(weights.read("layer.3.weight").unwrap_err());
            is_it(weights.read_rows("layer.3.weight", 1..2).unwrap_err());
            is_it(weights.view("layer.3.weight").unwrap_err());
            let mut bytes = vec![0; weights.info("layer.0.weight").unwrap().nbytes()];
            is_it(weights.read_bytes_into("layer.0.weight", &mut bytes).unwrap_err());
            // Some tensors may have been read ahead before; then the error comes, and then nothing.
            is_it(load.by_ref().find_map(Result::err).unwrap());
            assert!(load.next().is_none(), "{what}");
        }
    }
}

fn faulty(kind: BackendKind, faults: Faults) -> (Option<Engine>, Arc<Faults>) {
    let faults = Arc::new(faults);
    (faults.below(|| Engine::builder().backend(kind).build().ok()), faults)
}

#[test]
fn short_and_interrupted_reads_change_nothing() {
    let model = Model::of_bytes(20, 30_000);
    for engine in engines_for(&model.path()) {
        let kind = engine.backend().kind();
        let faults =
            Faults { seed: 7, short_permille: 300, interrupt_permille: 100, ..Faults::default() };
        let (engine, faults) = faulty(kind, faults);
        let weights = Weights::open(&engine.unwrap(), model.path()).unwrap();
        for tensor in weights.load(LoadOptions::new().window_bytes(100_000)).unwrap() {
            let tensor = tensor.unwrap();
            assert_eq!(tensor.bytes(), bytes_of(tensor.name(), tensor.bytes().len()), "{kind}");
        }
        let injected = faults.injected.load(std::sync::atomic::Ordering::Relaxed);
        let sees_none = matches!(kind, BackendKind::Memory | BackendKind::Mmap);
        assert!(injected > 0 || sees_none, "{kind} met no fault");
    }
}

#[test]
fn a_device_error_names_the_tensor_and_the_others_are_loaded() {
    let model = Model::of_bytes(20, 30_000);
    let start =
        file(&model.specs).len() as u64 - model.specs.iter().map(|s| s.3 as u64).sum::<u64>();
    let before: u64 = model.specs[..10].iter().map(|spec| spec.3 as u64).sum();
    let at = start + before + 5000;
    for engine in engines_for(&model.path()) {
        let kind = engine.backend().kind();
        if kind == BackendKind::Memory {
            continue;
        }
        // One at a time, and all together: then the others are read again, one by one.
        for window_bytes in [0, 1, 1 << 30] {
            let eio_range = Some(at..at + 1);
            let (engine, _) = faulty(kind, Faults { eio_range, ..Faults::default() });
            let weights = Weights::open(&engine.unwrap(), model.path()).unwrap();
            let mut load = weights.load(LoadOptions::new().window_bytes(window_bytes)).unwrap();
            for (number, tensor) in load.by_ref().take(10).enumerate() {
                let tensor = tensor.unwrap();
                assert_eq!(tensor.name(), format!("layer.{number}.weight"), "{kind}");
                let expected = bytes_of(tensor.name(), tensor.bytes().len());
                assert_eq!(tensor.bytes(), expected, "{kind}");
            }
            let error = load.next().unwrap().unwrap_err();
            assert_eq!(error.tensor(), Some("layer.10.weight"), "{kind}: {error}");
            assert!(error.to_string().contains("layer.10.weight"), "{kind}: {error}");
            assert!(load.next().is_none());
            // A caller can continue with the rest.
            let rest = weights.tensors().map(|info| info.name().to_owned()).skip(11);
            let rest = weights.load(LoadOptions::new().only(rest)).unwrap();
            assert_eq!(rest.map(Result::unwrap).count(), 9, "{kind}");
        }
    }
}

#[test]
fn a_load_may_be_dropped_at_any_point() {
    let model = Model::of_bytes(50, 30_000);
    let faults = Faults { delay: Duration::from_millis(2), ..Faults::default() };
    let (engine, _) = faulty(BackendKind::Pread, faults);
    let engine = engine.unwrap();
    let weights = Weights::open(&engine, model.path()).unwrap();
    for taken in [0, 1, 3] {
        let load = weights.load(LoadOptions::new().window_bytes(100_000)).unwrap();
        assert_eq!(load.take(taken).map(Result::unwrap).count(), taken);
    }
    assert_eq!(weights.read("layer.0.weight").unwrap().bytes().len(), 30_000);
}

#[test]
fn many_threads_load_at_once() {
    let model = Model::of_bytes(30, 20_000);
    for engine in engines_for(&model.path()) {
        let weights = Weights::open(&engine, model.path()).unwrap();
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let weights = &weights;
                scope.spawn(move || {
                    let names: Vec<_> = (0..15)
                        .map(|at| format!("layer.{}.weight", (at * 7 + seed) % 30))
                        .collect();
                    for tensor in weights.read_many(&names).unwrap() {
                        let expected = bytes_of(tensor.name(), tensor.bytes().len());
                        assert_eq!(tensor.bytes(), expected);
                    }
                });
            }
        });
    }
}

/// A backend that writes to each file right after it was read for the first time.
#[derive(Debug)]
struct Overwriting {
    inner: Arc<dyn ReadBackend>,
    is_done: AtomicBool,
}

impl ReadBackend for Overwriting {
    forward_to!(inner: kind, open, len, version);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> backends::Result<()> {
        self.inner.read_batch(reads)?;
        if !self.is_done.swap(true, Ordering::SeqCst) {
            let file = File::options().append(true).open(reads[0].file().path());
            file.and_then(|mut file| file.write_all(b" ")).unwrap();
        }
        Ok(())
    }
}

/// The index of a model was not checked after it was read, unlike every other file: an index that
/// another process was writing could be taken for a whole one.
#[test]
fn an_index_that_changes_while_it_is_read_is_an_error() {
    let dir = crate::support::temp_dir();
    let path = dir.path().join("model.safetensors.index.json");
    std::fs::write(&path, r#"{"weight_map":{"a":"a.safetensors"}}"#).unwrap();
    let inner = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
    let backend = Arc::new(Overwriting { inner, is_done: AtomicBool::new(false) });
    let engine = Engine::builder().with_backend(backend).build().unwrap();
    let error = Weights::open(&engine, &path).unwrap_err();
    assert!(matches!(error, Error::Changed { change: FileChange::Written, .. }), "{error:?}");
    assert_eq!(error.path(), Some(&*path));
}
