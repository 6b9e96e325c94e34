//! A tensor: what it is, and its bytes once they are read.

use std::fmt;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use ringmain_backends::Buffer;

use super::{Dtype, Error};
use crate::array::element::Decode;
use crate::{Element, Item, Kind};

/// What a header says of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Which of the model's files.
    file: usize,
    /// Where in that file.
    offset: u64,
    nbytes: usize,
}

impl TensorInfo {
    pub(super) fn new(
        name: &str,
        dtype: Dtype,
        shape: Vec<usize>,
        file: usize,
        offset: u64,
        nbytes: usize,
    ) -> Self {
        Self { name: name.to_owned(), dtype, shape, file, offset, nbytes }
    }

    /// Its name, unique in the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its elements are.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The length of each axis; none for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shape.iter().product() // the header's check has counted them
    }

    /// How many bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Which of [`Weights::files`](super::Weights::files) it is in.
    #[must_use]
    pub fn file(&self) -> usize {
        self.file
    }

    /// Where in the file its first byte is.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What its elements are for array views; `None` if they have less than a byte.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        kind_of(self.dtype)
    }

    /// The bits of one element of the first axis.
    pub(super) fn row_bits(&self) -> usize {
        // Without a first axis, or with an empty one, the product says nothing about the bytes.
        let elements =
            self.shape.iter().skip(1).try_fold(1usize, |count, len| count.checked_mul(*len));
        elements.and_then(|count| count.checked_mul(self.dtype.bitsize())).unwrap_or(0)
    }
}

/// The engine's name for a type of the format.
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
        // F4, F6_E2M3, F6_E3M2, and whatever a later version of the crate knows.
        _ => return None,
    })
}

/// A tensor, or rows of one, in memory of its own.
pub struct Tensor {
    info: Arc<TensorInfo>,
    /// Differs from the info's where only some rows were read.
    shape: Vec<usize>,
    bytes: Buffer,
}

impl Tensor {
    pub(super) fn new(info: Arc<TensorInfo>, shape: Vec<usize>, bytes: Buffer) -> Self {
        Self { info, shape, bytes }
    }

    /// What the header says of it.
    #[must_use]
    pub fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.info.name()
    }

    /// What its elements are.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.info.dtype()
    }

    /// The length of each axis of what was read.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes as they are in the file: elements in C order, little-endian.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The memory, without the rest.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.bytes
    }

    /// The elements in place, without a copy.
    ///
    /// [`Error::ElementType`] if they are of another type. (On a machine that orders bytes the
    /// other way too: [`to_vec`](Self::to_vec) works there.)
    pub fn as_slice<T: Element + AnyBitPattern>(&self) -> Result<&[T], Error> {
        self.check_type::<T>()?;
        let wrong = |reason: String| self.wrong_type(reason);
        if size_of::<T>() > 1 && cfg!(target_endian = "big") {
            return Err(wrong("its bytes are not in this machine's order; use `to_vec`".into()));
        }
        bytemuck::try_cast_slice(&self.bytes).map_err(|error| wrong(format!("{error}")))
    }

    /// A copy of the elements.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let kind = self.check_type::<T>()?;
        let size = self.bytes.len() / kind.itemsize();
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(&self.bytes);
            crate::array::element::to_native(kind.into(), out);
            Ok(())
        };
        <T as Decode>::read_vec(size, fill).map_err(|error| self.wrong_type(error.to_string()))
    }

    fn check_type<T: Element>(&self) -> Result<Kind, Error> {
        let kind = self.info.kind().filter(|kind| T::is(*kind));
        kind.ok_or_else(|| self.wrong_type(format!("they are no {}", T::NAME)))
    }

    fn wrong_type(&self, reason: String) -> Error {
        let item = Some(Item::Tensor(self.name().into()));
        Error::ElementType { item, stored: self.dtype().to_string(), reason }
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
        // Each its own: all the engine has but for Complex128.
        kinds.sort_by_key(|kind| kind.name());
        kinds.dedup();
        assert_eq!(kinds.len(), 19);
    }
}
