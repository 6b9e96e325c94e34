//! Selections that are not one range, and batches of views.

use ndarray::ArrayD;
use proptest::prelude::*;
use ringmain::{ContiguousMemmap, Engine, Index, Select};

use crate::model::{self, Refusal};
use crate::{Spec, fixture, index_part, index_parts, large_spec, number, spec};

fn part() -> impl Strategy<Value = Select> {
    let index = || prop_oneof![9 => -2..=1i64, 1 => number()];
    prop_oneof![
        6 => index_part().prop_map(Select::from),
        // Elements may repeat and come in any order.
        3 => prop::collection::vec(index(), 0..=6).prop_map(Select::List),
        2 => prop::collection::vec(any::<bool>(), 0..=7).prop_map(Select::Mask),
    ]
}

/// Cuts or extends masks to the length of their axis, which they would rarely have by chance.
fn fit_masks(shape: &[usize], parts: &[Select]) -> Vec<Select> {
    let fit = |(axis, part): (usize, &Select)| match (part, shape.get(axis)) {
        (Select::Mask(mask), Some(len)) => {
            let mut mask = mask.clone();
            mask.resize(*len, true);
            Select::Mask(mask)
        }
        _ => part.clone(),
    };
    parts.iter().enumerate().map(fit).collect()
}

/// If several parts are wrong, one that is not a list is reported first.
fn model_of(array: &ArrayD<u16>, selection: &[Select]) -> Result<ArrayD<u16>, Refusal> {
    let basic = selection.iter().map(|part| match part {
        Select::Basic(_) => part.clone(),
        _ => Index::ALL.into(),
    });
    model::select(array, &basic.collect::<Vec<_>>())?;
    model::select(array, selection)
}

/// Checks the selection on every engine, on the array as it is or transposed.
fn check_selection(spec: &Spec, turned: bool, parts: &[Select], fit: bool) {
    let model = if turned { spec.model().reversed_axes() } else { spec.model() };
    let parts = if fit { fit_masks(model.shape(), parts) } else { parts.to_vec() };
    for engine in fixture().engines.iter().chain(&fixture().tight_engines) {
        let view = spec.open(engine);
        let view = if turned { view.t() } else { view };
        check_selected(&view, &model, &parts);
    }
}

fn check_selected(view: &ContiguousMemmap, model: &ArrayD<u16>, selection: &[Select]) {
    let kind = view.engine().backend().kind();
    let what = format!("{kind}: {selection:?} of {view:?}");
    match (view.read_selection::<u16>(selection), model_of(model, selection)) {
        (Ok(selected), Ok(expected)) => {
            assert_eq!(selected.shape, expected.shape(), "{what}");
            assert_eq!(view.selection_shape(selection).unwrap(), selected.shape, "{what}");
            let same = selected.elements.iter().eq(expected.iter());
            let first: Vec<_> = selected.elements.iter().take(100).collect();
            assert!(same, "{what}: {first:?}… is not {expected:?}");
        }
        (Err(error), Err(refusal)) => assert_eq!(Refusal::from(&error), refusal, "{what}"),
        (ours, theirs) => panic!("{what}: {ours:?} is not {theirs:?}"),
    }
}

/// Returns the views of one file that are possible, some with their axes reversed.
fn windows(engine: &Engine, specs: &[(Spec, Vec<Index>, bool)]) -> Vec<ContiguousMemmap> {
    let window = |(spec, parts, turned): &(Spec, Vec<Index>, bool)| {
        let window = spec.open(engine).index(parts).ok()?;
        Some(if *turned { window.t() } else { window })
    };
    specs.iter().filter_map(window).collect()
}

fn check_many(engine: &Engine, specs: &[(Spec, Vec<Index>, bool)]) {
    let windows = windows(engine, specs);
    let mut together = vec![0; windows.iter().map(ContiguousMemmap::nbytes).sum()];
    engine.read_many_bytes(&windows, &mut together).unwrap();
    let mut one_by_one = Vec::new();
    for window in &windows {
        let mut bytes = vec![0; window.nbytes()];
        window.read_bytes_into(&mut bytes).unwrap();
        one_by_one.extend(bytes);
    }
    assert_eq!(together, one_by_one, "{}: {windows:?}", engine.backend().kind());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(windows) { 48 } else { 256 }))]

    #[test]
    fn selections_are_what_ndarray_selects(
        spec in spec(),
        parts in prop::collection::vec(part(), 0..=5),
        turned: bool,
        fit in prop::bool::weighted(0.8),
    ) {
        check_selection(&spec, turned, &parts, fit);
    }

    #[test]
    fn many_views_at_once_are_the_same_views_one_by_one(
        specs in prop::collection::vec((spec(), index_parts(0..=3), any::<bool>()), 0..20),
    ) {
        for engine in fixture().engines.iter().chain(&fixture().tight_engines) {
            check_many(engine, &specs);
        }
    }
}

proptest! {
    // Each case costs as much as a hundred of the others.
    #![proptest_config(ProptestConfig::with_cases(if cfg!(windows) { 8 } else { 32 }))]

    #[test]
    fn selections_of_large_arrays_are_what_ndarray_selects(
        spec in large_spec(),
        parts in prop::collection::vec(part(), 1..=3),
        turned in prop::bool::weighted(0.1),
    ) {
        check_selection(&spec, turned, &parts, true);
    }
}
