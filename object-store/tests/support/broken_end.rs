//! A store whose answers end in an error after the last byte, as a connection of HTTP/2 may.

use std::fmt;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

#[derive(Debug, Default)]
pub(crate) struct BrokenEnd(pub(crate) InMemory);

impl fmt::Display for BrokenEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokenEnd")
    }
}

fn reset() -> Error {
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let source = Box::new(HttpError::new(HttpErrorKind::Interrupted, reset));
    Error::Generic { store: "BrokenEnd", source }
}

#[async_trait::async_trait]
impl ObjectStore for BrokenEnd {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let mut result = self.0.get_opts(location, options).await?;
        if is_head {
            return Ok(result);
        }
        let nothing = GetResultPayload::Stream(stream::empty().boxed());
        let GetResultPayload::Stream(bytes) = std::mem::replace(&mut result.payload, nothing)
        else {
            panic!("objects in memory are streams");
        };
        let end = stream::once(async { Err(reset()) });
        result.payload = GetResultPayload::Stream(bytes.chain(end).boxed());
        Ok(result)
    }

    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.0.put_opts(to, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(to, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, folder: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(folder)
    }

    async fn list_with_delimiter(&self, folder: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(folder).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, how).await
    }
}
