//! An object as it was when it was opened.

use std::sync::Arc;

use object_store::{GetOptions, ObjectMeta};
use ringmain_backends::FileVersion;

use super::KIND;
use super::bucket::{Bucket, Head};
use super::failure::{FailureKind, RemoteFailure};
use crate::disk_cache::CacheKey;
use crate::young::is_young;

/// An object, pinned to the version that was opened.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) bucket: Arc<Bucket>,
    meta: ObjectMeta,
    /// The store may send the same version for another object.
    is_ambiguous: bool,
}

impl Object {
    /// Pins an object that was found. Fails if the store names no version of it.
    pub(super) fn new(bucket: Arc<Bucket>, head: Head) -> Result<Self, RemoteFailure> {
        let Head { meta, answered } = head;
        // `object_store` reads a missing `Last-Modified` as 1970.
        let has_time = meta.last_modified.timestamp() != 0;
        if meta.e_tag.is_none() && meta.version.is_none() && !has_time {
            let what = "the server sends neither an ETag nor Last-Modified with the object, so a replaced object could \
                        not be told from this one";
            let way_out = "use a server that sends one of them, or download the object";
            return Err(RemoteFailure::new(FailureKind::NoVersion, what).with_way_out(way_out));
        }
        let is_named = meta.e_tag.is_some() || meta.version.is_some();
        let is_ambiguous = !is_named && is_young(meta.last_modified.into(), answered);
        Ok(Self { bucket, meta, is_ambiguous })
    }

    pub(super) fn len(&self) -> u64 {
        self.meta.size
    }

    pub(super) fn key(&self) -> &object_store::path::Path {
        &self.meta.location
    }

    /// The version, as the engine compares it.
    pub(super) fn version(&self) -> FileVersion {
        FileVersion::named(self.len(), &self.version_name())
    }

    /// The name of the object in a disk cache; `None` if another version may have the same one.
    pub(super) fn cache_key(&self, url: &str) -> Option<CacheKey> {
        let name = format!("{url}{}", self.bucket.origin());
        (!self.is_ambiguous).then(|| CacheKey::new(&name, &self.version_name()))
    }

    /// A text for the version: the same one in every process, and another one for another object.
    pub(super) fn version_name(&self) -> String {
        let ObjectMeta { e_tag, version, last_modified, .. } = &self.meta;
        format!("{KIND} {e_tag:?} {version:?} {:?}", last_modified.timestamp_nanos_opt())
    }

    /// A request for a range of this version alone.
    pub(super) fn request(&self, range: std::ops::Range<u64>) -> GetOptions {
        let ObjectMeta { e_tag, version, .. } = &self.meta;
        // A weak ETag never matches. It is compared with the one of the answer.
        let strong = e_tag.as_ref().filter(|tag| !tag.starts_with("W/"));
        // Asking for a version needs a right of its own (`s3:GetObjectVersion`), so only without a strong ETag.
        let version = version.as_ref().filter(|_| strong.is_none());
        GetOptions::new()
            .with_range(Some(range))
            .with_if_match(strong.cloned())
            .with_version(version.cloned())
    }

    /// Checks that an answer is about this version.
    pub(super) fn check(&self, found: &ObjectMeta) -> Result<(), RemoteFailure> {
        let is_other = |ours: &Option<String>, found: &Option<String>| matches!((ours, found), (Some(ours), Some(found)) if bare(ours) != bare(found));
        let tags = is_other(&self.meta.e_tag, &found.e_tag);
        let versions = is_other(&self.meta.version, &found.version);
        // A time counts only where nothing better is known: it has a resolution of a second.
        let is_tagged = self.meta.e_tag.is_some() && found.e_tag.is_some();
        let times = !is_tagged && self.meta.last_modified != found.last_modified;
        if tags || versions || times || self.meta.size != found.size {
            return Err(RemoteFailure::new(FailureKind::Replaced, "the object was replaced"));
        }
        Ok(())
    }
}

/// An ETag without the mark of a weak one.
fn bare(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn meta(e_tag: Option<&str>, version: Option<&str>, second: i64, size: u64) -> ObjectMeta {
        let mut meta = ObjectMeta {
            location: "key".into(),
            last_modified: Default::default(),
            size,
            e_tag: e_tag.map(str::to_owned),
            version: version.map(str::to_owned),
        };
        meta.last_modified += std::time::Duration::from_secs(second.unsigned_abs());
        meta
    }

    fn object(meta: ObjectMeta) -> Object {
        Object::new(Arc::new(Bucket::of_tests()), meta.into()).unwrap()
    }

    #[test]
    fn another_tag_version_time_or_length_is_another_object() {
        let tagged = object(meta(Some("\"a\""), Some("1"), 5, 10));
        for same in [meta(Some("\"a\""), Some("1"), 5, 10), meta(Some("W/\"a\""), None, 6, 10)] {
            assert!(tagged.check(&same).is_ok(), "{same:?}");
        }
        for other in [
            meta(Some("\"b\""), Some("1"), 5, 10),
            meta(Some("\"a\""), Some("2"), 5, 10),
            meta(Some("\"a\""), Some("1"), 5, 11),
            meta(None, Some("1"), 6, 10),
        ] {
            assert_eq!(
                tagged.check(&other).unwrap_err().kind(),
                FailureKind::Replaced,
                "{other:?}"
            );
        }
        let untagged = object(meta(None, None, 5, 10));
        assert!(untagged.check(&meta(None, None, 5, 10)).is_ok());
        assert!(untagged.check(&meta(None, None, 6, 10)).is_err());
        assert!(tagged.version().change_since(&untagged.version()).is_some());
    }

    #[test]
    fn an_object_without_a_version_is_refused() {
        let unnamed = Object::new(Arc::new(Bucket::of_tests()), meta(None, None, 0, 10).into());
        assert_eq!(unnamed.unwrap_err().kind(), FailureKind::NoVersion);
    }

    /// Two versions of one length, written within a second, had one key.
    #[test]
    fn an_object_that_may_change_within_its_second_has_no_key() {
        let now = SystemTime::now();
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let key = |meta| object(meta).cache_key("s3://b/k");
        for young in [seconds, seconds + 3600] {
            assert_eq!(key(meta(None, None, young, 10)), None);
            assert!(key(meta(Some("W/\"a\""), None, young, 10)).is_some());
            assert!(key(meta(None, Some("1"), young, 10)).is_some());
        }
        let old = key(meta(None, None, seconds - 3600, 10)).unwrap();
        assert!(old.as_str().starts_with("s3://b/k\n"), "{old:?}");
        let elsewhere = Bucket::of_tests().with_origin(" aws_endpoint=http://other".into());
        let elsewhere =
            Object::new(Arc::new(elsewhere), meta(None, None, seconds - 3600, 10).into());
        assert_ne!(elsewhere.unwrap().cache_key("s3://b/k").unwrap(), old, "another server");
    }

    #[test]
    fn requests_name_the_version() {
        let strong = object(meta(Some("\"a\""), Some("1"), 5, 10)).request(0..3);
        assert_eq!((strong.if_match.as_deref(), strong.version), (Some("\"a\""), None));
        let weak = object(meta(Some("W/\"a\""), Some("1"), 5, 10)).request(0..3);
        assert_eq!((weak.if_match, weak.version.as_deref()), (None, Some("1")));
    }
}
