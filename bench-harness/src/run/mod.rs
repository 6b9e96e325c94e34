//! Carrying out a plan: the data, every cell in a process of its own, and what makes a cell invalid.

pub(crate) mod corrupt;
pub(crate) mod data;
pub(crate) mod fio;
pub(crate) mod memory_limit;
pub(crate) mod pace;
pub(crate) mod runner;
pub(crate) mod task;
pub(crate) mod verify;
pub(crate) mod worker;
