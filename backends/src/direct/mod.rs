//! `O_DIRECT` reads through a small pool of threads.

mod backend;
mod bounces;

pub(crate) use backend::open;
