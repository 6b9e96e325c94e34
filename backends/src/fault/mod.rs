//! Injects faults below a backend's retry logic, for tests. Builds without the feature `conformance`
//! have no trace of it.

#[cfg(feature = "conformance")]
mod injected;
#[cfg(not(feature = "conformance"))]
mod none;

#[cfg(feature = "conformance")]
pub use injected::Faults;
#[cfg(feature = "conformance")]
#[cfg_attr(not(linux_rings), allow(unused_imports))]
pub(crate) use injected::{Fault, Injection};
#[cfg(not(feature = "conformance"))]
#[cfg_attr(not(linux_rings), allow(unused_imports))]
pub(crate) use none::{Fault, Injection};
