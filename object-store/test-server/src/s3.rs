//! The operations of S3 that a reader needs.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use s3s::dto::{
    CommonPrefix, ETag, ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectInput,
    HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, Object as Listed, StreamingBlob,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::files::{Buckets, Object, keys};

pub(crate) struct FolderS3(pub(crate) Buckets);

impl FolderS3 {
    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        if self.0.folder(bucket).is_none() {
            return Err(s3_error!(NoSuchBucket));
        }
        self.0.open(bucket, key).ok_or_else(|| s3_error!(NoSuchKey))
    }
}

/// Pages of a list are short, so that tests meet more than one.
const PAGE_LEN_MAX: usize = 100;

#[async_trait::async_trait]
impl S3 for FolderS3 {
    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let object = self.open(&input.bucket, &input.key)?;
        let tag = ETag::Strong(object.e_tag.clone());
        if let Some(ETagCondition::ETag(wanted)) = &input.if_match
            && wanted.value() != object.e_tag
        {
            return Err(s3_error!(PreconditionFailed));
        }
        let (len, modified) = (object.len, object.modified);
        let range = match input.range {
            Some(range) => range.check(len)?,
            None => 0..len,
        };
        let is_part = input.range.is_some();
        let content_range =
            is_part.then(|| format!("bytes {}-{}/{len}", range.start, range.end - 1));
        let part_len = i64::try_from(range.end - range.start).ok();
        let body = object.body(range).map(|frame| frame.map(hyper::body::Bytes::from));
        Ok(S3Response::new(GetObjectOutput {
            body: Some(StreamingBlob::wrap(body)),
            content_length: part_len,
            content_range,
            e_tag: Some(tag),
            last_modified: Some(modified.into()),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let object = self.open(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: i64::try_from(object.len).ok(),
            e_tag: Some(ETag::Strong(object.e_tag)),
            last_modified: Some(object.modified.into()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let folder = self.0.folder(&input.bucket).ok_or_else(|| s3_error!(NoSuchBucket))?;
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let after = input.continuation_token.or(input.start_after).unwrap_or_default();
        let (mut objects, mut folders, mut last) = (Vec::new(), BTreeSet::new(), None);
        let mut is_cut = false;
        for key in keys(folder, prefix).into_iter().filter(|key| *key > after) {
            if objects.len() + folders.len() >= PAGE_LEN_MAX {
                is_cut = true;
                break;
            }
            last = Some(key.clone());
            let inside = key[prefix.len()..].split_once('/');
            match inside.filter(|_| input.delimiter.is_some()) {
                Some((name, _)) => drop(folders.insert(format!("{prefix}{name}/"))),
                None => objects.extend(self.0.open(&input.bucket, &key).map(|found| Listed {
                    key: Some(key),
                    size: i64::try_from(found.len).ok(),
                    e_tag: Some(ETag::Strong(found.e_tag)),
                    last_modified: Some(found.modified.into()),
                    ..Listed::default()
                })),
            }
        }
        let count = i32::try_from(objects.len() + folders.len()).ok();
        let folders = folders.into_iter().map(|prefix| CommonPrefix { prefix: Some(prefix) });
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            key_count: count,
            is_truncated: Some(is_cut),
            next_continuation_token: last.filter(|_| is_cut),
            contents: Some(objects),
            common_prefixes: Some(folders.collect()),
            ..ListObjectsV2Output::default()
        }))
    }
}
