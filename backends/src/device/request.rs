//! One request, fulfilled with positional calls on the calling thread.

use std::ops::DerefMut;

use smallvec::SmallVec;

use super::core::DeviceCore;
use super::file::DeviceFile;
use super::plan::{BouncedPiece, Plan, Request, RequestTarget};
use super::progress::{NextStep, Progress};
use crate::handle_cache::for_read;
use crate::retry::{Shortfall, shortfall_at_end};
use crate::{CachePolicy, Error, Read, Result, sys};

impl DeviceCore {
    /// The error for a request of which only `arrived` bytes came.
    pub(crate) fn request_error(
        &self,
        plan: &Plan,
        request: &Request,
        reads: &[Read<'_>],
        arrived: usize,
        shortfall: Shortfall,
    ) -> (usize, Error) {
        let index = plan.first_read_lacking(request, arrived);
        (index, reads[index].shortfall_error(self.kind, index, shortfall))
    }

    /// Fulfils a request with positional reads on this thread, through a buffer of the pool if it
    /// bounces.
    ///
    /// # Safety
    /// As for [`run_request_through`](Self::run_request_through).
    #[cfg(linux_rings)]
    pub(crate) unsafe fn run_request(
        &self,
        plan: &Plan,
        request: &Request,
        reads: &[Read<'_>],
    ) -> Result<(), (usize, Error)> {
        // SAFETY: the caller's promise.
        unsafe { self.run_request_through(plan, request, reads, |len| self.pool.take(len)) }
    }

    /// Fulfils a request with positional reads on this thread. If it bounces, `take` gets memory
    /// of the length that it is called with.
    ///
    /// # Safety
    /// Nothing else may use the parts of the destinations that the request writes to. Different
    /// requests of one plan write to different parts.
    pub(crate) unsafe fn run_request_through<B: DerefMut<Target = [u8]>>(
        &self,
        plan: &Plan,
        request: &Request,
        reads: &[Read<'_>],
        take: impl FnOnce(usize) -> Result<B>,
    ) -> Result<(), (usize, Error)> {
        let read = &reads[request.read];
        let fail_set_up = |error| (request.read, for_read(error, read, request.read));
        // The buffer first: a thread that waits for a buffer must hold no file.
        let bounce = match request.target {
            RequestTarget::Straight { .. } => None,
            RequestTarget::Bounce { .. } => Some(take(request.len).map_err(fail_set_up)?),
        };
        let pin = self.handles().acquire(read.file()).map_err(fail_set_up)?;
        let fail =
            |(arrived, shortfall)| self.request_error(plan, request, reads, arrived, shortfall);
        match (request.target, bounce) {
            (RequestTarget::Straight { dst_offset }, _) => {
                // SAFETY: the caller's promise.
                let dst = unsafe { read.part(dst_offset, request.len) };
                self.read_device(&pin, request, dst).map_err(fail)
            }
            (RequestTarget::Bounce { .. }, None) => unreachable!("taken above"),
            (RequestTarget::Bounce { .. }, Some(mut buffer)) => {
                match self.read_device(&pin, request, &mut buffer) {
                    Err((_, Shortfall::Io(_))) if plan.is_merged(request) => {
                        self.read_one_by_one(&pin, plan, request, reads, &mut buffer)?;
                    }
                    outcome => outcome.map_err(fail)?,
                }
                // SAFETY: the caller's promise.
                unsafe { scatter(plan, request, reads, &buffer) };
                Ok(())
            }
        }
    }

    /// Reads what each read wants of a merged request that failed as a whole, so that only a read whose
    /// own blocks cannot be read fails. The reads go in the order of the batch.
    fn read_one_by_one(
        &self,
        file: &DeviceFile,
        plan: &Plan,
        request: &Request,
        reads: &[Read<'_>],
        buffer: &mut [u8],
    ) -> Result<(), (usize, Error)> {
        let mut pieces = SmallVec::<[BouncedPiece; 16]>::from_slice(plan.pieces(request));
        pieces.sort_by_key(|piece| piece.read);
        for piece in pieces {
            // Whole blocks of the buffer, which begins at a block of its own.
            let piece_end = piece.start + piece.len;
            let wanted = piece.start as u64..piece_end as u64;
            let blocks = file.alignment.place(wanted, 1, request.len as u64).blocks();
            let (start, end) = (blocks.start as usize, blocks.end as usize);
            let part = Request {
                offset: request.offset + start as u64,
                len: end - start,
                needed: piece_end - start,
                ..*request
            };
            self.count_retry();
            self.read_device(file, &part, &mut buffer[start..end]).map_err(|(_, shortfall)| {
                let read = &reads[piece.read];
                (piece.read, read.shortfall_error(self.kind, piece.read, shortfall))
            })?;
        }
        Ok(())
    }

    /// Reads the request's range into `dst`. The error says how many bytes arrived.
    fn read_device(
        &self,
        file: &DeviceFile,
        request: &Request,
        dst: &mut [u8],
    ) -> Result<(), (usize, Shortfall)> {
        let align = file.alignment.offset;
        let read_at =
            if self.policy == CachePolicy::Uncached { sys::read_uncached } else { sys::read_at };
        let mut read = self.faults.wrap(align, read_at);
        let end = request.offset + request.needed as u64;
        let mut progress = Progress::default();
        loop {
            let done = progress.done();
            let result =
                read(&file.file, &mut dst[done..request.len], request.offset + done as u64);
            let at_end = || shortfall_at_end(&file.file, end);
            match progress.after(result, request.needed, align, at_end) {
                NextStep::Complete => return Ok(()),
                NextStep::Again => self.count_retry(),
                NextStep::Failed(arrived, shortfall) => return Err((arrived, shortfall)),
            }
        }
    }
}

/// Copies the pieces of a bounced request to their destinations.
///
/// # Safety
/// As for [`DeviceCore::run_request_through`].
pub(crate) unsafe fn scatter(plan: &Plan, request: &Request, reads: &[Read<'_>], bounce: &[u8]) {
    for piece in plan.pieces(request) {
        let source = &bounce[piece.start..piece.start + piece.len];
        // SAFETY: the caller's promise.
        let dst = unsafe { reads[piece.read].part(piece.dst_offset, piece.len) };
        dst.copy_from_slice(source);
    }
}
