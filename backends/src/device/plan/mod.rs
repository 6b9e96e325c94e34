//! From reads to device requests: large reads are split, near ones are merged, unaligned ones are
//! widened. Pure arithmetic; `direct`, `uring` and `tokio-uring` all use it.
//!
//! A request either goes *straight* into the caller's memory, for which address, offset and length must
//! be aligned as the device demands, or it *bounces*: an aligned range around the wanted bytes is read
//! into a buffer, and the wanted pieces are copied out.
//!
//! For example, with an alignment of 512, reading 100,000 bytes at offset 1,000 into memory whose
//! address is also 1,000 modulo 512 becomes three requests: 24 bytes up to 1,024 bounce, 99,840 go
//! straight, 136 bounce.
//!
//! A straight part begins at a multiple of the memory's alignment and ends at one. Where the kernel
//! does not pin the pages of a direct read, `sys::direct_alignment` makes that a page: then nothing
//! but the device writes to the pages of a straight part (see `docs/unsafe.md`). The rest of a shared
//! page may be a bounced end, or belong to another thread.

use std::ops::Range;

use crate::alignment::Alignment;

mod builder;

use builder::PlanBuilder;

/// One read, as far as planning it is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSpan {
    /// Equal for reads of the same file.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// The address of the destination.
    pub(crate) addr: usize,
    pub(crate) alignment: Alignment,
}

impl ReadSpan {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }
}

/// How large requests may be, and when merging pays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// The largest straight request, unless a page is larger; a multiple of every alignment of
    /// offsets.
    pub(crate) chunk_bytes: usize,
    /// The largest bounced request; a multiple of every alignment of offsets.
    pub(crate) bounce_bytes: usize,
    /// A page of memory. Every bounced request gets whole pages: where the kernel does not pin them,
    /// no page may take part in two reads at once.
    pub(crate) page_bytes: usize,
}

/// A read of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Which read it serves; the first of them if it is merged.
    pub(crate) read: usize,
    /// Which file, counted from 0 in the order of the plan. Requests of a file are consecutive.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    /// How much to ask for.
    pub(crate) len: usize,
    /// How much must arrive. Less than `len` where the file may end inside the last block.
    pub(crate) needed: usize,
    pub(crate) target: RequestTarget,
}

/// Where the bytes of a request go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    /// Into the read's destination, from this offset in it.
    Straight { dst_offset: usize },
    /// Into a buffer, from which these pieces are copied.
    Bounce { first_piece: usize, pieces: usize },
}

/// A part of a bounced request that belongs to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BouncedPiece {
    pub(crate) read: usize,
    pub(crate) dst_offset: usize,
    /// Where it begins in the request.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The requests that serve a batch. Made once and built again for every batch, so that planning
/// allocates nothing once it has seen a batch of that size.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    order: Vec<usize>,
    requests: Vec<Request>,
    pieces: Vec<BouncedPiece>,
    bounce_bytes_max: usize,
    bounce_bytes_sum: usize,
    bounces: usize,
}

/// Room is made for as many requests as there are reads, up to this.
const RESERVED_MAX: usize = 16 << 10;

impl Plan {
    /// Plans `count` reads, which `span` describes. Their ends must not overflow.
    pub(crate) fn build(
        &mut self,
        count: usize,
        span: impl Fn(usize) -> ReadSpan,
        limits: RequestLimits,
    ) {
        self.clear();
        self.order.extend((0..count).filter(|read| span(*read).len > 0));
        let key = |read: &usize| (span(*read).file, span(*read).offset);
        if !self.order.is_sorted_by_key(key) {
            self.order.sort_unstable_by_key(key);
        }
        // A later batch of the same size may merge fewer reads, and then needs more requests.
        let len = self.order.len().min(RESERVED_MAX);
        self.requests.reserve_exact(len);
        self.pieces.reserve_exact(len);
        let order = std::mem::take(&mut self.order);
        let mut builder = PlanBuilder::new(self, limits);
        let mut before: Option<ReadSpan> = None;
        for (at, read) in order.iter().enumerate() {
            let here = span(*read);
            let after = order.get(at + 1).map(|next| span(*next));
            builder.add(*read, &here, [before, after]);
            before = Some(here);
        }
        builder.finish();
        self.order = order;
    }

