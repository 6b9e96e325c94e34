//! The weights of a model: its tensors and its files.
//!
//! A file, an index and a directory all become `Weights`, a list of tensors in the order of the
//! files. The reading code does not know which of the three was opened. An index may only name
//! files below its own directory, since it was probably downloaded.
//!
//! A file that changes after it was opened makes the next read fail, even if all bytes arrived:
//! they may mix two versions of the file. Each file is checked once per batch.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain_backends::{MappedRange, ReadBackend, ReadBackendExt};

use super::header::{self, HEADER_BYTES_MAX, Header, LENGTH_BYTES};
use super::index::{Index, ModelLocation, locate};
use super::read::{no_such_tensor, tensor_error};
use super::{Error, TensorInfo, WeightsDamage};
use crate::array::layout::Layout;
use crate::array::view::ArrayFile;
use crate::versioned_file::VersionedFile;
use crate::{ContiguousMemmap, Engine, Item};

/// The first read of a file, which usually holds the header of a few hundred tensors.
const START_BYTES: u64 = 32 << 10;

/// The tensors of a safetensors file, or of a model in several files, read through an [`Engine`].
///
/// Opening reads only the headers. Tensors can be read one by one ([`read`](Self::read)), many as
/// one batch ([`read_many`](Self::read_many)), in part ([`view`](Self::view),
/// [`read_rows`](Self::read_rows)), or all in the order of the files with a thread that reads ahead
/// ([`load`](Self::load)).
///
/// The memory of tensors belongs to the caller and does not count against the engine's limit. If a
/// file is written to, truncated or replaced after it was opened, the next read, view or mapping
/// fails with [`Error::Changed`]. A view or mapping that already exists behaves like any view.
///
/// A `Weights` is cheap to clone; clones share everything.
///
/// ```
/// use ringmain::{Engine, weights::Weights};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("model.safetensors");
/// # let json = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
/// # let numbers: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
/// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &numbers].concat())?;
///
/// let weights = Weights::open(&Engine::new()?, &path)?;
/// for tensor in weights.tensors() {
///     println!("{} {} {:?}", tensor.name(), tensor.dtype(), tensor.shape());
/// }
/// let w = weights.read("w")?;
/// assert_eq!(w.as_slice::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
/// let second_row = weights.view("w")?.at(1)?.read_vec::<f32>()?;
/// assert_eq!(second_row, [3.0, 4.0, 5.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Weights {
    pub(super) shared: Arc<OpenedModel>,
}

pub(super) struct OpenedModel {
    pub(super) engine: Engine,
    /// The path that was opened, for messages.
    pub(super) path: PathBuf,
    pub(super) files: Vec<WeightFile>,
    /// The tensors, ordered by file and by offset.
    pub(super) tensors: Vec<Arc<TensorInfo>>,
    /// The numbers of the tensors, ordered by name.
    by_name: Vec<usize>,
}

/// One file of a model.
#[derive(Debug)]
pub struct WeightFile {
    pub(super) file: VersionedFile,
    metadata: Option<BTreeMap<String, String>>,
}

impl WeightFile {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the length of the file in bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.file.len()
    }

    /// Returns the metadata of the header (`__metadata__`), if there is any.
    #[must_use]
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()
    }

    /// Returns an error if the file changed.
    pub(super) fn check_unchanged(&self) -> Result<(), Error> {
        self.file.check(self.path())
    }
}

impl Weights {
    /// Opens a safetensors file, the index of a model in several files (`….index.json`), or a
    /// directory that holds either.
    ///
    /// An index determines the tensors of the model. A directory without an index consists of all
    /// its `*.safetensors` files, or of `model.safetensors` alone if that exists.
    pub fn open(engine: &Engine, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        match locate(engine.backend(), path)? {
            ModelLocation::Files(paths) => Self::open_files(engine, path, &paths),
            ModelLocation::Index(index) => Self::open_index(engine, &index),
        }
    }

    fn open_files(engine: &Engine, path: &Path, paths: &[PathBuf]) -> Result<Self, Error> {
        let (mut files, mut tensors) = (Vec::new(), Vec::new());
        for (number, path) in paths.iter().enumerate() {
            let (file, header) = open_file(engine, path, number)?;
            tensors.extend(header.tensors.into_iter().map(Arc::new));
            files.push(WeightFile { file, metadata: header.metadata });
        }
        Self::new(engine, path, files, tensors)
    }

