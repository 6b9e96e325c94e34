//! Makes a plan: which reads share a request, and which part of a read goes straight.

use std::ops::Range;

use super::{BouncedPiece, Plan, ReadSpan, Request, RequestLimits, RequestTarget};
use crate::JoinLimits;
use crate::alignment::Alignment;

/// Reads no further apart than this share a request: the device takes longer to start another
/// request than to deliver a few kilobytes that are not needed.
pub(super) const MERGE_GAP_BYTES: u64 = 4096;

/// Aligned reads up to this size are bounced if that lets them share a request with a neighbour:
/// copying 16 KiB takes about a microsecond, a request of its own ten.
const MERGE_BELOW_BYTES: usize = 16 << 10;

/// A read with unaligned ends is only split in three if its aligned middle has this size, as the
/// two extra requests must be worth less than the copy.
const SPLIT_FROM_BYTES: u64 = 64 << 10;

/// Returns `true` if two reads, the first beginning no later, are close enough to share a request.
fn are_near(first: &ReadSpan, second: &ReadSpan) -> bool {
    let limits = JoinLimits { gap_bytes: MERGE_GAP_BYTES, joined_bytes: u64::MAX };
    first.file == second.file && limits.allow(&first.range(), &second.range())
}

/// A plan while it is being made.
pub(super) struct PlanBuilder<'a> {
    plan: &'a mut Plan,
    limits: RequestLimits,
    file: usize,
    /// The bounced request that the next piece may still join.
    open: Option<Request>,
}

impl<'a> PlanBuilder<'a> {
    pub(super) fn new(plan: &'a mut Plan, limits: RequestLimits) -> Self {
        Self { plan, limits, file: 0, open: None }
    }

    /// Adds the requests of a read, between the reads `before` and `after` it in the order of the files.
    pub(super) fn add(
        &mut self,
        read: usize,
        span: &ReadSpan,
        [before, after]: [Option<ReadSpan>; 2],
    ) {
        if before.is_some_and(|before| before.file != span.file) {
            self.close();
            self.file += 1;
        }
        let merge = span.len <= MERGE_BELOW_BYTES
            && (before.is_some_and(|before| are_near(&before, span))
                || after.is_some_and(|after| are_near(span, &after)));
        let aligned = span.alignment.offset > 1;
        match straight_range(span) {
            Some(straight)
                if !aligned
                    || (straight == span.range() && !merge)
                    || straight.end - straight.start >= SPLIT_FROM_BYTES =>
            {
                self.bounce(read, span, span.offset..straight.start);
                self.straight(read, span, straight.clone());
                self.bounce(read, span, straight.end..span.end());
            }
            _ => self.bounce(read, span, span.range()),
        }
    }

    /// Completes the plan.
    pub(super) fn finish(mut self) {
        self.close();
    }

    /// Requests for an aligned range, straight into the destination.
    fn straight(&mut self, read: usize, span: &ReadSpan, range: Range<u64>) {
        let Range { start: mut offset, end } = range;
        while offset < end {
            // A chunk is at most 1 GiB, so the lengths fit any usize. Two chunks share no page.
            let chunk_bytes = self.limits.chunk_bytes.max(span.alignment.memory);
            let len = (end - offset).min(chunk_bytes as u64) as usize;
            let dst_offset = (offset - span.offset) as usize;
            let target = RequestTarget::Straight { dst_offset };
            let file = self.file;
            self.plan.requests.push(Request { read, file, offset, len, needed: len, target });
            offset += len as u64;
        }
    }

    /// Requests around a range, into buffers; joins the open one where that is near enough.
    fn bounce(&mut self, read: usize, span: &ReadSpan, range: Range<u64>) {
        let align = span.alignment.offset as u64;
        let Range { start: mut offset, end } = range;
        while offset < end {
            let open = match self.open.take() {
                Some(open) if self.has_room(&open, offset) => open,
                other => {
                    self.open = other;
                    self.close();
                    self.new_bounce(read, offset / align * align)
                }
            };
            let piece_end = end.min(open.offset + self.limits.bounce_bytes as u64);
            let piece = BouncedPiece {
                read,
                dst_offset: (offset - span.offset) as usize,
                start: (offset - open.offset) as usize,
                len: (piece_end - offset) as usize,
            };
            self.plan.pieces.push(piece);
            self.open = Some(widened(open, &piece, span.alignment.offset));
            offset = piece_end;
        }
    }

    /// Returns `true` if a piece that begins at `offset` can join the open request, at least with its first byte.
    fn has_room(&self, open: &Request, offset: u64) -> bool {
        let joined_bytes = self.limits.bounce_bytes as u64;
        let limits = JoinLimits { gap_bytes: MERGE_GAP_BYTES, joined_bytes };
        limits.allow(&(open.offset..open.offset + open.len as u64), &(offset..offset + 1))
    }

    fn new_bounce(&self, read: usize, offset: u64) -> Request {
        let target = RequestTarget::Bounce { first_piece: self.plan.pieces.len(), pieces: 0 };
        Request { read, file: self.file, offset, len: 0, needed: 0, target }
    }

    /// No further piece may join the open request.
    fn close(&mut self) {
        if let Some(request) = self.open.take() {
            self.plan.bounce_bytes_max = self.plan.bounce_bytes_max.max(request.len);
            self.plan.bounce_bytes_sum += request.len.next_multiple_of(self.limits.page_bytes);
            self.plan.bounces += 1;
            self.plan.requests.push(request);
        }
    }
}

/// The request with one piece more, its length still a multiple of the alignment.
fn widened(mut request: Request, piece: &BouncedPiece, align: usize) -> Request {
    request.needed = request.needed.max(piece.start + piece.len);
    request.len = request.needed.next_multiple_of(align);
    request.read = request.read.min(piece.read);
    if let RequestTarget::Bounce { pieces, .. } = &mut request.target {
        *pieces += 1;
    }
    request
}

/// The part of a read that the device may write straight into its destination.
fn straight_range(span: &ReadSpan) -> Option<Range<u64>> {
    let Alignment { memory: memory_align, offset: align } = span.alignment;
    // Skip to the first byte that meets the stricter alignment. If that byte does not meet the other
    // one, no byte does.
    let skipped = if memory_align >= align {
        span.addr.checked_next_multiple_of(memory_align)? - span.addr
    } else {
        // Less than `align`.
        (span.offset.checked_next_multiple_of(align as u64)? - span.offset) as usize
    };
    let unit = align.max(memory_align);
    let len = span.len.checked_sub(skipped)? / unit * unit;
    let start = span.offset.checked_add(skipped as u64)?;
    let fits = start % align as u64 == 0 && span.addr.wrapping_add(skipped) % memory_align == 0;
    (len > 0 && fits).then_some(start..start + len as u64)
}
