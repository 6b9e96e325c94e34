//! The Python package `ringmain`: the engine under NumPy.
//!
//! | file | what |
//! |---|---|
//! | `engine` | `Engine`, the one that is shared by default, `probe` |
//! | `error` | every error of the engine as an exception of Python's own |
//! | `array` | NumPy arrays over memory of the engine's pool |
//! | `dtype` | NumPy's element types and the engine's |
//! | `view`, `shape`, `read` | `ContiguousMemmap`, the same elements in other shapes, and to have them |
//! | `operators` | the arithmetic that it refuses |
//! | `memmap` | where in which file an array is: `open_raw`, `open_npy` |
//! | `key`, `selection` | indices by NumPy's rules |
//! | `read_many` | many views as one batch |
//! | `shards` | `ShardSource` |
//! | `weights` | safetensors |
//! | `beton`, `beton_epoch`, `beton_batch` | `Beton`, `BetonEpoch`, samples as arrays |
//! | `beton_custom` | fields of types that FFCV does not have |
//! | `beton_writer`, `beton_column` | `BetonWriter`, the values of a field |
//! | `command` | the `ringmain` command |
//! | `position` | what an iterator reads from, and the wait for its next batch |
//! | `given`, `path` | arguments: numbers that name themselves in errors, absolute paths |
//! | `gil` | reads without the interpreter lock, that Ctrl-C can end |
//!
//! `unsafe` is where memory changes hands with NumPy: `array`, and those that have it filled (`read`,
//! `view`, `selection`, `read_many`) or show several arrays of one memory (`shards`, `beton_batch`).

mod array;
mod beton;
mod beton_batch;
mod beton_column;
mod beton_custom;
mod beton_epoch;
mod beton_writer;
mod command;
mod dtype;
mod engine;
mod error;
mod gil;
mod given;
mod key;
mod memmap;
mod operators;
mod path;
mod position;
mod read;
mod read_many;
mod selection;
mod shape;
mod shards;
mod view;
mod weights;

use pyo3::prelude::*;

#[pymodule]
mod _ringmain {
    use pyo3::prelude::*;
    use pyo3::types::PyModule;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use super::beton::PyBeton;
    #[pymodule_export]
    use super::beton_epoch::PyBetonEpoch;
    #[pymodule_export]
    use super::beton_writer::PyBetonWriter;
    #[pymodule_export]
    use super::command::_run_command;
    #[pymodule_export]
    use super::engine::{_engine, PyEngine, probe};
    #[pymodule_export]
    use super::memmap::{_open_view, open_npy, open_raw};
    #[pymodule_export]
    use super::read_many::read_many;
    #[pymodule_export]
    use super::shards::PyShardSource;
    #[pymodule_export]
    use super::view::View;
    #[pymodule_export]
    use super::weights::PyWeights;
}
