//! Reads data that is not in the folder, as one batch of the inner backend: whole blocks if they are going to be
//! stored, otherwise only what the caller wants.

use std::collections::HashMap;
use std::io::ErrorKind;

use ringmain_backends::{Error, Read};

use super::backend::{CachedBackend, CachedFile, KIND};
use super::block::{file_bytes, seal};
use super::eviction::Dice;
use super::key::{BlockId, Object};
use super::warm::{Piece, Warm, is_of_device};

/// A piece that comes from the store.
pub(super) struct Cold<'a> {
    pub(super) file: &'a CachedFile,
    /// The block that it belongs to. `None`: the object is not cached.
    pub(super) block: Option<(&'a Object, BlockId)>,
    /// Where it begins in the file.
    pub(super) offset: u64,
    pub(super) piece: Piece<'a>,
}

impl<'a> From<Warm<'a>> for Cold<'a> {
    fn from(warm: Warm<'a>) -> Self {
        let Warm { file, object, block, piece } = warm;
        let offset = block.id.start + piece.at as u64;
        Self { file, block: Some((object, block.id)), offset, piece }
    }
}

/// A read of the caller that failed, and why.
pub(super) type Failure = (usize, Error);

/// A block that is fetched as a whole, for one or several pieces.
struct Fetch<'a> {
    file: &'a CachedFile,
    object: &'a Object,
    id: BlockId,
    pieces: Vec<Cold<'a>>,
}

impl Fetch<'_> {
    /// The first read of the caller that needs the block.
    fn first_read(&self) -> usize {
        self.pieces.iter().map(|cold| cold.piece.read).min().unwrap_or(0)
    }
}

/// Why blocks were not fetched.
enum Unfetched<'a> {
    /// Whole blocks cannot be read. The parts that the caller wants may be readable, or else have the caller's error.
    Blocks(Vec<Cold<'a>>),
    /// Reading less would fail too.
    Failed(Failure),
}

/// Returns `true` if a smaller read may succeed: bytes beside the wanted ones may be missing, or be what a device cannot
/// read. Other errors of reads, such as those of connections, come after all attempts that the options allow.
fn may_read_less(error: &Error) -> bool {
    match error {
        Error::Read { source, .. } => {
            source.kind() == ErrorKind::UnexpectedEof
                || source.raw_os_error().is_some_and(is_of_device)
        }
        _ => true,
    }
}

impl CachedBackend {
    pub(super) fn read_cold(&self, cold: Vec<Cold<'_>>) -> Result<(), Failure> {
        if cold.is_empty() {
            return Ok(());
        }
        let (fetches, mut exact) = self.divide(cold);
        let round_bytes = self.cache.core.fetch_memory.limit_bytes() / 2;
        let mut fetches = fetches.into_iter().peekable();
        while fetches.peek().is_some() {
            let (mut round, mut bytes) = (Vec::new(), 0);
            while let Some(fetch) = fetches.next_if(|fetch| {
                round.is_empty() || bytes + file_bytes(fetch.id.len) <= round_bytes
            }) {
                bytes += file_bytes(fetch.id.len);
                round.push(fetch);
            }
            let with_round = std::mem::take(&mut exact);
            match self.fetch(round, bytes, with_round) {
                Ok(()) => {}
                Err(Unfetched::Failed(failure)) => return Err(failure),
                Err(Unfetched::Blocks(mut rest)) => {
                    rest.extend(fetches.flat_map(|fetch| fetch.pieces));
                    rest.sort_by_key(|cold| cold.piece.read);
                    return self.read_exact(rest);
                }
            }
        }
        self.read_exact(exact)
    }

