//! What a program says about the reads that it is going to make.

/// In which order a file is read. It decides what the kernel reads ahead into the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Access {
    /// Not known. The kernel's own readahead serves single reads; a batch of several ranges brings
    /// in those ranges alone.
    #[default]
    AsItComes,
    /// In random order: only what is read comes into the page cache.
    Random,
    /// From the front to the back: the kernel reads further ahead than usual.
    Sequential,
}

/// How a range of a mapping will be used. Windows knows `Normal` and `WillNeed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAdvice {
    /// As any other: the system reads a little ahead of a fault.
    Normal,
    /// From the front to the back: it reads far ahead.
    Sequential,
    /// Here and there: it reads what is asked for.
    Random,
    /// Soon: it begins to read all of it. The call does not wait for the bytes, but for memory for them.
    WillNeed,
    /// Not for now: the pages leave the process. They may stay in the page cache, and the next
    /// access brings them back.
    DontNeed,
}
