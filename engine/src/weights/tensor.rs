//! A tensor: its description, and its bytes once they are read.

use std::fmt;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use ringmain_backends::Buffer;

use super::{Dtype, Error};
use crate::array::element::Decode;
use crate::{Element, Item, Kind};

/// The description of a tensor in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub(super) name: Box<str>,
    pub(super) dtype: Dtype,
    pub(super) shape: Box<[usize]>,
    /// The number of the file in the model.
    pub(super) file: usize,
    /// The offset in that file.
    pub(super) offset: u64,
    pub(super) nbytes: usize,
}

impl TensorInfo {
    /// Returns the name, which is unique in the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the element type.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the length of each axis; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shape.iter().product() // no overflow: the header's check counted them
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Returns the number of its file in [`Weights::files`](super::Weights::files).
    #[must_use]
    pub fn file(&self) -> usize {
        self.file
    }

    /// Returns the offset of its first byte in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the element type for array views; `None` if elements have less than a byte.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        kind_of(self.dtype)
    }

    /// Returns the kind of the elements, if they can be read as `T`.
    pub(super) fn check_type<T: Element>(&self) -> Result<Kind, Error> {
        match self.kind() {
            Some(kind) if T::is(kind) => Ok(kind),
            // Elements of less than a byte have no view.
            None => Err(self.wrong_type(format!("they cannot be read as {}", T::NAME))),
            Some(_) => Err(self.wrong_type(format!(
                "they cannot be read as {}; `Weights::view` and `read_as` convert them",
                T::NAME
            ))),
        }
    }

    fn wrong_type(&self, reason: String) -> Error {
        let item = Some(Item::Tensor(self.name.clone()));
        Error::ElementType { path: None, item, stored: self.dtype.to_string(), reason }
    }

    /// Returns the number of bits in a row: one element of the first axis.
    pub(super) fn row_bits(&self) -> usize {
        // Without a first axis, or with an empty one, the size in bytes does not determine the row
        // size.
        let elements =
            self.shape.iter().skip(1).try_fold(1usize, |count, len| count.checked_mul(*len));
        elements.and_then(|count| count.checked_mul(self.dtype.bitsize())).unwrap_or(0)
    }
}

/// Converts an element type of the format to the engine's.
fn kind_of(dtype: Dtype) -> Option<Kind> {
    Some(match dtype {
        Dtype::BOOL => Kind::Bool,
        Dtype::U8 => Kind::U8,
        Dtype::I8 => Kind::I8,
        Dtype::F8_E5M2 => Kind::F8E5M2,
        Dtype::F8_E4M3 => Kind::F8E4M3,
        Dtype::F8_E8M0 => Kind::F8E8M0,
        Dtype::F8_E4M3FNUZ => Kind::F8E4M3Fnuz,
        Dtype::F8_E5M2FNUZ => Kind::F8E5M2Fnuz,
        Dtype::I16 => Kind::I16,
        Dtype::U16 => Kind::U16,
        Dtype::F16 => Kind::F16,
        Dtype::BF16 => Kind::BF16,
        Dtype::I32 => Kind::I32,
        Dtype::U32 => Kind::U32,
        Dtype::F32 => Kind::F32,
        Dtype::C64 => Kind::Complex64,
        Dtype::F64 => Kind::F64,
        Dtype::I64 => Kind::I64,
        Dtype::U64 => Kind::U64,
        // F4, F6_E2M3, F6_E3M2, and types of later versions of the crate.
        _ => return None,
    })
}

/// A tensor, or rows of one, in memory of its own.
pub struct Tensor {
    info: Arc<TensorInfo>,
    /// Differs from the shape in `info` if only some rows were read.
    shape: Vec<usize>,
    bytes: Buffer,
}

impl Tensor {
    pub(super) fn new(info: Arc<TensorInfo>, shape: Vec<usize>, bytes: Buffer) -> Self {
        Self { info, shape, bytes }
    }

    /// Returns the description in the header.
    #[must_use]
    pub fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.info.name()
    }

    /// Returns the element type.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.info.dtype()
    }

    /// Returns the length of each axis that was read.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the bytes as in the file: elements in C order, little-endian.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the memory of the tensor.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.bytes
    }

    /// Returns the elements in place, without a copy.
    ///
    /// Fails with [`Error::ElementType`] if the elements have another type, and always on a big-endian
    /// machine; use [`to_vec`](Self::to_vec) there.
    pub fn as_slice<T: Element + AnyBitPattern>(&self) -> Result<&[T], Error> {
        self.info.check_type::<T>()?;
        let wrong = |reason: String| self.info.wrong_type(reason);
        if size_of::<T>() > 1 && cfg!(target_endian = "big") {
            return Err(wrong("its bytes are not in this machine's order; use `to_vec`".into()));
        }
        bytemuck::try_cast_slice(&self.bytes).map_err(|error| wrong(format!("{error}")))
    }

    /// Returns a copy of the elements.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let kind = self.info.check_type::<T>()?;
        let size = self.bytes.len() / kind.itemsize();
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(&self.bytes);
            crate::array::element::to_native(kind.into(), out);
            Ok(())
        };
        <T as Decode>::read_vec(size, fill).map_err(|error| self.info.wrong_type(error.to_string()))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}, {} {:?})", self.name(), self.dtype(), self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_whole_bytes_has_a_kind_of_its_size() {
        let names = "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ \
                     F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64";
        let mut kinds = Vec::new();
        for name in names.split_whitespace() {
            let dtype: Dtype = serde_json::from_str(&format!("\"{name}\"")).unwrap();
            match kind_of(dtype) {
                Some(kind) => {
                    assert_eq!(kind.itemsize() * 8, dtype.bitsize(), "{name}");
                    kinds.push(kind);
                }
                None => assert!(dtype.bitsize() < 8, "{name}"),
            }
        }
        // All kinds of the engine but Complex128 occur, each once.
        kinds.sort_by_key(|kind| kind.name());
        kinds.dedup();
        assert_eq!(kinds.len(), 19);
    }
}
