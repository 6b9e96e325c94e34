//! The Python package `ringmain`: the engine under NumPy.
//!
//! | file | what |
//! |---|---|
//! | `engine` | `Engine`, the one that is shared by default, `probe` |
//! | `error` | every error of ours as an exception of Python's own |
//! | `array` | NumPy arrays over memory of the engine's pool |
//! | `dtype` | NumPy's element types and the engine's |
//! | `view` | `ContiguousMemmap` |
//! | `operators` | the arithmetic that it refuses |
//! | `memmap` | where in which file an array is: `open_raw`, `open_npy` |
//! | `key`, `selection` | indices by NumPy's rules |
//! | `source` | a file, and which way its bytes are read |
//! | `read_many` | many views as one batch |
//! | `command` | the `ringmain` command |
//! | `gil` | reads without the interpreter lock, in parts that Ctrl-C can end |
//!
//! `unsafe` is where memory changes hands with NumPy: `array`.

mod array;
mod command;
mod dtype;
mod engine;
mod error;
mod gil;
mod key;
mod memmap;
mod operators;
mod read_many;
mod selection;
mod source;
mod view;

use pyo3::prelude::*;

#[pymodule]
mod _ringmain {
    #[pymodule_export]
    use super::command::_run_command;
    #[pymodule_export]
    use super::engine::{_engine, PyEngine, probe};
    #[pymodule_export]
    use super::memmap::{_open_view, open_npy, open_raw};
    #[pymodule_export]
    use super::read_many::read_many;
    #[pymodule_export]
    use super::view::View;
}
