//! The Python package `ringmain`: reads files with the engine and returns NumPy arrays.
//!
//! | file | contents |
//! |---|---|
//! | `engine` | `Engine`, the engines that callers share, `probe` |
//! | `error` | turns every error of the engine into an exception of Python's own types |
//! | `array` | NumPy arrays over memory of the engine's pool |
//! | `dtype` | the element types of NumPy and of the engine |
//! | `view`, `shape`, `read` | `ContiguousMemmap`, its views in other shapes and types, and its reads |
//! | `operators` | the arithmetic operators that a view refuses |
//! | `memmap` | finds the file and the offset of an array: `open_raw`, `open_npy`, an `np.memmap` |
//! | `key`, `selection` | indices by NumPy's rules |
//! | `read_many` | reads many views as one batch |
//! | `shards`, `shard_writer` | `ShardSource`, `ShardWriter` |
//! | `weights`, `mapped_weights` | safetensors, read or mapped |
//! | `beton`, `beton_epoch`, `beton_batch` | `Beton`, `BetonEpoch`, samples as arrays |
//! | `beton_custom` | fields whose types FFCV does not define |
//! | `beton_writer`, `beton_column` | `BetonWriter`, the values of a field |
//! | `command` | the `ringmain` command |
//! | `epochs` | iteration over epochs: what `ShardSource` and `BetonEpoch` share |
//! | `stores`, `no_stores` | URLs of object stores, with and without the feature |
//! | `arguments`, `path` | parse arguments that are numbers, words or paths |
//! | `gil` | reads and waits that release the interpreter lock and that Ctrl-C can end |
//!
//! `unsafe` occurs only where NumPy and the engine share memory: in `array`, in the files that fill
//! arrays (`read`, `selection`, `read_many`), in those that make several arrays over one buffer (`shards`,
//! `beton_batch`), and in `mapped_weights`, whose arrays are over the mapping of a file.

mod arguments;
mod array;
mod beton;
mod beton_batch;
mod beton_column;
mod beton_custom;
mod beton_epoch;
mod beton_images;
mod beton_writer;
mod command;
mod dtype;
mod engine;
mod epochs;
mod error;
mod folder;
mod gil;
mod key;
mod mapped_weights;
mod memmap;
mod operators;
mod path;
mod read;
mod read_many;
mod selection;
mod shape;
mod shard_writer;
mod shards;
mod shared_engines;
#[cfg_attr(not(feature = "object-stores"), path = "no_stores.rs")]
mod stores;
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
    use super::engine::{PyEngine, probe};
    #[pymodule_export]
    use super::epochs::{
        _nodes_of, _nodes_of_environment, _place_of_environment, _state_of_workers,
    };
    #[pymodule_export]
    use super::folder::_files_of_folder;
    #[pymodule_export]
    use super::mapped_weights::{PyMappedFile, PyMappingCache};
    #[pymodule_export]
    use super::memmap::{_open_view, _read_exca_infos, open_npy, open_raw};
    #[pymodule_export]
    use super::read_many::read_many;
    #[pymodule_export]
    use super::shard_writer::PyShardWriter;
    #[pymodule_export]
    use super::shards::PyShardSource;
    #[pymodule_export]
    use super::shared_engines::_engine;
    #[pymodule_export]
    use super::view::View;
    #[pymodule_export]
    use super::weights::PyWeights;
}
