//! Files that change between a request and its reads.

use futures::StreamExt;
use futures::executor::block_on;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt};
use ringmain_backends::BackendOptions;
use ringmain_object_store::local_store::RingmainStore;
use tempfile::TempDir;

use crate::{local, numbered, store};

/// Replaces a file as writers do: by another one that gets its name.
fn replace(dir: &TempDir, name: &str, bytes: &[u8]) {
    let next = dir.path().join("next.tmp");
    std::fs::write(&next, bytes).unwrap();
    std::fs::rename(&next, dir.path().join(name)).unwrap();
}

#[test]
fn each_request_reads_the_file_that_is_there() {
    let dir = TempDir::new().unwrap();
    let (store, path) = (store(dir.path()), Path::from("data"));
    for seed in 0..20 {
        let bytes = numbered(10_000 + seed * 100, seed);
        replace(&dir, "data", &bytes);
        let found = block_on(store.get_ranges(&path, &[100..9000, 0..7])).unwrap();
        assert!(found[0] == bytes[100..9000] && found[1] == bytes[..7], "file {seed}");
    }
    std::fs::remove_file(dir.path().join("data")).unwrap();
    let error = block_on(store.get_ranges(&path, &[0..1])).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

/// The bytes are those of the file whose `e_tag` the request returned. With two open files the backend has closed it,
/// and cannot open it again.
#[test]
fn a_file_that_is_replaced_after_the_request_is_read_to_its_end() {
    const LEN: usize = 20 << 20;
    for open_files_max in [2, 64] {
        let dir = TempDir::new().unwrap();
        let options = BackendOptions { open_files_max, ..BackendOptions::default() };
        let store = RingmainStore::builder().options(options).build(local(dir.path())).unwrap();
        let (path, bytes) = (Path::from("data"), numbered(LEN, 1));
        replace(&dir, "data", &bytes);
        block_on(async {
            let result = store.get(&path).await.unwrap();
            let e_tag = result.meta.e_tag.clone();
            let mut stream = result.into_stream();
            let mut found = stream.next().await.unwrap().unwrap().to_vec();
            replace(&dir, "data", &numbered(LEN, 2));
            for other in 0..4 {
                let name = format!("other-{other}");
                std::fs::write(dir.path().join(&name), numbered(5000, other)).unwrap();
                store.get_ranges(&Path::from(name), &[0..5, 10..4000]).await.unwrap();
            }
            while let Some(chunk) = stream.next().await {
                found.extend_from_slice(&chunk.unwrap());
            }
            assert!(found == bytes, "bytes of another file");

            let if_match = GetOptions::new().with_if_match(e_tag.clone());
            let error = store.get_opts(&path, if_match).await.unwrap_err();
            assert!(matches!(error, Error::Precondition { .. }), "{error}");
            let now = store.head(&path).await.unwrap().e_tag;
            assert_ne!(now, e_tag);
            let if_none_match = GetOptions::new().with_if_none_match(now);
            let error = store.get_opts(&path, if_none_match).await.unwrap_err();
            assert!(matches!(error, Error::NotModified { .. }), "{error}");
        });
    }
}

/// The stream of the local store never ends: it delivers empty chunks.
#[test]
fn a_file_that_is_cut_while_it_is_streamed_is_an_error_that_ends_the_stream() {
    let dir = TempDir::new().unwrap();
    let (store, path) = (store(dir.path()), Path::from("data"));
    std::fs::write(dir.path().join("data"), numbered(40 << 20, 1)).unwrap();
    block_on(async {
        let mut stream = store.get(&path).await.unwrap().into_stream();
        assert_eq!(stream.next().await.unwrap().unwrap().len(), 8 << 20);
        let file = std::fs::File::options().write(true).open(dir.path().join("data")).unwrap();
        file.set_len(1 << 20).unwrap();
        let rest: Vec<_> = stream.collect().await;
        let (last, read_before) = rest.split_last().unwrap();
        // One chunk is read ahead.
        assert!(read_before.len() <= 1 && read_before.iter().all(Result::is_ok));
        let text = last.as_ref().unwrap_err().to_string();
        assert!(text.contains("data") && text.contains("1048576 bytes"), "{text}");
    });
}

#[test]
fn a_file_that_grows_is_read_to_its_new_end() {
    let dir = TempDir::new().unwrap();
    let (store, path) = (store(dir.path()), Path::from("data"));
    let bytes = numbered(100_000, 1);
    for len in [10, 5000, 70_000, 100_000] {
        std::fs::write(dir.path().join("data"), &bytes[..len]).unwrap();
        let range = 3..len as u64;
        assert!(block_on(store.get_range(&path, range)).unwrap() == bytes[3..len]);
        assert!(block_on(store.get_ranges(&path, &[0..len as u64 + 1])).is_err());
    }
}
