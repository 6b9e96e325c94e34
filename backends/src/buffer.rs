//! Page-aligned memory that the device can write straight into.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use aligned_vec::{AVec, ConstAlign};
use memmap2::MmapMut;

use crate::pool::Shelf;
use crate::{Error, Result, sys};

/// From this size on a buffer is aligned to, and asks for, huge pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Every buffer begins at a multiple of this, which serves any device that asks for no more.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Buffers outside of a pool come from the allocator up to this size. A model has thousands of small
/// tensors, and a mapping for each would cost two system calls and a page fault.
///
/// Buffers of a pool are always mappings, which take as much memory as the pool counts and go back to the system when the
/// pool gives them up. glibc places its own 16 bytes before each aligned block and so begins the next one a page later:
/// 4,000 buffers of 4, 8 and 16 KiB took 2.0, 1.5 and 1.25 times their size, and kept it after half of them were dropped.
/// (Mappings took 1.0 times.) A pool makes a buffer once and uses it again, so its two system calls do not matter.
const ALLOCATED_BYTES_MAX: usize = 16 << 10;

/// Zeroed memory of a fixed size. No other memory shares its pages.
#[derive(Debug)]
pub(crate) enum AlignedMemory {
    /// A mapping. Its pages cost nothing until they are written to.
    Mapped {
        /// The mapping, which may begin before the memory, so that the memory is aligned.
        map: MmapMut,
        /// Where the memory begins in the mapping.
        start: usize,
        /// How long the memory is.
        capacity: usize,
    },
    /// Whole pages from the allocator.
    Allocated(AVec<u8, ConstAlign<PAGE_BYTES>>),
}

impl AlignedMemory {
    pub(crate) fn mapped(capacity: usize) -> io::Result<Self> {
        let align = if capacity >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        // A mapping begins at a page. For a larger alignment, map more and skip the start.
        let slack = if align > PAGE_BYTES { align } else { 0 };
        let whole = capacity.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(whole.max(1))?;
        let start = map.as_ptr().addr().next_multiple_of(align) - map.as_ptr().addr();
        if align == HUGE_PAGE_BYTES {
            // Only whole huge pages: one under the tail would take more memory than was asked for.
            sys::advise_huge_pages(&map, start, capacity / align * align);
        }
        Ok(Self::Mapped { map, start, capacity })
    }

    /// Memory from the allocator. `capacity` is a multiple of [`PAGE_BYTES`].
    fn allocated(capacity: usize) -> io::Result<Self> {
        let mut bytes = AVec::new(PAGE_BYTES);
        bytes.try_reserve_exact(capacity).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(capacity, 0);
        Ok(Self::Allocated(bytes))
    }

    /// Memory that is used once. `capacity` is a multiple of [`PAGE_BYTES`].
    ///
    /// On systems with larger pages it is always a mapping: other memory would share its page, and the
    /// device must have its pages to itself.
    fn for_one_use(capacity: usize) -> io::Result<Self> {
        if capacity <= ALLOCATED_BYTES_MAX && sys::page_bytes() == PAGE_BYTES {
            return Self::allocated(capacity);
        }
        Self::mapped(capacity)
    }

    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Mapped { capacity, .. } => *capacity,
            Self::Allocated(bytes) => bytes.len(),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped { map, start, capacity } => &map[*start..*start + *capacity],
            Self::Allocated(bytes) => bytes,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Mapped { map, start, capacity } => &mut map[*start..*start + *capacity],
            Self::Allocated(bytes) => bytes,
        }
    }
}

/// A buffer of a [`BufferPool`](crate::BufferPool), which returns to the pool when it is dropped, or a buffer
/// [outside of any pool](Buffer::unpooled).
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

    /// Returns a buffer that belongs to no pool. Its size is rounded up to a page, and its memory returns to the
    /// operating system when it is dropped. Use it for data that the program keeps.
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
        let memory = AlignedMemory::for_one_use(capacity).map_err(out_of_memory)?;
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

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes()[self.view.clone()])
    }
}

/// So that `bytes::Bytes::from_owner` and others take a buffer.
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
        if let (Some(home), Some(memory)) = (&self.home, self.memory.take()) {
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
        for capacity in [4096, 3 * 4096, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 4096] {
            check(&AlignedMemory::mapped(capacity).unwrap(), capacity);
            check(&AlignedMemory::allocated(capacity).unwrap(), capacity);
        }
        check(&AlignedMemory::mapped(5000).unwrap(), 5000);
    }

    fn check(memory: &AlignedMemory, capacity: usize) {
        let is_huge = capacity >= HUGE_PAGE_BYTES && matches!(memory, AlignedMemory::Mapped { .. });
        let align = if is_huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        assert_eq!((memory.bytes().len(), memory.capacity()), (capacity, capacity));
        assert_eq!(memory.bytes().as_ptr().addr() % align, 0, "{memory:?}");
        assert!(memory.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn only_small_buffers_come_from_the_allocator() {
        let is_allocated =
            |bytes| matches!(AlignedMemory::for_one_use(bytes), Ok(AlignedMemory::Allocated(_)));
        assert_eq!(is_allocated(ALLOCATED_BYTES_MAX), sys::page_bytes() == PAGE_BYTES);
        assert!(!is_allocated(ALLOCATED_BYTES_MAX + PAGE_BYTES));
    }

    /// The allocator would take up to twice as much memory as the pool counts.
    #[test]
    fn small_buffers_of_a_pool_are_mappings_too() {
        let pool = crate::BufferPool::new(crate::PoolOptions::default()).unwrap();
        for bytes in [1, PAGE_BYTES, ALLOCATED_BYTES_MAX] {
            let buffer = pool.take(bytes).unwrap();
            assert!(matches!(buffer.memory, Some(AlignedMemory::Mapped { .. })), "{buffer:?}");
        }
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        for capacity in [usize::MAX, usize::MAX / 4] {
            assert!(AlignedMemory::mapped(capacity).is_err());
            assert!(AlignedMemory::allocated(capacity).is_err());
        }
    }
}
