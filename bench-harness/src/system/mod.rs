//! What the commands need of the operating system.

pub(crate) mod interrupt;
pub(crate) mod output;
pub(crate) mod scratch;
pub(crate) mod space;
pub(crate) mod whole_file;
