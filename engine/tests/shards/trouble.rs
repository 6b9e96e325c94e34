//! Shards that change under a source, and devices that fail: an error, never wrong rows.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use ringmain::Error;
use ringmain::backends::FileChange;
use ringmain::backends::fault::Faults;
use ringmain::shards::{Order, RowType, ShardOptions, ShardSource};
use ringmain::{BackendKind, Engine};

use crate::corpus::{Corpus, check_rows, write_shard};
use crate::support::engines_for;

const WIDTH: usize = 125;
const ROWS: u64 = 240;
const ROW_BYTES: u64 = 500;

/// A change of the second shard, and a check of the error.
type Mishap = (&'static str, fn(&Path) -> std::io::Result<()>, fn(&Error) -> bool);

const MISHAPS: [Mishap; 6] = [
    ("truncated", |path| resize(path, 32 + ROW_BYTES * 120), is_truncated),
    ("truncated by a byte", |path| resize(path, 32 + ROW_BYTES * ROWS - 1), is_truncated),
    ("truncated to nothing", |path| resize(path, 0), is_truncated),
    ("replaced", replace, |error| {
        matches!(error, Error::Changed { change: FileChange::Replaced, .. })
    }),
    (
        "removed",
        |path| std::fs::remove_file(path),
        // The message said that bytes may be mixed, and to open the file that is gone.
        |error| {
            matches!(error, Error::Changed { change: FileChange::Removed, .. })
                && error.to_string().contains("put it back")
        },
    ),
    ("written to", overwrite, |error| {
        matches!(error, Error::Changed { change: FileChange::Written, .. })
    }),
];

fn resize(path: &Path, len: u64) -> std::io::Result<()> {
    File::options().write(true).open(path)?.set_len(len)
}

fn is_truncated(error: &Error) -> bool {
    matches!(error, Error::Truncated { .. })
}

/// Replaces the file by another of the same size and age.
fn replace(path: &Path) -> std::io::Result<()> {
    let other = path.with_extension("other");
    write_shard(&other, 0..ROWS, WIDTH);
    std::fs::rename(other, path)
}

/// Writes other values in the same place.
fn overwrite(path: &Path) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(32 + ROW_BYTES * 160))?;
    file.write_all(&[0x40; ROW_BYTES as usize * 40])
}

/// Checks rows until an error, which must come before the end; returns `None` if there is none.
fn read_to_error(source: &mut ShardSource) -> Option<Error> {
    loop {
        match source.next_batch() {
            Ok(Some(batch)) => check_rows(&batch),
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

/// On Windows a file that is removed while it is open exists until it is closed.
fn may_go_unnoticed(name: &str) -> bool {
    cfg!(windows) && name == "removed"
}

fn check_mishap(engine: &Engine, options: ShardOptions, (name, happen, fits): Mishap) {
    let corpus = Corpus::new(&[ROWS, ROWS], WIDTH);
    let mut source = options.open_dir(engine, corpus.path()).unwrap();
    let what = format!("{name} on {}: {source:?}", engine.backend().kind());
    if let Err(error) = happen(&corpus.paths[1]) {
        // Only Windows refuses to change a mapped file.
        return assert_eq!(std::env::consts::OS, "windows", "{what}: {error}");
    }
    for _ in 0..2 {
        let Some(error) = read_to_error(&mut source) else {
            return assert!(may_go_unnoticed(name), "{what}: all rows were delivered");
        };
        assert!(fits(&error) || may_go_unnoticed(name), "{what}: {error:?}");
        assert_eq!(error.path(), Some(&*corpus.paths[1]), "{what}");
    }
    assert!(source.by_ref().next().unwrap().is_err() && source.next().is_none(), "{what}");
}

#[test]
fn a_shard_that_changes_after_it_was_opened_is_an_error() {
    let probe = Corpus::new(&[1], 1);
    for engine in engines_for(&probe.paths[0]) {
        // The `memory` backend has copies of the original files.
        if engine.backend().kind() == BackendKind::Memory {
            continue;
        }
        for mishap in MISHAPS {
            for delivered in [RowType::F64, RowType::F32] {
                let options = ShardOptions::new().batch_size(100).row_type(delivered);
                check_mishap(&engine, options.clone(), mishap);
                let order = Order::Shuffled { seed: 1 };
                check_mishap(&engine, options.order(order).prefetch_window_bytes(0), mishap);
            }
        }
    }
}

/// Rows that were read before are right, and later ones are not delivered.
#[test]
fn a_shard_that_changes_in_the_middle_of_an_epoch_is_an_error() {
    for (name, happen, fits) in MISHAPS {
        let corpus = Corpus::new(&[ROWS, ROWS], WIDTH);
        let engine = Engine::new().unwrap();
        let options = ShardOptions::new().batch_size(50).prefetch_window_bytes(1);
        let mut source = options.open_dir(&engine, corpus.path()).unwrap();
        check_rows(&source.next_batch().unwrap().unwrap());
        if happen(&corpus.paths[1]).is_ok() {
            let error = read_to_error(&mut source);
            let fits = error.as_ref().is_some_and(fits);
            assert!(fits || may_go_unnoticed(name), "{name}: {error:?}");
        }
    }
}

/// A mapping shows zeros for bytes that its file has lost: no row may contain them.
#[test]
fn a_file_truncated_while_it_is_read_delivers_no_zeros() {
    let probe = Corpus::new(&[1], 1);
    for engine in engines_for(&probe.paths[0]) {
        let corpus = Corpus::new(&[4 * ROWS], WIDTH);
        let options = ShardOptions::new().batch_size(64).prefetch_window_bytes(1 << 20);
        let mut source = options.open_dir(&engine, corpus.path()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let _cut = resize(&corpus.paths[0], 32 + ROW_BYTES * ROWS + 777);
            });
            // To the end or to an error, but with right rows only.
            while let Ok(Some(batch)) = source.next_batch() {
                check_rows(&batch);
            }
        });
    }
}

