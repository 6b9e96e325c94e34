//! What goes wrong between a reader and a store: it is tried again within bounds, or it is a clear error.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

#[path = "support/broken_end.rs"]
mod broken_end;
mod support;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use broken_end::BrokenEnd;
use futures::executor::block_on;
use object_store::ObjectStoreExt;
use ringmain_backends::{Error, FileHandle, Read, ReadBackend, ReadBackendExt, Result};
use ringmain_object_store::remote::{
    FailureKind, HedgeOptions, ObjectStoreBackend, RemoteOptions, UrlBackend, UrlOptions,
};
use ringmain_test_server::{Fault, RequestInfo};
use support::{Store, failure, hasty, pattern, quick, read, url};

const LEN: usize = 1 << 20;
/// Longer than the slowest machine takes.
const LONG: Duration = Duration::from_secs(300);

/// Fails the first request for each range in this way. The request for the rest of a range has the same end.
fn once_for_each_range(fault: Fault) -> impl Fn(&RequestInfo) -> Vec<Fault> + Send + Sync {
    let seen = Mutex::new(HashSet::new());
    move |info| {
        let end = info.range.as_deref().and_then(|range| Some(range.split_once('-')?.1.to_owned()));
        let is_first = end.is_some_and(|end| seen.lock().unwrap().insert(end));
        if is_first { vec![fault.clone()] } else { Vec::new() }
    }
}

/// Small parts, so that a read is many requests.
fn small_parts() -> RemoteOptions {
    RemoteOptions { part_bytes: 64 << 10, ..quick() }
}

/// The rest of such a range is empty, and the client refused a request for it.
#[test]
fn a_connection_that_breaks_after_the_last_byte_costs_nothing() {
    let (store, bytes) = (Arc::new(BrokenEnd::default()), pattern(LEN));
    block_on(store.put(&"object".into(), bytes.clone().into())).unwrap();
    let client = Arc::clone(&store);
    let open = move || Ok(Arc::clone(&client) as _);
    let backend = ObjectStoreBackend::new(small_parts(), open).unwrap();
    let file = backend.open(Path::new("object")).unwrap();
    assert!(backend.read_to_vec(&file, 5, LEN - 10).unwrap() == bytes[5..LEN - 5]);
    assert_eq!(backend.stats().retries, 0);
}

#[test]
fn faults_that_pass_do_not_show() {
    let store = Store::new();
    let bytes = pattern(LEN);
    let url = store.put("object", &bytes);
    for fault in [
        Fault::Drop,
        Fault::CutAfter(0),
        Fault::CutAfter(1),
        Fault::CutAfter(40_000),
        Fault::status(500),
        Fault::status(502),
        Fault::status(503),
        Fault::status(504),
        Fault::status(507),
        Fault::status(520),
        Fault::status(599),
        Fault::status(429),
        Fault::status(408),
        Fault::Status { status: 503, code: Some("SlowDown"), retry_after_s: Some(0) },
        Fault::Status { status: 400, code: Some("RequestTimeout"), retry_after_s: None },
    ] {
        let backend = store.backend_with(small_parts());
        let file = backend.open(&url).unwrap();
        store.server.set_faults(once_for_each_range(fault.clone()));
        assert!(read(&backend, &file, 5, LEN - 10) == bytes[5..LEN - 5], "{fault:?}");
        let retries = backend.remote_stats().retries;
        assert!(retries >= 16, "{fault:?}: only {retries} retries");
        assert_eq!(backend.stats().retries, retries);
        store.server.clear_faults();
    }
}

/// Of the failures of servers, these two do not pass.
#[test]
fn a_server_that_does_not_know_a_request_is_asked_once() {
    let store = Store::new();
    let url = store.put("object", pattern(LEN));
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    for status in [501, 505] {
        store.server.set_faults(move |_| vec![Fault::status(status)]);
        let error = backend.read_to_vec(&file, 0, 10).unwrap_err();
        assert_eq!(failure(&error).status(), Some(status), "{error}");
    }
    assert_eq!(backend.remote_stats().retries, 0);
}