    /// Decides for each block whether it is fetched as a whole.
    fn divide<'a>(&self, cold: Vec<Cold<'a>>) -> (Vec<Fetch<'a>>, Vec<Cold<'a>>) {
        let core = &self.cache.core;
        let mut wanted: HashMap<u128, u64> = HashMap::new();
        for cold in &cold {
            let Some((_, id)) = cold.block else { continue };
            let bytes = cold.piece.dst.len() as u64;
            *wanted.entry(id.hash).or_default() += bytes;
            core.counters.misses.add(bytes);
        }
        let (mut fetches, mut exact): (Vec<Fetch<'a>>, _) = (Vec::new(), Vec::new());
        let (mut dice, mut decided) = (Dice::new(), HashMap::new());
        for cold in cold {
            let Some((object, id)) = cold.block else {
                exact.push(cold);
                continue;
            };
            let fetch = *decided.entry(id.hash).or_insert_with(|| {
                let wanted_bytes = wanted.get(&id.hash).copied().unwrap_or(0);
                core.admits(&id, wanted_bytes, &mut dice).then(|| {
                    fetches.push(Fetch { file: cold.file, object, id, pieces: Vec::new() });
                    fetches.len() - 1
                })
            });
            match fetch.and_then(|at| fetches.get_mut(at)) {
                Some(fetch) => fetch.pieces.push(cold),
                None => exact.push(cold),
            }
        }
        (fetches, exact)
    }

    /// Reads whole blocks, and pieces beside them, as one batch; serves the pieces of the blocks, and stores the blocks.
    fn fetch<'a>(
        &self,
        round: Vec<Fetch<'a>>,
        bytes: usize,
        mut exact: Vec<Cold<'a>>,
    ) -> Result<(), Unfetched<'a>> {
        let core = &self.cache.core;
        let all = |round: Vec<Fetch<'a>>, exact: Vec<Cold<'a>>| {
            let pieces = round.into_iter().flat_map(|fetch| fetch.pieces).chain(exact).collect();
            Err(Unfetched::Blocks(pieces))
        };
        let mut buffer = match core.fetch_memory.take(bytes) {
            Ok(buffer) => buffer,
            Err(error) => {
                core.storing.failed(&error, "raise `memory_bytes`");
                return all(round, exact);
            }
        };
        match self.read_blocks(&round, &mut exact, &mut buffer) {
            Ok(()) => {}
            Err((_, error)) if may_read_less(&error) => return all(round, exact),
            Err(failure) => return Err(Unfetched::Failed(failure)),
        }
        let mut files =
            round.iter().map(|fetch| fetch.file).chain(exact.iter().map(|cold| cold.file));
        if !files.all(|file| self.is_pinned(file).unwrap_or(false)) {
            // Reading again finds the read that this concerns.
            return all(round, exact);
        }
        let mut rest: &mut [u8] = &mut buffer;
        for Fetch { object, id, pieces, .. } in round {
            let (block, after) = rest.split_at_mut(file_bytes(id.len));
            for Cold { piece, .. } in pieces {
                piece.dst.copy_from_slice(&block[piece.at..piece.at + piece.dst.len()]);
            }
            seal(object, &id, core.options.block_bytes, block);
            core.store(&id, block);
            rest = after;
        }
        Ok(())
    }

    /// Reads whole blocks into the buffer, and pieces into the caller's memory, as one batch of the store.
    fn read_blocks(
        &self,
        round: &[Fetch<'_>],
        exact: &mut [Cold<'_>],
        mut buffer: &mut [u8],
    ) -> Result<(), Failure> {
        let mut reads = Vec::with_capacity(round.len() + exact.len());
        for fetch in round {
            let (block, after) = buffer.split_at_mut(file_bytes(fetch.id.len));
            let read = Read::new(&fetch.file.inner, fetch.id.start, &mut block[..fetch.id.len]);
            reads.push((fetch.first_read(), read));
            buffer = after;
        }
        for cold in exact {
            let read = Read::new(&cold.file.inner, cold.offset, cold.piece.dst);
            reads.push((cold.piece.read, read));
        }
        // Sorted, so that the first of them that fails belongs to the caller's first read that fails.
        reads.sort_by_key(|(first_read, _)| *first_read);
        let (first_reads, mut reads): (Vec<_>, Vec<_>) = reads.into_iter().unzip();
        self.inner.read_batch(&mut reads).map_err(|error| {
            let first_read = first_reads.get(error.index().unwrap_or(0));
            (first_read.copied().unwrap_or(0), error)
        })?;
        let bytes = reads.iter().map(|read| read.len() as u64).sum();
        self.cache.core.counters.store.add_many(reads.len() as u64, bytes);
        Ok(())
    }

    /// Reads pieces from the store into the caller's memory.
    fn read_exact(&self, mut cold: Vec<Cold<'_>>) -> Result<(), Failure> {
        if cold.is_empty() {
            return Ok(());
        }
        let read = |cold: &mut Cold<'_>| cold.piece.dst.len() as u64;
        let bytes = cold.iter_mut().map(read).sum();
        let mut reads: Vec<_> = cold
            .iter_mut()
            .map(|cold| Read::new(&cold.file.inner, cold.offset, cold.piece.dst))
            .collect();
        let count = reads.len() as u64;
        let outcome = self.inner.read_batch(&mut reads);
        drop(reads);
        if let Err(error) = outcome {
            let at = error.index().unwrap_or(0);
            return Err((cold.get(at).map_or(0, |cold| cold.piece.read), error));
        }
        self.cache.core.counters.store.add_many(count, bytes);
        for cold in cold {
            if !self.is_pinned(cold.file).map_err(|error| (cold.piece.read, error))? {
                let (path, offset) = (cold.file.inner.path().to_owned(), cold.offset);
                return Err((cold.piece.read, Error::Replaced { backend: KIND, path, offset }));
            }
        }
        Ok(())
    }

    /// Returns `true` if the object still is the version that was opened. If not, cached blocks and what was read now
    /// are of different versions.
    fn is_pinned(&self, file: &CachedFile) -> Result<bool, Error> {
        let Some(object) = &file.object else { return Ok(true) };
        match (self.key_of)(&*self.inner, &file.inner) {
            Ok(key) => Ok(key.as_ref() == Some(&object.key)),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
