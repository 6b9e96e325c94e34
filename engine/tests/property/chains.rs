//! Chains of operations that do not read; the result is read at every step.

use ndarray::{ArrayD, Axis};
use proptest::prelude::*;
use ringmain::{ContiguousMemmap, Error, Index, Select};

use crate::model::{self, Refusal};
use crate::{Spec, fixture, index_parts, spec};

/// An operation on a view of any shape: numbers that stand for axes are taken modulo their count.
#[derive(Clone, Debug)]
enum Op {
    Index(Vec<Index>),
    /// A shape with the factors of the current size, spread over this many axes.
    Refactor {
        axes: usize,
        spread: Vec<usize>,
        open: Option<usize>,
    },
    Reshape(Vec<i64>),
    /// The order of the axes when they are sorted by these keys.
    Transpose(Vec<u8>),
    /// Used as it is: rarely a valid order of the axes.
    TransposeRaw(Vec<usize>),
    Swap(usize, usize),
    Squeeze(Option<usize>),
    Ravel,
    T,
}

fn op() -> impl Strategy<Value = Op> {
    let axis = 0..6usize;
    prop_oneof![
        6 => index_parts(0..=4).prop_map(Op::Index),
        4 => (0..=5usize, prop::collection::vec(0..5usize, 12), prop::option::of(0..5usize))
            .prop_map(|(axes, spread, open)| Op::Refactor { axes, spread, open }),
        1 => prop::collection::vec(-2..=8i64, 0..=3).prop_map(Op::Reshape),
        3 => prop::collection::vec(any::<u8>(), 8).prop_map(Op::Transpose),
        1 => prop::collection::vec(axis.clone(), 0..=3).prop_map(Op::TransposeRaw),
        2 => (axis.clone(), axis.clone()).prop_map(|(a, b)| Op::Swap(a, b)),
        2 => prop::option::of(axis).prop_map(Op::Squeeze),
        1 => Just(Op::Ravel),
        1 => Just(Op::T),
    ]
}

/// Returns a shape whose product is the size, with one length possibly open.
fn refactored(size: usize, axes: usize, spread: &[usize], open: Option<usize>) -> Vec<i64> {
    let mut shape = vec![1i64; axes.max(1)];
    let (mut rest, mut turn) = (size, 0);
    while rest > 1 {
        let factor = (2..=rest).find(|factor| rest.is_multiple_of(*factor)).unwrap();
        shape[spread[turn % spread.len()] % axes.max(1)] *= factor as i64;
        (rest, turn) = (rest / factor, turn + 1);
    }
    if size == 0 {
        shape[0] = 0;
    }
    if let Some(open) = open {
        let at = open % shape.len();
        shape[at] = -1;
    }
    shape
}

fn order(keys: &[u8], ndim: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ndim).collect();
    order.sort_by_key(|axis| keys[axis % keys.len()]);
    order
}

impl Op {
    fn apply(&self, view: &ContiguousMemmap) -> Result<ContiguousMemmap, Error> {
        match self {
            Self::Index(parts) => match parts[..] {
                [Index::At(index)] => view.at(index),
                _ => view.index(parts),
            },
            Self::Refactor { axes, spread, open } => {
                view.reshape(&refactored(view.size(), *axes, spread, *open))
            }
            Self::Reshape(shape) => view.reshape(shape),
            Self::Transpose(keys) => view.transpose(&order(keys, view.ndim())),
            Self::TransposeRaw(order) => view.transpose(order),
            Self::Swap(a, b) => view.swapaxes(*a, *b),
            Self::Squeeze(axis) => view.squeeze(*axis),
            Self::Ravel => view.ravel(),
            Self::T => Ok(view.t()),
        }
    }

