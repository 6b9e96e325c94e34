//! Reads past the page cache: what `direct`, `uring` and `tokio-uring` share.
//!
//! A [`Plan`] turns the reads of a batch into aligned requests. [`DeviceCore`] has the files and the plans,
//! and can fulfil a request with positional calls. [`RequestsInFlight`] takes the requests of a batch
//! through a queue of the kernel. [`Progress`] decides how a request continues after a short read or an
//! interruption, and [`FirstFailure`] which error a batch reports.

#![allow(unused_imports, reason = "each of the three backends uses a part of these")]

mod core;
mod failure;
mod file;
#[cfg(linux_rings)]
mod in_flight;
mod plan;
mod progress;
mod request;

pub(crate) use self::core::DeviceCore;
pub(crate) use failure::FirstFailure;
pub(crate) use file::DeviceFile;
#[cfg(linux_rings)]
pub(crate) use in_flight::{AnswerMeaning, InFlightMemory, NextRead, RequestsInFlight};
pub(crate) use plan::{Plan, Request, RequestLimits, RequestTarget};
pub(crate) use progress::{NextStep, Progress, no_progress};
pub(crate) use request::scatter;
