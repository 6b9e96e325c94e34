//! `.beton` datasets of random samples.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::ValueEnum;
use ringmain::Kind;
use ringmain::beton::{
    ArraySpec, BetonWriter, Field, FieldKind, RegionAlignment, SampleBuilder, SampleError,
    WriteReport,
};

use super::RawBytes;
use crate::failure::Failure;
use crate::random::mix;
use crate::system::interrupt;
use crate::text::progress::Progress;

/// The width of images that have at least this many pixels.
const IMAGE_WIDTH: u64 = 64;
const RGB_BYTES: u64 = 3;

/// The kind of a field of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BetonField {
    Int,
    Float,
    Bytes,
    Json,
    Ndarray,
    Tensor,
    Image,
}

impl BetonField {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] =
        [Self::Int, Self::Float, Self::Bytes, Self::Json, Self::Ndarray, Self::Tensor, Self::Image];

    /// Returns whether the field takes a share of the bytes of a sample.
    pub(crate) fn has_share(self) -> bool {
        matches!(self, Self::Bytes | Self::Ndarray | Self::Tensor | Self::Image)
    }
}

impl fmt::Display for BetonField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// The parameters of a dataset.
#[derive(Clone, Debug)]
pub(crate) struct BetonSpec {
    pub(crate) samples: u64,
    pub(crate) sample_bytes: u64,
    pub(crate) fields: Vec<BetonField>,
    /// The sizes of bytes fields vary from 0 to twice their share.
    pub(crate) is_varied: bool,
    pub(crate) page_bytes: u32,
    pub(crate) alignment: RegionAlignment,
    pub(crate) workers: Option<usize>,
    pub(crate) is_deterministic: bool,
    pub(crate) is_direct: bool,
    pub(crate) seed: u64,
}

/// Writes a dataset. The samples depend on the seed only; pages, alignment and workers change only
/// their places in the file.
pub(crate) fn write_beton(
    path: &Path,
    spec: &BetonSpec,
    progress: &Arc<Progress>,
) -> Result<WriteReport, Failure> {
    let (told, bytes_told) = (Arc::clone(progress), AtomicU64::new(0));
    let mut writer = BetonWriter::new(spec.fields()?)
        .page_bytes(spec.page_bytes)
        .alignment(spec.alignment)
        .deterministic(spec.is_deterministic)
        .direct(spec.is_direct)
        .progress(move |now| {
            let before = bytes_told.fetch_max(now.bytes, Ordering::Relaxed);
            told.advance(now.bytes.saturating_sub(before));
        });
    if let Some(workers) = spec.workers {
        writer = writer.workers(workers);
    }
    let written = writer.write_indexed(path, spec.samples, |id, sample| {
        if interrupt::is_requested() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        spec.make(id, sample)
    });
    written.map_err(|error| match error {
        ringmain::Error::Maker { .. } if interrupt::is_requested() => Failure::Interrupted,
        error => error.into(),
    })
}

impl BetonSpec {
    /// Returns how many bytes of a sample each variable-size field gets.
    fn share_bytes(&self) -> u64 {
        let sharing = self.fields.iter().filter(|field| field.has_share()).count() as u64;
        self.sample_bytes.checked_div(sharing).unwrap_or(0)
    }

    /// Returns the width and the height of the images.
    fn image_size(&self) -> (u16, u16) {
        let pixels = (self.share_bytes() / RGB_BYTES).max(1);
        let width = IMAGE_WIDTH.min(pixels);
        let height = (pixels / width).min(u64::from(u16::MAX));
        (width as u16, height as u16)
    }

    /// Returns the fields, each named by its kind and its number.
    fn fields(&self) -> Result<Vec<Field>, Failure> {
        let refused = |error: ringmain::Error| Failure::Usage { message: error.to_string() };
        let array = |kind: Kind| {
            let len = (self.share_bytes() / kind.itemsize() as u64).max(1);
            ArraySpec::new(kind.into(), &[usize::try_from(len).unwrap_or(usize::MAX)])
        };
        let mut fields = Vec::new();
        for (at, field) in self.fields.iter().enumerate() {
            let kind = match field {
                BetonField::Int => FieldKind::Int,
                BetonField::Float => FieldKind::Float,
                BetonField::Bytes => FieldKind::Bytes,
                BetonField::Json => FieldKind::Json,
                BetonField::Image => FieldKind::RgbImage,
                BetonField::Ndarray => FieldKind::NdArray(array(Kind::I32).map_err(refused)?),
                BetonField::Tensor => FieldKind::TorchTensor(array(Kind::I16).map_err(refused)?),
            };
            fields.push(Field::new(&format!("{field}{at}"), kind).map_err(refused)?);
        }
        Ok(fields)
    }

    /// Returns the bytes of all regions; an estimate if sizes vary.
    pub(crate) fn region_bytes(&self) -> Result<u64, Failure> {
        self.samples.checked_mul(self.sample_bytes).ok_or_else(|| self.too_many())
    }

