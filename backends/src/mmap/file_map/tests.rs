use super::*;
#[cfg(target_os = "linux")]
use crate::mmap::cold;

fn promise() -> Unchanging {
    // SAFETY: no slice is held while a test changes its file.
    unsafe { Unchanging::promise() }
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights.bin");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

#[test]
fn both_ways_to_populate_bring_every_page_in() {
    let bytes: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    let (_dir, path) = file(&bytes);
    let map = FileMap::open(&path, promise()).unwrap();
    map.populate(5..usize::MAX).unwrap();
    map.read_in(0..map.len()).unwrap();
    assert_eq!(map.as_slice(), bytes);
    assert!(map.is_intact() && map.is_current());
}

/// Where `MADV_POPULATE_READ` is not known, as on Linux before 5.14, pages are read and touched.
#[cfg(unix)]
#[test]
fn a_file_that_was_truncated_is_no_success() {
    for populate in [FileMap::populate, FileMap::read_in] {
        let (_dir, path) = file(&[7; 64 << 10]);
        let map = FileMap::open(&path, promise()).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(8 << 10).unwrap();
        let error = populate(&map, 0..map.len()).unwrap_err();
        assert!(matches!(error, Error::PastEnd { file_len: 8192, .. }), "{error:?}");
        populate(&map, 32 << 10..33 << 10).unwrap_err();
        populate(&map, 0..8 << 10).unwrap();
        assert!(!map.is_intact() && !map.is_current());
    }
}

#[test]
fn another_version_is_not_mapped() {
    let (dir, path) = file(b"one");
    let version = FileVersion::at(&path).unwrap();
    assert_eq!(FileMap::open_version(&path, &version, promise()).unwrap().as_slice(), b"one");
    let next = dir.path().join("next");
    std::fs::write(&next, b"two").unwrap();
    std::fs::rename(&next, &path).unwrap();
    let error = FileMap::open_version(&path, &version, promise()).unwrap_err();
    assert!(matches!(error, Error::Replaced { .. }), "{error:?}");
}

#[cfg(unix)]
#[test]
fn a_lock_is_undone_once_and_for_all() {
    let (_dir, path) = file(&[7; 8 << 10]);
    let map = FileMap::open(&path, promise()).unwrap();
    map.unlock().unwrap();
    map.lock().unwrap();
    map.lock().unwrap();
    assert!(map.is_locked());
    // The kernel does not let go of locked pages.
    let error = map.advise(MapAdvice::DontNeed, 0..4096).unwrap_err();
    assert!(error.to_string().contains("unlock"), "{error}");
    map.unlock().unwrap();
    assert!(!map.is_locked());
    map.advise(MapAdvice::DontNeed, 0..4096).unwrap();
    assert_eq!(map.as_slice()[..4096], [7; 4096]);
}

/// A single `MADV_WILLNEED` reads no more than the device's read-ahead (8 MiB of 512 where it was
/// measured, 128 KiB by default), and the rest of the range stayed cold.
///
/// That the whole range is asked for is tested where the requests are made. Here the kernel is asked
/// whether it follows: it may leave a request out when memory is short, but brings in more than it
/// does for a single one.
#[cfg(target_os = "linux")]
#[test]
fn all_of_a_range_is_read_ahead() {
    // Beside the test program: `/tmp` may be in memory, where nothing is ever cold.
    let program = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = dir.path().join("weights.bin");
    let len = 24 << 20;
    std::fs::write(&path, vec![7; len]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let map = FileMap::open(&path, promise()).unwrap();
    let bytes_read_by = |prefetch: &dyn Fn()| {
        cold::make_cold(&file);
        cold::bytes_read_by(&file, prefetch)
    };
    let by_one_request = || {
        let map = map.mapping.map().unwrap();
        map.advise_range(memmap2::Advice::WillNeed, 0, len).unwrap();
    };
    let read_by_one = bytes_read_by(&by_one_request);
    let by_map = || map.advise(MapAdvice::WillNeed, 0..len).unwrap();
    let by_file = || sys::prefetch_cached(&file, 0..u64::MAX).unwrap();
    for prefetch in [&by_map as &dyn Fn(), &by_file] {
        let read = bytes_read_by(prefetch);
        let is_more = read >= len as u64 || read > read_by_one;
        assert!(is_more, "{read} of {len} bytes; one request brings in {read_by_one}");
    }
}

/// A relative path was asked for again in the new working directory, where there is no such file.
#[cfg(feature = "conformance")]
#[test]
fn a_map_stays_current_when_the_working_directory_changes() {
    let test = "mmap::file_map::tests::a_map_stays_current_when_the_working_directory_changes";
    crate::conformance::child::in_child(test, || {
        let (dir, path) = file(b"weights");
        std::env::set_current_dir(dir.path()).unwrap();
        let map = FileMap::open(Path::new("weights.bin"), promise()).unwrap();
        std::env::set_current_dir("/").unwrap();
        assert!(map.is_current());
        // Windows refuses to truncate a file that is mapped.
        if std::fs::write(path, b"other weights").is_ok() {
            assert!(!map.is_current());
        }
    });
}

/// `mlock` is not inherited, but a forked child took the map for a locked one. A lock that another thread
/// was making at that moment kept the child waiting forever.
#[cfg(unix)]
#[test]
fn a_forked_child_has_locked_nothing() {
    let (_dir, path) = file(&[7; 8 << 10]);
    let map = FileMap::open(&path, promise()).unwrap();
    map.lock().unwrap();
    let _being_made = map.locking.get().one.lock().unwrap();
    // SAFETY: the child only looks at memory, locks and ends without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a plain call. It ends a child that waits forever.
        unsafe { libc::alarm(60) };
        let was_locked = map.is_locked();
        let is_right = !was_locked && map.unlock().is_ok();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` is valid to write to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    assert!(map.is_locked());
}
