//! The bytes of a tensor, borrowed or owned.

use std::fmt;
use std::ops::Deref;

use ringmain_backends::Buffer;

/// The bytes of a tensor: a part of the mapping or the buffer, or memory of their own.
pub struct TensorBytes<'a> {
    pub(super) memory: Memory<'a>,
}

pub(super) enum Memory<'a> {
    Borrowed(&'a [u8]),
    Own(Buffer),
}

impl Deref for TensorBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Borrowed(bytes) => bytes,
            Memory::Own(buffer) => buffer,
        }
    }
}

impl AsRef<[u8]> for TensorBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for TensorBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = match self.memory {
            Memory::Borrowed(_) => "borrowed",
            Memory::Own(_) => "own",
        };
        f.debug_struct("TensorBytes").field("memory", &memory).field("len", &self.len()).finish()
    }
}
