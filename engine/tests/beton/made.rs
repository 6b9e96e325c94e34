//! Datasets made for a test, byte by byte, with the format's own encoders.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ringmain::Kind;
use ringmain::beton::{
    Allocation, ArraySpec, Batch, Field, FieldKind, Handlers, Header, Member, RowLayout,
};

use crate::support::temp_dir;

pub(crate) const PAGE: u64 = 2 << 20;
pub(crate) const ARRAY_LEN: usize = 1024;

/// A dataset whose samples have an id, an array of fixed size and some bytes, scattered over the
/// pages.
pub(crate) struct Made {
    pub(crate) header: Header,
    pub(crate) fields: Vec<Field>,
    pub(crate) rows: Vec<Vec<u8>>,
    pub(crate) table: Vec<Allocation>,
    contents: Vec<(u64, Vec<u8>)>,
}

impl Made {
    pub(crate) fn new(samples: u64, pages: u64) -> Self {
        Self::scattered(samples, pages, 7)
    }

    /// Places each sample `step` pages after the one before it.
    pub(crate) fn scattered(samples: u64, pages: u64, step: u64) -> Self {
        let array = ArraySpec::new(Kind::U8.into(), &[4, ARRAY_LEN / 4]).unwrap();
        let fields = vec![
            Field::new("id", FieldKind::Int).unwrap(),
            Field::new("array", FieldKind::NdArray(array)).unwrap(),
            Field::new("bytes", FieldKind::Bytes).unwrap(),
        ];
        let layout = RowLayout::new(&fields, &Handlers::new(), Path::new("made")).unwrap();
        let mut header = Header { fields: 3, page_bytes: PAGE as u32, samples, alloc_table_ptr: 0 };
        let pages_at = header.pages_at(layout.row_bytes() as u64).unwrap();
        header.alloc_table_ptr = pages_at + pages * PAGE;
        let mut made = Self { header, fields, rows: vec![], table: vec![], contents: vec![] };
        let mut ends: Vec<u64> = (0..pages).map(|page| pages_at + page * PAGE + page * 3).collect();
        for sample in 0..samples {
            let end = &mut ends[(sample * step % pages) as usize];
            let (array, bytes) = (array_of(sample), bytes_of(sample));
            let ptrs = [*end, *end + array.len() as u64];
            *end += (array.len() + bytes.len()) as u64;
            let mut row = vec![0; layout.row_bytes()];
            assert!(layout.put(&mut row, 0, Member::Int(sample as i64)));
            assert!(layout.put(&mut row, 1, Member::Array { ptr: ptrs[0] }));
            let size = bytes.len() as u64;
            assert!(layout.put(&mut row, 2, Member::Blob { ptr: ptrs[1], size }));
            made.rows.push(row);
            for (ptr, part) in ptrs.into_iter().zip([array, bytes]) {
                if !part.is_empty() {
                    made.table.push(Allocation { sample, ptr, size: part.len() as u64 });
                    made.contents.push((ptr, part));
                }
            }
        }
        made
    }

    /// Sets the pointer and size of a sample's bytes.
    pub(crate) fn set_bytes(&mut self, sample: usize, ptr: u64, size: u64) {
        let layout = RowLayout::new(&self.fields, &Handlers::new(), Path::new("made")).unwrap();
        assert!(layout.put(&mut self.rows[sample], 2, Member::Blob { ptr, size }));
    }

    /// Returns the row of the table for a sample's bytes.
    pub(crate) fn bytes_row(&mut self, sample: u64) -> &mut Allocation {
        let mut rows = self.table.iter_mut().filter(|row| row.sample == sample);
        rows.nth(1).unwrap()
    }

    /// Writes the file; unused parts are holes.
    pub(crate) fn write(&self, path: &Path) {
        let mut file = File::create(path).unwrap();
        file.write_all(&self.header.encode()).unwrap();
        self.fields.iter().for_each(|field| file.write_all(&field.encode()).unwrap());
        self.rows.iter().for_each(|row| file.write_all(row).unwrap());
        for (ptr, bytes) in &self.contents {
            file.seek(SeekFrom::Start(*ptr)).unwrap();
            file.write_all(bytes).unwrap();
        }
        file.set_len(self.header.alloc_table_ptr).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        self.table.iter().for_each(|row| file.write_all(&row.encode()).unwrap());
    }

    /// Writes the file to a directory of its own.
    pub(crate) fn file(&self) -> MadeFile {
        let dir = temp_dir();
        let path = dir.path().join("made.beton");
        self.write(&path);
        MadeFile { path, _dir: dir }
    }
}

pub(crate) struct MadeFile {
    pub(crate) path: PathBuf,
    _dir: tempfile::TempDir,
}

fn array_of(sample: u64) -> Vec<u8> {
    (0..ARRAY_LEN as u64).map(|at| (sample * 31 + at) as u8).collect()
}

/// Returns the bytes of a sample; every 13th has none.
fn bytes_of(sample: u64) -> Vec<u8> {
    let len = if sample.is_multiple_of(13) { 0 } else { sample * 977 % 3000 };
    (0..len).map(|at| (sample * 17 + at * 3) as u8).collect()
}

/// Compares every sample of a batch.
pub(crate) fn check(batch: &Batch, what: &str) {
    let arrays = batch.arrays(1).unwrap().bytes;
    let blobs = batch.blobs(2).unwrap();
    for (at, id) in batch.ids().iter().enumerate() {
        assert_eq!(batch.ints(0).unwrap()[at], *id as i64, "{what}");
        assert!(arrays[at * ARRAY_LEN..][..ARRAY_LEN] == array_of(*id), "{what}: array of {id}");
        assert!(blobs.get(at).unwrap() == bytes_of(*id), "{what}: bytes of {id}");
    }
}