    fn clear(&mut self) {
        self.order.clear();
        self.requests.clear();
        self.pieces.clear();
        (self.bounce_bytes_max, self.bounce_bytes_sum, self.bounces) = (0, 0, 0);
    }

    /// The memory that it holds for the next batch: some 110 bytes for each read.
    #[cfg_attr(not(linux_device), allow(dead_code))]
    pub(crate) fn held_bytes(&self) -> usize {
        self.order.capacity() * size_of::<usize>()
            + self.requests.capacity() * size_of::<Request>()
            + self.pieces.capacity() * size_of::<BouncedPiece>()
    }

    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The pieces of a bounced request; none of a straight one.
    pub(crate) fn pieces(&self, request: &Request) -> &[BouncedPiece] {
        match request.target {
            RequestTarget::Straight { .. } => &[],
            RequestTarget::Bounce { first_piece, pieces } => {
                &self.pieces[first_piece..first_piece + pieces]
            }
        }
    }

    /// Returns `true` if a request serves several reads.
    pub(crate) fn is_merged(&self, request: &Request) -> bool {
        self.pieces(request).iter().any(|piece| piece.read != request.read)
    }

    /// The first read of the batch that lacks bytes if only `arrived` bytes of the request have arrived.
    pub(crate) fn first_read_lacking(&self, request: &Request, arrived: usize) -> usize {
        let lacking = |piece: &&BouncedPiece| piece.start + piece.len > arrived;
        let reads = self.pieces(request).iter().filter(lacking).map(|piece| piece.read);
        reads.min().unwrap_or(request.read)
    }

    /// The size of the largest bounced request.
    #[cfg_attr(not(linux_uring), allow(dead_code))]
    pub(crate) fn bounce_bytes_max(&self) -> usize {
        self.bounce_bytes_max
    }

    /// The size of all bounced requests together, each in whole pages.
    #[cfg_attr(not(linux_device), allow(dead_code))]
    pub(crate) fn bounce_bytes_sum(&self) -> usize {
        self.bounce_bytes_sum
    }

