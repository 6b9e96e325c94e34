//! Sends a file the other way (page cache or device) after reads on its first way have failed.

use std::io;

use super::AutoBackend;
use super::route::FileRoute;
use crate::stats::Count;
use crate::trace::event;
use crate::{BackendKind, Error, Lacking, Read};

impl AutoBackend {
    /// If the error says that the filesystem refuses direct reads, its files are read through the
    /// page cache from now on. Returns false for any other error. The other files of the batch on
    /// that filesystem move too, so that a batch over many files is not refused once for each.
    pub(super) fn stop_using_device(&self, error: &Error, reads: &[Read<'_>]) -> bool {
        let Error::Read { backend, index, source, .. } = error else { return false };
        let Some(refused) = reads.get(*index).map(Read::file) else { return false };
        if !error.is_refused_direct_read() {
            return false;
        }
        if self.route_of(refused).is_none() {
            return false;
        }
        let files = reads.iter().map(Read::file).filter(|file| file.volume() == refused.volume());
        let left = files.filter_map(|file| self.route_of(file)).filter(|it| it.stop_using_device());
        self.counters.add(Count::Fallbacks, left.count() as u64);
        let path = refused.path().display();
        let reason = format!("{path} is read with `pread`, because its reads fail: {source}");
        // Only the first one is kept.
        event!(warn, %path, error = %source, "direct reads are refused: reading with pread");
        let _kept = self.refusal.get().set(Lacking { what: backend.name(), reason });
        true
    }

    /// If the error says that a file cannot be opened for reads through the page cache, it is read
    /// from the device from now on. Returns false for any other error. A file that was deleted or
    /// replaced since `open` may still be open for the device.
    pub(super) fn stop_using_cache(&self, error: &Error, reads: &[Read<'_>]) -> bool {
        let lost = match error {
            Error::Replaced { backend: BackendKind::Pread, path, .. } => path,
            Error::Read { backend: BackendKind::Pread, path, source, .. } if is_lost(source) => {
                path
            }
            _ => return false,
        };
        let files = reads.iter().map(Read::file).filter(|file| file.path() == lost);
        let routes = || files.clone().filter_map(|file| self.route_of(file));
        // A handle that cannot leave the page cache, or the advised backend, would fail again, and again.
        if routes().any(FileRoute::is_cache_only) || routes().any(FileRoute::is_advised) {
            return false;
        }
        routes().filter(|route| route.stop_using_cache()).count() > 0
    }
}

/// Returns `true` if the error says that a file cannot be opened by its path any more.
fn is_lost(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Returns `true` if a file could not be opened for reads through the page cache because there are no
/// descriptors left. It may be open for the device.
pub(super) fn lacks_descriptors(error: &Error) -> bool {
    matches!(error, Error::Read { backend: BackendKind::Pread, .. })
        && error.is_out_of_descriptors()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::{Advice, AdvisedBackend, BackendOptions, FileHandle, ReadBackend, ReadBackendExt};

    /// One handle was opened without a descriptor for the device, and another of the same path with one.
    /// When the path was gone, the second was asked to leave the page cache, and the batch was repeated
    /// forever, because the first cannot leave it.
    #[test]
    fn a_lost_file_with_two_routes_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (lost, other) = (dir.path().join("lost"), dir.path().join("other"));
        std::fs::write(&lost, [1; 10_000]).unwrap();
        std::fs::write(&other, [2; 10_000]).unwrap();
        // One file open for the device, and one for the page cache.
        let options = BackendOptions { open_files_max: 2, ..BackendOptions::default() };
        let auto = AutoBackend::new(&options).unwrap();
        if auto.device.is_none() {
            return;
        }
        let first = auto.page_cache.open(&lost).unwrap();
        let first = first.with_reader(auto.owner, FileRoute::in_shortage());
        let second = auto.open(&lost).unwrap();
        let evicts = auto.page_cache.open(&other).unwrap();
        auto.page_cache.read_exact_at(&evicts, 0, &mut [0; 10]).unwrap();
        std::fs::remove_file(&lost).unwrap();
        expect_error(auto, first, second);
    }

    /// One handle was opened by the advised backend, and another through the same link after the link had been
    /// changed. When the first file had been closed to make room, the second handle was asked to leave the page cache
    /// again and again, and the batch was repeated forever.
    #[test]
    fn a_changed_link_to_a_file_of_the_advised_backend_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("advised")).unwrap();
        for name in ["advised/old", "advised/other", "new"] {
            std::fs::write(path(name), [1; 10_000]).unwrap();
        }
        let advised = AdvisedBackend {
            kind: BackendKind::Pread,
            options: Box::new(BackendOptions { open_files_max: 1, ..BackendOptions::default() }),
            measured_on: None,
            only_for: Some(path("advised")),
            reason: String::new(),
        };
        let advice = Some(Advice { path: path("profile"), backend: Ok(advised) });
        let auto =
            AutoBackend::new(&BackendOptions { advice, ..BackendOptions::default() }).unwrap();
        if auto.device.is_none() {
            return;
        }
        symlink(path("advised/old"), path("link")).unwrap();
        let first = auto.open(&path("link")).unwrap();
        symlink(path("new"), path("newer")).unwrap();
        std::fs::rename(path("newer"), path("link")).unwrap();
        let second = auto.open(&path("link")).unwrap();
        assert!(auto.route_of(&first).unwrap().is_advised());
        assert!(!auto.route_of(&second).unwrap().is_advised());
        auto.open(&path("advised/other")).unwrap();
        expect_error(auto, first, second);
    }

    /// Reads both files in one batch, and panics unless that ends with an error.
    fn expect_error(auto: AutoBackend, first: FileHandle, second: FileHandle) {
        let (ended, wait) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut a, mut b) = ([0; 10], [0; 10]);
            let mut reads = [Read::new(&first, 0, &mut a), Read::new(&second, 0, &mut b)];
            ended.send(auto.read_batch(&mut reads).is_err())
        });
        let is_error = wait.recv_timeout(Duration::from_secs(60));
        assert_eq!(is_error, Ok(true), "the batch ends, and with an error");
    }
}
