//! Files as objects.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use futures_util::Stream;
use futures_util::stream;

/// The folder of each bucket.
#[derive(Clone, Debug)]
pub(crate) struct Buckets(pub(crate) BTreeMap<String, PathBuf>);

/// An open file.
pub(crate) struct Object {
    pub(crate) file: File,
    pub(crate) len: u64,
    /// Without quotes.
    pub(crate) e_tag: String,
    pub(crate) modified: SystemTime,
}

/// Bytes in one frame of a body.
const FRAME_BYTES: u64 = 256 << 10;

impl Buckets {
    pub(crate) fn folder(&self, bucket: &str) -> Option<&Path> {
        self.0.get(bucket).map(PathBuf::as_path)
    }

    /// The regular file of an object.
    pub(crate) fn open(&self, bucket: &str, key: &str) -> Option<Object> {
        let path = self.folder(bucket)?.join(key);
        // Before it is opened: that of a pipe waits for a writer.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let file = File::open(path).ok()?;
        let found = file.metadata().ok()?;
        let (ino, changed, nanoseconds) = (found.ino(), found.ctime(), found.ctime_nsec());
        let e_tag = format!("{ino:x}-{changed:x}-{nanoseconds:x}-{:x}", found.len());
        Some(Object { file, len: found.len(), e_tag, modified: found.modified().ok()? })
    }
}

impl Object {
    /// The bytes of a range. A file that was cut meanwhile is an error.
    pub(crate) fn body(
        self,
        range: Range<u64>,
    ) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + Sync + 'static {
        stream::unfold(Some((self.file, range)), |state| async move {
            let (file, mut range) = state.filter(|(_, range)| !range.is_empty())?;
            let mut bytes = vec![0; FRAME_BYTES.min(range.end - range.start) as usize];
            match file.read_exact_at(&mut bytes, range.start) {
                Ok(()) => {
                    range.start += bytes.len() as u64;
                    Some((Ok(bytes), Some((file, range))))
                }
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

/// The keys of all objects below a folder that begin with `prefix`, in order.
pub(crate) fn keys(folder: &Path, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Only the folder that the prefix names is looked at.
    let base = prefix.rsplit_once('/').map_or("", |(base, _)| base);
    walk(&folder.join(base), base, &mut found);
    found.retain(|key| key.starts_with(prefix));
    found.sort();
    found
}

fn walk(folder: &Path, base: &str, found: &mut Vec<String>) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let key = if base.is_empty() { name } else { format!("{base}/{name}") };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), &key, found),
            Ok(_) => found.push(key),
            Err(_) => {}
        }
    }
}
