//! The result of a run: the types of `run.json`, from which its schema is generated, and its folder.

mod cache;
mod cell;
pub(crate) mod folder;
mod group;
pub mod histogram;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod percentile;
mod run;
mod setting;
pub(crate) mod trust;

pub use cache::{CacheCheck, CacheCheckMethod, CacheState, CachedPages};
pub use cell::{Cell, ContextSwitches, CpuSeconds, Epoch, Faults, Latency, Resident, RssSample};
pub(crate) use cell::{FIO, is_fio};
pub(crate) use folder::RunFolder;
pub use group::{Group, GroupedCells};
pub use run::{Run, SCHEMA_VERSION, Skipped};
pub use setting::Setting;

pub use crate::measure::host::{Host, Load, Storage};
