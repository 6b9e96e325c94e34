//! A view of a view allocates nothing for up to six axes.

#[path = "../../backends/tests/common/counting_allocator.rs"]
mod counting_allocator;

use counting_allocator::own_allocations;
use ringmain::{ContiguousMemmap, Engine, Index, Kind, Result};

type Operation = (&'static str, fn(&ContiguousMemmap) -> Result<ContiguousMemmap>);

/// The operations apply to a view of shape (4, 1, 3, 2, 1, 5) and make views of up to six axes.
const OPERATIONS: [Operation; 15] = [
    ("index, a window", |view| view.index(&[(1..3).into()])),
    ("index, all kinds", |view| {
        let reversed = Index::slice(Some(2), Some(1), -1);
        view.index(&[1.into(), 0.into(), reversed, Index::Ellipsis, Index::NewAxis])
    }),
    ("index, nothing", |view| view.index(&[(2..2).into()])),
    ("at", |view| view.at(-1)),
    ("reshape", |view| view.reshape(&[2, 2, -1, 1, 3, 5])),
    ("reshape, fewer axes", |view| view.reshape(&[24, 5])),
    ("ravel", ContiguousMemmap::ravel),
    ("transpose", |view| view.transpose(&[5, 3, 1, 0, 2, 4])),
    ("t", |view| Ok(view.t())),
    ("swapaxes", |view| view.swapaxes(0, 5)),
    ("squeeze", |view| view.squeeze(None)),
    ("squeeze, one axis", |view| view.squeeze(Some(4))),
    ("view, smaller elements", |view| view.view(Kind::U8)),
    ("view, larger elements", |view| view.index(&[0.into()])?.ravel()?.view(Kind::Complex64)),
    ("clone", |view| Ok(view.clone())),
];

#[test]
fn a_view_of_a_view_allocates_nothing() -> Result<(), Box<dyn std::error::Error>> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(480)?;
    let engine = Engine::new()?;
    let view = engine.open_raw(file.path(), Kind::F32, &[4, 1, 3, 2, 1, 5], 0)?;
    for (name, operation) in OPERATIONS {
        let mut outcome = None;
        assert_eq!(own_allocations(|| outcome = Some(operation(&view))), 0, "{name}");
        let made = outcome.expect("it ran").map_err(|error| format!("{name}: {error}"))?;
        assert!(made.ndim() <= 6, "{name}");
        let chain = own_allocations(|| drop(made.t().squeeze(None)));
        assert_eq!(chain, 0, "{name}, and more");
    }
    Ok(())
}

/// The test above relies on the counter.
#[test]
fn allocations_are_counted() -> Result<(), Box<dyn std::error::Error>> {
    assert_eq!(own_allocations(|| drop(std::hint::black_box(Box::new(7)))), 1);
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(1)?;
    let engine = Engine::new()?;
    let view = engine.open_raw(file.path(), Kind::U8, &[1; 6], 0)?;
    let seven = own_allocations(|| drop(view.index(&[Index::NewAxis])));
    assert!(seven > 0, "seven axes should allocate");
    Ok(())
}
