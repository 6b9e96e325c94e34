//! Futures that are dropped before, while and after their reads happen.

use std::task::{Context, Waker};

use futures::FutureExt;
use futures::executor::block_on;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use proptest::prelude::*;
use ringmain_backends::{BackendKind, BackendOptions, ReaderThreadOptions, open_backend};
use ringmain_object_store::local_store::RingmainStore;
use tempfile::TempDir;

use crate::watched::Watched;
use crate::{backends, local, numbered, wait_until};

/// The memory that a read writes to must stay the reader's until the read has ended.
#[test]
fn a_read_that_has_begun_keeps_its_memory_when_its_future_is_dropped() {
    let dir = TempDir::new().unwrap();
    let bytes = numbered(1 << 20, 1);
    std::fs::write(dir.path().join("data"), &bytes).unwrap();
    let watched =
        Watched::new(open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap());
    let readers = ReaderThreadOptions { threads_max: 1, queue_len_max: 4 };
    let builder = RingmainStore::builder().backend(watched.clone()).readers(readers);
    let store = builder.build(local(dir.path())).unwrap();
    let path = Path::from("data");

    watched.shut_gate();
    let ranges = [0..100_000, 200_000..300_000];
    let mut begun = store.get_ranges(&path, &ranges);
    let mut queued = store.get_ranges(&path, &ranges);
    let mut context = Context::from_waker(Waker::noop());
    assert!(begun.poll_unpin(&mut context).is_pending());
    wait_until("the read does not begin", || watched.counts().running == 1);
    assert!(queued.poll_unpin(&mut context).is_pending());
    drop((begun, queued));
    assert_eq!(store.reader_stats().queued, 0);
    assert!(store.pool_stats().in_use_bytes >= 200_000, "the memory was given away under the read");

    watched.open_gate();
    wait_until("the memory does not come back", || store.pool_stats().in_use_bytes == 0);
    assert_eq!(watched.counts().batches, 1, "the read that had not begun was made");
    let found = block_on(store.get_ranges(&path, &ranges)).unwrap();
    assert!(found[0] == bytes[..100_000] && found[1] == bytes[200_000..300_000]);
}

#[derive(Clone, Debug)]
struct Request {
    start: u64,
    len: u64,
    /// How often the future is polled before it is dropped; it is awaited if this is 3.
    polls: u8,
    is_stream: bool,
}

fn request() -> impl Strategy<Value = Request> {
    (0..400_000u64, 1..60_000u64, 0..4u8, any::<bool>())
        .prop_map(|(start, len, polls, is_stream)| Request { start, len, polls, is_stream })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn dropped_futures_harm_no_other(requests in prop::collection::vec(request(), 1..60), threads_max in 1..4usize) {
        let dir = TempDir::new().unwrap();
        let bytes = numbered(460_000, 5);
        std::fs::write(dir.path().join("data"), &bytes).unwrap();
        let path = Path::from("data");
        for backend in backends() {
            let readers = ReaderThreadOptions { threads_max, queue_len_max: 3 };
            let builder = RingmainStore::builder().backend(backend).readers(readers).recycled_bytes_max(256 << 10);
            let store = builder.build(local(dir.path())).unwrap();
            let mut awaited = Vec::new();
            for Request { start, len, polls, is_stream } in &requests {
                let range = *start..start + len;
                let expected = &bytes[range.start as usize..range.end as usize];
                let (store, path) = (&store, &path);
                let mut future = async move {
                    match is_stream {
                        true => store.get_range(path, range).await.unwrap(),
                        false => store.get_ranges(path, &[range]).await.unwrap().remove(0),
                    }
                }.boxed();
                if *polls == 3 {
                    awaited.push(async move { assert!(future.await == expected) });
                    continue;
                }
                for _ in 0..*polls {
                    let mut context = Context::from_waker(Waker::noop());
                    if let std::task::Poll::Ready(found) = future.poll_unpin(&mut context) {
                        assert!(found == expected);
                        break;
                    }
                }
            }
            block_on(futures::future::join_all(awaited));
            wait_until("memory does not come back", || store.pool_stats().in_use_bytes == 0);
            let stats = store.reader_stats();
            prop_assert!(stats.threads <= threads_max && stats.waiting == 0, "{:?}", stats);
            let whole = block_on(store.get_range(&path, 0..460_000)).unwrap();
            prop_assert!(whole == bytes);
        }
    }
}