#[test]
fn a_device_error_is_delivered_in_order_and_can_be_skipped() {
    let corpus = Corpus::new(&[600], WIDTH);
    for window_bytes in [0, 8 << 20] {
        let eio_range = Some(32 + ROW_BYTES * 350..32 + ROW_BYTES * 351);
        let faults = Arc::new(Faults { eio_range, ..Faults::default() });
        let engine = Engine::builder().backend(BackendKind::Pread);
        let engine = faults.below(|| engine.build().unwrap());
        let options = ShardOptions::new().batch_size(100).prefetch_window_bytes(window_bytes);
        let mut source = options.open_dir(&engine, corpus.path()).unwrap();
        let mut row_ids = Vec::new();
        for _ in 0..2 {
            let error = loop {
                match source.next_batch() {
                    Ok(batch) => row_ids.extend_from_slice(batch.unwrap().row_ids()),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Backend { .. }), "{error}");
            assert!(error.to_string().contains("part-000.shard"), "{error}");
        }
        assert!(row_ids.iter().copied().eq(0..300), "the batches before it, once");
        source.skip_batches(1);
        assert_eq!(source.next_batch().unwrap().unwrap().row_ids()[0], 400);
    }
}

/// Backends retry short reads and interruptions, so a source never sees them.
#[test]
fn short_and_interrupted_reads_do_not_show() {
    let corpus = Corpus::new(&[ROWS, 7, ROWS], WIDTH);
    for kind in BackendKind::ALL {
        let faults =
            Faults { seed: 3, short_permille: 300, interrupt_permille: 200, ..Faults::default() };
        let engine = Arc::new(faults).below(|| Engine::builder().backend(kind).build());
        let engine = engine.and_then(|engine| {
            engine.backend().open(&corpus.paths[0])?;
            Ok(engine)
        });
        let Some(engine) = crate::support::or_unavailable(kind, engine) else { continue };
        let order = Order::Shuffled { seed: 4 };
        let options = ShardOptions::new().batch_size(100).order(order);
        let mut source = options.open_dir(&engine, corpus.path()).unwrap();
        assert_eq!(crate::corpus::drain(&mut source).len() as u64, corpus.rows, "{kind}");
    }
}

/// After an error the iterator stayed at its end, even when batches could be read again.
#[test]
fn the_iterator_continues_after_a_successful_batch() {
    let corpus = Corpus::new(&[300], WIDTH);
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let options = ShardOptions::new().batch_size(100).prefetch_window_bytes(0);
    let options = options.memory_patience(std::time::Duration::ZERO);
    let mut source = options.open_dir(&engine, corpus.path()).unwrap();
    let mut held = Vec::new();
    while let Ok(buffer) = engine.pool().try_take(4096) {
        held.push(buffer);
    }
    assert!(matches!(source.next(), Some(Err(Error::MemorySpent { .. }))));
    assert!(source.next().is_none(), "a loop that ignores errors ends");
    drop(held);
    assert_eq!(source.next_batch().unwrap().unwrap().row_ids()[0], 0);
    assert_eq!(source.map(|batch| batch.unwrap().len()).sum::<usize>(), 200);
}

/// A source without a thread kept the memory of the batch that failed until its next read.
#[test]
fn a_failed_batch_returns_its_memory() {
    let probe = Corpus::new(&[1], 1);
    for engine in engines_for(&probe.paths[0]) {
        if engine.backend().kind() == BackendKind::Memory {
            continue; // a copy does not change
        }
        let corpus = Corpus::new(&[ROWS], WIDTH);
        let options = ShardOptions::new().prefetch_window_bytes(0);
        let mut source = options.open_dir(&engine, corpus.path()).unwrap();
        if resize(&corpus.paths[0], 100).is_err() {
            continue; // Windows does not truncate a mapped file
        }
        assert!(is_truncated(&source.next_batch().unwrap_err()));
        let stats = engine.pool().stats();
        assert_eq!(stats.in_use_bytes, 0, "{}: {stats:?}", engine.backend().kind());
    }
}
