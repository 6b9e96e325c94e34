//! The integration tests of `object_store`, as it calls them for its local store.

use futures::executor::block_on;
use object_store::ObjectStoreExt;
use object_store::integration::{
    copy_if_not_exists, copy_rename_nonexistent_object, get_opts, list_uses_directories_correctly,
    list_with_delimiter, list_with_offset_exclusivity, put_get_delete_list, put_opts,
    rename_and_copy, stream_get,
};
use object_store::path::Path;
use ringmain_object_store::local_store::RingmainStore;
use tempfile::TempDir;

use crate::{local, store};

async fn all(store: &RingmainStore) {
    put_get_delete_list(store).await;
    list_with_offset_exclusivity(store).await;
    get_opts(store).await;
    list_uses_directories_correctly(store).await;
    list_with_delimiter(store).await;
    rename_and_copy(store).await;
    copy_if_not_exists(store).await;
    copy_rename_nonexistent_object(store).await;
    stream_get(store).await;
    put_opts(store, false).await;
}

#[tokio::test]
async fn in_a_runtime_of_one_thread() {
    let dir = TempDir::new().unwrap();
    all(&store(dir.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_a_runtime_of_several_threads_with_fsync() {
    let dir = TempDir::new().unwrap();
    all(&RingmainStore::new(local(dir.path()).with_fsync(true)).unwrap()).await;
}

#[test]
fn without_a_runtime() {
    let dir = TempDir::new().unwrap();
    let store = store(dir.path());
    block_on(async {
        put_get_delete_list(&store).await;
        list_uses_directories_correctly(&store).await;
        list_with_delimiter(&store).await;
        // `stream_get` needs tokio. This is its upload without the stream.
        let path = Path::from("parts");
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part("123".into()).await.unwrap();
        upload.put_part("45678".into()).await.unwrap();
        let put = upload.complete().await.unwrap();
        let found = store.get(&path).await.unwrap();
        assert_eq!(found.meta.e_tag, put.e_tag);
        assert_eq!(found.bytes().await.unwrap(), "12345678");
    });
}
