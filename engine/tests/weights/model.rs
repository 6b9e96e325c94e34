//! Files to load, made from bytes that follow from the tensor's name.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::support::temp_dir;

/// A tensor to write: name, type, shape, bytes.
pub(crate) type Spec = (String, &'static str, Vec<usize>, usize);

/// A directory with `model.safetensors`.
pub(crate) struct Model {
    pub(crate) dir: TempDir,
    pub(crate) specs: Vec<Spec>,
}

impl Model {
    pub(crate) fn new(specs: Vec<Spec>) -> Self {
        let dir = temp_dir();
        std::fs::write(dir.path().join("model.safetensors"), file(&specs)).unwrap();
        Self { dir, specs }
    }

    /// Makes `count` tensors of bytes, with irregular sizes around `nbytes`.
    pub(crate) fn of_bytes(count: usize, nbytes: usize) -> Self {
        let spec = |at: usize| {
            let len = nbytes + at * 37 % 101;
            (format!("layer.{at}.weight"), "U8", vec![len], len)
        };
        Self::new((0..count).map(spec).collect())
    }

    /// Sets an old modification time. Some filesystems count time in milliseconds, and a second
    /// write within one of them would look unchanged.
    pub(crate) fn make_old(&self) {
        let file = std::fs::File::options().write(true).open(self.path()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("model.safetensors")
    }
}

/// Returns the bytes of a tensor.
pub(crate) fn bytes_of(name: &str, nbytes: usize) -> Vec<u8> {
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(nbytes).collect()
}

/// Returns a safetensors file.
pub(crate) fn file(specs: &[Spec]) -> Vec<u8> {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, nbytes) in specs {
        let begin = data.len();
        data.extend(bytes_of(name, *nbytes));
        let end = data.len();
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
        ));
    }
    file_of(&format!("{{{}}}", entries.join(",")), &data)
}

/// Returns a file with this header and these bytes.
pub(crate) fn file_of(json: &str, data: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), data].concat()
}

/// Writes a file to the directory.
pub(crate) fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}
