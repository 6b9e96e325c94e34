//! A destination that may be larger than the memory of the machine: most of it maps the same few pages again
//! and again.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A range of addresses of which only some parts have memory of their own. All other parts show one
/// block of memory, which is mapped again and again.
///
/// A read of 2 GiB into it takes a few mebibytes. The shared block shows only whether everything that
/// was written to it was the same.
pub(super) struct AliasedMemory {
    start: *mut u8,
    len: usize,
}

/// The size of the block that is mapped again and again, and the unit of the parts with memory of their own.
pub(super) const BLOCK_BYTES: usize = 2 << 20;

impl AliasedMemory {
    /// At least `len` bytes filled with `filling`, of which the blocks that the ranges touch are
    /// memory of their own.
    pub(super) fn new(len: usize, own: &[Range<usize>], filling: u8) -> Self {
        let (shared, mut is_shared_filled) = (shared_block(), false);
        let mapped_len = len.next_multiple_of(BLOCK_BYTES);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let mut memory = Self { start: start.cast(), len: mapped_len };
        for at in (0..mapped_len).step_by(BLOCK_BYTES) {
            let block = at..at + BLOCK_BYTES;
            let is_own = own.iter().any(|own| own.start < block.end && block.start < own.end);
            memory.map_block(at, if is_own { None } else { Some(&shared) });
            if is_own || !is_shared_filled {
                // SAFETY: the block was just mapped, readable and writable.
                unsafe { memory.start.add(at).write_bytes(filling, BLOCK_BYTES) };
                is_shared_filled |= !is_own;
            }
        }
        memory
    }

    /// Maps memory of its own at a block, or the shared block.
    fn map_block(&mut self, at: usize, shared: Option<&File>) {
        let (flags, fd) = match shared {
            Some(shared) => (libc::MAP_SHARED, shared.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANON, -1),
        };
        // SAFETY: the block lies in the mapping that `new` made, which nothing else uses.
        let mapped = unsafe {
            let address = self.start.add(at).cast();
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(address, BLOCK_BYTES, protection, flags | libc::MAP_FIXED, fd, 0)
        };
        assert_ne!(mapped, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `new` mapped `len` bytes, readable and writable, until `drop`. That a write to one
        // part may show in another is intended; nothing reads while others write.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for AliasedMemory {
    fn drop(&mut self) {
        // SAFETY: the range that `new` mapped, and no slice of it is left.
        let unmapped = unsafe { libc::munmap(self.start.cast(), self.len) };
        assert_eq!(unmapped, 0, "{}", io::Error::last_os_error());
    }
}

/// Memory that can be mapped several times. It has no file on a disk, because a device may lock pages
/// of a file differently while it writes to them.
fn shared_block() -> File {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("/ringmain-{}-{number}", std::process::id());
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends with a NUL.
    let fd = unsafe {
        libc::shm_open(name.as_ptr(), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600)
    };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor is new, and only this file has it.
    let file = unsafe { File::from_raw_fd(fd) };
    // SAFETY: as above. The memory lives as long as it is open or mapped.
    unsafe { libc::shm_unlink(name.as_ptr()) };
    file.set_len(BLOCK_BYTES as u64).unwrap();
    file
}
