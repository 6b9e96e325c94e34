//! Backends work with few file descriptors, report it when none is left, and leak none. Each case
//! runs in its own process, because descriptors are counted for the whole process.

use std::time::{Duration, Instant};

use crate::conformance::arena::{Want, check_batch, try_batch};
use crate::conformance::process::{
    limit_descriptors, make_fifo, open_descriptors, spend_descriptors, thread_count,
};
use crate::conformance::rig::{Dice, Rig, open, open_all, random_wants};
use crate::{BackendOptions, Error};

/// Longer than a thread takes to end on a busy machine.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

pub(in crate::conformance) fn out_of_descriptors(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let data = rig.file("data", 10_000);
        limit_descriptors(64);
        let backend = rig.backend();
        let spent = spend_descriptors();
        let error = backend.open(data.path()).unwrap_err();
        assert!(matches!(error, Error::Open { .. }), "{error:?}");
        assert_eq!(error.path(), Some(data.path()));
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "no way out in: {error}");
        drop(spent);
        let file = open(&*backend, &data);
        check_batch(&*backend, &[Want::new(&file, &data, 1, 9_999)]);
    });
}

/// A file of its own that is idle makes place.
pub(in crate::conformance) fn out_of_descriptors_with_an_idle_file(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let files = rig.files(3, 10_000);
        limit_descriptors(64);
        let backend = rig.backend();
        let idle = open(&*backend, &files[0]);
        check_batch(&*backend, &[Want::new(&idle, &files[0], 1, 9_999)]);
        let _spent = spend_descriptors();
        for data in &files[1..] {
            let file = open(&*backend, data);
            check_batch(&*backend, &[Want::new(&file, data, 1, 9_999)]);
        }
        check_batch(&*backend, &[Want::new(&idle, &files[0], 1, 9_999)]);
    });
}

/// A thread may need a ring of its own, which is a descriptor: it reads without, or says why not.
pub(in crate::conformance) fn out_of_descriptors_in_a_new_thread(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let data = rig.file("data", 10_000);
        limit_descriptors(64);
        let backend = rig.backend();
        let file = open(&*backend, &data);
        check_batch(&*backend, &[Want::new(&file, &data, 1, 9_999)]);
        let spent = spend_descriptors();
        let want = Want::new(&file, &data, 3, 5000);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| try_batch(&*backend, &[want]));
            if let Err(error) = reader.join().unwrap() {
                assert_eq!((error.path(), error.offset()), (Some(data.path()), Some(3)));
                assert!(error.to_string().contains("RLIMIT_NOFILE"), "no way out in: {error}");
            }
        });
        drop(spent);
        std::thread::scope(|scope| {
            scope.spawn(|| check_batch(&*backend, &[want]));
        });
        check_batch(&*backend, &[want]);
    });
}

pub(in crate::conformance) fn a_thousand_opens(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        const OPEN_MAX: usize = 4;
        let files = rig.files(40, 3000);
        let options = BackendOptions { open_files_max: OPEN_MAX, ..BackendOptions::default() };
        let before = open_descriptors();
        let backend = rig.backend_with(&options);
        let first = open(&*backend, &files[0]);
        check_batch(&*backend, &[Want::new(&first, &files[0], 0, 3000)]);
        // One file and whatever else the backend needs.
        let with_one = open_descriptors();
        let mut handles = Vec::new();
        for i in 0..1000 {
            let data = &files[i * 7 % 40];
            let file = open(&*backend, data);
            if i % 10 == 0 {
                check_batch(&*backend, &[Want::new(&file, data, (i % 100) as u64, 2000)]);
                handles.push(file);
                assert_settles_at(with_one + OPEN_MAX - 1, open_descriptors, "descriptors");
            }
        }
        // All at once, most of them closed by now.
        let wants: Vec<_> = handles
            .iter()
            .enumerate()
            .map(|(at, handle)| Want::new(handle, &files[at * 70 % 40], 5, 2500))
            .collect();
        check_batch(&*backend, &wants);
        assert_settles_at(with_one + OPEN_MAX - 1, open_descriptors, "descriptors");
        drop((backend, first, wants));
        drop(handles);
        assert_settles_at(before, open_descriptors, "descriptors after the backend is gone");
    });
}

pub(in crate::conformance) fn failed_opens_leak_nothing(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let (backend, data) = (rig.backend(), rig.file("data", 10_000));
        let fifo = rig.dir().join("fifo");
        make_fifo(&fifo);
        let file = open(&*backend, &data);
        check_batch(&*backend, &[Want::new(&file, &data, 0, 10_000)]);
        let before = open_descriptors();
        for _ in 0..300 {
            assert!(backend.open(&rig.dir().join("missing")).is_err());
            assert!(backend.open(rig.dir()).is_err());
            assert!(backend.open(&fifo).is_err());
            assert!(try_batch(&*backend, &[Want::new(&file, &data, 9_999, 2)]).is_err());
        }
        assert_settles_at(before, open_descriptors, "descriptors after opens that failed");
    });
}

pub(in crate::conformance) fn dropping_gives_everything_back(rig: &Rig<'_>) {
    rig.in_child(|rig| {
        let files = rig.files(5, 100_000);
        let descriptors = open_descriptors();
        let threads = thread_count();
        for round in 0..20 {
            let backend = rig.backend();
            let handles = open_all(&*backend, &files);
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (backend, handles, files) = (&backend, &handles, &files);
                    scope.spawn(move || {
                        let mut dice = Dice::new(round * 10 + thread);
                        check_batch(&**backend, &random_wants(&mut dice, handles, files, 20, 9999));
                    });
                }
            });
            check_batch(&*backend, &random_wants(&mut Dice::new(8), &handles, &files, 20, 9999));
        }
        assert_settles_at(descriptors, open_descriptors, "descriptors after the backend is gone");
        if let Some(threads) = threads {
            let count = || thread_count().unwrap_or(0);
            assert_settles_at(threads, count, "threads after the backend is gone");
        }
    });
}

/// Waits until there are no more than this many. A thread gives up its descriptors when it ends,
/// and a thread that was joined is listed for another moment.
#[track_caller]
fn assert_settles_at(most: usize, count: impl Fn() -> usize, what: &str) {
    let started = Instant::now();
    while count() > most && started.elapsed() < SETTLED_AFTER {
        std::thread::sleep(Duration::from_millis(1));
    }
    let left = count();
    assert!(left <= most, "{left} {what}, not {most}");
}
