//! Fields whose types FFCV does not define. The caller gives the dtype of their metadata.

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString, PyTuple};
use ringmain::beton::{CustomRegion, FieldHandler, MemberRegion, SampleBuilder, SampleError};

use crate::arguments;
use crate::beton_column::bytes_of;
use crate::dtype;
use crate::error::{Failure, Result};

/// The custom fields of a dataset.
#[derive(Debug, Default)]
pub(crate) struct CustomFields(Vec<CustomField>);

#[derive(Debug)]
pub(crate) struct CustomField {
    pub(crate) name: String,
    pub(crate) descr: Py<PyArrayDescr>,
    pub(crate) layout: Metadata,
}

impl CustomFields {
    /// Parses the argument `fields`: a dict of dtypes or sizes by field name.
    pub(crate) fn parse(dtypes: Option<&Bound<'_, PyDict>>) -> Result<Self> {
        let Some(dtypes) = dtypes else { return Ok(Self::default()) };
        let py = dtypes.py();
        let fields = dtypes.iter().map(|(name, dtype)| {
            let name: String = arguments::typed("a field name in fields", "a str", &name)?;
            let descr = match dtype.cast::<PyInt>() {
                // A number of bytes: FFCV packs members without gaps, as NumPy does with this dtype.
                Ok(bytes) => dtype::parse(PyString::new(py, &format!("V{bytes}")).as_any())?,
                Err(_) => dtype::parse(&dtype)?,
            };
            let layout = Metadata::parse(&name, &descr)?;
            Ok(CustomField { name, descr: descr.unbind(), layout })
        });
        Ok(Self(fields.collect::<Result<_>>()?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &CustomField> {
        self.0.iter()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&CustomField> {
        self.0.iter().find(|field| field.name == name)
    }

    /// Returns the dict that the caller gave, or `None` if there are no custom fields.
    pub(crate) fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let dict = PyDict::new(py);
        for field in self.iter() {
            dict.set_item(&field.name, &field.descr)?;
        }
        Ok((!self.0.is_empty()).then_some(dict))
    }
}

impl CustomField {
    /// Returns a custom field to write, whose metadata has this dtype.
    pub(crate) fn new(name: &str, dtype: &Bound<'_, PyAny>) -> Result<Self> {
        let descr = dtype::parse(dtype)?;
        let layout = Metadata::parse(name, &descr)?;
        Ok(Self { name: name.to_owned(), descr: descr.unbind(), layout })
    }

    /// Gives a value, in the form in which `Beton` delivers it, to `builder`: the metadata, or a dict of "metadata" and
    /// "data" if the metadata points to data. The writer fills in "ptr" and "size".
    pub(crate) fn put(
        &self,
        value: &Bound<'_, PyAny>,
        builder: &mut SampleBuilder<'_>,
    ) -> std::result::Result<(), SampleError> {
        let Some(ptr_at) = self.layout.ptr_at else {
            builder.custom(&self.member(value)?, None)?;
            return Ok(());
        };
        let parts = value.cast::<PyDict>().ok();
        let part = |key| parts.and_then(|parts| parts.get_item(key).ok().flatten());
        let (Some(metadata), Some(data)) = (part("metadata"), part("data")) else {
            let message = "a value with data is a dict of \"metadata\" and \"data\"";
            return Err(PyErr::from(Failure::type_(message)).into());
        };
        let (mut member, data) = (self.member(&metadata)?, bytes_of(&data)?);
        let refused = |reason: &str| -> SampleError {
            PyErr::from(Failure::value(format!("{} bytes of data: {reason}", data.len()))).into()
        };
        match self.layout.size {
            Some((at, bytes)) => {
                let len = (data.len() as u64).to_le_bytes();
                let (kept, lost) = len.split_at(bytes.min(8));
                if lost.iter().any(|byte| *byte != 0) {
                    return Err(refused("the \"size\" of the metadata is too small for them"));
                }
                member[at..at + kept.len()].copy_from_slice(kept);
            }
            None if data.is_empty() => {
                return Err(refused("metadata without a \"size\" cannot tell that there are none"));
            }
            None => {}
        }
        member[ptr_at..ptr_at + 8].fill(0);
        // FFCV stores no region for an empty value.
        let region = (!data.is_empty()).then_some(CustomRegion { bytes: &data, ptr_at });
        builder.custom(&member, region)?;
        Ok(())
    }

    /// Returns the bytes of metadata.
    fn member(&self, metadata: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let numpy = metadata.py().import("numpy")?;
        let array = numpy.call_method1("asarray", (metadata, &self.descr))?;
        let bytes: Vec<u8> = array.call_method0("tobytes")?.extract()?;
        if bytes.len() == self.layout.bytes {
            return Ok(bytes);
        }
        let (found, needed) = (bytes.len(), self.layout.bytes);
        Err(Failure::value(format!("the metadata has {found} bytes, not {needed}")).into())
    }

    /// Returns an array of the metadata of one or more samples. `bytes` holds the metadata of all samples, one
    /// after the other.
    pub(crate) fn metadata<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>> {
        let shown = (PyBytes::new(py, bytes), &self.descr);
        let array = py.import("numpy")?.call_method1("frombuffer", shown)?;
        Ok(array.call_method0("copy")?) // an array over `bytes` would be read-only
    }
}

/// The layout of a sample's metadata, including where it holds the pointer to the data and the data's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metadata {
    bytes: usize,
    align: usize,
    ptr_at: Option<usize>,
    /// Where the metadata holds the size of the data: the offset, and the number of bytes.
    size: Option<(usize, usize)>,
}

impl Metadata {
    fn parse(name: &str, descr: &Bound<'_, PyArrayDescr>) -> Result<Self> {
        let part = |key: &str| -> Result<Option<(usize, usize, String)>> {
            let fields = descr.getattr("fields")?;
            if fields.is_none() || !fields.contains(key)? {
                return Ok(None);
            }
            let found = fields.get_item(key)?.cast_into::<PyTuple>()?;
            let kind = found.get_item(0)?.cast_into::<PyArrayDescr>()?;
            let text = kind.getattr("str")?.extract()?;
            Ok(Some((found.get_item(1)?.extract()?, kind.itemsize(), text)))
        };
        // FFCV's own fields use both names.
        let ptr = match part("ptr")? {
            None => part("data_ptr")?,
            found => found,
        };
        let ptr_at = match ptr {
            Some((at, _, text)) if text == "<u8" => Some(at),
            Some((_, _, text)) => {
                return Err(Failure::value(format!(
                    "fields[{name:?}]: \"ptr\" has dtype {text}; it must be <u8"
                )));
            }
            None => None,
        };
        let size = match part("size")? {
            Some((at, bytes, text)) if text.starts_with("<u") || text == "|u1" => Some((at, bytes)),
            Some((_, _, text)) if ptr_at.is_some() => {
                return Err(Failure::value(format!(
                    "fields[{name:?}]: \"size\" has dtype {text}; it must be unsigned and \
                     little-endian"
                )));
            }
            _ => None,
        };
        Ok(Self { bytes: descr.itemsize(), align: descr.alignment(), ptr_at, size })
    }

    /// Returns whether a value has bytes in the pages of the file besides its metadata.
    pub(crate) fn has_data(&self) -> bool {
        self.ptr_at.is_some()
    }
}

impl FieldHandler for Metadata {
    fn member_bytes(&self) -> usize {
        self.bytes
    }

    fn member_align(&self) -> usize {
        self.align
    }

    fn region(&self, member: &[u8]) -> Option<MemberRegion> {
        let number = |at: usize, bytes: usize| {
            let mut word = [0; 8];
            word.get_mut(..bytes)?.copy_from_slice(member.get(at..at + bytes)?);
            Some(u64::from_le_bytes(word))
        };
        let ptr = number(self.ptr_at?, 8)?;
        let size = self.size.and_then(|(at, bytes)| number(at, bytes));
        // FFCV stores no region for an empty value.
        (size != Some(0)).then_some(MemberRegion { ptr, size })
    }
}
