//! Memory for the destinations of a batch. The bytes between the destinations must not change.

use super::data::{DataFile, assert_same};
use crate::{FileHandle, Read, ReadBackend, Result};

/// Even, which no byte of a [`Pattern`](super::data::Pattern) is.
const FILLING: u8 = 0xA6;
/// Before, between and after destinations: a request that was rounded up shows here.
const GAP_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

/// A range to read, and where its destination is to lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want<'a> {
    pub(super) handle: &'a FileHandle,
    pub(super) data: &'a DataFile,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// The destination's address modulo the page size; `None`: any address.
    pub(super) place: Option<usize>,
}

impl<'a> Want<'a> {
    pub(super) fn new(handle: &'a FileHandle, data: &'a DataFile, offset: u64, len: usize) -> Self {
        Self { handle, data, offset, len, place: None }
    }

    pub(super) fn placed(self, address_in_page: usize) -> Self {
        Self { place: Some(address_in_page), ..self }
    }
}

/// Reads all of them as one batch and checks every byte.
#[track_caller]
pub(super) fn check_batch(backend: &dyn ReadBackend, wants: &[Want<'_>]) {
    if let Err(error) = try_batch(backend, wants) {
        panic!("a batch of {} reads failed: {error}", wants.len());
    }
}

/// As [`check_batch`], but returns a failure of the batch to the caller. Memory outside the
/// destinations is checked either way.
#[track_caller]
pub(super) fn try_batch(backend: &dyn ReadBackend, wants: &[Want<'_>]) -> Result<()> {
    let room = wants.iter().map(|want| want.len + GAP_BYTES + PAGE_BYTES).sum::<usize>();
    let mut memory = filling(room + GAP_BYTES);
    let layout = lay_out(memory.as_ptr().addr(), wants);
    let outcome = backend.read_batch(&mut reads_into(&mut memory, wants, &layout));
    let mut last_end = 0;
    for (start, want) in layout.iter().zip(wants) {
        let what = format!("the gap before the destination of offset {}", want.offset);
        assert_same(&memory[last_end..*start], &filling(start - last_end), &what);
        last_end = start + want.len;
    }
    let tail = &memory[last_end..];
    assert_same(tail, &filling(tail.len()), &"the gap after the last destination");
    outcome?;
    for (start, want) in layout.iter().zip(wants) {
        let path = want.data.path().display();
        let what = format!("{} bytes at offset {} of {path}", want.len, want.offset);
        let expected = want.data.bytes(want.offset, want.len);
        assert_same(&memory[*start..*start + want.len], &expected, &what);
    }
    Ok(())
}

/// `vec![FILLING; len]` writes byte by byte in an unoptimised build.
fn filling(len: usize) -> Vec<u8> {
    let mut memory = vec![0; len];
    memory.fill(FILLING);
    memory
}

/// Returns where in the memory each destination begins.
fn lay_out(base: usize, wants: &[Want<'_>]) -> Vec<usize> {
    let mut end = 0;
    let place = |want: &Want<'_>| {
        let mut start = end + GAP_BYTES;
        if let Some(place) = want.place {
            start += (place + PAGE_BYTES - (base + start) % PAGE_BYTES) % PAGE_BYTES;
        }
        end = start + want.len;
        start
    };
    wants.iter().map(place).collect()
}

fn reads_into<'a>(memory: &'a mut [u8], wants: &[Want<'a>], layout: &[usize]) -> Vec<Read<'a>> {
    let mut rest = memory;
    let mut rest_start = 0;
    let mut reads = Vec::with_capacity(wants.len());
    for (start, want) in layout.iter().zip(wants) {
        let (_gap, from_dst) = rest.split_at_mut(start - rest_start);
        let (dst, after) = from_dst.split_at_mut(want.len);
        reads.push(Read::new(want.handle, want.offset, dst));
        (rest, rest_start) = (after, start + want.len);
    }
    reads
}
