//! `O_DIRECT` reads through a small pool of threads.

#[cfg(linux_direct)]
mod bounces;
#[cfg(not(linux_direct))]
mod disabled;
#[cfg(linux_direct)]
mod enabled;
#[cfg(linux_direct)]
mod workers;

#[cfg(not(linux_direct))]
pub(crate) use disabled::open;
#[cfg(linux_direct)]
pub use enabled::DirectBackend;
#[cfg(linux_direct)]
pub(crate) use enabled::open;
