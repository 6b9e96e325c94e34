//! The meaning of the operations, written in the slow and plain way with `ndarray`.

use ndarray::{ArrayD, Axis, Dimension, IxDyn};
use ringmain::{Error, Index, Select};

use crate::python_slice::python_slice;

/// The reason of a refusal: the variant of [`Error`] without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    IndexOutOfRange,
    TooManyIndices,
    InvalidIndex,
    NonContiguous,
    Shape,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        match error {
            Error::IndexOutOfRange { .. } => Self::IndexOutOfRange,
            Error::TooManyIndices { .. } => Self::TooManyIndices,
            Error::InvalidIndex { .. } => Self::InvalidIndex,
            Error::NonContiguous { .. } => Self::NonContiguous,
            Error::Shape { .. } => Self::Shape,
            other => panic!("no operation on views should fail with: {other}"),
        }
    }
}

/// Applies NumPy's basic indexing, and lists and masks each along its own axis, as with `np.ix_`.
pub(crate) fn select(array: &ArrayD<u16>, parts: &[Select]) -> Result<ArrayD<u16>, Refusal> {
    let is = |wanted: Index| move |part: &&Select| matches!(part, Select::Basic(i) if *i == wanted);
    let ellipses = parts.iter().filter(is(Index::Ellipsis)).count();
    let given = parts.len() - ellipses - parts.iter().filter(is(Index::NewAxis)).count();
    let spare = array.ndim().checked_sub(given).ok_or(Refusal::TooManyIndices)?;
    if ellipses > 1 {
        return Err(Refusal::InvalidIndex);
    }
    let (mut result, mut axis) = (array.clone(), 0);
    for part in parts {
        result = match part {
            Select::Basic(Index::Ellipsis) => {
                axis += spare;
                continue;
            }
            Select::Basic(Index::NewAxis) => result.insert_axis(Axis(axis)),
            Select::Basic(Index::At(index)) => {
                let at = place(*index, result.len_of(Axis(axis)))?;
                result = result.index_axis_move(Axis(axis), at);
                continue;
            }
            part => result.select(Axis(axis), &places(part, result.len_of(Axis(axis)))?),
        };
        axis += 1;
    }
    Ok(result)
}

/// Returns the place on its axis that an index points to.
fn place(index: i64, len: usize) -> Result<usize, Refusal> {
    let counted = i128::from(index) + if index < 0 { len as i128 } else { 0 };
    let at = usize::try_from(counted).ok().filter(|at| *at < len);
    at.ok_or(Refusal::IndexOutOfRange)
}

/// Returns the places of its axis that a part selects.
fn places(part: &Select, len: usize) -> Result<Vec<usize>, Refusal> {
    match part {
        Select::List(list) => list.iter().map(|index| place(*index, len)).collect(),
        Select::Mask(mask) if mask.len() != len => Err(Refusal::InvalidIndex),
        Select::Mask(mask) => Ok((0..len).filter(|at| mask[*at]).collect()),
        Select::Basic(Index::Slice { step: 0, .. }) => Err(Refusal::InvalidIndex),
        Select::Basic(Index::Slice { start, stop, step }) => {
            Ok(python_slice(*start, *stop, *step, len))
        }
        Select::Basic(other) => unreachable!("{other:?} selects no places"),
    }
}

/// Returns `true` if the elements are one range of the file, in any order of the axes, and no axis
/// runs backwards: the rule for views. An axis of one element has no direction.
pub(crate) fn is_one_range(array: &ArrayD<u16>) -> bool {
    let (Some(lowest), Some(highest)) = (array.iter().min(), array.iter().max()) else {
        return true;
    };
    let is_interval = usize::from(highest - lowest) + 1 == array.len();
    is_interval && (0..array.ndim()).all(|axis| !runs_backwards(array, Axis(axis)))
}

fn runs_backwards(array: &ArrayD<u16>, axis: Axis) -> bool {
    let first = |at: usize| array.index_axis(axis, at).iter().next().copied();
    array.len_of(axis) > 1 && first(1) < first(0)
}

/// Returns the same elements in another shape, if their places are still evenly spaced along every
/// axis. Then it is a view; otherwise it would be a copy.
pub(crate) fn reshape(array: &ArrayD<u16>, shape: &[i64]) -> Result<ArrayD<u16>, Refusal> {
    let shape = complete(array.len(), shape).ok_or(Refusal::Shape)?;
    let elements = array.iter().copied().collect();
    let result = ArrayD::from_shape_vec(IxDyn(&shape), elements).unwrap();
    if is_evenly_spaced(&result) { Ok(result) } else { Err(Refusal::Shape) }
}

fn is_evenly_spaced(array: &ArrayD<u16>) -> bool {
    let Some(origin) = array.iter().next().map(|at| i64::from(*at)) else { return true };
    let stride = |axis: usize| {
        let mut index = vec![0; array.ndim()];
        index[axis] = 1;
        array.get(IxDyn(&index)).map_or(0, |at| i64::from(*at) - origin)
    };
    let strides: Vec<i64> = (0..array.ndim()).map(stride).collect();
    array.indexed_iter().all(|(index, at)| {
        let axes = index.slice().iter().zip(&strides);
        let distance: i64 = axes.map(|(at, stride)| *at as i64 * stride).sum();
        origin + distance == i64::from(*at)
    })
}

/// Returns the shape with its open length filled in, if it has the same number of elements.
fn complete(size: usize, shape: &[i64]) -> Option<Vec<usize>> {
    let open = shape.iter().filter(|len| **len == -1).count();
    let known = shape.iter().filter(|len| **len != -1);
    let known: i64 = known.map(|len| (*len >= 0).then_some(*len)).product::<Option<i64>>()?;
    let known = usize::try_from(known).ok()?;
    let filled = match open {
        0 if known == size => 0,
        1 if known > 0 && size.is_multiple_of(known) => size / known,
        _ => return None,
    };
    Some(shape.iter().map(|len| usize::try_from(*len).unwrap_or(filled)).collect())
}
