//! The ways in which shards can be damaged.

/// The reason why a file is not a shard, or why shards cannot be read together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardDamage {
    /// The file does not begin with `GAMSAE01`.
    #[error("this is not a shard: it does not begin with GAMSAE01")]
    BadMagic,
    /// This version does not know the type of the values.
    #[error("dtype tag {tag} is unknown; the only known tag is 0 (f32)")]
    BadDtype {
        /// The tag in the header.
        tag: u32,
    },
    /// The rows have no columns.
    #[error("its rows have no columns")]
    ZeroWidth,
    /// The shards of one source have rows of different widths.
    #[error(
        "its rows have {found} columns, but those of the shards before it have {expected}; open \
         them separately"
    )]
    WidthMismatch {
        /// The width of the first shard.
        expected: usize,
        /// The width of this shard.
        found: usize,
    },
    /// The number of rows of all shards overflows.
    #[error("with this shard there are more rows than can be counted")]
    TooManyRows,
    /// The folder has no shards, or the shards have no rows.
    #[error("there are no rows to read: {reason}")]
    Empty {
        /// The rows or files that were expected.
        reason: &'static str,
    },
}
