//! Files that grow, shrink or are replaced while they are open.

use crate::conformance::arena::{Want, check_batch, try_batch};
use crate::conformance::rig::{Rig, assert_past_end, open};

pub(in crate::conformance) fn file_that_grew(rig: &Rig<'_>) {
    let backend = rig.backend();
    // Grown without a read before, and with one: then a mapping of the old length exists.
    for read_before in [false, true] {
        let mut data = rig.file(&format!("grows-{read_before}"), 100);
        let file = open(&*backend, &data);
        for len in [101, 513, 4095, 4096, 4097, 70_000, 3 << 20] {
            let old_len = data.len();
            if read_before {
                let whole = usize::try_from(old_len).unwrap();
                check_batch(&*backend, &[Want::new(&file, &data, 0, whole)]);
                let beyond = Want::new(&file, &data, old_len, 1);
                assert_past_end(&try_batch(&*backend, &[beyond]).unwrap_err(), &beyond, 0);
            }
            data = data.grown_to(len);
            let added = usize::try_from(len - old_len).unwrap();
            check_batch(&*backend, &[Want::new(&file, &data, old_len, added)]);
            check_batch(&*backend, &[Want::new(&file, &data, old_len - 50, added + 50)]);
            check_batch(&*backend, &[Want::new(&file, &data, len - 1, 1).placed(0)]);
            let beyond = Want::new(&file, &data, len - 1, 2);
            assert_past_end(&try_batch(&*backend, &[beyond]).unwrap_err(), &beyond, 0);
        }
    }
    let empty = rig.file("empty", 0);
    let file = open(&*backend, &empty);
    check_batch(&*backend, &[Want::new(&file, &empty, 0, 0)]);
    let data = empty.grown_to(5000);
    check_batch(&*backend, &[Want::new(&file, &data, 0, 5000)]);
}

pub(in crate::conformance) fn length_follows_the_file(rig: &Rig<'_>) {
    let (backend, mut data) = (rig.backend(), rig.file("data", 1000));
    let file = open(&*backend, &data);
    for len in [1000, 1001, 4096, 1 << 20] {
        data = data.grown_to(len);
        assert_eq!(backend.len(&file).unwrap(), len);
        check_batch(&*backend, &[Want::new(&file, &data, len - 1, 1)]);
    }
    #[cfg(unix)]
    for len in [4097, 10, 0] {
        data = data.truncated_to(len);
        assert_eq!(backend.len(&file).unwrap(), len);
    }
}

#[cfg(unix)]
pub(in crate::conformance) use unix::*;

#[cfg(unix)]
mod unix {
    use std::fs::OpenOptions;
    use std::io::ErrorKind;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::conformance::data::DataFile;
    use crate::conformance::process;
    use crate::conformance::rig::Dice;
    use crate::{BackendOptions, Error, FileHandle, ReadBackend, ReadBackendExt};

    /// Puts another file, of the same length and with other bytes, under the path.
    fn replace(rig: &Rig<'_>, data: &DataFile) -> DataFile {
        let other = rig.file("other", data.len());
        std::fs::rename(other.path(), data.path()).unwrap();
        other
    }

    /// The bytes that the file had when the handle was opened, or an error that names the place.
    #[track_caller]
    fn check_old_bytes_or_error(backend: &dyn ReadBackend, file: &FileHandle, data: &DataFile) {
        for (offset, len) in [(0, 1000), (4321, 999)] {
            let want = Want::new(file, data, offset, len);
            if let Err(error) = try_batch(backend, &[want]) {
                assert!(matches!(error, Error::Replaced { .. } | Error::Read { .. }), "{error:?}");
                assert_eq!(error.path(), Some(file.path()), "{error}");
                assert_eq!(error.offset(), Some(offset), "{error}");
            }
        }
    }

    /// One slot for files, so that opening another closes the first.
    fn evicting_backend(rig: &Rig<'_>) -> (std::sync::Arc<dyn ReadBackend>, DataFile) {
        let options = BackendOptions { open_files_max: 1, ..BackendOptions::default() };
        (rig.backend_with(&options), rig.file("evictor", 1000))
    }

    #[track_caller]
    fn evict(backend: &dyn ReadBackend, evictor: &DataFile) {
        let file = open(backend, evictor);
        check_batch(backend, &[Want::new(&file, evictor, 0, 1000)]);
    }

    /// The bytes under the path now.
    #[track_caller]
    fn check_new(backend: &dyn ReadBackend, path: &Path, new: &DataFile) {
        let file = backend.open(path).unwrap();
        let bytes = backend.read_to_vec(&file, 7, 5000).unwrap();
        assert!(bytes == new.bytes(7, 5000), "the file under the path now is the new one");
    }

