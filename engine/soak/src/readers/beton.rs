//! Epochs and single samples of a dataset.

use std::num::NonZero;

use ringmain::beton::{Batch, BetonReader, MemoryManager, Order, SampleOptions, SampleSource};
use ringmain::{BackendKind, Engine};

use super::{Checked, Reader, Session, Step, name};
use crate::files::{ARRAY_FIELD, BLOB_FIELD, FileKind, ID_FIELD};
use crate::verdict::Pin;
use crate::ways::{MEMORY_PATIENCE, WAYS};

const JOB: usize = 3;
/// Engines with less memory do not get a cache of pages, each of which has 2 MiB.
const PAGES_MEMORY_BYTES_MIN: usize = 12 << 20;

/// See the [module](self).
pub(super) struct BetonSession<'a> {
    way: usize,
    reader: BetonReader,
    source: SampleSource,
    pin: Pin<'a>,
    samples_read: u64,
}

impl<'a> BetonSession<'a> {
    pub(super) fn open(
        reader: &mut Reader<'a>,
        way: usize,
        engine: &'a Engine,
    ) -> Checked<Option<Self>> {
        let files = reader.files.of_kind(FileKind::Beton);
        let file = *reader.dice.pick(&files);
        let moments = reader.moments(&[file]);
        let options = options(reader, way, engine);
        let opened = BetonReader::open(engine, &file.path)
            .and_then(|dataset| options.open(&dataset).map(|source| (dataset, source)));
        match opened {
            Ok((dataset, source)) => {
                let pins = reader.pins(&[file], &moments);
                Ok(pins.map(|pins| Self {
                    way,
                    reader: dataset,
                    source,
                    pin: pins[0],
                    samples_read: 0,
                }))
            }
            Err(error) => {
                let pins = reader.pins_or_fail(&[file], &moments)?;
                reader.accept(way, &error, &pins).map(|()| None)
            }
        }
    }

    fn check(&mut self, reader: &Reader<'a>, batch: &Batch) -> Checked {
        let way = name(self.way);
        let unexpected = || format!("{way}: a batch without the FIELDS of its dataset");
        let ids = batch.ints(ID_FIELD).ok_or_else(unexpected)?;
        let arrays = batch.arrays(ARRAY_FIELD).ok_or_else(unexpected)?.bytes;
        let blobs = batch.blobs(BLOB_FIELD).ok_or_else(unexpected)?;
        let mut bytes_read = 0;
        for (at, id) in batch.ids().iter().enumerate() {
            let layout = &reader.files.beton;
            let (Some((array_at, array_len)), Some((blob_at, blob_len))) =
                (layout.place(*id, ARRAY_FIELD), layout.place(*id, BLOB_FIELD))
            else {
                return Err(format!("{way}: there is NO SAMPLE {id}"));
            };
            let array = &arrays[at * array_len..][..array_len];
            let blob = blobs.get(at).unwrap_or_default();
            if ids[at] != *id as i64 || blob.len() != blob_len {
                return Err(format!("{way}: WRONG METADATA of sample {id}"));
            }
            let checked = self.pin.check(
                reader.board,
                |contents| contents.is_equal(array_at, array) && contents.is_equal(blob_at, blob),
                reader.files,
            );
            checked.map_err(|wrong| format!("{way}: sample {id}: {wrong}"))?;
            bytes_read += (array_len + blob_len) as u64;
        }
        reader.board.tally.count_reads(self.way, JOB, batch.len() as u64, bytes_read);
        Ok(())
    }

    /// Samples by their ids, beside the epoch.
    fn random_samples(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        let samples = reader.files.beton.samples();
        let ids: Vec<u64> =
            (0..reader.dice.between(1, 20)).map(|_| reader.dice.below(samples)).collect();
        match self.reader.read_batch(&ids) {
            Ok(batch) => self.check(reader, &batch).map(|()| Step::More),
            Err(error) => reader.accept(self.way, &error, &[self.pin]).map(|()| Step::Over),
        }
    }
}

fn options(reader: &mut Reader<'_>, way: usize, engine: &Engine) -> SampleOptions {
    let dice = &mut reader.dice;
    let open_pages = NonZero::<u64>::MIN;
    let order = match dice.below(3) {
        0 => Order::Sequential,
        1 => Order::Shuffled { seed: dice.next() },
        _ => Order::PageShuffled { seed: dice.next(), open_pages },
    };
    let has_pages = engine.pool().limit_bytes() >= PAGES_MEMORY_BYTES_MIN / 2;
    let memory = match dice.below(3) {
        0 if WAYS[way].kind == BackendKind::Mmap => MemoryManager::OsCache,
        1 if has_pages => MemoryManager::ProcessCache { pages: NonZero::<usize>::MIN },
        _ => MemoryManager::Direct,
    };
    SampleOptions::new()
        .batch_size(dice.between(1, 40) as usize)
        .order(order)
        .memory_manager(memory)
        .prefetch_window_bytes(*dice.pick(&[0, 1, 100_000, 400_000]))
        .memory_patience(MEMORY_PATIENCE)
}

impl<'a> Session<'a> for BetonSession<'a> {
    fn step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        reader.pulse.beat(JOB, self.way);
        if reader.dice.chance(20) {
            return self.random_samples(reader);
        }
        match self.source.next_batch() {
            Ok(Some(batch)) => {
                self.samples_read += batch.len() as u64;
                self.check(reader, &batch).map(|()| Step::More)
            }
            Ok(None) if self.samples_read == reader.files.beton.samples() => Ok(Step::Over),
            Ok(None) => {
                let (way, samples) = (name(self.way), self.samples_read);
                Err(format!("{way}: an epoch of samples ENDED EARLY, after {samples} samples"))
            }
            Err(error) => reader.accept(self.way, &error, &[self.pin]).map(|()| Step::Over),
        }
    }
}
