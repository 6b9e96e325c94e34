//! Devices that fail and files that change: an error in its place, and never wrong bytes.

use std::io::{Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use ringmain::backends::fault::Faults;
use ringmain::beton::{BetonReader, Damaged, MemoryManager, Order, SampleOptions};
use ringmain::{BackendKind, Engine, Error};

use crate::expected::{check_batch, vector};
use crate::made::{Made, PAGE, check};
use crate::support::{engines_for, or_unavailable};

/// Backends retry short reads and interruptions, so a source never sees them.
#[test]
fn short_and_interrupted_reads_do_not_show() {
    for kind in BackendKind::ALL {
        let faults =
            Faults { seed: 3, short_permille: 300, interrupt_permille: 200, ..Faults::default() };
        let engine = Arc::new(faults).below(|| Engine::builder().backend(kind).build());
        let engine = engine.and_then(|engine| {
            engine.backend().open(&vector())?;
            Ok(engine)
        });
        let Some(engine) = or_unavailable(kind, engine) else { continue };
        let reader = BetonReader::open(&engine, vector()).unwrap();
        for batch in SampleOptions::new().batch_size(100).open(&reader).unwrap() {
            check_batch(&batch.unwrap(), kind.name());
        }
    }
}

#[test]
fn a_device_error_is_delivered_in_order_and_can_be_skipped() {
    let made = Made::new(200, 4);
    let file = made.file();
    let ptr = made.table.iter().find(|row| row.sample == 101).unwrap().ptr;
    for window_bytes in [0, 8 << 20] {
        let faults = Faults { eio_range: Some(ptr..ptr + 1), ..Faults::default() };
        let engine = Engine::builder().backend(BackendKind::Pread);
        let engine = Arc::new(faults).below(|| engine.build().unwrap());
        let reader = BetonReader::open(&engine, &file.path).unwrap();
        let options = SampleOptions::new().batch_size(50).prefetch_window_bytes(window_bytes);
        let mut source = options.damaged(Damaged::LeaveOut).open(&reader).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let error = loop {
                match source.next_batch() {
                    Ok(batch) => seen.extend_from_slice(batch.unwrap().ids()),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Backend { .. }), "{error}");
            assert!(error.to_string().contains("made.beton"), "{error}");
            assert_eq!(error.sample(), Some(101), "{error}");
            assert!(error.to_string().contains("sample 101, field `array`"), "{error}");
        }
        assert!(seen.iter().copied().eq(0..100), "the batches before it, once");
        source.skip_batches(1);
        assert_eq!(source.next_batch().unwrap().unwrap().ids()[0], 150);
        assert!(reader.read_sample(101).is_err() && reader.read_sample(102).is_ok());
    }
}

/// A page that cannot be read fails the batches that need it, not those during which it is read
/// ahead.
#[test]
fn a_device_error_fails_only_the_batches_of_its_page() {
    let made = Made::new(200, 4);
    let file = made.file();
    let first = made.table[0].ptr;
    let bad = made.table.iter().find(|row| row.ptr / PAGE > first / PAGE).unwrap().ptr;
    let is_bad = |id: u64| {
        let row = made.table.iter().find(|row| row.sample == id).unwrap();
        row.ptr / PAGE == bad / PAGE
    };
    for window_bytes in [0, 8 << 20] {
        let faults = Faults { eio_range: Some(bad..bad + 1), ..Faults::default() };
        let engine = Engine::builder().backend(BackendKind::Pread);
        let engine = Arc::new(faults).below(|| engine.build().unwrap());
        let reader = BetonReader::open(&engine, &file.path).unwrap();
        let cache = MemoryManager::ProcessCache { pages: 4.try_into().unwrap() };
        let quasi = Order::PageShuffled { seed: 3, open_pages: 1.try_into().unwrap() };
        let options = SampleOptions::new().memory_manager(cache).order(quasi).batch_size(10);
        let mut source = options.prefetch_window_bytes(window_bytes).open(&reader).unwrap();
        let (mut seen, mut failed) = (0, 0);
        while source.remaining_items() > 0 {
            match source.next_batch() {
                Ok(batch) => {
                    let batch = batch.unwrap();
                    check(&batch, "a page that can be read");
                    seen += batch.len();
                }
                Err(error) => {
                    assert!(matches!(error, Error::Backend { .. }), "{error}");
                    let id = error.sample().unwrap();
                    assert!(is_bad(id) && source.next_ids().contains(&id), "{error}");
                    failed += source.next_ids().len();
                    source.skip_batches(1);
                }
            }
        }
        assert_eq!((seen, failed), (150, 50));
    }
}

/// A change of the file.
type Mishap = (&'static str, fn(&Path) -> std::io::Result<()>);

const MISHAPS: [Mishap; 4] = [
    ("truncated", |path| {
        let file = std::fs::File::options().write(true).open(path)?;
        file.set_len(file.metadata()?.len() - 2 * PAGE)
    }),
    ("written to", |path| {
        let mut file = std::fs::File::options().write(true).open(path)?;
        file.seek(SeekFrom::Start(PAGE))?;
        file.write_all(&[7; 100])
    }),
    ("replaced", |path| {
        std::fs::copy(path, path.with_extension("other"))?;
        std::fs::rename(path.with_extension("other"), path)
    }),
    ("removed", |path| std::fs::remove_file(path)),
];

/// Sets an old time of writing: two writes within one tick of the filesystem's clock look the same.
fn make_old(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
        .unwrap();
}

/// A file that changes after it was opened is an error, never zeros or bytes of two versions.
#[test]
fn a_file_that_changes_under_a_reader_is_an_error() {
    let made = Made::new(100, 2);
    let probe = made.file();
    for (name, happen) in MISHAPS {
        for engine in engines_for(&probe.path) {
            // The `memory` backend has a copy. On Windows an open file exists until it is closed.
            if engine.backend().kind() == BackendKind::Memory
                || (cfg!(windows) && name == "removed")
            {
                continue;
            }
            let what = format!("{name} on {}", engine.backend().kind());
            let file = made.file();
            make_old(&file.path);
            let reader = BetonReader::open(&engine, &file.path).unwrap();
            let memory_manager = MemoryManager::ProcessCache { pages: NonZeroUsize::MIN };
            let paged = SampleOptions::new().memory_manager(memory_manager).open(&reader);
            if let Err(error) = happen(&file.path) {
                // Only Windows refuses to change a mapped file.
                assert_eq!(std::env::consts::OS, "windows", "{what}: {error}");
                continue;
            }
            let errors = [
                reader.read_sample(3).unwrap_err(),
                reader.read_batch(&[99, 0]).unwrap_err(),
                paged.unwrap().next_batch().unwrap_err(),
            ];
            for error in errors {
                let fits =
                    matches!(&error, Error::Changed { change, .. } if change.to_string() == name);
                assert!(fits, "{what}: {error:?}");
            }
            if let Ok(mapped) = reader.map_samples(&[0]) {
                assert!(mapped.is_none(), "{what}");
            }
        }
    }
}
