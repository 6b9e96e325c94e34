//! Threads, memory and batches stay within their bounds.

use futures::executor::block_on;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use ringmain_backends::{BackendKind, BackendOptions, ReaderThreadOptions, open_backend};
use ringmain_object_store::local_store::RingmainStore;
use tempfile::TempDir;

use crate::watched::Watched;
use crate::{local, numbered, store};

#[test]
fn the_ranges_of_a_request_are_one_batch() {
    let dir = TempDir::new().unwrap();
    let bytes = numbered(1 << 20, 3);
    std::fs::write(dir.path().join("data"), &bytes).unwrap();
    let watched =
        Watched::new(open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap());
    let store = RingmainStore::builder().backend(watched.clone()).build(local(dir.path())).unwrap();
    let ranges: Vec<_> = (0..64).rev().map(|at| at * 16_000..at * 16_000 + 7000).collect();
    let found = block_on(store.get_ranges(&Path::from("data"), &ranges)).unwrap();
    assert_eq!(watched.counts().batches, 1);
    for (range, found) in ranges.iter().zip(&found) {
        assert!(*found == bytes[range.start as usize..range.end as usize]);
    }
}

/// Column chunks follow one another. A copy to join them would cost as much as reading them.
#[test]
fn ranges_that_touch_or_overlap_share_memory() {
    let dir = TempDir::new().unwrap();
    let bytes = numbered(100_000, 3);
    std::fs::write(dir.path().join("data"), &bytes).unwrap();
    let store = store(dir.path());
    let ranges = [50_000..60_000, 10_000..20_000, 20_000..30_000, 15_000..25_000, 7..7];
    let found = block_on(store.get_ranges(&Path::from("data"), &ranges)).unwrap();
    for (range, found) in ranges.iter().zip(&found) {
        assert!(*found == bytes[range.start as usize..range.end as usize]);
    }
    let address = |at: usize| found[at].as_ptr().addr();
    assert_eq!(address(2), address(1) + 10_000);
    assert_eq!(address(3), address(1) + 5000);
}

/// Every request had a thread of tokio's blocking pool, which has up to 512.
#[tokio::test]
async fn many_requests_at_once_are_read_by_few_threads() {
    let dir = TempDir::new().unwrap();
    let bytes = numbered(1 << 20, 4);
    std::fs::write(dir.path().join("data"), &bytes).unwrap();
    let watched =
        Watched::new(open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap());
    let readers = ReaderThreadOptions { threads_max: 3, queue_len_max: 8 };
    let builder = RingmainStore::builder().backend(watched.clone()).readers(readers);
    let store = builder.build(local(dir.path())).unwrap();
    let (store, path, expected) = (&store, &Path::from("data"), &bytes);
    let requests = (0..400u64).map(|number| async move {
        let (start, len) = (number * 1000, 100 + number * 3);
        let (from, to) = (start as usize, (start + len) as usize);
        let found = match number % 3 {
            0 => store.get_range(path, start..start + len).await.unwrap(),
            1 => store.get_ranges(path, &[start..start + len]).await.unwrap().remove(0),
            _ => store.get(path).await.unwrap().bytes().await.unwrap().slice(from..to),
        };
        assert!(found == expected[from..to]);
    });
    join_all(requests).await;
    assert!(watched.counts().running_max <= 3, "{:?}", watched.counts());
    assert!(store.reader_stats().threads <= 3, "{:?}", store.reader_stats());
}

/// A query holds column chunks until it has decoded them. Its next read must not wait for memory that the query
/// itself holds.
#[test]
fn results_that_are_held_do_not_stop_the_next_reads() {
    let dir = TempDir::new().unwrap();
    let bytes = numbered(1 << 20, 6);
    std::fs::write(dir.path().join("data"), &bytes).unwrap();
    let store =
        RingmainStore::builder().recycled_bytes_max(1 << 20).build(local(dir.path())).unwrap();
    let path = Path::from("data");
    let held: Vec<_> =
        (0..40u64).map(|at| block_on(store.get_range(&path, at..1_000_000)).unwrap()).collect();
    for (at, held) in held.iter().enumerate() {
        assert!(*held == bytes[at..1_000_000]);
    }
    let stats = store.pool_stats();
    assert!(
        stats.in_use_bytes > 0 && stats.in_use_bytes + stats.idle_bytes <= 1 << 20,
        "{stats:?}"
    );
    drop(held);
    assert_eq!(store.pool_stats().in_use_bytes, 0);
}

#[test]
fn a_large_object_arrives_in_chunks() {
    const LEN: usize = (20 << 20) + 77;
    let dir = TempDir::new().unwrap();
    let bytes = numbered(LEN, 7);
    std::fs::write(dir.path().join("data"), &bytes).unwrap();
    let store = store(dir.path());
    let path = Path::from("data");
    block_on(async {
        let chunks: Vec<_> =
            store.get(&path).await.unwrap().into_stream().try_collect().await.unwrap();
        assert_eq!(
            chunks.iter().map(|chunk| chunk.len()).collect::<Vec<_>>(),
            [8 << 20, 8 << 20, (4 << 20) + 77]
        );
        assert!(chunks.concat() == bytes);
        assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == bytes);
        let range = 3..LEN as u64 - 5;
        assert!(store.get_range(&path, range).await.unwrap() == bytes[3..LEN - 5]);
        // A stream that is dropped in the middle leaves nothing behind.
        let mut stream = store.get(&path).await.unwrap().into_stream();
        assert!(stream.next().await.unwrap().unwrap() == bytes[..8 << 20]);
    });
    crate::wait_until("memory does not come back", || store.pool_stats().in_use_bytes == 0);
}
