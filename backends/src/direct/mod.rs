//! `O_DIRECT` reads through a small pool of threads.

mod backend;
mod bounces;
mod workers;

pub(crate) use backend::open;
