//! An opened dataset: its checked header and fields, and the place of every sample.
//!
//! A reader keeps the metadata and the allocation table for as long as it lives: a row for each
//! sample and 24 bytes for each region, both as in the file. It needs them to find the size that
//! belongs to a pointer. They are bounded by the length of the file and by `index_limit_bytes`, and
//! do not count against the engine's memory limit. The table is sorted by pointer once, so a
//! look-up is a binary search and allocates nothing.
//!
//! Opening checks what concerns all samples, and looks once at all regions: each gets a mark if it
//! is out of the pages, crosses from one into the next, or shares bytes with another (one pass over
//! the sorted table that remembers the farthest end). A mark is an error only when that sample is
//! read, so one damaged sample leaves the others readable. A region that is impossible in itself
//! (outside the pages, crossing two) marks no other region.

use std::path::{Path, PathBuf};

use ringmain_backends::{FileHandle, ReadBackendExt, mix};

use super::fill::PlacedRegion;
use super::header::Header;
use super::options::ReaderOptions;
use super::row::{Member, RowLayout};
use super::table::{Pages, Region, Table};
use super::{
    ALLOCATION_LEN, Allocation, BetonDamage, Error, FIELD_LEN, Field, FieldKind, HEADER_LEN,
    ImageMode,
};
use crate::memory::zeroed;
use crate::versioned_file::VersionedFile;
use crate::{Engine, Item};

/// How many bytes after the rows are examined: enough for any value that is not 0.
const GAP_BYTES_MAX: usize = 16 << 10;

/// An opened dataset, shared by readers and epochs.
#[derive(Debug)]
pub(super) struct Dataset {
    pub(super) engine: Engine,
    pub(super) file: VersionedFile,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) fields: Vec<Field>,
    pub(super) layout: RowLayout,
    /// The numbers of the fields that have regions in the pages.
    pub(super) paged: Vec<usize>,
    pub(super) pages: Pages,
    pub(super) table: Table,
    rows: Vec<u8>,
    /// A hash that distinguishes this dataset from others.
    pub(super) fingerprint: u64,
}

impl Dataset {
    pub(super) fn open(
        engine: &Engine,
        path: &Path,
        options: &ReaderOptions,
    ) -> Result<Self, Error> {
        let backend = engine.backend();
        let opened = OpenedFile::new(engine, path)?;
        let index = opened.index(engine);
        let fields = index.fields(options)?;
        let path = &opened.path;
        let layout = RowLayout::new(&fields, &options.handlers, path)?;
        index.check_row_size(&fields, &layout)?;
        let (pages, regions) = index.places(&layout, options)?;
        let rows = index.rows(&layout)?;
        let table = index.table(&pages, regions)?;
        let fingerprint = fingerprint(&opened.head, &fields, &table);
        opened.file.check(path)?;
        if backend.capabilities().zero_copy {
            // The index was copied, so its pages need not stay mapped.
            let released = backend.release(&opened.file, 0..opened.file.len());
            released.map_err(|error| Error::backend(path, error))?;
        }
        let paged = layout.paged();
        let OpenedFile { file, path, header, .. } = opened;
        let engine = engine.clone();
        Ok(Self {
            engine,
            path,
            header,
            fields,
            layout,
            paged,
            pages,
            table,
            rows,
            fingerprint,
            file,
        })
    }

    /// Returns the header and the fields of a file without reading its samples.
    pub(super) fn describe(engine: &Engine, path: &Path) -> Result<(Header, Vec<Field>), Error> {
        let opened = OpenedFile::new(engine, path)?;
        let fields = opened.index(engine).fields(&ReaderOptions::new())?;
        opened.file.check(&opened.path)?;
        Ok((opened.header, fields))
    }

    pub(super) fn check_id(&self, sample: u64) -> Result<(), Error> {
        let samples = self.header.samples;
        if sample < samples {
            return Ok(());
        }
        let (path, item) = (self.path.clone(), Item::Sample { id: sample, field: None });
        Err(Error::NoSuchItem { path, item, reason: format!("the dataset has {samples} samples") })
    }

