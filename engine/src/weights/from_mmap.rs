//! Tensors of the crate `safetensors` over a mapping.

use safetensors::SafeTensors;

use super::{Error, MappedWeights, WeightsDamage};

/// Makes the tensors of the crate `safetensors` from a mapped file, for code that takes those.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("model.safetensors");
/// # let json = r#"{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
/// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"abcd"].concat())?;
/// use ringmain::weights::{MappedWeights, SafetensorsMmap, Unchanging};
/// use safetensors::SafeTensors;
///
/// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
/// let unchanging = unsafe { Unchanging::promise() };
/// let weights = MappedWeights::open(&path, unchanging)?;
/// let tensors = SafeTensors::from_mmap(&weights)?;
/// assert_eq!(tensors.tensor("w")?.data(), b"abcd"); // over the mapping: nothing is copied
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait SafetensorsMmap<'data>: Sized {
    /// Returns the tensors of the file. A bad file gives the same errors as
    /// [`MappedWeights::tensors`].
    fn from_mmap(weights: &'data MappedWeights) -> Result<Self, Error>;
}

impl<'data> SafetensorsMmap<'data> for SafeTensors<'data> {
    fn from_mmap(weights: &'data MappedWeights) -> Result<Self, Error> {
        // Its errors name the tensor and say what to do.
        weights.tensors()?;
        Self::deserialize(weights.as_bytes()).map_err(|error| {
            let reason = error.to_string();
            Error::format(weights.path(), WeightsDamage::BadHeader { reason })
        })
    }
}
