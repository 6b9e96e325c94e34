//! Faults below a backend's retry logic, for tests: with the feature `conformance`, and nothing at all
//! without it.

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