    /// Returns the metadata of a sample. The sample must exist.
    pub(super) fn row(&self, sample: u64) -> &[u8] {
        let bytes = self.layout.row_bytes();
        // The cast is exact: all rows are in memory.
        &self.rows[sample as usize * bytes..][..bytes]
    }

    /// Returns the region of a sample's field, checked against the allocation table; `None` if the
    /// field has no region.
    pub(super) fn region(&self, sample: u64, field: usize) -> Result<Option<Region>, Error> {
        let found = self.find(sample, field);
        found.map_err(|damage| self.damaged(sample, field, damage))
    }

    fn find(&self, sample: u64, field: usize) -> Result<Option<Region>, BetonDamage> {
        let row = self.row(sample);
        let (ptr, size) = match self.layout.member(row, field) {
            Member::Float(_) | Member::Int(_) => return Ok(None),
            Member::Blob { ptr, size } => (ptr, Some(size)),
            Member::Array { ptr } => {
                (ptr, self.fields[field].kind().array().map(|spec| spec.nbytes() as u64))
            }
            Member::Image { mode, width, height, ptr } => match ImageMode::from_id(mode) {
                Some(ImageMode::Jpeg) => (ptr, None),
                Some(ImageMode::Raw) => (ptr, Some(u64::from(width) * u64::from(height) * 3)),
                None => return Err(BetonDamage::BadImageMode { mode }),
            },
            Member::Custom(_) => match self.layout.custom_region(row, field) {
                Some(region) => (region.ptr, region.size),
                None => return Ok(None),
            },
        };
        self.table.find(sample, ptr, size).map(Some)
    }

    /// Returns the offset at which the metadata places a field's region, unchecked.
    pub(super) fn pointer(&self, sample: u64, field: usize) -> Option<u64> {
        let row = self.row(sample);
        match self.layout.member(row, field) {
            Member::Float(_) | Member::Int(_) => None,
            Member::Blob { ptr, size } => (size > 0).then_some(ptr),
            Member::Array { ptr } | Member::Image { ptr, .. } => Some(ptr),
            Member::Custom(_) => self.layout.custom_region(row, field).map(|region| region.ptr),
        }
    }

    fn item(&self, sample: u64, field: usize) -> Item {
        Item::Sample { id: sample, field: Some(self.fields[field].name().into()) }
    }

    pub(super) fn damaged(&self, sample: u64, field: usize, damage: BetonDamage) -> Error {
        Error::damaged(&self.path, self.item(sample, field), damage)
    }

    /// Checks the result of a batch of reads. If the file changed, the error says so instead of
    /// naming the failed read.
    pub(super) fn checked<'a>(
        &self,
        outcome: ringmain_backends::Result<()>,
        piece_of: impl FnOnce(usize) -> Option<&'a PlacedRegion>,
    ) -> Result<(), Error> {
        self.file.check(&self.path)?;
        outcome.map_err(|source| {
            let piece = source.index().and_then(piece_of);
            let item = piece.map(|piece| self.item(piece.sample, piece.field));
            Error::reading(&self.path, item, "a batch", source)
        })
    }

    /// Returns the number of the field with this name.
    pub(super) fn field_index(&self, name: &str) -> Result<usize, Error> {
        let found = self.fields.iter().position(|field| field.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = self.fields.iter().map(Field::name).collect();
            let (path, item) = (self.path.clone(), Item::Field(name.into()));
            Error::NoSuchItem { path, item, reason: format!("the fields are {names:?}") }
        })
    }
}

/// An opened file with a valid header.
struct OpenedFile {
    file: VersionedFile,
    path: PathBuf,
    head: Vec<u8>,
    header: Header,
}

impl OpenedFile {
    fn new(engine: &Engine, path: &Path) -> Result<Self, Error> {
        let backend = engine.backend();
        let failed = |error| Error::backend(path, error);
        let file = VersionedFile::new(engine, backend.open(path).map_err(failed)?);
        let file = file.map_err(|change| Error::changed(path, change))?;
        let path = file.path().to_owned();
        let head_len = file.len().min(HEADER_LEN as u64) as usize;
        let head = backend.read_to_vec(&file, 0, head_len);
        let head = head.map_err(|error| Error::backend(&path, error))?;
        let header = Header::decode(&head, file.len(), &path)?;
        Ok(Self { file, path, head, header })
    }