/// After a failed page, a list began again with the first page: with many pages it never ended.
#[test]
fn a_page_of_a_list_that_fails_is_asked_for_again_alone() {
    let store = Store::new();
    let mut expected: Vec<_> = (0..450).map(|at| store.put(&format!("folder/{at}"), "")).collect();
    expected.sort();
    let backend = store.backend();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let pages = Arc::clone(&asked);
    store.server.set_faults(move |info| {
        if !info.query.contains("list-type") {
            return Vec::new();
        }
        let mut pages = pages.lock().unwrap();
        let is_first = !pages.contains(&info.query);
        pages.push(info.query.clone());
        if is_first { vec![Fault::status(503)] } else { Vec::new() }
    });
    let mut found = backend.list("s3://bucket/folder".as_ref()).unwrap().unwrap();
    found.sort();
    assert_eq!(found, expected);
    // Five pages, twice each.
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 10, "{asked:?}");
    assert_eq!(asked.iter().collect::<HashSet<_>>().len(), 5);
}

/// What arrived before a connection broke is not asked for again.
#[test]
fn a_body_that_was_cut_goes_on_where_it_ended() {
    let store = Store::new();
    let bytes = pattern(LEN);
    let url = store.put("object", &bytes);
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    store.server.set_faults(|info| match info.is_ranged() {
        true => vec![Fault::CutAfter(300_000)],
        false => Vec::new(),
    });
    assert!(read(&backend, &file, 0, LEN) == bytes);
    let stats = backend.remote_stats();
    assert_eq!(stats.received_bytes, LEN as u64, "{stats:?}");
}

#[test]
fn a_stalled_body_is_given_up() {
    let store = Store::new();
    let bytes = pattern(LEN);
    let url = store.put("object", &bytes);
    let options = RemoteOptions { stall_timeout: Duration::from_millis(300), ..quick() };
    let backend = store.backend_with(options);
    let file = backend.open(&url).unwrap();
    for stalled_at in [0, 100_000] {
        store.server.set_faults(once_for_each_range(Fault::StallAfter(stalled_at)));
        assert!(read(&backend, &file, 0, LEN) == bytes);
        store.server.clear_faults();
    }
    assert!(backend.remote_stats().retries >= 2);
    let backend =
        store.backend_with(RemoteOptions { stall_timeout: Duration::from_millis(100), ..hasty() });
    // On a busy machine an answer may take longer than that.
    let begun = Instant::now();
    let file = loop {
        match backend.open(&url) {
            Ok(file) => break file,
            Err(error) => assert_eq!(failure(&error).kind(), FailureKind::TimedOut, "{error}"),
        }
        assert!(begun.elapsed() < LONG, "the server does not answer");
    };
    store.server.set_faults(|_| vec![Fault::StallAfter(0)]);
    let error = backend.read_to_vec(&file, 7, 10).unwrap_err();
    assert_eq!(failure(&error).kind(), FailureKind::TimedOut, "{error}");
    assert!(error.to_string().contains("sent nothing for 0.1 s"), "{error}");
}

#[test]
fn a_failure_that_lasts_names_url_range_status_and_effort() {
    let store = Store::new();
    let url = store.put("object", pattern(LEN));
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    let asked = AtomicU64::new(0);
    // A pause that is longer than the deadline is not waited for.
    store.server.set_faults(move |_| {
        let retry_after_s = (asked.fetch_add(1, Ordering::SeqCst) > 0).then_some(86_400);
        vec![Fault::Status { status: 503, code: Some("SlowDown"), retry_after_s }]
    });
    let error = backend.read_to_vec(&file, 100, 50).unwrap_err();
    let Error::Read { offset: 100, len: 50, index: 0, .. } = &error else { panic!("{error:?}") };
    let found = failure(&error);
    assert_eq!((found.kind(), found.status()), (FailureKind::Throttled, Some(503)));
    let parts =
        ["s3://bucket/object", "bytes 100-149", "503", "SlowDown", "the last of 2 attempts in "];
    for part in parts {
        assert!(error.to_string().contains(part), "`{part}` is missing in: {error}");
    }
}

