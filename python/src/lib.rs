//! The Python package `ringmain`: the engine under NumPy.
//!
//! | file | what |
//! |---|---|
//! | `engine` | `Engine`, the one that is shared by default, `probe` |
//! | `error` | every error of ours as an exception of Python's own |
//! | `array` | NumPy arrays over memory of the engine's pool |
//! | `dtype` | NumPy's element types and the engine's |
//! | `gil` | reads without the interpreter lock, in parts that Ctrl-C can end |
//!
//! `unsafe` is where memory changes hands with NumPy: `array`.

#![allow(dead_code)] // until the views are here

mod array;
mod dtype;
mod engine;
mod error;
mod gil;

use pyo3::prelude::*;

#[pymodule]
mod _ringmain {
    #[pymodule_export]
    use super::engine::{PyEngine, probe};
}