    fn open_index(engine: &Engine, path: &Path) -> Result<Self, Error> {
        let index = Index::parse(&read_index(engine, path)?, path)?;
        let (mut files, mut tensors) = (Vec::new(), Vec::new());
        for (number, wanted) in index.files().enumerate() {
            let at = path.with_file_name(&*wanted[0].file);
            let missing_file = |error| missing_file(error, path, &wanted[0].tensor, &at);
            let (file, header) = open_file(engine, &at, number).map_err(missing_file)?;
            let found: HashSet<_> = header.tensors.iter().map(TensorInfo::name).collect();
            if let Some(entry) = wanted.iter().find(|entry| !found.contains(&*entry.tensor)) {
                let item = Item::Tensor(entry.tensor.clone());
                return Err(Error::damaged(path, item, WeightsDamage::MissingTensor { file: at }));
            }
            let is_wanted = |info: &TensorInfo| {
                wanted.binary_search_by(|entry| (*entry.tensor).cmp(info.name())).is_ok()
            };
            tensors.extend(header.tensors.into_iter().filter(is_wanted).map(Arc::new));
            files.push(WeightFile { file, metadata: header.metadata });
        }
        Self::new(engine, path, files, tensors)
    }

    fn new(
        engine: &Engine,
        path: &Path,
        files: Vec<WeightFile>,
        tensors: Vec<Arc<TensorInfo>>,
    ) -> Result<Self, Error> {
        let mut by_name: Vec<_> = (0..tensors.len()).collect();
        by_name.sort_by_key(|at| tensors[*at].name());
        let is_twice = |pair: &&[usize]| tensors[pair[0]].name() == tensors[pair[1]].name();
        if let Some(twice) = by_name.windows(2).find(is_twice) {
            let (a, b) = (&tensors[twice[0]], &tensors[twice[1]]);
            let reason = format!(
                "tensor `{}` is in both {} and {}; open one of them, or an index",
                a.name(),
                files[a.file()].path().display(),
                files[b.file()].path().display()
            );
            return Err(Error::format(path, WeightsDamage::NoModel { reason }));
        }
        let shared =
            OpenedModel { engine: engine.clone(), path: path.to_owned(), files, tensors, by_name };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the path that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Returns the engine that reads the tensors.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Returns the metadata of the first file, if there is any. [`files`](Self::files) has the
    /// metadata of each.
    #[must_use]
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.files().first().and_then(WeightFile::metadata)
    }

    /// Returns the files, each with its metadata.
    #[must_use]
    pub fn files(&self) -> &[WeightFile] {
        &self.shared.files
    }

    /// Returns all tensors, ordered by file and by offset.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.shared.tensors.iter().map(AsRef::as_ref)
    }

    /// Returns the number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.tensors.len()
    }

    /// Returns `true` if there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.tensors.is_empty()
    }

    /// Returns the size of all tensors in bytes.
    #[must_use]
    pub fn nbytes(&self) -> u64 {
        self.tensors().map(|info| info.nbytes() as u64).sum()
    }

    /// Returns the description of a tensor.
    pub fn info(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.find(name).map(|at| &*self.shared.tensors[at])
    }

    /// Returns the number of a tensor.
    pub(super) fn find(&self, name: &str) -> Result<usize, Error> {
        let OpenedModel { tensors, by_name, .. } = &*self.shared;
        let found = by_name.binary_search_by_key(&name, |at| tensors[*at].name());
        found
            .map(|found| by_name[found])
            .map_err(|_| no_such_tensor(self.path(), name, self.similar(name).as_deref()))
    }

    /// Returns a name that the caller may have meant: it differs in case or in one or two letters, or
    /// one is the end of the other.
    fn similar(&self, name: &str) -> Option<String> {
        let names = || self.tensors().map(TensorInfo::name).filter(|other| !other.is_empty());
        let is_like = |other: &&str| {
            other.eq_ignore_ascii_case(name)
                || (!name.is_empty() && (other.ends_with(name) || name.ends_with(other)))
        };
        let nearest = || {
            let distances = names().map(|other| (strsim::levenshtein(other, name), other));
            distances.min().filter(|(distance, _)| *distance <= 2).map(|(_, other)| other)
        };
        names().find(is_like).or_else(nearest).map(str::to_owned)
    }

    /// Returns an array view of a tensor. Slicing a view reads nothing; reading it reads only the
    /// selection.
    ///
    /// Fails with [`Error::ElementType`] for elements of less than a byte.
    pub fn view(&self, name: &str) -> Result<ContiguousMemmap, Error> {
        let info = &self.shared.tensors[self.find(name)?];
        let file = &self.shared.files[info.file()];
        let Some(kind) = info.kind() else {
            let (item, dtype) = (Some(Item::Tensor(name.into())), info.dtype());
            let reason = format!(
                "elements of {} bits have no array view; `read` and `read_rows` give their bytes",
                dtype.bitsize()
            );
            let (path, stored) = (Some(file.path().to_owned()), dtype.to_string());
            return Err(Error::ElementType { path, item, stored, reason });
        };
        file.check_unchanged()?;
        let layout = Layout::array(info.offset(), info.shape(), kind.itemsize(), false);
        let layout = layout.map_err(|error| Error::Shape {
            reason: format!("tensor `{name}` has no array view: {error}; `read` gives its bytes"),
        })?;
        let source = ArrayFile { engine: self.engine().clone(), file: (*file.file).clone() };
        Ok(ContiguousMemmap::new(Arc::new(source), kind.into(), layout))
    }

    /// Returns the bytes of a tensor without a copy, if the backend maps files (`mmap`); `None` for
    /// other backends.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"abcd"].concat())?;
    /// use ringmain::{Engine, weights::{Unchanging, Weights}};
    ///
    /// let engine = Engine::builder().backend("mmap".parse()?).build()?;
    /// let weights = Weights::open(&engine, &path)?;
    /// let w = weights.map("w")?.ok_or("mmap maps files")?;
    /// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
    /// let unchanging = unsafe { Unchanging::promise() };
    /// assert_eq!(w.as_slice(unchanging), b"abcd");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map(&self, name: &str) -> Result<Option<MappedRange>, Error> {
        let info = &self.shared.tensors[self.find(name)?];
        let file = &self.shared.files[info.file()];
        let range = info.offset()..info.offset() + info.nbytes() as u64;
        file.check_unchanged()?;
        let mapped = self.engine().backend().map(&file.file, range);
        mapped.map_err(|error| tensor_error(file.path(), Some(name), error))
    }

    /// Tells the backend that a tensor will be read soon. This is a hint for backends that use the
    /// page cache.
    pub fn prefetch(&self, name: &str) -> Result<(), Error> {
        let info = &self.shared.tensors[self.find(name)?];
        let file = &self.shared.files[info.file()];
        let range = info.offset()..info.offset() + info.nbytes() as u64;
        let hinted = self.engine().backend().prefetch(&file.file, range);
        hinted.map_err(|error| tensor_error(file.path(), Some(name), error))
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, tensors) = (self.path().display(), self.len());
        write!(f, "Weights({path}, {tensors} tensors in {} files)", self.files().len())
    }
}

