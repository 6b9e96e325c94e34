//! Reads tensors into memory, many of them as one batch.
//!
//! Tensors belong to the caller, so their memory does not count against the engine's limit. Each
//! tensor has a buffer of whole pages, which returns to the system when the tensor is dropped, or a
//! buffer of a pool that the caller passes. The first byte is placed so that address and file
//! offset agree modulo the device's block, and whole blocks around the tensor are read. So nothing
//! is copied; a block that two tensors share is read twice. A tensor whose offset is not a multiple
//! of its element size is copied to an aligned place, so that it can be a `&[f32]`. In a pool, the
//! size of a buffer depends only on the size of the tensor, so a model with a longer header can
//! reuse the memory of the one before it.
//!
//! Huge pages matter more than anything else here: a buffer of 2 MiB or more is aligned and asks
//! for them. Into recycled memory of small pages the same reads were a third as fast on a virtual
//! disk, because each request of 1 MiB then has 256 pieces.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ringmain_backends::{Buffer, BufferPool, Placement, Read};

use super::model::WeightFile;
use super::{Error, PAGE_BYTES, Tensor, TensorInfo, Weights};
use crate::array::element::{Decode, to_native};
use crate::{Element, Item};

/// The kind of memory that tensors take.
#[derive(Clone, Debug, Default)]
pub(super) enum TensorMemory {
    /// Memory of the operating system. Dropping a tensor frees it.
    #[default]
    Fresh,
    /// Memory of a pool. Dropping a tensor returns it; its pages need not be zeroed again.
    Pool(BufferPool),
}

impl TensorMemory {
    /// Returns the bytes that the buffer of a tensor takes of the window.
    pub(super) fn counted_bytes(&self, wanted: &WantedTensor, file: &WeightFile) -> usize {
        match self {
            Self::Fresh => {
                let bytes = wanted.placement(file).buffer_bytes();
                bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes)
            }
            Self::Pool(pool) => pool.capacity_for(pooled_bytes(wanted, file)),
        }
    }
}

/// Takes a buffer of a pool: [`BufferPool::take`], which waits for it, or [`BufferPool::try_take`].
type Take = fn(&BufferPool, usize) -> ringmain_backends::Result<Buffer>;

/// Returns the size of a buffer in a pool. It depends only on the size of the tensor, not on its offset, so that the next
/// model of the same shape can reuse the buffers.
fn pooled_bytes(wanted: &WantedTensor, file: &WeightFile) -> usize {
    file.file.alignment().placed_bytes_max(wanted.nbytes)
}

/// A tensor, or rows of one, to read.
#[derive(Clone, Debug)]
pub(super) struct WantedTensor {
    info: Arc<TensorInfo>,
    shape: Vec<usize>,
    offset: u64,
    nbytes: usize,
}

impl WantedTensor {
    pub(super) fn whole(info: &Arc<TensorInfo>) -> Self {
        let (shape, offset, nbytes) = (info.shape().to_vec(), info.offset(), info.nbytes());
        Self { info: Arc::clone(info), shape, offset, nbytes }
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.nbytes as u64
    }

    /// Returns the placement of the read: whole blocks, so that the device can write them in place. If
    /// the elements are not aligned in the file, the range is exact instead, so that they are aligned
    /// in memory.
    fn placement(&self, file: &WeightFile) -> Placement {
        let item_bytes = (self.info.dtype().bitsize() / 8).max(1);
        file.file.alignment().place(self.range(), item_bytes, file.file.len())
    }
}

/// A tensor with the memory to read it into.
pub(super) struct PlacedTensor {
    wanted: WantedTensor,
    placement: Placement,
    buffer: Buffer,
}

impl PlacedTensor {
    pub(super) fn finish(mut self) -> Tensor {
        self.buffer.narrow(self.placement.in_buffer());
        Tensor::new(self.wanted.info, self.wanted.shape, self.buffer)
    }
}

/// Some bytes of a tensor, and their destination in memory.
pub(super) struct ReadPart<'a> {
    info: &'a Arc<TensorInfo>,
    offset: u64,
    pub(super) dst: &'a mut [u8],
}

impl<'a> ReadPart<'a> {
    fn whole(placed: &'a mut PlacedTensor) -> Self {
        let PlacedTensor { wanted, placement, buffer } = placed;
        Self { info: &wanted.info, offset: placement.blocks().start, dst: buffer }
    }

    /// Splits the part into parts of at most `bytes_max` bytes.
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