    pub(in crate::conformance) fn file_replaced(rig: &Rig<'_>) {
        for is_evicted in [false, true] {
            let (backend, evictor) = evicting_backend(rig);
            let old = rig.file(&format!("data-{is_evicted}"), 10_000);
            let old_file = open(&*backend, &old);
            check_batch(&*backend, &[Want::new(&old_file, &old, 0, 10_000)]);
            if is_evicted {
                evict(&*backend, &evictor);
            }
            let new = replace(rig, &old);
            check_old_bytes_or_error(&*backend, &old_file, &old);
            check_new(&*backend, old.path(), &new);
            check_old_bytes_or_error(&*backend, &old_file, &old);
            check_new(&*backend, old.path(), &new);
            // A directory is not the file either.
            std::fs::remove_file(old.path()).unwrap();
            std::fs::create_dir(old.path()).unwrap();
            evict(&*backend, &evictor);
            check_old_bytes_or_error(&*backend, &old_file, &old);
        }
    }

    /// A filesystem may give the number of a deleted inode to the next file, and two files made
    /// within one tick of the kernel's clock (4 ms) share their time of birth.
    pub(in crate::conformance) fn file_made_again(rig: &Rig<'_>) {
        let (backend, evictor) = evicting_backend(rig);
        let path = rig.dir().join("data");
        let (old_bytes, new_bytes) = (vec![1; 5000], vec![2; 5000]);
        for round in 0..100 {
            std::fs::write(&path, &old_bytes).unwrap();
            let old_file = backend.open(&path).unwrap();
            open(&*backend, &evictor);
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, &new_bytes).unwrap();
            match backend.read_to_vec(&old_file, 77, 4000) {
                Ok(bytes) => assert!(bytes == old_bytes[77..4077], "round {round}: other bytes"),
                Err(error) => assert_eq!(error.offset(), Some(77), "{error:?}"),
            }
            let new_file = backend.open(&path).unwrap();
            assert!(backend.read_to_vec(&new_file, 0, 5000).unwrap() == new_bytes);
            std::fs::remove_file(&path).unwrap();
        }
    }

    pub(in crate::conformance) fn file_deleted(rig: &Rig<'_>) {
        let (backend, evictor) = evicting_backend(rig);
        let data = rig.file("data", 10_000);
        let file = open(&*backend, &data);
        std::fs::remove_file(data.path()).unwrap();
        check_old_bytes_or_error(&*backend, &file, &data);
        let error = backend.open(data.path()).unwrap_err();
        assert!(matches!(error, Error::Open { .. }), "{error:?}");
        evict(&*backend, &evictor);
        check_old_bytes_or_error(&*backend, &file, &data);
    }

    /// A relative path means the file that it led to when it was opened, also for a file that was
    /// closed to make room and for a forked child.
    pub(in crate::conformance) fn working_directory_changed(rig: &Rig<'_>) {
        rig.in_child(|rig| {
            let (backend, evictor) = evicting_backend(rig);
            let data = rig.file("data", 10_000);
            let other_dir = rig.dir().join("other");
            std::fs::create_dir(&other_dir).unwrap();
            DataFile::create(other_dir.join("data"), 20_000);
            std::env::set_current_dir(rig.dir()).unwrap();
            let file = backend.open(Path::new("data")).unwrap();
            let check = |dir: &Path| {
                std::env::set_current_dir(dir).unwrap();
                evict(&*backend, &evictor);
                check_batch(&*backend, &[Want::new(&file, &data, 0, 10_000)]);
                assert_eq!(backend.len(&file).unwrap(), 10_000);
                backend.version(&file).unwrap();
            };
            process::fork(|| check(&other_dir)).join();
            check(&other_dir);
            check(Path::new("/"));
        });
    }

    /// In a child, because a mapping answers a lost page with a signal.
    pub(in crate::conformance) fn truncated_file(rig: &Rig<'_>) {
        rig.in_child(|rig| {
            let backend = rig.backend();
            // A part of the last page lost, pages lost, everything lost.
            for new_len in [40_999, 40_961, 40_960, 40_001, 20_000, 8192, 8191, 1, 0] {
                for read_before in [false, true] {
                    let full = rig.file(&format!("{new_len}-{read_before}"), 41_000);
                    check_truncation(&*backend, &full, new_len, read_before);
                }
            }
        });
    }

    fn check_truncation(
        backend: &dyn ReadBackend,
        full: &DataFile,
        new_len: u64,
        read_before: bool,
    ) {
        let file = open(backend, full);
        if read_before {
            check_batch(backend, &[Want::new(&file, full, 0, 41_000)]);
        }
        let data = full.truncated_to(new_len);
        for want in [Want::new(&file, &data, 0, 41_000), Want::new(&file, &data, new_len, 1)] {
            assert_past_end(&try_batch(backend, &[want]).unwrap_err(), &want, 0);
        }
        let left = usize::try_from(new_len).unwrap();
        check_batch(backend, &[Want::new(&file, &data, 0, left)]);
        // The part that was cut off comes back with the bytes that are written.
        let grown = data.grown_to(50_000);
        check_batch(backend, &[Want::new(&file, &grown, 0, 50_000)]);
    }

    /// The file loses its end at some moment of a long read, and never gets it back.
    pub(in crate::conformance) fn truncated_while_being_read(rig: &Rig<'_>) {
        const LEN: u64 = 1 << 20;
        rig.in_child(|rig| {
            let (backend, data) = (rig.backend(), rig.file("data", LEN));
            let old_bytes = data.bytes(0, 1 << 20);
            let mut dice = Dice::new(6);
            let started = Instant::now();
            // Slow filesystems get fewer rounds: what matters is that the moments differ.
            for round in 0..100 {
                if started.elapsed() > Duration::from_secs(2) && round > 10 {
                    break;
                }
                let inside_last_page = round % 3 == 0;
                let loss = 1 + dice.below(if inside_last_page { 4095 } else { LEN });
                let file = open(&*backend, &data);
                cut_while_reading(&*backend, &file, &data, &old_bytes, loss, &mut dice);
                // Another file every time: one that was cut and grew again is another case.
                std::fs::remove_file(data.path()).unwrap();
                std::fs::write(data.path(), &old_bytes).unwrap();
            }
        });
    }

    /// Reads until the cut shows. It comes before, during or after the second read.
    fn cut_while_reading(
        backend: &dyn ReadBackend,
        file: &FileHandle,
        data: &DataFile,
        old_bytes: &[u8],
        loss: u64,
        dice: &mut Dice,
    ) {
        let mut bytes = vec![0; old_bytes.len()];
        let first = Instant::now();
        backend.read_exact_at(file, 0, &mut bytes).unwrap();
        let delay = first.elapsed().mul_f64(dice.below(2000) as f64 / 1000.0);
        std::thread::scope(|scope| {
            let cut = scope.spawn(move || {
                let start = Instant::now();
                while start.elapsed() < delay {}
                data.truncated_to(data.len() - loss);
            });
            loop {
                // Asked before the read: one that begins after the cut must fail.
                let was_cut = cut.is_finished();
                bytes.fill(0xEE);
                match backend.read_exact_at(file, 0, &mut bytes) {
                    Ok(()) if was_cut => panic!("a read after the truncation succeeded"),
                    Ok(()) => check_cut(&bytes, old_bytes, loss, !backend.capabilities().zero_copy),
                    Err(Error::PastEnd { offset: 0, .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }

    /// Panics unless a read that succeeded while the end was cut off has the file's bytes.
    ///
    /// A buffered read of ext4 takes no lock against truncation, so the kernel itself may copy
    /// the zeros it has just put after the new end (`lenient`). A mapping shows them always, so
    /// there the backend must look again after the copy.
    fn check_cut(bytes: &[u8], old_bytes: &[u8], loss: u64, lenient: bool) {
        if bytes == old_bytes {
            return;
        }
        let kept = old_bytes.len() - usize::try_from(loss).unwrap();
        assert!(bytes[..kept] == old_bytes[..kept], "bytes that the file never lost are wrong");
        for (got, old) in bytes[kept..].iter().zip(&old_bytes[kept..]) {
            assert!(got == old || (lenient && *got == 0), "{got:#04x} was never in the file");
        }
    }

    /// The end comes and goes, many times for each read and between the parts of one.
    pub(in crate::conformance) fn truncated_and_regrown_while_being_read(rig: &Rig<'_>) {
        const LEN: u64 = 300_000;
        rig.in_child(|rig| {
            let (backend, data) = (rig.backend(), rig.file("data", LEN));
            let file = open(&*backend, &data);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let disk = OpenOptions::new().write(true).open(data.path()).unwrap();
                    let mut dice = Dice::new(7);
                    while !stop.load(Ordering::Relaxed) {
                        disk.set_len(dice.below(LEN)).unwrap();
                        std::thread::sleep(Duration::from_micros(dice.below(100)));
                        disk.set_len(LEN).unwrap();
                        std::thread::sleep(Duration::from_micros(dice.below(300)));
                    }
                });
                let readers = [1, 2, 3].map(|seed| {
                    let (backend, file, path) = (&backend, &file, data.path());
                    scope.spawn(move || read_what_comes(&**backend, file, path, seed))
                });
                let outcomes = readers.map(|reader| reader.join());
                // The readers must end before the assertion: a panic here would wait for them
                // forever.
                stop.store(true, Ordering::Relaxed);
                for outcome in outcomes {
                    outcome.expect("a reader");
                }
            });
            // A last check, now that the file no longer changes.
            let data = data.truncated_to(0).grown_to(LEN);
            check_batch(&*backend, &[Want::new(&file, &data, 0, 300_000)]);
        });
    }

    fn read_what_comes(backend: &dyn ReadBackend, file: &FileHandle, path: &Path, seed: u64) {
        let mut dice = Dice::new(seed);
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(400) {
            let (offset, len) = dice.range(300_000, 300_000);
            let Err(error) = backend.read_to_vec(file, offset, len) else { continue };
            assert_eq!((error.path(), error.offset()), (Some(path), Some(offset)), "{error}");
            match error {
                Error::PastEnd { .. } => {}
                // It had grown again when the backend asked for its length.
                Error::Read { source, .. } if source.kind() == ErrorKind::UnexpectedEof => {}
                error => panic!("{error}"),
            }
        }
    }
}
