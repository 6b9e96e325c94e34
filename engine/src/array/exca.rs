//! Opens arrays that exca's `MemmapArray` appended to a `.data` file.

use std::path::{Path, PathBuf};

use crate::{ContiguousMemmap, DType, Engine, Result};

/// The description of an array in exca's info file.
///
/// Other processes may still append to the `.data` file while it is open here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemmapArrayInfo {
    /// The `.data` file, relative to the folder of the cache.
    pub filename: PathBuf,
    /// The offset of the array in the file, in bytes.
    pub offset: u64,
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// NumPy's name of the element type, such as `float32`.
    pub dtype: String,
}

impl Engine {
    /// Opens a view of an array that exca wrote into the cache `folder`.
    ///
    /// ```
    /// use ringmain::{Engine, MemmapArrayInfo};
    /// # let dir = tempfile::tempdir()?;
    /// # let folder = dir.path();
    /// # std::fs::write(folder.join("a.data"), [0, 0, 128, 63, 0, 0, 0, 64])?;
    /// let info = MemmapArrayInfo {
    ///     filename: "a.data".into(),
    ///     offset: 0,
    ///     shape: vec![2],
    ///     dtype: "float32".into(),
    /// };
    /// let array = Engine::new()?.open_exca(folder, &info)?;
    /// assert_eq!(array.read_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_exca(
        &self,
        folder: impl AsRef<Path>,
        info: &MemmapArrayInfo,
    ) -> Result<ContiguousMemmap> {
        let dtype: DType = info.dtype.parse()?;
        self.open_raw(folder.as_ref().join(&info.filename), dtype, &info.shape, info.offset)
    }
}
