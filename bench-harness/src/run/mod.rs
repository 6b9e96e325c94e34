//! Carrying out a plan: the data, every cell in a process of its own, and why a cell does not count.

pub(crate) mod child;
mod corrupt;
mod data;
mod engine;
mod fio;
mod jobs;
mod memory_limit;
mod pace;
pub(crate) mod reading;
mod runner;
pub(crate) mod session;
pub(crate) mod task;
mod validity;
mod verify;
pub(crate) mod worker;
