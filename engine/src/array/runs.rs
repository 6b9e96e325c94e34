//! Reads many runs of equal size from one file, as batches of a bounded size.
//!
//! The planner of the device backends joins reads too. Runs are joined here as well, because a run may
//! be a single element: on a backend that uses the page cache each read is a system call, and a plan
//! takes about 110 bytes for each read. Copying short runs out of one long read costs a few nanoseconds
//! each. A run without a neighbour is read straight to its place, and the planner does the rest.

use std::ops::Range;

use ringmain_backends::{FileHandle, JoinLimits, JoinedRange, Read};

use crate::{Engine, Error, Result};

/// Runs closer together than this are read together, as the device delivers whole pages anyway.
/// Runs that are at least this long are joined only if at most a quarter of the read is wasted.
const GAP_BYTES: u64 = 4096;

/// Runs of at least this size are not joined: a request of their own costs less than the copy.
const ALONE_BYTES: usize = 16 << 10;

/// The most bytes of runs that are joined: the default size of a device request. Scratch memory holds
/// several, so little of it stays empty when the next one does not fit.
const JOINED_BYTES_MAX: usize = 1 << 20;

/// The largest number of runs in one batch.
const BATCH_RUNS_MAX: usize = 32 << 10;

/// The approximate size of a batch: a tenth of a second on a slow device, so that a caller can stop
/// soon.
const BATCH_BYTES_MAX: usize = 32 << 20;

/// Consecutive bytes of the file, and their place in the caller's memory.
struct Run<'d> {
    offset: u64,
    dst: &'d mut [u8],
}

/// Runs that are read as one batch.
pub(super) struct RunBatch<'a, 'd, F> {
    engine: &'a Engine,
    file: &'a FileHandle,
    run_bytes: usize,
    runs: Vec<Run<'d>>,
    /// The size of the runs in bytes.
    bytes: usize,
    go_on: F,
}

/// A range of the file that is one read.
struct RunSpan {
    start: u64,
    /// The number of runs in it.
    runs: usize,
    /// Its part of the scratch memory. `None` for a single run, which is read straight to its place.
    scratch: Option<Range<usize>>,
    /// More is read than the runs and the gaps between them.
    is_widened: bool,
}

/// Whether joined runs are read with the rest of their first and last block.
#[derive(Clone, Copy)]
enum Ends {
    /// They are. The device would otherwise get a small request of its own for each unaligned end.
    WholeBlocks { file_len: u64 },
    /// They are not.
    Exact,
}

impl<'a, 'd, F: FnMut() -> bool> RunBatch<'a, 'd, F> {
    /// Returns an empty batch for runs of `run_bytes` bytes.
    pub(super) fn new(
        engine: &'a Engine,
        file: &'a FileHandle,
        run_bytes: usize,
        go_on: F,
    ) -> Self {
        Self { engine, file, run_bytes, runs: Vec::new(), bytes: 0, go_on }
    }

