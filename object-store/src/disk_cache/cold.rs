//! Reads data that is not in the folder, as one batch of the inner backend: whole blocks if they are going to be
//! stored, otherwise only what the caller wants.

use std::collections::HashMap;

use ringmain_backends::{Error, Read};

use super::backend::{CachedBackend, CachedFile, KIND};
use super::block::{file_bytes, seal};
use super::eviction::Dice;
use super::key::{BlockId, Object};
use super::warm::{Piece, Warm};

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

impl CachedBackend {
    pub(super) fn read_cold(&self, cold: Vec<Cold<'_>>) -> Result<(), Failure> {
        if cold.is_empty() {
            return Ok(());
        }
        let (fetches, mut exact) = self.divide(cold);
        let round_bytes = self.cache.shared.fetch_memory.limit_bytes() / 2;
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
            if let Err(pieces) = self.fetch(round, bytes, with_round) {
                // Whole blocks cannot be read: exactly what the caller wants may be, and has the caller's error.
                let mut rest = pieces;
                rest.extend(fetches.flat_map(|fetch| fetch.pieces));
                rest.sort_by_key(|cold| cold.piece.read);
                return self.read_exact(rest);
            }
        }
        self.read_exact(exact)
    }

    /// Decides for each block whether it is fetched as a whole.
    fn divide<'a>(&self, cold: Vec<Cold<'a>>) -> (Vec<Fetch<'a>>, Vec<Cold<'a>>) {
        let shared = &self.cache.shared;
        let mut wanted: HashMap<u128, u64> = HashMap::new();
        for cold in &cold {
            let Some((_, id)) = cold.block else { continue };
            let bytes = cold.piece.dst.len() as u64;
            *wanted.entry(id.hash).or_default() += bytes;
            shared.counters.misses.add(bytes);
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
                shared.admits(&id, wanted_bytes, &mut dice).then(|| {
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
    /// If that fails, returns all the pieces.
    fn fetch<'a>(
        &self,
        round: Vec<Fetch<'a>>,
        bytes: usize,
        mut exact: Vec<Cold<'a>>,
    ) -> Result<(), Vec<Cold<'a>>> {
        let shared = &self.cache.shared;
        let all = |round: Vec<Fetch<'a>>, exact: Vec<Cold<'a>>| {
            Err(round.into_iter().flat_map(|fetch| fetch.pieces).chain(exact).collect())
        };
        let mut buffer = match shared.fetch_memory.take(bytes) {
            Ok(buffer) => buffer,
            Err(error) => {
                shared.storing.failed(&error, "raise `memory_bytes`");
                return all(round, exact);
            }
        };
        let mut reads = Vec::with_capacity(round.len() + exact.len());
        let mut rest: &mut [u8] = &mut buffer;
        for Fetch { file, id, .. } in &round {
            let (block, after) = rest.split_at_mut(file_bytes(id.len));
            reads.push(Read::new(&file.inner, id.start, &mut block[..id.len]));
            rest = after;
        }
        for cold in &mut exact {
            reads.push(Read::new(&cold.file.inner, cold.offset, cold.piece.dst));
        }
        let outcome = self.inner.read_batch(&mut reads);
        let amounts: Vec<u64> = reads.iter().map(|read| read.len() as u64).collect();
        drop(reads);
        let is_pinned = || {
            let fetched = round.iter().all(|fetch| self.is_pinned(fetch.file));
            fetched && exact.iter().all(|cold| self.is_pinned(cold.file))
        };
        if outcome.is_err() || !is_pinned() {
            return all(round, exact);
        }
        shared.counters.store.add_many(amounts.len() as u64, amounts.iter().sum());
        let mut rest: &mut [u8] = &mut buffer;
        for Fetch { object, id, pieces, .. } in round {
            let (block, after) = rest.split_at_mut(file_bytes(id.len));
            for Cold { piece, .. } in pieces {
                piece.dst.copy_from_slice(&block[piece.at..piece.at + piece.dst.len()]);
            }
            seal(object, &id, shared.options.block_bytes, block);
            shared.store(&id, block);
            rest = after;
        }
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
        self.cache.shared.counters.store.add_many(count, bytes);
        let changed = cold.iter().find(|cold| !self.is_pinned(cold.file));
        changed.map_or(Ok(()), |cold| {
            let (path, offset) = (cold.file.inner.path().to_owned(), cold.offset);
            Err((cold.piece.read, Error::Replaced { backend: KIND, path, offset }))
        })
    }

    /// Returns `true` if the object still is the version that was opened. If not, cached blocks and what was read now
    /// are of different versions.
    fn is_pinned(&self, file: &CachedFile) -> bool {
        let Some(object) = &file.object else { return true };
        (self.key_of)(&*self.inner, &file.inner).is_ok_and(|key| key.as_ref() == Some(&object.key))
    }
}