    /// Reads a tensor into memory of a pool. Dropping the tensor returns the memory, so the pool suits
    /// one tensor after the other. If the pool has no free memory, this fails at once with
    /// [`Error::MemorySpent`].
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
        let wanted = WantedTensor::whole(&self.shared.tensors[self.find(name)?]);
        let memory = TensorMemory::Pool(pool.clone());
        let mut placed = self.place(wanted, &memory, BufferPool::try_take)?;
        self.read_placed(std::slice::from_mut(&mut placed), &memory)?;
        Ok(placed.finish())
    }

    /// Reads many tensors as one batch, each into memory of its own, and returns them in the order
    /// of `names`.
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
        let whole = |name: &S| -> Result<_, Error> {
            Ok(WantedTensor::whole(&self.shared.tensors[self.find(name.as_ref())?]))
        };
        let wanted = names.iter().map(whole).collect::<Result<Vec<_>, Error>>()?;
        self.read_wanted(wanted, &TensorMemory::Fresh)
    }

    /// Reads all tensors as one batch. [`load`](Self::load) delivers them while the next ones are
    /// read.
    pub fn read_all(&self) -> Result<Vec<Tensor>, Error> {
        let wanted = self.shared.tensors.iter().map(WantedTensor::whole).collect();
        self.read_wanted(wanted, &TensorMemory::Fresh)
    }

    /// Reads all tensors like [`read_all`](Self::read_all), into memory of a pool. Dropping the tensors
    /// returns the memory. The next model of the same shape then needs no fresh memory, which is
    /// expensive.
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
        let wanted = self.shared.tensors.iter().map(WantedTensor::whole).collect();
        self.read_wanted(wanted, &TensorMemory::Pool(pool.clone()))
    }

    /// Returns the limit of a pool that can hold all tensors at once.
    #[must_use]
    pub fn pool_bytes(&self) -> usize {
        let capacity = |info: &Arc<TensorInfo>| {
            let file = &self.shared.files[info.file()];
            BufferPool::capacity_of(pooled_bytes(&WantedTensor::whole(info), file))
        };
        self.shared.tensors.iter().map(capacity).fold(0, usize::saturating_add).max(4096)
    }

    /// Reads the elements of a tensor into `dst`, which must have exactly their number. They are in
    /// the machine's byte order. Fails with [`Error::ElementType`] if they are not of type `T`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"a":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &[1, 0, 2, 0]].concat())?;
    /// use ringmain::{Engine, weights::Weights};
    /// let weights = Weights::open(&Engine::new()?, &path)?;
    /// let mut elements = [0u16; 2];
    /// weights.read_into("a", &mut elements)?;
    /// assert_eq!(elements, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_into<T: Element>(&self, name: &str, dst: &mut [T]) -> Result<(), Error> {
        let info = &self.shared.tensors[self.find(name)?];
        let kind = info.check_type::<T>()?;
        check_size(info, size_of_val(dst))?;
        <T as Decode>::read_slice(dst, |bytes| {
            self.read_bytes_into(name, bytes)?;
            to_native(kind.into(), bytes);
            Ok(())
        })
    }

    /// Reads the bytes of a tensor into `dst`, which must have exactly its size. They are
    /// little-endian, as in the file.
    pub fn read_bytes_into(&self, name: &str, dst: &mut [u8]) -> Result<(), Error> {
        self.read_many_bytes_into(&mut [(name, dst)])
    }

    /// Reads the bytes of many tensors as one batch, each into memory of exactly its size. They are
    /// little-endian, as in the file.
    ///
    /// The device writes straight to memory whose address agrees with [`TensorInfo::offset`] modulo
    /// the device's block size; other memory costs a copy on `direct` and `uring`.
    pub fn read_many_bytes_into(&self, wanted: &mut [(&str, &mut [u8])]) -> Result<(), Error> {
        let mut found = Vec::with_capacity(wanted.len());
        for (name, dst) in &*wanted {
            let info = &self.shared.tensors[self.find(name)?];
            check_size(info, dst.len())?;
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

    /// Reads some rows of a tensor: elements of its first axis. This works for every type if the
    /// rows are whole bytes; use [`view`](Self::view) for other selections.
    pub fn read_rows(&self, name: &str, rows: Range<usize>) -> Result<Tensor, Error> {
        let info = &self.shared.tensors[self.find(name)?];
        let bad = |reason: String| Error::NoSuchItem {
            path: self.shared.files[info.file()].path().to_owned(),
            item: Item::TensorRows { tensor: name.into(), rows: rows.clone() },
            reason,
        };
        let Some(len) = info.shape().first() else {
            return Err(bad("the tensor is a scalar and has no rows".into()));
        };
        if rows.start > rows.end || rows.end > *len {
            return Err(bad(format!("the tensor has {len} rows")));
        }
        let row_bits = info.row_bits();
        // No overflow: the header's check counted the bits of the tensor.
        let (begin_bits, end_bits) = (rows.start * row_bits, rows.end * row_bits);
        if begin_bits % 8 != 0 || end_bits % 8 != 0 {
            return Err(bad(format!(
                "its rows have {row_bits} bits, so these rows are not whole bytes"
            )));
        }
        let mut wanted = WantedTensor::whole(info);
        wanted.shape[0] = rows.len();
        wanted.offset += (begin_bits / 8) as u64;
        wanted.nbytes = (end_bits - begin_bits) / 8;
        let mut tensors = self.read_wanted(vec![wanted], &TensorMemory::Fresh)?;
        tensors.pop().ok_or_else(|| self.no_such(name))
    }

    /// Reads tensors as one batch, and returns them in the given order.
    fn read_wanted(
        &self,
        wanted: Vec<WantedTensor>,
        memory: &TensorMemory,
    ) -> Result<Vec<Tensor>, Error> {
        let place = |wanted| self.place(wanted, memory, BufferPool::take);
        let mut placed = wanted.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        self.read_placed(&mut placed, memory)?;
        Ok(placed.into_iter().map(PlacedTensor::finish).collect())
    }

    /// Takes memory for a tensor.
    pub(super) fn place(
        &self,
        wanted: WantedTensor,
        memory: &TensorMemory,
        take: Take,
    ) -> Result<PlacedTensor, Error> {
        let file = &self.shared.files[wanted.info.file()];
        let placement = wanted.placement(file);
        let buffer = match memory {
            TensorMemory::Fresh => Buffer::unpooled(placement.buffer_bytes()),
            TensorMemory::Pool(pool) => take(pool, pooled_bytes(&wanted, file)),
        };
        let failed = |error| tensor_error(file.path(), Some(wanted.info.name()), error);
        let mut buffer = buffer.map_err(failed)?;
        buffer.narrow(0..placement.buffer_bytes());
        Ok(PlacedTensor { wanted, placement, buffer })
    }

    /// Reads tensors into their memory as one batch.
    pub(super) fn read_placed(
        &self,
        placed: &mut [PlacedTensor],
        memory: &TensorMemory,
    ) -> Result<(), Error> {
        let mut parts: Vec<_> = placed.iter_mut().map(ReadPart::whole).collect();
        parts.sort_by_key(|part| (part.info.file(), part.offset));
        match memory {
            TensorMemory::Fresh => self.read_fresh(parts),
            TensorMemory::Pool(_) => self.read_parts(parts),
        }
    }

    /// Reads parts, sorted by file, as one batch.
    pub(super) fn read_parts(&self, parts: Vec<ReadPart<'_>>) -> Result<(), Error> {
        let infos: Vec<_> = parts.iter().map(|part| part.info).collect();
        let read = |part| {
            let ReadPart { info, offset, dst } = part;
            Read::new(&self.shared.files[info.file()].file, offset, dst)
        };
        let mut reads: Vec<_> = parts.into_iter().map(read).collect();
        self.read_batch(&mut reads, &infos)
    }

    /// Reads a batch, sorted by file, and checks that the files did not change.
    fn read_batch(&self, reads: &mut [Read<'_>], infos: &[&Arc<TensorInfo>]) -> Result<(), Error> {
        let outcome = self.engine().backend().read_batch(reads);
        // If a file was truncated or replaced, that is the cause of any failed read. If a file
        // cannot be checked, the failed read is reported.
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

/// Returns an error if memory does not have the size of a tensor.
fn check_size(info: &TensorInfo, given: usize) -> Result<(), Error> {
    if info.nbytes() == given {
        return Ok(());
    }
    let (item, needed) = (Some(Item::Tensor(info.name().into())), info.nbytes());
    Err(Error::BufferSize { item, needed, given })
}

/// Returns the error for a missing tensor, with a name that the caller may have meant.
pub(super) fn no_such_tensor(path: &Path, name: &str, similar: Option<&str>) -> Error {
    let reason = match similar {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => "no tensor has this name".to_owned(),
    };
    Error::NoSuchItem { path: path.to_owned(), item: Item::Tensor(name.into()), reason }
}

/// Converts a backend's error about a file, or about one of its tensors.
pub(super) fn tensor_error(
    path: &Path,
    tensor: Option<&str>,
    cause: ringmain_backends::Error,
) -> Error {
    Error::reading(path, tensor.map(|name| Item::Tensor(name.into())), "a tensor", cause)
}
