//! Faults below a backend's retry logic, for tests: with the feature `conformance`, and nothing at all
//! without it.

#[cfg(any(feature = "conformance", test))]
mod injected;
#[cfg(not(any(feature = "conformance", test)))]
mod none;

#[cfg(any(feature = "conformance", test))]
pub use injected::Faults;
#[cfg(any(feature = "conformance", test))]
#[cfg_attr(not(linux_rings), allow(unused_imports))]
pub(crate) use injected::{Fault, Injection};
#[cfg(not(any(feature = "conformance", test)))]
#[cfg_attr(not(linux_rings), allow(unused_imports))]
pub(crate) use none::{Fault, Injection};
