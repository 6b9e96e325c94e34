//! Array views over files: element types, selection, and reading.
//!
//! | file | content |
//! |---|---|
//! | `dtype.rs`, `element.rs` | element types, in a file and in Rust |
//! | `layout.rs` | offset, shape and strides: all arithmetic on views |
//! | `index.rs`, `selection.rs` | selections that need no read, and selections that need one |
//! | `runs.rs` | reads the bytes of a selection: many short runs of a file |
//! | `view.rs`, `read.rs`, `scatter.rs` | the view, reading it, and reordering transposed elements |
//! | `many.rs` | many views as one batch, and views that are read ahead |
//! | `npy.rs`, `exca.rs`, `exca_infos.rs` | files that describe an array |

pub(crate) mod dtype;
pub(crate) mod element;
pub(crate) mod exca;
#[cfg(feature = "exca")]
pub(crate) mod exca_infos;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod many;
pub(crate) mod npy;
pub(crate) mod read;
mod runs;
mod scatter;
pub(crate) mod selection;
pub(crate) mod view;