#[test]
fn a_pause_that_the_server_asks_for_is_kept_by_all_requests() {
    let store = Store::new();
    let url = store.put("object", pattern(LEN));
    let backend = store.backend_with(small_parts());
    let file = backend.open(&url).unwrap();
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&times);
    let asked = AtomicU64::new(0);
    store.server.set_faults(move |_| {
        seen.lock().unwrap().push(Instant::now());
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => vec![Fault::Status { status: 503, code: None, retry_after_s: Some(1) }],
            _ => Vec::new(),
        }
    });
    // One request is refused; then all of a second batch must wait.
    std::thread::scope(|scope| {
        scope.spawn(|| read(&backend, &file, 0, 10));
        while times.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        // The pause begins when the answer arrives.
        while backend.remote_stats().retries == 0 {
            std::thread::yield_now();
        }
        scope.spawn(|| read(&backend, &file, 0, LEN));
    });
    let times = times.lock().unwrap();
    let second = times[1].duration_since(times[0]);
    assert!(second >= Duration::from_millis(900), "a request came after {second:?}");
}

/// The bounds of requests hold while a store refuses most of them.
#[test]
fn a_storm_of_refusals_keeps_to_the_bounds() {
    let store = Store::new();
    let bytes = pattern(4 * LEN);
    let url = store.put("object", &bytes);
    let options = RemoteOptions {
        requests_max: 6,
        in_flight_bytes: 256 << 10,
        part_bytes: 64 << 10,
        ..quick()
    };
    let backend = store.backend_with(options);
    let file = backend.open(&url).unwrap();
    store.server.set_faults(|info| match info.number % 4 {
        0 => Vec::new(),
        1 => vec![Fault::CutAfter(20_000)],
        _ => vec![Fault::status(503)],
    });
    let _ = store.server.take_in_flight_max();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(read(&backend, &file, 0, 4 * LEN) == bytes));
        }
    });
    // Four whole parts have 256 KiB; the rest of a part that was cut is smaller.
    let most = store.server.take_in_flight_max();
    assert!((2..=6).contains(&most), "{most} requests were in flight");
    assert!(backend.remote_stats().retries > 100);
}

#[test]
fn a_replaced_object_is_an_error_and_never_a_mixture() {
    let store = Store::new();
    let (old, new) = (vec![1; LEN], vec![2; LEN]);
    let url = store.put("object", &old);
    let backend = store.backend_with(small_parts());
    let file = backend.open(&url).unwrap();
    assert!(read(&backend, &file, 0, LEN) == old);
    let version = backend.version(&file).unwrap();
    store.put("object", &new);
    let error = backend.read_to_vec(&file, 3, 10).unwrap_err();
    assert!(matches!(error, Error::Replaced { offset: 3, .. }), "{error:?}");
    assert_eq!(error.path(), Some(&*url));
    // The old handle stays with the old version, and the next one gets the new one.
    assert!(backend.version(&file).unwrap().change_since(&version).is_none());
    let again = backend.open(&url).unwrap();
    assert!(backend.version(&again).unwrap().change_since(&version).is_some());
    assert!(read(&backend, &again, 0, LEN) == new);
}

