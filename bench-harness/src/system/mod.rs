//! Services of the operating system that several commands need.

pub(crate) mod interrupt;
pub(crate) mod output;
pub(crate) mod regular;
pub(crate) mod scratch;
pub(crate) mod space;
pub(crate) mod whole_file;
