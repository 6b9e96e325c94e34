//! The error type of the engine.
//!
//! A message about a file names the file and, if they are known, the part of the file and the way out (what
//! the user can do). A file that does not follow its format is [`Error::Format`]; its [`Damage`] says what
//! is wrong. An index, a shape or a size that cannot work with any file is refused without looking at the
//! file: such a message names no file.

use std::io;
use std::path::{Path, PathBuf};

use ringmain_backends::FileChange;

mod accessors;
mod conversions;
mod damage;
mod item;
mod text;

use text::{cache_full, change_consequence, memory_spent, missing_cause, prefix, some_samples};

pub use damage::Damage;
pub use item::Item;
pub(crate) use text::count;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why something could not be opened, selected, read or written.
///
/// The [`Display`](std::fmt::Display) text is complete: it includes the text of the underlying error, so
/// [`source`](std::error::Error::source) returns nothing that was already said. The accessors
/// ([`path`](Error::path), [`kind`](Error::kind), [`raw_os_error`](Error::raw_os_error), …) answer for
/// every variant, and `?` converts an `Error` into an [`io::Error`] of the same kind. The
/// [`Debug`](std::fmt::Debug) text is the same message with the name of the variant, because that is what a
/// `main` that returns an error prints.
///
/// ```
/// use ringmain::{Engine, Kind};
///
/// fn first_row() -> std::io::Result<Vec<f32>> {
///     let view = Engine::new()?.open_raw("/no/such/file", Kind::F32, &[10, 4], 0)?;
///     Ok(view.at(0)?.read_vec()?)
/// }
/// assert_eq!(first_row().unwrap_err().kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file or folder.
    #[error("{}: there is no such file or folder{}", path.display(), missing_cause(cause))]
    NotFound {
        /// The path that was opened.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },

    /// The operating system refused something other than a read.
    #[error("{}: {action}: {cause}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed, as in "writing the shard".
        action: &'static str,
        /// The operating system's error.
        cause: io::Error,
    },

    /// A backend could not be set up, or could not open or read a file.
    #[error("{}{}{cause}", prefix(path.as_deref().map(Path::display)), prefix(item.as_ref()))]
    Backend {
        /// The file, if `cause` does not name it.
        path: Option<PathBuf>,
        /// The part of the file that was being read.
        item: Option<Item>,
        /// The backend's error.
        cause: Box<ringmain_backends::Error>,
    },

    /// The file is shorter than its header says, or was truncated after it was opened.
    #[error(
        "{} is truncated: it has {}, but its {what} {} {expected}; write or fetch it again",
        path.display(), count(*actual, "byte"), if what.ends_with('s') { "need" } else { "needs" }
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The part that does not fit: "header", "rows", "metadata", …
        what: &'static str,
        /// The smallest valid size of the file in bytes; `u64::MAX` if it overflows.
        expected: u64,
        /// The actual size of the file in bytes.
        actual: u64,
    },

    /// The file was replaced, removed or written to after it was opened.
    #[error("{} was {change} after it was opened{}", path.display(), change_consequence(*change))]
    Changed {
        /// The file.
        path: PathBuf,
        /// How it changed.
        change: FileChange,
    },

    /// The file does not follow its format.
    #[error("{}: {}{damage}", path.display(), prefix(item.as_ref()))]
    Format {
        /// The file.
        path: PathBuf,
        /// The damaged part, if the rest of the file can be read.
        item: Option<Item>,
        /// The damage.
        damage: Box<Damage>,
    },

    /// An array does not lie within its file.
    #[error(
        "{}: {} at offset {offset} {} not in the file, which has {}",
        path.display(), count(*len, "byte"), if *len == 1 { "is" } else { "are" },
        count(*file_len, "byte")
    )]
    OutsideFile {
        /// The file.
        path: PathBuf,
        /// The offset at which the array should begin.
        offset: u64,
        /// The size that it should have.
        len: u64,
        /// The size of the file.
        file_len: u64,
    },

    /// The file has no such row, sample, field or tensor, or this source does not deliver it.
    #[error("{}: cannot get {item}: {reason}", path.display())]
    NoSuchItem {
        /// The file.
        path: PathBuf,
        /// The requested part.
        item: Item,
        /// Why it cannot be had, and what exists instead.
        reason: String,
    },

    /// Other buffers hold all of the memory that this read may use, or it is larger than all of it.
    #[error(
        "{}: {}", path.display(), memory_spent(what, *needed_bytes, *in_use_bytes, *limit_bytes)
    )]
    MemorySpent {
        /// The file.
        path: PathBuf,
        /// The use of the memory: "a buffer", "a view", "a batch", "a page" or "a tensor".
        what: &'static str,
        /// The requested bytes, rounded up as the pool counts them.
        needed_bytes: usize,
        /// The bytes that are in use.
        in_use_bytes: usize,
        /// The limit of the engine's buffers, or of the pool given.
        limit_bytes: usize,
    },

    /// The operating system has no more memory.
    #[error("no memory for {bytes} bytes")]
    OutOfMemory {
        /// The requested bytes.
        bytes: usize,
    },

    /// A cache of mappings has no room and nothing that it may drop.
    #[error(
        "{}: no room for {requested_bytes} bytes in a cache of {limit_bytes}: {}",
        path.display(), cache_full(*requested_bytes, *limit_bytes, *held_bytes)
    )]
    CacheFull {
        /// The file that was to be mapped.
        path: PathBuf,
        /// Its bytes.
        requested_bytes: u64,
        /// The cache's limit.
        limit_bytes: u64,
        /// The bytes of mappings that are in use, locked or just being opened.
        held_bytes: u64,
    },

    /// An option has a value that cannot work.
    #[error("option `{option}` cannot be {value}: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: String,
        /// Why it cannot work, and which values do.
        reason: String,
    },

    /// A saved state belongs to other data or other options.
    #[error("{}: the state belongs to another source: {reason}", path.display())]
    StateMismatch {
        /// The file, or the first of several.
        path: PathBuf,
        /// The difference, and the way out.
        reason: String,
    },

    /// The platform or the filesystem cannot do what was asked.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The missing feature, and the way out.
        reason: String,
    },

    /// A value to write does not have the declared form.
    #[error("{}: {}{reason}", path.display(), prefix(item.as_ref()))]
    InvalidItem {
        /// The file that was to be written.
        path: PathBuf,
        /// The sample or field.
        item: Option<Item>,
        /// The reason.
        reason: String,
    },

    /// The caller's function or iterator that makes samples failed.
    #[error("{}: {item} could not be made: {cause}", path.display())]
    Maker {
        /// The file that was to be written.
        path: PathBuf,
        /// The sample.
        item: Item,
        /// The caller's error.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The caller's function that changes the images of a batch failed.
    #[error("{}: the transform of {} failed: {cause}", path.display(), some_samples(samples))]
    Transform {
        /// The file.
        path: PathBuf,
        /// The ids of the samples of the batch.
        samples: Box<[u64]>,
        /// The caller's error.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A thread of the engine panicked. Its message is on standard error too.
    #[error("{}: the thread that {thread} panicked: {message}", path.display())]
    Panicked {
        /// The file.
        path: PathBuf,
        /// The task of the thread: "reads ahead" or "makes samples".
        thread: &'static str,
        /// The panic's message.
        message: String,
    },

    /// An integer index is outside its axis.
    #[error("index {index} is out of range for axis {axis} with {len} elements")]
    IndexOutOfRange {
        /// The axis.
        axis: usize,
        /// The given index.
        index: i64,
        /// The axis' length.
        len: usize,
    },

    /// There are more indices than axes.
    #[error("{given} indices were given for a view of {ndim} axes")]
    TooManyIndices {
        /// The number of indices.
        given: usize,
        /// The number of axes.
        ndim: usize,
    },

    /// An index cannot be used there.
    #[error("{reason}")]
    InvalidIndex {
        /// The reason.
        reason: String,
    },

    /// The selection is not one contiguous range of bytes.
    #[error(
        "Non-contiguous: this selection of shape {shape:?} is not one range of bytes in the file; \
         read it with `read_selection`, or read the whole view first"
    )]
    NonContiguous {
        /// The shape that it would have.
        shape: Vec<usize>,
    },

    /// A view cannot have that shape, axis order or element type without being read first.
    #[error("{reason}")]
    Shape {
        /// The reason.
        reason: String,
    },

    /// The elements or bytes of a shape cannot be counted.
    #[error(
        "a view of shape {shape:?} with elements of {} is larger than any file",
        count(*itemsize as u64, "byte")
    )]
    Overflow {
        /// The requested shape.
        shape: Vec<usize>,
        /// The bytes of an element.
        itemsize: usize,
    },

    /// No element type has that name.
    #[error(
        "there is no element type `{text}`; use one of NumPy's names or codes, such as `float32` or `<f4`"
    )]
    UnknownDType {
        /// The name or code given.
        text: String,
    },

    /// The elements have another type than requested, or a type that cannot be used here.
    #[error(
        "{}{}the elements are {stored}: {reason}",
        prefix(path.as_deref().map(Path::display)), prefix(item.as_ref())
    )]
    ElementType {
        /// The file of a view.
        path: Option<PathBuf>,
        /// The tensor, or the view of several.
        item: Option<Item>,
        /// The type in the file.
        stored: String,
        /// Why that does not fit, and what does.
        reason: String,
    },

    /// The memory to read into does not have the size of the data.
    #[error(
        "{}the memory to read into has {}, but {needed} {} needed",
        prefix(item.as_ref()), count(*given as u64, "byte"), if *needed == 1 { "is" } else { "are" }
    )]
    BufferSize {
        /// The tensor, or the view of several.
        item: Option<Item>,
        /// The size of the data in bytes.
        needed: usize,
        /// The size of the memory in bytes.
        given: usize,
    },
}