/// The object is replaced between two requests of one read, at every moment.
#[test]
fn an_object_that_is_replaced_during_a_read_gives_no_bytes_of_two_versions() {
    let store = Arc::new(Store::new());
    let backend = store.backend_with(RemoteOptions { requests_max: 2, ..small_parts() });
    for moment in 0..20 {
        let url = store.put("object", vec![1; LEN]);
        let file = backend.open(&url).unwrap();
        let begun = AtomicU64::new(0);
        let folder = store.folder.path().to_owned();
        store.server.set_faults(move |info| {
            if info.is_ranged() && begun.fetch_add(1, Ordering::SeqCst) == moment {
                let fresh = folder.join("next");
                std::fs::write(&fresh, vec![2; LEN]).unwrap();
                std::fs::rename(fresh, folder.join("object")).unwrap();
            }
            Vec::new()
        });
        match backend.read_to_vec(&file, 0, LEN) {
            Ok(found) => assert!(moment >= 16 && found == vec![1; LEN], "{moment}"),
            Err(Error::Replaced { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        store.server.clear_faults();
    }
}

#[test]
fn a_deleted_object_is_not_found() {
    let store = Store::new();
    let url = store.put("object", pattern(100));
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    std::fs::remove_file(store.folder.path().join("object")).unwrap();
    let error = backend.read_to_vec(&file, 0, 10).unwrap_err();
    assert_eq!(failure(&error).kind(), FailureKind::NotFound, "{error}");
}

#[test]
fn a_server_that_ignores_ranges_is_noticed() {
    let store = Store::new();
    let url = store.put("object", pattern(LEN));
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    store.server.set_faults(|_| vec![Fault::IgnoreRange]);
    for (offset, len) in [(0, 10), (5, 10), (0, LEN)] {
        let error = backend.read_to_vec(&file, offset, len).unwrap_err();
        assert_eq!(failure(&error).kind(), FailureKind::RangeIgnored, "{error}");
        assert!(error.to_string().contains("ignores ranges"), "{error}");
    }
    store.server.set_faults(|_| vec![Fault::WrongRange]);
    let error = backend.read_to_vec(&file, 5, 10).unwrap_err();
    assert_eq!(failure(&error).kind(), FailureKind::WrongRange, "{error}");
    assert!(error.to_string().contains("bytes 5-14 were asked for"), "{error}");
}

/// The first read of the batch that fails is named, whatever fails first.
#[test]
fn the_first_failed_read_of_a_batch_is_named() {
    let store = Store::new();
    let good = store.put("good", pattern(LEN));
    let bad = store.put("bad", pattern(LEN));
    for requests_max in [1, 8] {
        let backend = store.backend_with(RemoteOptions { requests_max, ..small_parts() });
        let (good, bad) = (backend.open(&good).unwrap(), backend.open(&bad).unwrap());
        store.server.set_faults(|info| match info.path.ends_with("/bad") {
            true if info.range.as_deref() == Some("bytes=500000-500099") => {
                vec![Fault::Delay(Duration::from_millis(30)), Fault::status(403)]
            }
            true => vec![Fault::status(403)],
            false => Vec::new(),
        });
        let mut memory = vec![[0; 100]; 6];
        let places =
            [(&good, 0), (&bad, 500_000), (&bad, 100_000), (&good, 9), (&bad, 0), (&good, 500_000)];
        let mut reads: Vec<_> = memory
            .iter_mut()
            .zip(places)
            .map(|(dst, (file, offset))| Read::new(file, offset, dst))
            .collect();
        let error = backend.read_batch(&mut reads).unwrap_err();
        assert_eq!((error.index(), error.offset()), (Some(1), Some(500_000)), "{error}");
        store.server.clear_faults();
    }
}

/// After an error the caller has its memory back, although bodies of other requests are still on their way.
#[test]
fn nothing_is_written_after_an_error() {
    let store = Store::new();
    let url = store.put("object", pattern(4 * LEN));
    let backend = store.backend_with(RemoteOptions { part_bytes: 256 << 10, ..quick() });
    let file = backend.open(&url).unwrap();
    store.server.set_faults(|info| match info.range.as_deref() {
        Some("bytes=0-262143") => vec![Fault::status(403)],
        _ => vec![Fault::Throttle(8 << 20)],
    });
    let mut memory = vec![0; 4 * LEN];
    for _ in 0..5 {
        backend.read_exact_at(&file, 0, &mut memory).unwrap_err();
        memory.fill(0x42);
        std::thread::sleep(Duration::from_millis(50));
        assert!(memory.iter().all(|byte| *byte == 0x42), "bytes were written after an error");
    }
}

#[test]
fn a_slow_answer_is_overtaken_by_a_second_request() {
    let store = Store::new();
    let bytes = pattern(LEN);
    let url = store.put("object", &bytes);
    let hedge = HedgeOptions { times_slower: 1.0, wait_min: Duration::from_millis(20) };
    let backend = store.backend_with(RemoteOptions { hedge: Some(hedge), ..small_parts() });
    let file = backend.open(&url).unwrap();
    for _ in 0..4 {
        assert!(read(&backend, &file, 0, LEN) == bytes);
    }
    // The first request for each range is late for longer than the test may take.
    store.server.set_faults(once_for_each_range(Fault::Delay(Duration::from_secs(600))));
    assert!(read(&backend, &file, 0, LEN) == bytes);
    let stats = backend.remote_stats();
    assert!(stats.hedges >= 16, "{stats:?}");
    let without = store.backend_with(small_parts());
    let file = without.open(&url).unwrap();
    assert!(read(&without, &file, 0, LEN) == bytes);
    assert_eq!(without.remote_stats().hedges, 0);
}

#[test]
fn a_server_that_dies_and_comes_back_is_waited_for() {
    let mut store = Store::new();
    let bytes = pattern(LEN);
    let url = store.put("object", &bytes);
    let backend = Arc::new(store.backend_with(small_parts()));
    let file = backend.open(&url).unwrap();
    assert!(read(&*backend, &file, 0, LEN) == bytes);
    store.server.stop();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| backend.read_to_vec(&file, 0, LEN));
        while backend.remote_stats().retries < 5 {
            std::thread::sleep(Duration::from_millis(1));
        }
        store.server.start_again();
        assert!(reader.join().unwrap().unwrap() == bytes);
    });
}

