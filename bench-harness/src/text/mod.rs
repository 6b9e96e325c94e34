//! Numbers, tables and progress as people read them.

pub(crate) mod format;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod table;