    /// Adds a run. Returns `false` if the caller wants to stop.
    pub(super) fn add(&mut self, offset: u64, run: &'d mut [u8]) -> Result<bool> {
        // Longer runs are divided.
        for (at, dst) in run.chunks_mut(BATCH_BYTES_MAX).enumerate() {
            self.bytes += dst.len();
            self.runs.push(Run { offset: offset + (at * BATCH_BYTES_MAX) as u64, dst });
            if self.runs.len() >= BATCH_RUNS_MAX || self.bytes >= BATCH_BYTES_MAX {
                self.flush()?;
                if !(self.go_on)() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads the runs that were added and not yet read.
    pub(super) fn flush(&mut self) -> Result<()> {
        let mut runs = std::mem::take(&mut self.runs);
        self.bytes = 0;
        runs.sort_unstable_by_key(|run| run.offset);
        let ends = self.ends();
        let mut rest = runs.as_mut_slice();
        while !rest.is_empty() {
            let mut spans = self.plan(rest, self.engine.scratch_limit_bytes(), ends);
            let wanted_bytes = scratch_bytes(&spans);
            let mut scratch = match wanted_bytes {
                0 => None,
                bytes => Some(self.engine.scratch(bytes)?),
            };
            let scratch = scratch.as_deref_mut().unwrap_or_default();
            if scratch.len() < wanted_bytes {
                spans = self.plan(rest, scratch.len(), ends);
            }
            let taken = match self.read(&spans, scratch, rest) {
                // The caller did not ask for the rest of the blocks, where the file may have been cut
                // or the device may have a bad sector. Only an error of the runs is an error.
                Err(error) if error.offset().is_some() && is_any_widened(&spans) => {
                    let spans = self.plan(rest, scratch.len(), Ends::Exact);
                    self.read(&spans, scratch, rest)?
                }
                outcome => outcome?,
            };
            rest = &mut rest[taken..];
        }
        Ok(())
    }

    fn ends(&self) -> Ends {
        if self.file.alignment().block() == 1 {
            return Ends::Exact;
        }
        // If the file has no length, the reads fail and name the runs.
        let file_len = self.engine.backend().len(self.file);
        file_len.map_or(Ends::Exact, |file_len| Ends::WholeBlocks { file_len })
    }

    /// Returns the spans of the next runs, as many as fit in scratch memory.
    fn plan(&self, runs: &[Run<'_>], scratch_bytes: usize, ends: Ends) -> Vec<RunSpan> {
        let alignment = self.file.alignment();
        let run_bytes = self.run_bytes as u64;
        // The first joined range fits wherever it begins and ends in its blocks.
        let room_bytes = scratch_bytes.saturating_sub(alignment.placed_bytes_max(0));
        let is_alone = self.run_bytes >= ALONE_BYTES;
        let limits = JoinLimits {
            gap_bytes: if run_bytes < GAP_BYTES { GAP_BYTES } else { run_bytes / 4 },
            joined_bytes: if is_alone { 0 } else { room_bytes.min(JOINED_BYTES_MAX) as u64 },
        };
        let ranges = runs.iter().map(|run| run.offset..run.offset + run.dst.len() as u64);
        let (mut spans, mut used_bytes) = (Vec::new(), 0);
        for JoinedRange { range, parts } in limits.join(ranges) {
            if parts == 1 {
                let (start, scratch) = (range.start, None);
                spans.push(RunSpan { start, runs: 1, scratch, is_widened: false });
                continue;
            }
            let blocks = match ends {
                Ends::WholeBlocks { file_len } => {
                    alignment.place(range.clone(), 1, file_len).blocks()
                }
                Ends::Exact => range.clone(),
            };
            let from = alignment.position(used_bytes, blocks.start);
            used_bytes = from + (blocks.end - blocks.start) as usize;
            if used_bytes > scratch_bytes {
                break;
            }
            let is_widened = blocks != range;
            let scratch = Some(from..used_bytes);
            spans.push(RunSpan { start: blocks.start, runs: parts, scratch, is_widened });
        }
        spans
    }

    /// Reads the spans as one batch, and copies the joined runs out of them. Returns the number of runs.
    fn read(&self, spans: &[RunSpan], scratch: &mut [u8], runs: &mut [Run<'_>]) -> Result<usize> {
        let (mut free, mut used_bytes) = (&mut *scratch, 0);
        let mut rest = &mut *runs;
        let mut reads = Vec::with_capacity(spans.len());
        for span in spans {
            let (inside, behind) = rest.split_at_mut(span.runs);
            rest = behind;
            match &span.scratch {
                None => {
                    let whole = inside.iter_mut().map(|run| (run.offset, &mut *run.dst));
                    reads.extend(whole.map(|(offset, dst)| Read::new(self.file, offset, dst)));
                }
                Some(part) => {
                    let (_, tail) = free.split_at_mut(part.start - used_bytes);
                    let (dst, tail) = tail.split_at_mut(part.len());
                    reads.push(Read::new(self.file, span.start, dst));
                    (free, used_bytes) = (tail, part.end);
                }
            }
        }
        let read = self.engine.backend().read_batch(&mut reads);
        read.map_err(|error| Error::backend(self.file.path(), error))?;
        drop(reads);
        let mut rest = runs;
        for span in spans {
            let (inside, behind) = rest.split_at_mut(span.runs);
            rest = behind;
            let Some(part) = &span.scratch else { continue };
            let bytes = &scratch[part.clone()];
            for Run { offset, dst } in inside {
                let start = (*offset - span.start) as usize;
                dst.copy_from_slice(&bytes[start..start + dst.len()]);
            }
        }
        Ok(spans.iter().map(|span| span.runs).sum())
    }
}

fn is_any_widened(spans: &[RunSpan]) -> bool {
    spans.iter().any(|span| span.is_widened)
}

/// Returns the scratch memory that the spans need together.
fn scratch_bytes(spans: &[RunSpan]) -> usize {
    let parts = spans.iter().rev().filter_map(|span| span.scratch.as_ref());
    parts.map(|part| part.end).next().unwrap_or(0)
}