/// Objects of a web server, with less and less to tell their versions by.
#[test]
fn web_servers_are_read_too() -> Result<()> {
    let store = Store::new();
    let bytes = pattern(LEN);
    store.put("with space/ünï.bin", &bytes);
    let address =
        format!("{}/plain/bucket/with%20space/%C3%BCn%C3%AF.bin", store.server.endpoint());
    let open = |faults: Vec<Fault>| {
        store.server.set_faults(move |_| faults.clone());
        let backend = UrlBackend::over_auto(UrlOptions::default().remote(hasty()))?;
        let file = backend.open(address.as_ref())?;
        Ok::<_, Error>((backend, file))
    };
    for faults in [vec![], vec![Fault::NoETag], vec![Fault::NoLastModified]] {
        let (backend, file) = open(faults)?;
        assert!(read(&backend, &file, 3, 1000) == bytes[3..1003]);
    }
    let error = open(vec![Fault::NoETag, Fault::NoLastModified]).unwrap_err();
    assert_eq!(failure(&error).kind(), FailureKind::NoVersion, "{error}");
    let (backend, file) = open(vec![Fault::IgnoreRange])?;
    let error = backend.read_to_vec(&file, 0, 10).unwrap_err();
    assert_eq!(failure(&error).kind(), FailureKind::RangeIgnored, "{error}");
    let missing = format!("{}/plain/bucket/nothing", store.server.endpoint());
    let error = backend.open(missing.as_ref()).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    Ok(())
}

/// A reader inside a runtime blocks its thread, and nothing else.
#[test]
fn readers_may_be_tasks_of_any_runtime() {
    let store = Store::new();
    let bytes = pattern(LEN);
    let url = store.put("object", &bytes);
    let backend = Arc::new(store.backend_with(small_parts()));
    for mut builder in
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()]
    {
        let runtime = builder.enable_all().build().unwrap();
        let (backend, url, bytes) = (Arc::clone(&backend), url.clone(), bytes.clone());
        let task = runtime.spawn(async move {
            let file = backend.open(&url).unwrap();
            assert!(read(&*backend, &file, 0, LEN) == bytes);
        });
        runtime.block_on(task).unwrap();
    }
    // Its last owner is a task.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async move { drop(backend) });
}

