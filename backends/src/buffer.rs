//! Page-aligned memory that the device can write straight into.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use memmap2::MmapMut;

use crate::pool::Shelf;
use crate::{Error, Result, sys};

/// From this size on a buffer is aligned to, and asks for, huge pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Every buffer begins at a multiple of this, which serves any device that asks for no more.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Memory of a fixed size that the operating system gave zeroed and untouched: pages that are never
/// written cost nothing.
#[derive(Debug)]
pub(crate) struct AlignedMemory {
    map: MmapMut,
    start: usize,
    capacity: usize,
}

impl AlignedMemory {
    pub(crate) fn new(capacity: usize) -> io::Result<Self> {
        let align = if capacity >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        // Mappings are page-aligned already; more is had by mapping more and skipping.
        let slack = if align > PAGE_BYTES { align } else { 0 };
        let whole = capacity.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(whole.max(1))?;
        let start = map.as_ptr().addr().next_multiple_of(align) - map.as_ptr().addr();
        if align == HUGE_PAGE_BYTES {
            // Whole ones only: a huge page under the tail would count for more than was asked.
            sys::advise_huge_pages(&map, start, capacity / align * align);
        }
        Ok(Self { map, start, capacity })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.start + self.capacity]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.capacity]
    }
}

/// A buffer of a [`BufferPool`](crate::BufferPool): bytes that go back to it when dropped. Or one
/// [of its own](Buffer::unpooled).
///
/// Its memory is aligned to 4096 bytes, or to 2 MiB when it is that large; a buffer that was
/// [narrowed](Buffer::narrow) begins somewhere in that memory. A new buffer contains the bytes that its
/// last user left.
pub struct Buffer {
    // `None` only while dropping.
    memory: Option<AlignedMemory>,
    view: Range<usize>,
    home: Option<Arc<Shelf>>,
}

impl Buffer {
    pub(crate) fn new(memory: AlignedMemory, len: usize, home: Arc<Shelf>) -> Self {
        Self { memory: Some(memory), view: 0..len, home: Some(home) }
    }

    /// A buffer that belongs to no pool: as much memory as asked for, to the page, which goes back
    /// to the operating system when it is dropped. For what is kept, and not read again and again.
    ///
    /// ```
    /// use ringmain_backends::Buffer;
    ///
    /// let weights = Buffer::unpooled(100_000)?;
    /// assert_eq!((weights.len(), weights.capacity()), (100_000, 102_400));
    /// # Ok::<(), ringmain_backends::Error>(())
    /// ```
    pub fn unpooled(len: usize) -> Result<Self> {
        let out_of_memory = |source| Error::OutOfMemory { requested_bytes: len, source };
        let capacity = len.max(1).checked_next_multiple_of(PAGE_BYTES);
        let capacity = capacity.ok_or_else(|| out_of_memory(io::ErrorKind::OutOfMemory.into()))?;
        let memory = AlignedMemory::new(capacity).map_err(out_of_memory)?;
        Ok(Self { memory: Some(memory), view: 0..len, home: None })
    }

    /// Keeps only this part of what the buffer shows. The memory behind it stays the same.
    ///
    /// A range that reaches past the end is cut to it.
    pub fn narrow(&mut self, range: Range<usize>) {
        let len = self.view.len();
        let (start, end) = (range.start.min(len), range.end.min(len));
        let base = self.view.start;
        self.view = base + start..base + end.max(start);
    }

    /// The bytes of memory behind it, which count against the pool's limit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, AlignedMemory::capacity)
    }
}

/// So that `bytes::Bytes::from_owner` and others take a buffer.
impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes()[self.view.clone()])
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let view = self.view.clone();
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes_mut()[view])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home
            && let Some(memory) = self.memory.take()
        {
            home.put_back(memory);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.view.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_of_the_size_asked() {
        for capacity in [1, 4096, 5000, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 4096] {
            let memory = AlignedMemory::new(capacity).unwrap();
            let align = if capacity >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { PAGE_BYTES };
            assert_eq!(memory.bytes().len(), capacity);
            assert_eq!(memory.bytes().as_ptr().addr() % align, 0, "{capacity}");
            assert!(memory.bytes().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        assert!(AlignedMemory::new(usize::MAX).is_err());
        assert!(AlignedMemory::new(usize::MAX / 4).is_err());
    }
}