    fn model(&self, array: &ArrayD<u16>) -> Result<ArrayD<u16>, Refusal> {
        let ndim = array.ndim();
        match self {
            Self::Index(parts) => {
                let parts: Vec<Select> = parts.iter().map(|part| (*part).into()).collect();
                let result = model::select(array, &parts)?;
                if model::is_one_range(&result) { Ok(result) } else { Err(Refusal::NonContiguous) }
            }
            Self::Refactor { axes, spread, open } => {
                model::reshape(array, &refactored(array.len(), *axes, spread, *open))
            }
            Self::Reshape(shape) => model::reshape(array, shape),
            Self::Transpose(keys) => Ok(array.clone().permuted_axes(order(keys, ndim))),
            Self::TransposeRaw(order) => {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                let is_order = sorted.iter().copied().eq(0..ndim);
                if is_order {
                    Ok(array.clone().permuted_axes(&order[..]))
                } else {
                    Err(Refusal::Shape)
                }
            }
            Self::Swap(a, b) if *a >= ndim || *b >= ndim => Err(Refusal::Shape),
            Self::Swap(a, b) => {
                let mut array = array.clone();
                array.swap_axes(*a, *b);
                Ok(array)
            }
            Self::Squeeze(axis) => squeeze(array, *axis),
            Self::Ravel => model::reshape(array, &[array.len() as i64]),
            Self::T => Ok(array.clone().reversed_axes()),
        }
    }
}

fn squeeze(array: &ArrayD<u16>, axis: Option<usize>) -> Result<ArrayD<u16>, Refusal> {
    if axis.is_some_and(|axis| array.shape().get(axis) != Some(&1)) {
        return Err(Refusal::Shape);
    }
    let short = (0..array.ndim()).filter(|at| array.shape()[*at] == 1);
    let gone = short.filter(|at| axis.is_none_or(|axis| axis == *at)).rev();
    Ok(gone.fold(array.clone(), |array, at| array.index_axis_move(Axis(at), 0)))
}

/// Checks that the view has the model's shape and elements, and consistent properties.
fn check_same(view: &ContiguousMemmap, array: &ArrayD<u16>, what: &str) {
    assert_eq!(view.shape(), array.shape(), "{what}");
    assert_eq!((view.ndim(), view.size()), (array.ndim(), array.len()), "{what}");
    assert_eq!(view.nbytes(), array.len() * 2, "{what}");
    assert_eq!(view.len(), array.shape().first().copied().unwrap_or(0), "{what}");
    let elements = view.read_vec::<u16>().unwrap();
    assert!(elements.iter().eq(array.iter()), "{what}: {elements:?} is not {array:?}");
    #[cfg(feature = "ndarray")]
    assert_eq!(view.to_ndarray::<u16>().unwrap(), *array, "{what}");
    check_buffer(view, &elements, what);
    let wide = view.read_as::<u64>().unwrap();
    assert!(wide.iter().copied().eq(array.iter().map(|at| u64::from(*at))), "{what}: read_as");
}

fn check_buffer(view: &ContiguousMemmap, elements: &[u16], what: &str) {
    // A buffer is as large as the view plus what the device adds on both sides, a page at most.
    let may_not_fit = view.nbytes() + 2 * 4096 > view.engine().pool().limit_bytes();
    match view.read_buffer() {
        Ok(buffer) => {
            let bytes = elements.iter().flat_map(|element| element.to_le_bytes());
            assert!(bytes.eq(buffer.iter().copied()), "{what}: read_buffer");
        }
        Err(Error::MemorySpent { .. }) if may_not_fit => {}
        Err(error) => panic!("{what}: read_buffer: {error}"),
    }
}

/// Applies the operations one after the other; a refused operation leaves the view unchanged.
fn run_chain(spec: &Spec, ops: &[Op], mut view: ContiguousMemmap) {
    let mut array = spec.model();
    let kind = view.engine().backend().kind();
    for (at, op) in ops.iter().enumerate() {
        let what = format!("{kind}: {op:?}, number {at}, on shape {:?}", array.shape());
        match (op.apply(&view), op.model(&array)) {
            (Ok(next), Ok(expected)) => {
                check_same(&next, &expected, &what);
                (view, array) = (next, expected);
            }
            (Err(error), Err(refusal)) => assert_eq!(Refusal::from(&error), refusal, "{what}"),
            (ours, theirs) => panic!("{what}: {ours:?} is not {theirs:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(windows) { 48 } else { 256 }))]

    #[test]
    fn chains_of_operations_do_what_ndarray_does(
        spec in spec(),
        ops in prop::collection::vec(op(), 1..8),
    ) {
        for engine in &fixture().engines {
            run_chain(&spec, &ops, spec.open(engine));
        }
    }

    #[test]
    fn chains_of_operations_work_in_the_least_memory(
        spec in spec(),
        ops in prop::collection::vec(op(), 1..4),
    ) {
        for engine in &fixture().tight_engines {
            run_chain(&spec, &ops, spec.open(engine));
        }
    }
}
