//! Carries out a plan.
//!
//! | file | contents |
//! |---|---|
//! | `session.rs` | a run from its plan to its result on the disk |
//! | `data.rs`, `planned.rs` | the data of a run, and the workloads with the settings that it is large enough for |
//! | `verify.rs` | all backends must return the same bytes |
//! | `runner.rs`, `child.rs`, `task.rs` | the list of cells, the child process of each, its order |
//! | `worker.rs`, `engine.rs` | in the child: one cell and its engine |
//! | `reading_processes.rs`, `team.rs` | the processes of a cell, and the jobs of one process |
//! | `reading.rs`, `pace.rs` | the measured loop |
//! | `validity.rs` | reasons why a measured cell does not count |
//! | `memory_limit.rs`, `fio.rs`, `corrupt.rs` | memory limits, fio, and a faulty backend for tests |

pub(crate) mod child;
mod corrupt;
mod data;
mod engine;
mod fio;
mod memory_limit;
mod pace;
mod planned;
pub(crate) mod reading;
mod reading_processes;
mod runner;
pub(crate) mod session;
pub(crate) mod task;
mod team;
mod validity;
mod verify;
pub(crate) mod worker;
