//! Chains of operations on views, compared with a model that lists the place of every element.

use arbitrary::{Arbitrary, Unstructured};

use super::model::{self, Model};
use crate::array::layout::Layout;
use crate::{Error, Index};

const ITEMSIZES: [usize; 5] = [1, 2, 4, 8, 16];
/// The model lists arrays of up to this many elements. Of larger ones only the bounds are checked.
const LISTED_MAX: usize = 1024;

#[derive(Arbitrary, Debug)]
struct Input {
    offset: u32,
    shape: Shape,
    itemsize: u8,
    fortran: bool,
    ops: Vec<Op>,
}

#[derive(Arbitrary, Debug)]
enum Shape {
    /// Up to six axes of up to seven elements.
    Small(Vec<u8>),
    /// Any lengths.
    Any(Vec<usize>),
}

#[derive(Arbitrary, Debug)]
enum Op {
    Index(Vec<Part>),
    /// The order of the axes when sorted by these keys.
    Permute([u8; 8]),
    Transpose(Vec<u8>),
    Squeeze(Option<u8>),
    Reshape(Vec<i8>),
    ReshapeAny(Vec<i64>),
    ViewAs(u8),
}

#[derive(Arbitrary, Debug)]
enum Part {
    Near(i8),
    Any(i64),
    Window(Option<i8>, Option<i8>),
    Slice(Option<i8>, Option<i8>, i8),
    AnySlice(Option<i64>, Option<i64>, i64),
    Ellipsis,
    NewAxis,
}

impl From<&Part> for Index {
    fn from(part: &Part) -> Self {
        let near = |end: &Option<i8>| end.map(|end| i64::from(end) % 16);
        match part {
            Part::Near(index) => Index::At(i64::from(*index) % 16),
            Part::Any(index) => Index::At(*index),
            Part::Window(start, stop) => Index::slice(near(start), near(stop), 1),
            Part::Slice(start, stop, step) => {
                Index::slice(near(start), near(stop), i64::from(*step) % 8)
            }
            Part::AnySlice(start, stop, step) => Index::slice(*start, *stop, *step),
            Part::Ellipsis => Index::Ellipsis,
            Part::NewAxis => Index::NewAxis,
        }
    }
}

impl Op {
    /// Applies the operation to the layout and, if there is one, to the model.
    fn apply(
        &self,
        array: &Layout,
        model: Option<&Model>,
    ) -> (Result<Layout, Error>, Option<Result<Model, model::Refused>>) {
        match self {
            Self::Index(parts) => {
                let indices: Vec<Index> = parts.iter().map(Index::from).collect();
                (array.index(&indices), model.map(|model| model.index(&indices)))
            }
            Self::Permute(keys) => {
                let mut order: Vec<usize> = (0..array.shape.len()).collect();
                order.sort_by_key(|axis| keys[axis % keys.len()]);
                (array.transpose(&order), model.map(|model| model.transpose(&order)))
            }
            Self::Transpose(order) => {
                let order: Vec<usize> = order.iter().map(|axis| usize::from(*axis)).collect();
                (array.transpose(&order), model.map(|model| model.transpose(&order)))
            }
            Self::Squeeze(axis) => {
                let axis = axis.map(|axis| usize::from(axis) % 8);
                (array.squeeze(axis), model.map(|model| model.squeeze(axis)))
            }
            Self::Reshape(shape) => {
                let shape: Vec<i64> = shape.iter().map(|len| i64::from(*len)).collect();
                (array.reshape(&shape), model.map(|model| model.reshape(&shape)))
            }
            Self::ReshapeAny(shape) => {
                (array.reshape(shape), model.map(|model| model.reshape(shape)))
            }
            Self::ViewAs(at) => {
                let itemsize = ITEMSIZES[usize::from(*at) % ITEMSIZES.len()];
                (array.view_as(itemsize), model.map(|model| model.view_as(itemsize)))
            }
        }
    }
}

/// Returns `true` for few elements, and few on each axis even if there are none in all.
fn is_listable(array: &Layout) -> bool {
    array.size() <= LISTED_MAX && array.shape.iter().all(|len| *len <= LISTED_MAX)
}

/// The bytes are a shape and a chain of operations. Every result has the elements of the model.
pub(super) fn indexing(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let shape: Vec<usize> = match &input.shape {
        Shape::Small(shape) => shape.iter().take(6).map(|len| usize::from(*len) % 8).collect(),
        Shape::Any(shape) => shape.clone(),
    };
    let itemsize = ITEMSIZES[usize::from(input.itemsize) % ITEMSIZES.len()];
    let offset = u64::from(input.offset);
    let Ok(mut array) = Layout::array(offset, &shape, itemsize, input.fortran) else { return };
    let bounds = offset..offset + array.nbytes() as u64;
    let mut model =
        is_listable(&array).then(|| Model::array(offset, &shape, itemsize, input.fortran));
    for op in input.ops.iter().take(16) {
        let (ours, theirs) = op.apply(&array, model.as_ref());
        match (ours, theirs) {
            (Ok(next), Some(Ok(expected))) => (array, model) = (next, Some(expected)),
            (Ok(next), None) => array = next,
            (Err(_), Some(Err(_)) | None) => {}
            (ours, theirs) => panic!("{op:?} on {array:?}: {ours:?} is not {theirs:?}"),
        }
        model::check_bounds(&array, &bounds);
        model = model.filter(|_| is_listable(&array));
        if let Some(model) = &model {
            model.check(&array);
        }
    }
}
