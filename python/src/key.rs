//! Parses indices, the `key` of `view[key]`, by NumPy's rules.

use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyEllipsis, PyInt, PyList, PySlice, PyString, PyTuple};
use ringmain::Index;
use smallvec::SmallVec;

use crate::error::{Failure, Result};

/// An index of only integers, slices, new axes and an ellipsis.
#[derive(Debug)]
pub(crate) struct BasicKey {
    pub(crate) indices: SmallVec<[Index; 6]>,
    /// An index that uses up all axes selects an element, but with an ellipsis it selects an array without
    /// axes.
    pub(crate) has_ellipsis: bool,
}

impl BasicKey {
    /// Parses the key of a view of this shape. Returns `None` if the key contains lists, masks or arrays.
    pub(crate) fn parse(key: &Bound<'_, PyAny>, shape: &[usize]) -> Result<Option<Self>> {
        let mut basic = Self { indices: SmallVec::new(), has_ellipsis: false };
        let Ok(parts) = key.cast::<PyTuple>() else {
            let part = KeyPart::parse(key, shape.first())?;
            let is_basic = basic.push(part);
            basic.check_count(shape.len())?;
            return Ok(is_basic.then_some(basic));
        };
        let mut axis = 0;
        for (at, part) in parts.iter().enumerate() {
            let part = KeyPart::parse(&part, shape.get(axis))?;
            match part {
                KeyPart::Index(Index::At(_) | Index::Slice { .. }) => axis += 1,
                KeyPart::Index(Index::Ellipsis) => {
                    // The parts after the ellipsis belong to the last axes.
                    let after = parts.iter().skip(at + 1).filter(|part| !part.is_none()).count();
                    axis = shape.len().saturating_sub(after).max(axis);
                }
                _ => {}
            }
            if !basic.push(part) {
                return Ok(None);
            }
        }
        basic.check_count(shape.len())?;
        Ok(Some(basic))
    }

    /// Returns an error if there are more indices than axes. The engine cannot check this, because its
    /// array may have one more axis than the view.
    fn check_count(&self, ndim: usize) -> Result<()> {
        if self.indices.len() <= ndim {
            return Ok(());
        }
        let uses_axis = |index: &&Index| matches!(index, Index::At(_) | Index::Slice { .. });
        let used = self.indices.iter().filter(uses_axis).count();
        if used <= ndim {
            return Ok(());
        }
        Err(Failure::index(format!(
            "too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
        )))
    }

    /// Adds a part. Returns `false` if the part is not a basic index.
    fn push(&mut self, part: KeyPart) -> bool {
        let KeyPart::Index(index) = part else { return false };
        self.has_ellipsis |= index == Index::Ellipsis;
        self.indices.push(index);
        true
    }
}

enum KeyPart {
    Index(Index),
    Fancy,
}

impl KeyPart {
    /// Parses one part of a key. `len` is the length of its axis, or `None` if the key has more parts
    /// than there are axes, which is checked later.
    fn parse(part: &Bound<'_, PyAny>, len: Option<&usize>) -> Result<Self> {
        if let Ok(slice) = part.cast::<PySlice>() {
            return Ok(Self::Index(parse_slice(slice, len.copied().unwrap_or(0))?));
        }
        if part.is_exact_instance_of::<PyInt>() {
            let outside = |_| Failure::index("cannot fit 'int' into an index-sized integer");
            return Ok(Self::Index(Index::At(part.extract().map_err(outside)?)));
        }
        if part.is_none() {
            return Ok(Self::Index(Index::NewAxis));
        }
        if part.is_instance_of::<PyEllipsis>() {
            return Ok(Self::Index(Index::Ellipsis));
        }
        if is_fancy(part)? {
            return Ok(Self::Fancy);
        }
        // Other integers, such as np.int64.
        match part.extract() {
            Ok(index) => Ok(Self::Index(Index::At(index))),
            Err(_) if is_sequence(part) => Ok(Self::Fancy),
            Err(_) if part.is_instance_of::<PyString>() => Err(Failure::index(format!(
                "a view has no fields — use np.asarray(arr)[{}] to read a field of a structured dtype.",
                part.repr()?
            ))),
            Err(_) => Err(Failure::index(
                "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer \
                 or boolean arrays are valid indices",
            )),
        }
    }
}

/// Returns whether NumPy treats this as an array of indices or as a mask.
fn is_fancy(part: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(part.is_instance_of::<PyBool>()
        || part.is_instance_of::<PyList>()
        || part.is_instance_of::<PyTuple>()
        || part.cast::<PyUntypedArray>().is_ok()
        || part.get_type().name()? == "bool")
}

/// Returns whether NumPy would convert this to an array: a range, a tensor, …
fn is_sequence(part: &Bound<'_, PyAny>) -> bool {
    let is_text = part.is_instance_of::<PyString>() || part.is_instance_of::<PyBytes>();
    part.len().is_ok() && !is_text
}

/// Parses a slice. Python clips it to the axis first, so its numbers can be of any size.
fn parse_slice(slice: &Bound<'_, PySlice>, len: usize) -> Result<Index> {
    let cut = slice.indices(isize::try_from(len).unwrap_or(isize::MAX))?;
    if cut.slicelength == 0 {
        return Ok(Index::slice(Some(0), Some(0), 1));
    }
    // Python returns a stop of -1 for a slice that runs backwards to the first element. The engine
    // would count -1 from the end, so the stop is left open.
    let stop = (cut.stop >= 0).then_some(cut.stop as i64);
    Ok(Index::slice(Some(cut.start as i64), stop, cut.step as i64))
}
