//! The loader over Ringmain: the backend that is best here, and a thread that reads ahead.

use std::path::Path;

use ringmain::Engine;
use ringmain::shards::{RowBatch, RowType, ShardOptions, ShardSource};

use crate::Result;

/// Delivers the rows of all shards of a directory, in the order of their names.
#[derive(Debug)]
pub struct Loader {
    source: ShardSource,
}

/// Some rows and their ids, in a buffer that is used again when it is dropped.
#[derive(Debug)]
pub struct Batch {
    batch: RowBatch,
}

impl Loader {
    /// Opens the `*.shard` files of a directory.
    pub fn open(dir: &Path, batch_rows: usize) -> Result<Self> {
        let options = ShardOptions::new().batch_size(batch_rows).row_type(RowType::F32);
        Ok(Self { source: options.open_dir(&Engine::new()?, dir)? })
    }

    /// The columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.source.width()
    }

    /// The next batch, which ends with its shard at the latest; `None` after the last.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        Ok(self.source.next_batch()?.map(|batch| Batch { batch }))
    }
}

impl Batch {
    /// The id of each row.
    #[must_use]
    pub fn row_ids(&self) -> &[u64] {
        self.batch.row_ids()
    }

    /// The values, row by row.
    #[must_use]
    pub fn rows(&self) -> &[f32] {
        self.batch.rows_f32().unwrap_or_default() // as `open` has asked for them
    }
}
