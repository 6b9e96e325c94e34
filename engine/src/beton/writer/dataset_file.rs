//! The dataset's file while it is written.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ringmain_backends::{BufferPool, OutputFile};

use super::super::{Error, FIELD_LEN, Field, HEADER_LEN, Handlers, Header, Member, RowLayout};
use super::allocator::PageAllocator;
use super::builder::WriteReport;
use super::page::Page;

/// The table is copied in parts of this size.
const COPY_BYTES: usize = 1 << 20;

/// Parts of a page begin at pages of the page cache.
const PART_ALIGN: usize = 4096;

/// A dataset's file before it is complete. Many threads write to it at once, each to its own parts.
#[derive(Debug)]
pub(super) struct DatasetFile {
    path: PathBuf,
    fields: Vec<Field>,
    header: Header,
    layout: RowLayout,
    allocator: PageAllocator,
    file: OutputFile,
    /// The allocation table belongs after the last page, whose place is not known yet. Until then
    /// it is in a file of its own, so that memory does not grow with the number of samples.
    table: OutputFile,
    table_bytes: AtomicU64,
}

impl DatasetFile {
    /// Begins a file. Its header stays empty until the end, so an incomplete file is not taken for
    /// a dataset.
    pub(super) fn create(
        path: &Path,
        fields: &[Field],
        handlers: &Handlers,
        header: Header,
        create: impl FnOnce(&Path) -> Result<OutputFile, Error>,
    ) -> Result<Self, Error> {
        let layout = RowLayout::new(fields, handlers, path)?;
        let Some(allocator) = PageAllocator::new(&header, layout.row_bytes()) else {
            let reason = "no file can be that large";
            return Err(Error::invalid_option("samples", header.samples, reason));
        };
        let file = create(path)?;
        let table = OutputFile::scratch(path)
            .map_err(|error| Error::io(path, "creating a temporary file for the table", error))?;
        let dataset = Self {
            path: path.to_owned(),
            fields: fields.to_vec(),
            header,
            layout,
            allocator,
            file,
            table,
            table_bytes: AtomicU64::new(0),
        };
        let mut descriptors = Vec::with_capacity(HEADER_LEN + fields.len() * FIELD_LEN);
        descriptors.resize(HEADER_LEN, 0);
        fields.iter().for_each(|field| descriptors.extend_from_slice(&field.encode()));
        dataset.write(&dataset.file, &descriptors, 0, "writing the fields")?;
        Ok(dataset)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.layout.row_bytes()
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.header.page_bytes as usize
    }

    pub(super) fn put(&self, row: &mut [u8], field: usize, member: Member<'_>) -> bool {
        self.layout.put(row, field, member)
    }

    /// Sets the offset of a field's region in a row.
    pub(super) fn set_ptr(&self, row: &mut [u8], field: usize, ptr_at: usize, ptr: u64) {
        let member = match self.layout.member(row, field) {
            Member::Blob { size, .. } => Member::Blob { ptr, size },
            Member::Array { .. } => Member::Array { ptr },
            Member::Image { mode, width, height, .. } => Member::Image { mode, width, height, ptr },
            Member::Custom(_) => {
                let at = self.layout.member_at(field) + ptr_at;
                row[at..at + 8].copy_from_slice(&ptr.to_le_bytes());
                return;
            }
            Member::Float(_) | Member::Int(_) => return,
        };
        let is_put = self.layout.put(row, field, member);
        debug_assert!(is_put, "the member keeps its form");
    }

    /// Returns an empty page with memory from the pool.
    pub(super) fn new_page(&self, pool: &BufferPool, align: usize) -> Result<Page, Error> {
        let buffer = pool.take(self.page_bytes());
        let buffer = buffer.map_err(|source| Error::backend(&self.path, source))?;
        Ok(Page::new(buffer, align))
    }

    /// Claims the next page and returns its offset.
    pub(super) fn claim_page(&self) -> Result<u64, Error> {
        let claimed = self.allocator.claim();
        claimed.ok_or_else(|| self.io("claiming a page", io::ErrorKind::FileTooLarge.into()))
    }

    /// Returns the alignment of the parts of a page that are written.
    pub(super) fn part_align(&self) -> usize {
        self.file.alignment().max(PART_ALIGN)
    }

    /// Writes a part of the page at `page_at`. Its unused end becomes a hole in the file.
    pub(super) fn write_page(
        &self,
        page: &mut Page,
        part: Range<usize>,
        page_at: u64,
    ) -> Result<(), Error> {
        let at = page_at + part.start as u64;
        page.with_padded(part, self.file.alignment(), |bytes| {
            self.write(&self.file, bytes, at, "writing a page")?;
            self.file.start_writeback(at..at + bytes.len() as u64);
            Ok(())
        })
    }

    /// Writes the rows of consecutive samples.
    pub(super) fn write_rows(&self, first: u64, rows: &[u8]) -> Result<(), Error> {
        // No overflow: the pages begin after the last row.
        let at = self.header.metadata_at() + first * self.row_bytes() as u64;
        self.write(&self.file, rows, at, "writing the metadata")
    }

    /// Claims `bytes` bytes of the table and returns their offset.
    pub(super) fn claim_table(&self, bytes: usize) -> u64 {
        self.table_bytes.fetch_add(bytes as u64, Ordering::Relaxed)
    }

    /// Writes a part of the table.
    pub(super) fn write_table(&self, at: u64, rows: &[u8]) -> Result<(), Error> {
        self.write(&self.table, rows, at, "writing the allocation table")
    }

    /// Appends the table, writes the header, and renames the file.
    pub(super) fn finish(self) -> Result<WriteReport, Error> {
        let pages = self.allocator.claimed();
        // As in FFCV's files, no page is without a region.
        let table_at = match pages {
            0 => self.header.metadata_at() + self.header.samples * self.row_bytes() as u64,
            _ => self.allocator.end(),
        };
        let table_bytes = self.table_bytes.load(Ordering::Relaxed);
        self.copy_table(table_at, table_bytes)?;
        let header = Header { alloc_table_ptr: table_at, ..self.header };
        self.write(&self.file, &header.encode(), 0, "writing the header")?;
        let report =
            WriteReport { samples: header.samples, pages, file_bytes: table_at + table_bytes };
        let Self { path, file, .. } = self;
        file.complete().map_err(|error| Error::io(&path, "completing the dataset", error))?;
        Ok(report)
    }

    fn copy_table(&self, to: u64, bytes: u64) -> Result<(), Error> {
        let mut part = vec![0; usize::try_from(bytes).unwrap_or(COPY_BYTES).min(COPY_BYTES)];
        let mut done = 0;
        while done < bytes {
            let len = usize::try_from(bytes - done).unwrap_or(COPY_BYTES).min(part.len());
            self.table
                .read_exact_at(&mut part[..len], done)
                .map_err(|error| self.io("reading the table back", error))?;
            self.write(&self.file, &part[..len], to + done, "writing the allocation table")?;
            done += len as u64;
        }
        Ok(())
    }

    fn write(
        &self,
        file: &OutputFile,
        bytes: &[u8],
        at: u64,
        action: &'static str,
    ) -> Result<(), Error> {
        file.write_all_at(bytes, at).map_err(|error| self.io(action, error))
    }

    pub(super) fn io(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(&self.path, action, source)
    }
}
