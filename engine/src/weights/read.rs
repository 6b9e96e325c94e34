//! Reading tensors: where they go in memory, and many of them as one batch.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ringmain_backends::{Buffer, BufferPool, Placement, Read};

use super::model::WeightFile;
use super::{Error, Tensor, TensorInfo, Weights};
use crate::Item;

/// Where the memory of tensors comes from.
#[derive(Clone, Debug, Default)]
pub(super) enum Memory {
    /// From the operating system, and back to it when a tensor is dropped.
    #[default]
    Fresh,
    /// From a pool, and back to it: pages that were used before need not be zeroed again.
    Pool(BufferPool),
}

impl Memory {
    /// The bytes of a buffer for a piece. In a pool they depend on its size alone, and not on where
    /// in the file it is: what one model gives back then fits the next of the same shape.
    fn wanted_bytes(&self, piece: &Piece, file: &WeightFile) -> usize {
        match self {
            Self::Fresh => piece.read_bytes(file),
            Self::Pool(_) => pooled_bytes(piece, file),
        }
    }

    /// The bytes that a buffer for a piece counts for.
    pub(super) fn counted_bytes(&self, piece: &Piece, file: &WeightFile) -> usize {
        let wanted = self.wanted_bytes(piece, file);
        match self {
            Self::Fresh => wanted.checked_next_multiple_of(PAGE_BYTES).unwrap_or(wanted),
            Self::Pool(pool) => pool.capacity_for(wanted),
        }
    }

    fn take(&self, len: usize, patience: Patience) -> ringmain_backends::Result<Buffer> {
        match (self, patience) {
            (Self::Fresh, _) => Buffer::unpooled(len),
            (Self::Pool(pool), Patience::Waits) => pool.take(len),
            (Self::Pool(pool), Patience::None) => pool.try_take(len),
        }
    }
}

/// Whether whoever finds a pool spent waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Waits,
    None,
}

const PAGE_BYTES: usize = 4096;

fn pooled_bytes(piece: &Piece, file: &WeightFile) -> usize {
    piece.nbytes.saturating_add(2 * file.file.alignment().block())
}

/// A tensor, or rows of one, that is to be read.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    info: Arc<TensorInfo>,
    shape: Vec<usize>,
    offset: u64,
    nbytes: usize,
}

impl Piece {
    pub(super) fn whole(info: &Arc<TensorInfo>) -> Self {
        let (shape, offset, nbytes) = (info.shape().to_vec(), info.offset(), info.nbytes());
        Self { info: Arc::clone(info), shape, offset, nbytes }
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.nbytes as u64
    }

    /// What is read of the file: whole blocks, so that the device can write them where they are to
    /// be. Unless the elements would then not be aligned in memory, as they are not in the file.
    fn placement(&self, file: &WeightFile) -> Placement {
        let item_bytes = (self.info.dtype().bitsize() / 8).max(1);
        file.file.alignment().place(self.range(), item_bytes, file.file.len())
    }

    /// The bytes that are read for it.
    fn read_bytes(&self, file: &WeightFile) -> usize {
        self.placement(file).buffer_bytes()
    }
}

/// A piece with the memory that it is read into.
pub(super) struct Placed {
    piece: Piece,
    placement: Placement,
    buffer: Buffer,
}

impl Placed {
    pub(super) fn finish(mut self) -> Tensor {
        self.buffer.narrow(self.placement.in_buffer());
        Tensor::new(self.piece.info, self.piece.shape, self.buffer)
    }
}

/// Some bytes of a tensor, and where in memory they go.
pub(super) struct Part<'a> {
    info: &'a Arc<TensorInfo>,
    offset: u64,
    pub(super) dst: &'a mut [u8],
}

impl<'a> Part<'a> {
    fn whole(placed: &'a mut Placed) -> Self {
        let Placed { piece, placement, buffer } = placed;
        Self { info: &piece.info, offset: placement.blocks().start, dst: buffer }
    }

    /// The same in parts of so many bytes at most.
    pub(super) fn split(self, bytes_max: usize) -> impl Iterator<Item = Self> {
        let Self { info, offset, dst } = self;
        dst.chunks_mut(bytes_max).scan(offset, move |next, dst| {
            let offset = *next;
            *next += dst.len() as u64;
            Some(Self { info, offset, dst })
        })
    }
}

impl Weights {
    /// Reads a tensor into memory of its own.
    pub fn read(&self, name: &str) -> Result<Tensor, Error> {
        let mut tensors = self.read_many(&[name])?;
        tensors.pop().ok_or_else(|| self.no_such(name))
    }

