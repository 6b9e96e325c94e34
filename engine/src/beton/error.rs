//! What can go wrong with datasets. Every error names the file; one that is about a sample names it
//! and its field.

use std::io;
use std::path::{Path, PathBuf};

use super::Damage;

/// Why a dataset could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BetonError {
    /// The operating system refused something.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },

    /// The backend could not open or read the file.
    #[error("{}{}{source}", path_unless_named(path, source), of_sample(*sample, field.as_deref()))]
    Backend {
        /// The file.
        path: PathBuf,
        /// The sample that was being read, where it is known. One of several where a whole page
        /// was.
        sample: Option<u64>,
        /// Its field.
        field: Option<Box<str>>,
        /// What the backend said.
        source: Box<ringmain_backends::Error>,
    },

    /// The file is shorter than its header says, or than a header.
    #[error(
        "{} is truncated: {actual} bytes where its {what} needs {expected}; write it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What does not fit: "header", "fields", "metadata".
        what: &'static str,
        /// The bytes that it should have at least; `u64::MAX` if no file can have as many.
        expected: u64,
        /// The bytes that it has.
        actual: u64,
    },

    /// The file is not the one that was opened, or was written to since.
    #[error(
        "{} was {what} after it was opened, so what was read may be of two versions; open it again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What happened to it: "replaced", "truncated", "written to", "removed".
        what: &'static str,
    },

    /// The file is of another version, or no dataset.
    #[error("{} is of version {version}, or no .beton file: only version 2 is known", path.display())]
    BadVersion {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        version: u16,
    },

    /// The header says what cannot be.
    #[error("{}: bad header: {reason}", path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },

    /// A field is described in a way that cannot be, or cannot be written.
    #[error("{}: field {index} (`{name}`): {reason}", path.display())]
    BadField {
        /// The file.
        path: PathBuf,
        /// Which field, from 0.
        index: usize,
        /// Its name, as far as it is text.
        name: String,
        /// What is wrong.
        reason: String,
    },

    /// A field is of a type that only its author knows.
    #[error(
        "{}: field {index} (`{name}`) has the type id {type_id}, which no handler was given for; \
         give one to `ReaderOptions::handle_type` or `handle_name`", path.display()
    )]
    UnknownType {
        /// The file.
        path: PathBuf,
        /// Which field, from 0.
        index: usize,
        /// Its name.
        name: String,
        /// Its type.
        type_id: u8,
    },

    /// The allocation table is not where it must be, or no table.
    #[error("{}: bad allocation table: {reason}", path.display())]
    BadTable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },

    /// Metadata and allocation table need more memory than they may have.
    #[error(
        "{}: metadata and allocation table need {needed_bytes} bytes of memory, and may have \
         {limit_bytes}; raise index_limit_bytes", path.display()
    )]
    IndexTooLarge {
        /// The file.
        path: PathBuf,
        /// What they need.
        needed_bytes: u64,
        /// What they may have.
        limit_bytes: u64,
    },

    /// There is no such sample.
    #[error("{}: there is no sample {sample}: it has {samples}", path.display())]
    NoSuchSample {
        /// The file.
        path: PathBuf,
        /// The sample asked for.
        sample: u64,
        /// How many there are.
        samples: u64,
    },

    /// There is no such field.
    #[error("{}: there is no field `{name}`", path.display())]
    NoSuchField {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
    },

    /// One sample is damaged. The others can be read.
    #[error("{}: sample {sample}, field `{field}`: {damage}", path.display())]
    BadSample {
        /// The file.
        path: PathBuf,
        /// Which sample.
        sample: u64,
        /// Which of its fields.
        field: String,
        /// What is wrong with it.
        damage: Damage,
    },

    /// A sample that is to be written has another form than its fields say.
    #[error("{}: sample {sample}, field `{field}`: {reason}", path.display())]
    InvalidSample {
        /// The file.
        path: PathBuf,
        /// Which sample.
        sample: u64,
        /// Which of its fields.
        field: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A sample that is to be written does not fit in a page.
    #[error(
        "{}: sample {sample} has {sample_bytes} bytes and does not fit in a page of {page_bytes}; \
         choose larger pages", path.display()
    )]
    SampleTooLarge {
        /// The file.
        path: PathBuf,
        /// Which sample.
        sample: u64,
        /// Its bytes.
        sample_bytes: u64,
        /// The bytes of a page.
        page_bytes: u64,
    },

    /// The maker of samples has failed.
    #[error("{}: sample {sample} could not be made: {source}", path.display())]
    Source {
        /// The file that was to be written.
        path: PathBuf,
        /// Which sample.
        sample: u64,
        /// What its maker said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// An iterator has yielded more or fewer samples than it was said to.
    #[error(
        "{}: {declared} samples were declared, and {} came; declare as many as there are",
        path.display(), count_of(*found, *declared)
    )]
    WrongCount {
        /// The file that was to be written.
        path: PathBuf,
        /// How many there should have been.
        declared: u64,
        /// How many there were; one more than declared if there were more.
        found: u64,
    },

    /// A thread that makes samples has panicked.
    #[error("{}: a thread that makes samples has panicked: {message}", path.display())]
    WriterPanicked {
        /// The file that was to be written.
        path: PathBuf,
        /// What it said.
        message: String,
    },

    /// The file cannot be written past the page cache.
    #[error(
        "{}: the filesystem of its folder refuses O_DIRECT; write it without `direct`, or elsewhere",
        path.display()
    )]
    NoDirect {
        /// The file that was to be written.
        path: PathBuf,
    },

    /// All buffers of the engine are held: by batches that were not dropped, or by others.
    #[error(
        "{}: no memory for {what} of {needed_bytes} bytes: {in_use_bytes} of {limit_bytes} bytes of \
         the engine's buffers are held; drop batches sooner, raise the engine's memory limit, or \
         lower what is read at once", path.display()
    )]
    MemorySpent {
        /// The file.
        path: PathBuf,
        /// What it was for: "a batch", "a page".
        what: &'static str,
        /// What was asked for.
        needed_bytes: usize,
        /// The bytes that are held.
        in_use_bytes: usize,
        /// The bytes there are.
        limit_bytes: usize,
    },

    /// An option has a value that cannot work.
    #[error("{}: option `{option}` cannot be {value}: {reason}", path.display())]
    InvalidOption {
        /// The file.
        path: PathBuf,
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: String,
        /// Why not, and what can be.
        reason: String,
    },

    /// The state was taken from another dataset, or under other options.
    #[error(
        "{}: the state does not fit: {reason}; open the epoch as it was when the state was taken",
        path.display()
    )]
    StateMismatch {
        /// The file.
        path: PathBuf,
        /// What differs.
        reason: &'static str,
    },

    /// The thread that reads ahead has panicked. The next batch starts another.
    #[error(
        "{}: the thread that reads ahead has panicked; see its message on standard error",
        path.display()
    )]
    ReaderPanicked {
        /// The file.
        path: PathBuf,
    },
}

