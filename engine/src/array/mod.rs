//! Array views over files: what an array is, how views of it are selected, and how they are read.
//!
//! | file | noun |
//! |---|---|
//! | `dtype.rs`, `element.rs` | element types, in a file and in Rust |
//! | `layout.rs` | offset, shape and strides: all arithmetic on views |
//! | `index.rs`, `selection.rs` | what can be selected without reading, and what needs a read |
//! | `view.rs`, `read.rs`, `scatter.rs` | the view, reading it, and putting transposed elements in place |
//! | `many.rs` | many views as one batch, and views that are read ahead |
//! | `npy.rs`, `exca.rs` | files that describe an array |

pub(crate) mod dtype;
pub(crate) mod element;
pub(crate) mod exca;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod many;
pub(crate) mod npy;
pub(crate) mod read;
mod scatter;
pub(crate) mod selection;
pub(crate) mod view;
