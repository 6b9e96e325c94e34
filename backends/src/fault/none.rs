//! Stands in for fault injection in builds without the feature `conformance`: no faults, at no
//! cost.

use std::fs::File;
use std::io;

#[derive(Clone, Debug)]
pub(crate) struct Injection;

#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(linux_rings), allow(dead_code))]
pub(crate) struct Fault;

impl Injection {
    pub(crate) fn current() -> Self {
        Self
    }

    #[cfg_attr(not(linux_rings), allow(dead_code))]
    pub(crate) fn decide(&self, _offset: u64, len: usize, _unit: usize) -> (Fault, usize) {
        (Fault, len)
    }

    pub(crate) fn is_eio(&self, _offset: u64, _len: usize) -> bool {
        false
    }

    pub(crate) fn wrap(
        &self,
        _unit: usize,
        read: impl FnMut(&File, &mut [u8], u64) -> io::Result<usize>,
    ) -> impl FnMut(&File, &mut [u8], u64) -> io::Result<usize> {
        read
    }
}

#[cfg_attr(not(linux_rings), allow(dead_code))]
impl Fault {
    pub(crate) fn instead_of(self, result: io::Result<usize>) -> io::Result<usize> {
        result
    }
}