    /// Reads a tensor into memory of a pool, to which it returns when the tensor is dropped: for one
    /// tensor after the other. A pool that is spent is [`Error::MemorySpent`] at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"ab"].concat())?;
    /// use ringmain::{Engine, weights::Weights};
    /// let engine = Engine::new()?;
    /// let weights = Weights::open(&engine, &path)?;
    /// for _ in 0..3 {
    ///     assert_eq!(weights.read_from("a", engine.pool())?.bytes(), b"ab");
    /// }
    /// assert_eq!(engine.pool().stats().fresh, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_from(&self, name: &str, pool: &BufferPool) -> Result<Tensor, Error> {
        let piece = Piece::whole(&self.shared.tensors[self.find(name)?]);
        let memory = Memory::Pool(pool.clone());
        let mut placed = self.place(piece, &memory, Patience::None)?;
        self.read_placed(std::slice::from_mut(&mut placed), &memory)?;
        Ok(placed.finish())
    }

    /// Reads many tensors as one batch, each into memory of its own; they come in the order asked.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
    /// #     "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"abc"].concat())?;
    /// use ringmain::{Engine, weights::Weights};
    /// let weights = Weights::open(&Engine::new()?, &path)?;
    /// let tensors = weights.read_many(&["b", "a"])?;
    /// assert_eq!((tensors[0].bytes(), tensors[1].bytes()), (&b"c"[..], &b"ab"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_many<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Tensor>, Error> {
        let piece = |name: &S| -> Result<_, Error> {
            Ok(Piece::whole(&self.shared.tensors[self.find(name.as_ref())?]))
        };
        let pieces = names.iter().map(piece).collect::<Result<Vec<_>, Error>>()?;
        self.read_pieces(pieces, &Memory::Fresh)
    }

    /// Reads all tensors as one batch. [`load`](Self::load) hands them out while the next are read.
    pub fn read_all(&self) -> Result<Vec<Tensor>, Error> {
        let pieces = self.shared.tensors.iter().map(Piece::whole).collect();
        self.read_pieces(pieces, &Memory::Fresh)
    }

    /// As [`read_all`](Self::read_all), into memory of a pool, to which it returns when the tensors
    /// are dropped: the next model of the same shape then needs no fresh memory, which is dear.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"ab"].concat())?;
    /// use ringmain::{BufferPool, Engine, backends::PoolOptions, weights::Weights};
    /// let weights = Weights::open(&Engine::new()?, &path)?;
    /// let limit_bytes = weights.pool_bytes();
    /// let pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() })?;
    /// for _ in 0..3 {
    ///     assert_eq!(weights.read_all_from(&pool)?[0].bytes(), b"ab");
    /// }
    /// assert_eq!((pool.stats().fresh, pool.stats().recycled), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_all_from(&self, pool: &BufferPool) -> Result<Vec<Tensor>, Error> {
        let pieces = self.shared.tensors.iter().map(Piece::whole).collect();
        self.read_pieces(pieces, &Memory::Pool(pool.clone()))
    }

    /// The limit for a pool that is to hold all tensors at once.
    #[must_use]
    pub fn pool_bytes(&self) -> usize {
        let capacity = |info: &Arc<TensorInfo>| {
            let file = &self.shared.files[info.file()];
            BufferPool::capacity_of(pooled_bytes(&Piece::whole(info), file))
        };
        self.shared.tensors.iter().map(capacity).fold(0, usize::saturating_add).max(4096)
    }

    /// Reads a tensor into memory of just its size.
    pub fn read_into(&self, name: &str, dst: &mut [u8]) -> Result<(), Error> {
        self.read_many_into(&mut [(name, dst)])
    }

    /// Reads many tensors as one batch, each into memory of just its size.
    ///
    /// Memory whose address agrees with [`TensorInfo::offset`] modulo the device's block is written
    /// to by the device itself; other memory costs a copy on `direct` and `uring`.
    pub fn read_many_into(&self, wanted: &mut [(&str, &mut [u8])]) -> Result<(), Error> {
        let mut found = Vec::with_capacity(wanted.len());
        for (name, dst) in &*wanted {
            let info = &self.shared.tensors[self.find(name)?];
            if info.nbytes() != dst.len() {
                let (needed, given) = (info.nbytes(), dst.len());
                let item = Some(Item::Tensor((*name).into()));
                return Err(Error::BufferSize { item, needed, given });
            }
            found.push(info);
        }
        let mut order: Vec<_> = wanted.iter_mut().zip(found).collect();
        order.sort_by_key(|(_, info)| (info.file(), info.offset()));
        let infos: Vec<_> = order.iter().map(|(_, info)| *info).collect();
        let mut reads = Vec::with_capacity(order.len());
        for ((_, dst), info) in order {
            reads.push(Read::new(&self.shared.files[info.file()].file, info.offset(), dst));
        }
        self.read_batch(&mut reads, &infos)
    }

    /// Reads some rows of a tensor: elements of its first axis. For every type, as long as the rows
    /// are whole bytes; [`view`](Self::view) has all other selections.
    pub fn read_rows(&self, name: &str, rows: Range<usize>) -> Result<Tensor, Error> {
        let info = &self.shared.tensors[self.find(name)?];
        let bad = |reason: String| Error::NoSuchItem {
            path: self.shared.files[info.file()].path().to_owned(),
            item: Item::TensorRows { tensor: name.into(), rows: rows.clone() },
            reason,
        };
        let Some(len) = info.shape().first() else {
            return Err(bad("it is a scalar, without rows".into()));
        };
        if rows.start > rows.end || rows.end > *len {
            return Err(bad(format!("it has {len} rows")));
        }
        let row_bits = info.row_bits();
        // At most the bits of the tensor, which the header's check has counted.
        let (begin_bits, end_bits) = (rows.start * row_bits, rows.end * row_bits);
        if !begin_bits.is_multiple_of(8) || !end_bits.is_multiple_of(8) {
            return Err(bad(format!("a row of {row_bits} bits, and these are no whole bytes")));
        }
        let mut piece = Piece::whole(info);
        piece.shape[0] = rows.len();
        piece.offset += (begin_bits / 8) as u64;
        piece.nbytes = (end_bits - begin_bits) / 8;
        let mut tensors = self.read_pieces(vec![piece], &Memory::Fresh)?;
        tensors.pop().ok_or_else(|| self.no_such(name))
    }

    /// Reads pieces as one batch; they come in the order given.
    fn read_pieces(&self, pieces: Vec<Piece>, memory: &Memory) -> Result<Vec<Tensor>, Error> {
        let place = |piece| self.place(piece, memory, Patience::Waits);
        let mut placed = pieces.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        self.read_placed(&mut placed, memory)?;
        Ok(placed.into_iter().map(Placed::finish).collect())
    }

    /// Memory for a piece.
    pub(super) fn place(
        &self,
        piece: Piece,
        memory: &Memory,
        patience: Patience,
    ) -> Result<Placed, Error> {
        let file = &self.shared.files[piece.info.file()];
        let buffer = memory.take(memory.wanted_bytes(&piece, file), patience);
        let failed = |error| tensor_error(file.path(), Some(piece.info.name()), error);
        let mut buffer = buffer.map_err(failed)?;
        buffer.narrow(0..piece.read_bytes(file));
        Ok(Placed { placement: piece.placement(file), piece, buffer })
    }

    /// Reads what is in place, in memory of that kind, as one batch.
    pub(super) fn read_placed(&self, placed: &mut [Placed], memory: &Memory) -> Result<(), Error> {
        let mut parts: Vec<_> = placed.iter_mut().map(Part::whole).collect();
        parts.sort_by_key(|part| (part.info.file(), part.offset));
        match memory {
            Memory::Fresh => self.read_fresh(parts),
            Memory::Pool(_) => self.read_parts(parts),
        }
    }

    /// Reads parts, sorted by file, as one batch.
    pub(super) fn read_parts(&self, parts: Vec<Part<'_>>) -> Result<(), Error> {
        let infos: Vec<_> = parts.iter().map(|part| part.info).collect();
        let read = |part| {
            let Part { info, offset, dst } = part;
            Read::new(&self.shared.files[info.file()].file, offset, dst)
        };
        let mut reads: Vec<_> = parts.into_iter().map(read).collect();
        self.read_batch(&mut reads, &infos)
    }

    /// Reads a batch, sorted by file, and makes sure that the files are what they were.
    fn read_batch(&self, reads: &mut [Read<'_>], infos: &[&Arc<TensorInfo>]) -> Result<(), Error> {
        let outcome = self.engine().backend().read_batch(reads);
        // A file that was cut short or replaced is the reason for whatever went wrong. One that
        // cannot be looked at is not.
        for same in infos.chunk_by(|a, b| a.file() == b.file()) {
            let checked = self.shared.files[same[0].file()].check_unchanged();
            if outcome.is_ok() || matches!(checked, Err(Error::Changed { .. })) {
                checked?;
            }
        }
        outcome.map_err(|error| {
            let info = error.index().and_then(|index| infos.get(index));
            let path = info.map_or(self.path(), |info| self.shared.files[info.file()].path());
            tensor_error(path, info.map(|info| info.name()), error)
        })
    }

    fn no_such(&self, name: &str) -> Error {
        no_such_tensor(self.path(), name, None)
    }
}

/// The error that a file has no tensor of that name, and the name that may have been meant.
pub(super) fn no_such_tensor(path: &Path, name: &str, similar: Option<&str>) -> Error {
    let reason = match similar {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => "no tensor has that name".to_owned(),
    };
    Error::NoSuchItem { path: path.to_owned(), item: Item::Tensor(name.into()), reason }
}

/// A backend's error about a file, or about one of its tensors.
pub(super) fn tensor_error(
    path: &Path,
    tensor: Option<&str>,
    cause: ringmain_backends::Error,
) -> Error {
    Error::reading(path, tensor.map(|name| Item::Tensor(name.into())), "a tensor", cause)
}