    fn index<'a>(&'a self, engine: &'a Engine) -> IndexReader<'a> {
        let (file, path, header) = (&self.file, &self.path, &self.header);
        IndexReader { engine, file, path, file_len: file.len(), header }
    }
}

/// Reads and checks the index of a file: fields, metadata and allocation table.
struct IndexReader<'a> {
    engine: &'a Engine,
    file: &'a FileHandle,
    path: &'a Path,
    file_len: u64,
    header: &'a Header,
}

impl IndexReader<'_> {
    fn truncated(&self, what: &'static str, expected: Option<u64>) -> Error {
        let (path, actual) = (self.path.to_owned(), self.file_len);
        Error::Truncated { path, what, expected: expected.unwrap_or(u64::MAX), actual }
    }

    fn fields(&self, options: &ReaderOptions) -> Result<Vec<Field>, Error> {
        let end = self.header.metadata_at();
        if end > self.file_len {
            return Err(self.truncated("fields", Some(end)));
        }
        let is_handled = |name: &str, id: u8| options.handlers.find(name, id).is_some();
        // Descriptors are read one at a time: 65535 of them would take 68 MB.
        let mut bytes = [0; FIELD_LEN];
        (0..usize::from(self.header.fields))
            .map(|index| {
                let at = (HEADER_LEN + index * FIELD_LEN) as u64;
                self.read(at, &mut bytes)?;
                Field::decode(&bytes, index, is_handled, self.path)
            })
            .collect()
    }

    /// Checks that the rows fit what follows them, if the caller gave the size of a field. A wrong size
    /// would move all fields after it. FFCV writes nothing between the rows and the next multiple of
    /// the page size, and without pages the table follows the rows.
    fn check_row_size(&self, fields: &[Field], layout: &RowLayout) -> Result<(), Error> {
        let is_custom = |field: &Field| matches!(field.kind(), FieldKind::Custom { .. });
        let (row_bytes, at) = (layout.row_bytes() as u64, self.header.alloc_table_ptr);
        let end = self.header.metadata_end(row_bytes);
        let (Some(end), Some(pages_at)) = (end, self.header.pages_at(row_bytes)) else {
            return Ok(());
        };
        if !fields.iter().any(is_custom) || at > self.file_len || at == end {
            return Ok(());
        }
        let wrong = |reason: String| {
            Err(Error::format(self.path, BetonDamage::WrongRowSize { row_bytes, reason }))
        };
        if at < pages_at {
            return wrong(format!(
                "they end at byte {end}, but the allocation table begins at byte {at}"
            ));
        }
        let mut gap = [0; GAP_BYTES_MAX];
        let gap = &mut gap[..(pages_at - end).min(GAP_BYTES_MAX as u64) as usize];
        self.read(end, gap)?;
        match gap.iter().position(|byte| *byte != 0) {
            Some(first) => wrong(format!(
                "they end at byte {end}, but byte {} before the pages is not 0",
                end + first as u64
            )),
            None => Ok(()),
        }
    }

    /// Returns the pages and the number of regions, if they lie in the file and within the limits.
    fn places(&self, layout: &RowLayout, options: &ReaderOptions) -> Result<(Pages, usize), Error> {
        let (header, row_bytes) = (self.header, layout.row_bytes() as u64);
        if row_bytes == 0 && header.samples > 0 {
            // Any number of empty rows would fit in any file.
            let reason = format!("it has {} samples, but no field has metadata", header.samples);
            return Err(Error::format(self.path, BetonDamage::BadHeader { reason }));
        }
        let rows_end = header.metadata_end(row_bytes).filter(|end| *end <= self.file_len);
        let Some(rows_end) = rows_end else {
            return Err(self.truncated("metadata", header.metadata_end(row_bytes)));
        };
        let at = header.alloc_table_ptr;
        let bad = |reason| Err(Error::format(self.path, BetonDamage::BadTable { reason }));
        if at < rows_end || at > self.file_len {
            let len = self.file_len;
            return bad(format!(
                "it begins at byte {at}; it must lie between {rows_end} and {len}"
            ));
        }
        let table_bytes = self.file_len - at;
        if table_bytes % ALLOCATION_LEN as u64 != 0 {
            return bad(format!("its {table_bytes} bytes are not a whole number of rows"));
        }
        let needed_bytes = (rows_end - header.metadata_at()).saturating_add(table_bytes);
        let limit_bytes = options.index_limit_bytes;
        let regions = usize::try_from(table_bytes / ALLOCATION_LEN as u64);
        let (Ok(regions), true) = (regions, needed_bytes <= limit_bytes) else {
            let reason = format!(
                "the metadata and the allocation table of {} need {needed_bytes} bytes of memory; \
                 raise index_limit_bytes",
                self.path.display()
            );
            return Err(Error::invalid_option("index_limit_bytes", limit_bytes, reason));
        };
        let page_bytes = u64::from(header.page_bytes);
        // A dataset that holds only numbers has no pages, so its table may lie before the first
        // multiple of the page size.
        let start = rows_end.checked_next_multiple_of(page_bytes).unwrap_or(u64::MAX).min(at);
        Ok((Pages { range: start..at, page_bytes }, regions))
    }

    fn rows(&self, layout: &RowLayout) -> Result<Vec<u8>, Error> {
        // `places` checked that the rows lie in the file and within the limit.
        let len = usize::try_from(self.header.samples).unwrap_or(usize::MAX);
        let len = len.saturating_mul(layout.row_bytes());
        let mut rows = zeroed::<u8>(len).map_err(|_| self.no_memory(len))?;
        self.read(self.header.metadata_at(), &mut rows)?;
        Ok(rows)
    }

    fn table(&self, pages: &Pages, regions: usize) -> Result<Table, Error> {
        let bytes = regions.saturating_mul(ALLOCATION_LEN);
        let no_memory = || self.no_memory(bytes);
        let mut table = Table::with_room(regions).ok_or_else(no_memory)?;
        let mut scratch = self.engine.scratch(bytes).map_err(|_| no_memory())?;
        let part_max = (scratch.len() / ALLOCATION_LEN).max(1);
        for first in (0..regions).step_by(part_max) {
            let len = part_max.min(regions - first) * ALLOCATION_LEN;
            let at = self.header.alloc_table_ptr + (first * ALLOCATION_LEN) as u64;
            self.read(at, &mut scratch[..len])?;
            let rows = scratch[..len].chunks_exact(ALLOCATION_LEN);
            for row in rows.filter_map(<[u8]>::first_chunk) {
                table.push(Allocation::decode(row), pages);
            }
        }
        table.finish();
        Ok(table)
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<(), Error> {
        let read = self.engine.backend().read_exact_at(self.file, at, dst);
        read.map_err(|error| Error::backend(self.path, error))
    }

    fn no_memory(&self, needed_bytes: usize) -> Error {
        no_memory(self.path, needed_bytes)
    }
}

pub(super) fn no_memory(path: &Path, requested_bytes: usize) -> Error {
    let source = std::io::ErrorKind::OutOfMemory.into();
    let cause = ringmain_backends::Error::OutOfMemory { requested_bytes, source };
    Error::backend(path, cause)
}

/// Returns a hash that differs for datasets with another header, other fields or other regions.
fn fingerprint(head: &[u8], fields: &[Field], table: &Table) -> u64 {
    let hash = |hash: u64, bytes: &[u8]| {
        bytes.iter().fold(hash, |hash, byte| mix(hash ^ u64::from(*byte)))
    };
    let names = fields.iter().fold(hash(0, head), |sum, field| {
        hash(mix(sum ^ u64::from(field.kind().type_id())), field.name().as_bytes())
    });
    mix(names ^ mix(table.fingerprint) ^ table.len() as u64)
}