impl BetonError {
    /// The file the error speaks of.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Backend { path, .. }
            | Self::Truncated { path, .. }
            | Self::Changed { path, .. }
            | Self::BadVersion { path, .. }
            | Self::BadHeader { path, .. }
            | Self::BadField { path, .. }
            | Self::UnknownType { path, .. }
            | Self::BadTable { path, .. }
            | Self::IndexTooLarge { path, .. }
            | Self::NoSuchSample { path, .. }
            | Self::NoSuchField { path, .. }
            | Self::BadSample { path, .. }
            | Self::InvalidSample { path, .. }
            | Self::SampleTooLarge { path, .. }
            | Self::Source { path, .. }
            | Self::WrongCount { path, .. }
            | Self::WriterPanicked { path, .. }
            | Self::NoDirect { path }
            | Self::MemorySpent { path, .. }
            | Self::InvalidOption { path, .. }
            | Self::StateMismatch { path, .. }
            | Self::ReaderPanicked { path } => path,
        }
    }

    /// Which sample, if the error is about one.
    #[must_use]
    pub fn sample(&self) -> Option<u64> {
        match self {
            Self::Backend { sample, .. } => *sample,
            Self::NoSuchSample { sample, .. }
            | Self::BadSample { sample, .. }
            | Self::InvalidSample { sample, .. }
            | Self::Source { sample, .. }
            | Self::SampleTooLarge { sample, .. } => Some(*sample),
            _ => None,
        }
    }

    pub(super) fn backend(path: &Path, source: ringmain_backends::Error) -> Self {
        let (path, source) = (path.to_owned(), Box::new(source));
        Self::Backend { path, sample: None, field: None, source }
    }
}

fn count_of(found: u64, declared: u64) -> String {
    if found > declared { "more".to_owned() } else { format!("only {found}") }
}

fn of_sample(sample: Option<u64>, field: Option<&str>) -> String {
    let field = field.map(|field| format!(", field `{field}`")).unwrap_or_default();
    sample.map(|sample| format!("sample {sample}{field}: ")).unwrap_or_default()
}

/// What comes before an error that does not name the file itself.
fn path_unless_named(path: &Path, source: &ringmain_backends::Error) -> String {
    if source.path() == Some(path) { String::new() } else { format!("{}: ", path.display()) }
}
