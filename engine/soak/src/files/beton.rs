//! Datasets: every version has the pattern's samples in the same places, with other bytes in the pages.

use std::path::Path;

use ringmain::beton::{ArraySpec, BetonReader, BetonWriter, Field, FieldKind, Member};
use ringmain::{BackendKind, Engine, Error, Kind};

use crate::model::Contents;

const SAMPLES: u64 = 400;
const ARRAY_BYTES: usize = 3000;
/// Every blob has another length below this.
const BLOB_BYTES_MAX: u64 = 4000;

/// The number of the sample.
pub(crate) const ID_FIELD: usize = 0;
/// An array of fixed size.
pub(crate) const ARRAY_FIELD: usize = 1;
/// Bytes of any length.
pub(crate) const BLOB_FIELD: usize = 2;

/// The places of all values.
#[derive(Debug)]
pub(crate) struct BetonLayout {
    pattern: Vec<u8>,
    /// For each sample, where its array and its blob are.
    places: Vec<[(u64, usize); 2]>,
}

impl BetonLayout {
    /// Reads the pattern, which is written first if there is none.
    pub(super) fn load(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            write_pattern(path)?;
        }
        let engine = Engine::builder().backend(BackendKind::Pread).build()?;
        let reader = BetonReader::open(&engine, path)?;
        let places = (0..SAMPLES).map(|sample| {
            let array_at = match reader.member(sample, ARRAY_FIELD)? {
                Member::Array { ptr } => ptr,
                other => unreachable!("the pattern has an array: {other:?}"),
            };
            let blob = match reader.member(sample, BLOB_FIELD)? {
                Member::Blob { ptr, size } => (ptr, size as usize),
                other => unreachable!("the pattern has bytes: {other:?}"),
            };
            Ok([(array_at, ARRAY_BYTES), blob])
        });
        let places = places.collect::<Result<_, Error>>()?;
        let pattern = std::fs::read(path).map_err(|cause| Error::Io {
            path: path.to_owned(),
            action: "reading the pattern",
            cause,
        })?;
        Ok(Self { pattern, places })
    }

    pub(super) fn encode(&self, contents: Contents) -> Vec<u8> {
        let mut bytes = self.pattern.clone();
        for (at, len) in self.places.iter().flatten() {
            contents.fill(*at, &mut bytes[*at as usize..][..*len]);
        }
        bytes
    }

    pub(crate) fn samples(&self) -> u64 {
        self.places.len() as u64
    }

    /// The offset and the length of a sample's value.
    pub(crate) fn place(&self, sample: u64, field: usize) -> Option<(u64, usize)> {
        self.places.get(sample as usize)?.get(field - ARRAY_FIELD).copied()
    }
}

fn write_pattern(path: &Path) -> Result<(), Error> {
    let array = ArraySpec::new(Kind::U8.into(), &[30, ARRAY_BYTES / 30])?;
    let fields = [
        Field::new("id", FieldKind::Int)?,
        Field::new("array", FieldKind::NdArray(array))?,
        Field::new("blob", FieldKind::Bytes)?,
    ];
    let writer = BetonWriter::new(fields).page_bytes(2 << 20).workers(1).deterministic(true);
    let written = writer.write_indexed(path, SAMPLES, |id, sample| {
        let blob_len = 1 + id * 977 % (BLOB_BYTES_MAX - 1);
        sample.int(id as i64)?.array(&[1; ARRAY_BYTES])?.bytes(&vec![1; blob_len as usize])?;
        Ok(())
    });
    written.map(drop)
}