#[test]
fn files_and_objects_share_a_batch() {
    let store = Store::new();
    let bytes = pattern(LEN);
    let object_url = store.put("object", &bytes);
    let backend = store.backend();
    let object = backend.open(&object_url).unwrap();
    let path = store.folder.path().join("object");
    let file = backend.open(&path).unwrap();
    let by_url = backend.open(format!("file://{}", path.display()).as_ref()).unwrap();
    let handles = [&file, &object, &by_url, &object];
    let mut memory = vec![vec![0; 5000]; 4];
    let offset = |at: usize| at as u64 * 100_000;
    let mut reads: Vec<_> = memory
        .iter_mut()
        .enumerate()
        .map(|(at, dst)| Read::new(handles[at], offset(at), dst))
        .collect();
    backend.read_batch(&mut reads).unwrap();
    drop(reads);
    for (at, found) in memory.iter().enumerate() {
        assert!(found[..] == bytes[at * 100_000..][..5000], "{at}");
    }
    // The error names the read in the whole batch.
    for bad in 0..4 {
        let offset = |at: usize| if at == bad { LEN as u64 - 1 } else { 0 };
        let mut reads: Vec<_> = memory
            .iter_mut()
            .enumerate()
            .map(|(at, dst)| Read::new(handles[at], offset(at), dst))
            .collect();
        let error = backend.read_batch(&mut reads).unwrap_err();
        assert!(matches!(error, Error::PastEnd { index, .. } if index == bad), "{error:?}");
    }
    assert_eq!(url("object"), object_url);
}

/// A batch of a file and an object, each read of which may reach past the end.
fn read_pair(
    backend: &UrlBackend,
    first: (&FileHandle, u64),
    second: (&FileHandle, u64),
) -> Result<()> {
    let mut memory = [[0; 10]; 2];
    let mut reads: Vec<_> = memory
        .iter_mut()
        .zip([first, second])
        .map(|(dst, (file, offset))| Read::new(file, offset, dst))
        .collect();
    backend.read_batch(&mut reads)
}

/// `Replaced` names no read, so it came before an earlier failure of a file. A file's failure waited for the store.
#[test]
fn the_first_failure_of_files_and_objects_is_reported() {
    let mut store = Store::new();
    let url = store.put("object", pattern(LEN));
    let path = store.folder.path().join("local");
    std::fs::write(&path, pattern(LEN)).unwrap();
    let backend = store.backend();
    let (object, file) = (backend.open(&url).unwrap(), backend.open(&path).unwrap());
    store.put("object", pattern(LEN + 1));
    let past = LEN as u64;
    let error = read_pair(&backend, (&file, past), (&object, 5)).unwrap_err();
    assert!(matches!(error, Error::PastEnd { index: 0, .. }), "{error:?}");
    let error = read_pair(&backend, (&object, 5), (&file, past)).unwrap_err();
    assert!(matches!(error, Error::Replaced { offset: 5, .. }), "{error:?}");

    store.server.stop();
    let requests = backend.remote_stats().requests;
    let error = read_pair(&backend, (&file, past), (&object, 5)).unwrap_err();
    assert!(matches!(error, Error::PastEnd { index: 0, .. }), "{error:?}");
    assert_eq!(backend.remote_stats().requests, requests, "the store was asked");
}

/// The listener closed some time after `stop` had returned, so that the address was still in use, or still answered.
#[test]
fn a_server_that_was_stopped_refuses_and_keeps_its_address() {
    let mut store = Store::new();
    let url = store.put("object", "bytes");
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    let address = store.server.endpoint();
    let host = address.strip_prefix("http://").unwrap();
    for _ in 0..50 {
        assert_eq!(read(&backend, &file, 0, 5), b"bytes");
        store.server.stop();
        let refused = std::net::TcpStream::connect(host).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        store.server.start_again();
        assert_eq!(store.server.endpoint(), address);
    }
}
