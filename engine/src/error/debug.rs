//! The `Debug` text of an error.

use super::Error;

ringmain_backends::__debug_as_message!(
    Error: NotFound Io Backend Truncated Changed Format OutsideFile NoSuchItem MemorySpent OutOfMemory
    CacheFull InvalidOption StateMismatch Unsupported InvalidItem Maker Panicked IndexOutOfRange
    TooManyIndices InvalidIndex NonContiguous Shape Overflow UnknownDType ElementType BufferSize
);