    /// Returns how many requests bounce.
    #[cfg_attr(not(linux_device), allow(dead_code))]
    pub(crate) fn bounces(&self) -> usize {
        self.bounces
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::builder::MERGE_GAP_BYTES;
    use super::*;

    const LIMITS: RequestLimits =
        RequestLimits { chunk_bytes: 1 << 20, bounce_bytes: 512 << 10, page_bytes: 4096 };
    const SECTOR: Alignment = Alignment { memory: 512, offset: 512 };
    /// The alignment of a kernel that does not pin the pages of a direct read.
    const PAGE: Alignment = Alignment { memory: 4096, offset: 512 };

    fn plan_of(spans: &[ReadSpan], limits: RequestLimits) -> Plan {
        let mut plan = Plan::default();
        plan.build(spans.len(), |read| spans[read], limits);
        plan
    }

    fn span(offset: u64, len: usize, addr: usize) -> ReadSpan {
        ReadSpan { file: 1, offset, len, addr, alignment: SECTOR }
    }

    /// The requests as `(offset, len, is straight)`.
    fn shape(plan: &Plan) -> Vec<(u64, usize, bool)> {
        let straight = |r: &Request| matches!(r.target, RequestTarget::Straight { .. });
        plan.requests().iter().map(|r| (r.offset, r.len, straight(r))).collect()
    }

    #[test]
    fn an_aligned_read_goes_straight_and_a_large_one_in_chunks() {
        let plan = plan_of(&[span(4096, 4096, 512)], LIMITS);
        assert_eq!(shape(&plan), [(4096, 4096, true)]);
        let plan = plan_of(&[span(0, 5 << 19, 0)], LIMITS);
        assert_eq!(
            shape(&plan),
            [(0, 1 << 20, true), (1 << 20, 1 << 20, true), (2 << 20, 1 << 19, true)]
        );
    }

    #[test]
    fn the_example_of_the_documentation() {
        let plan = plan_of(&[span(1000, 100_000, 1000)], LIMITS);
        let mut requests = shape(&plan);
        requests.sort_unstable();
        assert_eq!(requests, [(512, 512, false), (1024, 99_840, true), (100_864, 512, false)]);
    }

    #[test]
    fn a_page_that_is_shared_with_other_memory_bounces() {
        let span = |offset, len, addr| ReadSpan { alignment: PAGE, ..span(offset, len, addr) };
        // Aligned for the device, but a page of 4 KiB holds eight such reads.
        assert_eq!(shape(&plan_of(&[span(512, 512, 512)], LIMITS)), [(512, 512, false)]);
        assert_eq!(shape(&plan_of(&[span(0, 4608, 0)], LIMITS)), [(0, 4608, false)]);
        let mut requests = shape(&plan_of(&[span(0, 1 << 20, 512)], LIMITS));
        requests.sort_unstable();
        let middle = (1 << 20) - 4096;
        let tail = 3584 + middle as u64;
        assert_eq!(requests, [(0, 3584, false), (3584, middle, true), (tail, 512, false)]);
    }

    #[test]
    fn a_read_whose_address_does_not_fit_bounces_whole() {
        let plan = plan_of(&[span(0, 1 << 20, 16)], LIMITS);
        assert_eq!(shape(&plan), [(0, 512 << 10, false), (512 << 10, 512 << 10, false)]);
    }

    #[test]
    fn neighbours_share_a_request_and_strangers_do_not() {
        let near = [span(8192, 4096, 0), span(0, 4096, 4096), span(4096, 100, 8192)];
        assert_eq!(shape(&plan_of(&near, LIMITS)), [(0, 12288, false)]);
        let far = [span(0, 4096, 0), span(1 << 20, 4096, 4096)];
        assert_eq!(shape(&plan_of(&far, LIMITS)), [(0, 4096, true), (1 << 20, 4096, true)]);
        let other_file = ReadSpan { file: 2, ..span(0, 100, 0) };
        assert_eq!(plan_of(&[span(0, 100, 0), other_file], LIMITS).requests().len(), 2);
    }

    #[test]
    fn without_an_alignment_everything_goes_straight() {
        let spans =
            [span(1, 3, 7), span(4, 5, 9)].map(|s| ReadSpan { alignment: Alignment::NONE, ..s });
        assert_eq!(shape(&plan_of(&spans, LIMITS)), [(1, 3, true), (4, 5, true)]);
    }

    #[test]
    fn a_failed_request_names_the_first_read_that_lacks_bytes() {
        let plan = plan_of(&[span(700, 100, 0), span(10, 600, 4096)], LIMITS);
        let request = plan.requests()[0];
        assert_eq!(plan.first_read_lacking(&request, 0), 0);
        assert_eq!(plan.first_read_lacking(&request, 650), 0);
        assert_eq!(plan.first_read_lacking(&request, 800), request.read);
    }

    /// Reads as a device would: aligned ranges of a file into destinations.
    fn run(plan: &Plan, spans: &[ReadSpan], limits: RequestLimits) -> Vec<Vec<Option<u64>>> {
        let mut out: Vec<Vec<Option<u64>>> = spans.iter().map(|s| vec![None; s.len]).collect();
        let mut put = |read: usize, at: usize, value: u64| {
            assert_eq!(out[read][at].replace(value), None, "byte {at} of read {read} came twice");
        };
        for request in plan.requests() {
            let of = &spans[request.read];
            let align = of.alignment;
            assert_eq!(request.offset % align.offset as u64, 0);
            assert!(request.len > 0 && request.len.is_multiple_of(align.offset));
            assert!(request.needed <= request.len && request.needed > request.len - align.offset);
            match request.target {
                RequestTarget::Straight { dst_offset } => {
                    let len_max = limits.chunk_bytes.max(align.memory);
                    assert!(request.len <= len_max && request.needed == request.len);
                    assert_eq!((of.addr + dst_offset) % align.memory, 0);
                    for at in 0..request.len {
                        put(request.read, dst_offset + at, request.offset + at as u64);
                    }
                }
                RequestTarget::Bounce { .. } => {
                    assert!(request.len <= limits.bounce_bytes);
                    assert!(request.len <= plan.bounce_bytes_max());
                    for piece in plan.pieces(request) {
                        assert_eq!(spans[piece.read].file, of.file);
                        for at in 0..piece.len {
                            let value = request.offset + (piece.start + at) as u64;
                            put(piece.read, piece.dst_offset + at, value);
                        }
                    }
                }
            }
        }
        out
    }

    fn spans() -> impl Strategy<Value = Vec<ReadSpan>> {
        let alignment = prop_oneof![
            Just(Alignment::NONE),
            Just(SECTOR),
            Just(PAGE),
            Just(Alignment { memory: 4, offset: 512 }),
            Just(Alignment { memory: 4096, offset: 4096 }),
        ];
        // Miri is some thousand times slower than the processor.
        let (spans_max, len_max) = if cfg!(miri) { (4, 1500) } else { (20, 20_000usize) };
        let span = (0..3usize, 0..40_000u64, 0..len_max, 0..8192usize, 0..3u8);
        (alignment, prop::collection::vec(span, 0..spans_max)).prop_map(|(alignment, spans)| {
            let build = |(file, offset, len, addr, snap): (usize, u64, usize, usize, u8)| match snap
            {
                0 => ReadSpan { file, offset, len, addr, alignment },
                1 => ReadSpan {
                    file,
                    offset: offset / 4096 * 4096,
                    len: len / 512 * 512,
                    addr: addr / 4096 * 4096,
                    alignment,
                },
                // Large, with address and offset congruent: the case that is split in three.
                _ => ReadSpan { file, offset, len: len * 10, addr: offset as usize, alignment },
            };
            spans.into_iter().map(build).collect()
        })
    }

    proptest! {
        #[test]
        fn every_byte_arrives_once_and_in_its_place(
            spans in spans(),
            chunk in 12u32..18,
            bounce in 12u32..18,
        ) {
            let limits = RequestLimits { chunk_bytes: 1 << chunk, bounce_bytes: 1 << bounce, ..LIMITS };
            let plan = plan_of(&spans, limits);
            for (read, bytes) in run(&plan, &spans, limits).into_iter().enumerate() {
                for (at, value) in bytes.into_iter().enumerate() {
                    prop_assert_eq!(value, Some(spans[read].offset + at as u64));
                }
            }
        }

        /// The bytes around a straight request used to share its first and last page. After a fork
        /// in mid-read a write to one of them could take the page away from the device.
        #[test]
        fn the_device_has_its_pages_to_itself(
            spans in spans(),
            chunk in 12u32..18,
            page in prop_oneof![Just(12u32), Just(14), Just(16)],
        ) {
            let alignment = Alignment { memory: 1 << page, offset: 512 };
            let spans: Vec<ReadSpan> = spans.into_iter().map(|s| ReadSpan { alignment, ..s }).collect();
            let plan = plan_of(&spans, RequestLimits { chunk_bytes: 1 << chunk, ..LIMITS });
            for (read, span) in spans.iter().enumerate() {
                for request in plan.requests().iter().filter(|request| request.read == read) {
                    let RequestTarget::Straight { dst_offset } = request.target else { continue };
                    let first = span.addr + dst_offset;
                    prop_assert!(first.is_multiple_of(alignment.memory));
                    prop_assert!(request.len.is_multiple_of(alignment.memory));
                }
            }
        }

        #[test]
        fn requests_of_a_file_are_consecutive_and_waste_is_bounded(spans in spans()) {
            let plan = plan_of(&spans, LIMITS);
            let files: Vec<usize> = plan.requests().iter().map(|request| request.file).collect();
            prop_assert!(files.is_sorted());
            for request in plan.requests() {
                prop_assert_eq!(
                    spans[request.read].file,
                    spans[plan.requests().iter().find(|r| r.file == request.file).unwrap().read].file
                );
            }
            let asked: usize = plan.requests().iter().map(|request| request.len).sum();
            let wanted: usize = spans.iter().map(|span| span.len).sum();
            let slack = 2 * 4096 + MERGE_GAP_BYTES as usize;
            prop_assert!(asked <= wanted + slack * (spans.len() + asked / LIMITS.bounce_bytes + 1));
        }

        #[test]
        fn a_plan_used_again_is_as_good_as_new(first in spans(), second in spans()) {
            let mut plan = plan_of(&first, LIMITS);
            plan.build(second.len(), |read| second[read], LIMITS);
            let fresh = plan_of(&second, LIMITS);
            prop_assert_eq!(plan.requests(), fresh.requests());
            prop_assert_eq!(&plan.pieces, &fresh.pieces);
        }
    }
}
