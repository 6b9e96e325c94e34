//! The cases, by subject. The list in the module above names all of them.

pub(super) mod batches;
pub(super) mod bounds;
pub(super) mod bytes;
pub(super) mod cache_states;
pub(super) mod changes;
#[cfg(unix)]
pub(super) mod descriptors;
pub(super) mod faults;
#[cfg(unix)]
pub(super) mod forks;
pub(super) mod hints;
pub(super) mod mapping;
pub(super) mod refusals;
pub(super) mod threads;