    /// Returns an upper estimate of the size of the file.
    pub(crate) fn file_bytes(&self) -> Result<u64, Failure> {
        let align = self.alignment.bytes() as u64;
        let padding = self.fields.len() as u64 * align;
        let sample_bytes = self.sample_bytes.checked_add(padding + 100);
        let sample_bytes = sample_bytes.ok_or_else(|| self.too_many())?;
        let samples_per_page = (u64::from(self.page_bytes) / sample_bytes).max(1);
        // Each worker may leave its last page partly empty; one page more for the rows, one for the table.
        let workers = self.workers.or_else(|| Some(thread::available_parallelism().ok()?.get()));
        let pages = self.samples / samples_per_page + workers.unwrap_or(1) as u64 + 2;
        let rows = self.samples.checked_mul(64 * self.fields.len() as u64);
        let pages = pages.checked_mul(u64::from(self.page_bytes));
        let all = pages.zip(rows).and_then(|(pages, rows)| pages.checked_add(rows));
        all.ok_or_else(|| self.too_many())
    }

    fn too_many(&self) -> Failure {
        let (samples, bytes) = (self.samples, self.sample_bytes);
        Failure::Usage { message: format!("{samples} samples of {bytes} bytes are too many") }
    }

    /// Makes a sample. Its fields take its random bytes one after the other, in words of eight.
    fn make(&self, id: u64, sample: &mut SampleBuilder<'_>) -> Result<(), SampleError> {
        let mut random = RawBytes::new(self.seed.wrapping_add(mix(id)));
        for field in &self.fields {
            match field {
                BetonField::Int => sample.int(word(&mut random) as i64)?,
                BetonField::Float => sample.float((word(&mut random) >> 11) as f64)?,
                BetonField::Json => {
                    let noise = word(&mut random);
                    sample.json(&format!("{{\"id\": {id}, \"noise\": \"{noise:016x}\"}}"))?
                }
                BetonField::Bytes => {
                    let share = self.share_bytes();
                    let len =
                        if self.is_varied { word(&mut random) % (2 * share + 1) } else { share };
                    sample.bytes_with(usize::try_from(len)?, |bytes| {
                        random.fill(bytes);
                        Ok(())
                    })?
                }
                BetonField::Ndarray | BetonField::Tensor => sample.array_with(|bytes| {
                    random.fill(bytes);
                    Ok(())
                })?,
                BetonField::Image => {
                    let (width, height) = self.image_size();
                    sample.image_raw_with(width, height, |bytes| {
                        random.fill(bytes);
                        Ok(())
                    })?
                }
            };
        }
        Ok(())
    }
}

fn word(random: &mut RawBytes) -> u64 {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use ringmain::Engine;
    use ringmain::beton::{BetonReader, Value};

    use super::*;

    fn spec(fields: &[BetonField]) -> BetonSpec {
        BetonSpec {
            samples: 100,
            sample_bytes: 10_000,
            fields: fields.to_vec(),
            is_varied: false,
            page_bytes: 2 << 20,
            alignment: RegionAlignment::Packed,
            workers: Some(2),
            is_deterministic: false,
            is_direct: false,
            seed: 7,
        }
    }

    fn samples_of(spec: &BetonSpec) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.beton");
        write_beton(&path, spec, &Arc::new(Progress::bytes("writing", 0))).unwrap();
        let reader = BetonReader::open(&Engine::new().unwrap(), &path).unwrap();
        let sample = |id| {
            let sample = reader.read_sample(id).unwrap();
            let fields = 0..sample.fields().len();
            fields.map(|field| format!("{:?}", sample.value(field).unwrap())).collect()
        };
        (0..reader.len()).map(sample).collect()
    }

    #[test]
    fn samples_depend_on_the_seed_alone() {
        let one = BetonSpec { is_varied: true, ..spec(&BetonField::ALL) };
        let samples = samples_of(&one);
        let alignment = RegionAlignment::Block;
        let other =
            BetonSpec { workers: Some(1), is_deterministic: true, alignment, ..one.clone() };
        assert_eq!(samples, samples_of(&other));
        assert_ne!(samples, samples_of(&BetonSpec { seed: 8, ..one }));
        assert!(samples.iter().collect::<std::collections::BTreeSet<_>>().len() == 100);
    }

    #[test]
    fn a_sample_has_the_requested_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.beton");
        let spec = spec(&[BetonField::Bytes, BetonField::Int, BetonField::Tensor]);
        write_beton(&path, &spec, &Arc::new(Progress::bytes("writing", 0))).unwrap();
        let reader = BetonReader::open(&Engine::new().unwrap(), &path).unwrap();
        assert_eq!(reader.region_bytes(), 100 * 10_000);
        let sample = reader.read_sample(99).unwrap();
        assert!(matches!(sample.value(0).unwrap(), Value::Bytes(bytes) if bytes.len() == 5000));
        assert!(std::fs::metadata(&path).unwrap().len() <= spec.file_bytes().unwrap());
    }

    #[test]
    fn too_many_samples_are_refused() {
        let spec = BetonSpec { samples: u64::MAX, ..spec(&[BetonField::Bytes]) };
        assert!(spec.region_bytes().is_err() && spec.file_bytes().is_err());
    }
}
