//! The loader with Ringmain: it uses the best backend, and a thread that reads ahead.

use std::path::Path;

use ringmain::Engine;
use ringmain::shards::{RowBatch, RowType, ShardOptions, ShardSource};

use crate::Result;

/// Delivers the rows of all shards of a directory, in the order of their names.
#[derive(Debug)]
pub struct Loader {
    source: ShardSource,
}

/// Rows and their ids, in a buffer that is reused after it is dropped.
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

    /// Returns the number of columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.source.width()
    }

    /// Returns the next batch; `None` after the last. A batch does not cross the end of its shard.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        Ok(self.source.next_batch()?.map(|batch| Batch { batch }))
    }
}

impl Batch {
    /// Returns the id of each row.
    #[must_use]
    pub fn row_ids(&self) -> &[u64] {
        self.batch.row_ids()
    }

    /// Returns the values, row by row.
    #[must_use]
    pub fn rows(&self) -> &[f32] {
        self.batch.rows_f32().unwrap_or_default() // `open` set this type
    }
}
