//! What stands between the brackets, by NumPy's rules.

use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyEllipsis, PyInt, PyList, PySlice, PyString, PyTuple};
use ringmain::Index;
use smallvec::SmallVec;

use crate::error::{Failure, Result};

/// Integers, slices, new axes and an ellipsis.
#[derive(Debug)]
pub(crate) struct Basic {
    pub(crate) indices: SmallVec<[Index; 6]>,
    /// With one, what is left of all axes is an array, not an element.
    pub(crate) has_ellipsis: bool,
}

impl Basic {
    /// The key of a view of that shape; `None` if there are lists, masks or arrays in it.
    pub(crate) fn parse(key: &Bound<'_, PyAny>, shape: &[usize]) -> Result<Option<Self>> {
        let mut basic = Self { indices: SmallVec::new(), has_ellipsis: false };
        let Ok(parts) = key.cast::<PyTuple>() else {
            let part = Part::parse(key, shape.first())?;
            let is_basic = basic.push(part);
            basic.check_count(shape.len())?;
            return Ok(is_basic.then_some(basic));
        };
        let mut axis = 0;
        for (at, part) in parts.iter().enumerate() {
            let part = Part::parse(&part, shape.get(axis))?;
            match part {
                Part::Index(Index::At(_) | Index::Slice { .. }) => axis += 1,
                Part::Index(Index::Ellipsis) => {
                    // What follows counts from the last axis.
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

    /// Refuses more indices than axes here, as the engine may have an axis more than the caller.
    fn check_count(&self, ndim: usize) -> Result<()> {
        if self.indices.len() <= ndim {
            return Ok(());
        }
        let uses_axis = |index: &&Index| matches!(index, Index::At(_) | Index::Slice { .. });
        let given = self.indices.iter().filter(uses_axis).count();
        if given <= ndim {
            return Ok(());
        }
        Err(Failure::index(format!(
            "too many indices for array: array is {ndim}-dimensional, but {given} were indexed"
        )))
    }

    /// False if the part is none of ours.
    fn push(&mut self, part: Part) -> bool {
        let Part::Index(index) = part else { return false };
        self.has_ellipsis |= index == Index::Ellipsis;
        self.indices.push(index);
        true
    }
}

enum Part {
    Index(Index),
    Fancy,
}

impl Part {
    /// `len` is that of the axis it stands for; there may be none, which is told when it is used.
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
        // Whatever else counts, such as np.int64.
        match part.extract() {
            Ok(index) => Ok(Self::Index(Index::At(index))),
            Err(_) if is_sequence(part) => Ok(Self::Fancy),
            Err(_) => Err(Failure::index(
                "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer \
                 or boolean arrays are valid indices",
            )),
        }
    }
}

/// Whether NumPy takes it for an array of indices or a mask.
fn is_fancy(part: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(part.is_instance_of::<PyBool>()
        || part.is_instance_of::<PyList>()
        || part.is_instance_of::<PyTuple>()
        || part.cast::<PyUntypedArray>().is_ok()
        || part.get_type().name()? == "bool")
}

/// Whether NumPy would make an array of it: a range, a tensor, …
fn is_sequence(part: &Bound<'_, PyAny>) -> bool {
    let is_text = part.is_instance_of::<PyString>() || part.is_instance_of::<PyBytes>();
    part.len().is_ok() && !is_text
}

/// Python cuts the slice to the axis, so that numbers of any size are numbers of ours.
fn parse_slice(slice: &Bound<'_, PySlice>, len: usize) -> Result<Index> {
    let cut = slice.indices(isize::try_from(len).unwrap_or(isize::MAX))?;
    if cut.slicelength == 0 {
        return Ok(Index::slice(Some(0), Some(0), 1));
    }
    // Before the beginning means "to the beginning" only when it is left open.
    let stop = (cut.stop >= 0).then_some(cut.stop as i64);
    Ok(Index::slice(Some(cut.start as i64), stop, cut.step as i64))
}
