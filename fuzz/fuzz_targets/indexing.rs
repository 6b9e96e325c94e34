//! Chains of operations on views, against a model that lists the place of every element.
#![no_main]

mod model;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use model::Model;
use ringmain::Index;
use ringmain::fuzzing::Arrangement;

const ITEMSIZES: [usize; 5] = [1, 2, 4, 8, 16];
/// What the model lists; larger arrays are only held to their bounds.
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
    /// Whatever fits.
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
    /// The operation on the arrangement and, where there is one, on the model.
    fn apply(
        &self,
        array: &Arrangement,
        model: Option<&Model>,
    ) -> (Result<Arrangement, ringmain::Error>, Option<Result<Model, model::Refused>>) {
        match self {
            Self::Index(parts) => {
                let indices: Vec<Index> = parts.iter().map(Index::from).collect();
                (array.index(&indices), model.map(|model| model.index(&indices)))
            }
            Self::Permute(keys) => {
                let mut order: Vec<usize> = (0..array.shape().len()).collect();
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

/// Few elements, and few on each axis even if there are none in all.
fn is_listable(array: &Arrangement) -> bool {
    array.size() <= LISTED_MAX && array.shape().iter().all(|len| *len <= LISTED_MAX)
}

fuzz_target!(|input: Input| {
    let shape: Vec<usize> = match &input.shape {
        Shape::Small(shape) => shape.iter().take(6).map(|len| usize::from(*len) % 8).collect(),
        Shape::Any(shape) => shape.clone(),
    };
    let itemsize = ITEMSIZES[usize::from(input.itemsize) % ITEMSIZES.len()];
    let offset = u64::from(input.offset);
    let Ok(mut array) = Arrangement::new(offset, &shape, itemsize, input.fortran) else { return };
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
});
