//! The part of a file that an error is about.

use std::fmt;
use std::ops::Range;

/// A part of a file or of a request that an error is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Item {
    /// A row of shards.
    Row(u64),
    /// A sample of a dataset.
    Sample {
        /// Its id.
        id: u64,
        /// One of its fields.
        field: Option<Box<str>>,
    },
    /// A field of a dataset.
    Field(Box<str>),
    /// A tensor of a model.
    Tensor(Box<str>),
    /// Rows of a tensor.
    TensorRows {
        /// The tensor.
        tensor: Box<str>,
        /// The rows.
        rows: Range<usize>,
    },
    /// A view of several that are read together, counted from 0.
    View(usize),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(row) => write!(f, "row {row}"),
            Self::Sample { id, field: None } => write!(f, "sample {id}"),
            Self::Sample { id, field: Some(field) } => write!(f, "sample {id}, field `{field}`"),
            Self::Field(name) => write!(f, "field `{name}`"),
            Self::Tensor(name) => write!(f, "tensor `{name}`"),
            Self::TensorRows { tensor, rows } => write!(f, "rows {rows:?} of tensor `{tensor}`"),
            Self::View(number) => write!(f, "view {number} (counted from 0)"),
        }
    }
}