/// Opens a file and reads its header.
fn open_file(
    engine: &Engine,
    path: &Path,
    number: usize,
) -> Result<(VersionedFile, Header), Error> {
    let backend = engine.backend();
    let failed = |error| Error::backend(path, error);
    let file = VersionedFile::new(engine, backend.open(path).map_err(failed)?);
    let file = file.map_err(|change| Error::changed(path, change))?;
    let file_len = file.len();
    let mut bytes = read_start(backend, &file, file_len.min(START_BYTES)).map_err(failed)?;
    let header_bytes = header::header_bytes(&bytes, file_len, path)?;
    let data_start = LENGTH_BYTES as u64 + header_bytes;
    if data_start > bytes.len() as u64 {
        bytes = read_start(backend, &file, data_start).map_err(failed)?;
    }
    let json = &bytes[LENGTH_BYTES..data_start as usize];
    let header = header::parse(json, file_len - data_start, number, path)?;
    file.check(path)?;
    Ok((file, header))
}

/// Reads the start of a file: at most as much as the largest header.
fn read_start(
    backend: &dyn ReadBackend,
    file: &VersionedFile,
    len: u64,
) -> ringmain_backends::Result<Vec<u8>> {
    backend.read_to_vec(file, 0, usize::try_from(len).unwrap_or(usize::MAX))
}

fn read_index(engine: &Engine, path: &Path) -> Result<Vec<u8>, Error> {
    let backend = engine.backend();
    let failed = |error| Error::backend(path, error);
    let file = VersionedFile::new(engine, backend.open(path).map_err(failed)?);
    let file = file.map_err(|change| Error::changed(path, change))?;
    if file.len() > HEADER_BYTES_MAX {
        let reason = format!("it has {} bytes, which is too large for an index", file.len());
        return Err(Error::format(path, WeightsDamage::BadIndex { reason }));
    }
    let json = read_start(backend, &file, file.len()).map_err(failed)?;
    file.check(path)?;
    Ok(json)
}

/// Returns the error for a file of a model that could not be opened. A missing file is reported as
/// named by the index.
fn missing_file(error: Error, index: &Path, tensor: &str, file: &Path) -> Error {
    if !error.is_not_found() {
        return error;
    }
    Error::damaged(
        index,
        Item::Tensor(tensor.into()),
        WeightsDamage::MissingFile { file: file.to_owned() },
    )
}
