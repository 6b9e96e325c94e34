//! Mapped weights, and the cache of mappings. Their files are replaced, never written to.

use std::sync::Arc;

use ringmain::Error;
use ringmain::weights::{
    MappedWeights, MmapOptions, Prefer, Unchanging, WeightCache, WeightSource,
};

use super::{Checked, Reader, Session, Step};
use crate::files::{DataFile, FileKind};
use crate::ways::WAYS;

const JOB: usize = 5;
/// Room for more mappings than a session uses at once, so that the cache is never full of them.
const CACHE_BYTES: u64 = 32 << 20;

/// See the [module](self).
pub(super) struct MappedSession {
    way: usize,
    cache: WeightCache,
}

fn unchanging() -> Unchanging {
    // SAFETY: the files of `FileKind::Mapped` are only ever replaced or deleted, never written to.
    unsafe { Unchanging::promise() }
}

impl MappedSession {
    pub(super) fn new(reader: &mut Reader<'_>) -> Self {
        let way = WAYS.iter().position(|way| way.name == "mmap").unwrap_or(0);
        let options = match reader.dice.below(3) {
            0 => MmapOptions::new().populate(),
            1 => MmapOptions::new().read_ahead_pages(64),
            _ => MmapOptions::new(),
        };
        Self { way, cache: WeightCache::with_options(CACHE_BYTES, options, unchanging()) }
    }

    fn open(&self, reader: &mut Reader<'_>, file: &DataFile) -> Result<WeightSource, Error> {
        match reader.dice.below(4) {
            0 => WeightSource::open(&file.path, Prefer::Mmap(unchanging())),
            1 => {
                let options = MmapOptions::new().lock();
                let mapped = MappedWeights::open_with_options(&file.path, &options, unchanging())?;
                Ok(WeightSource::from_mapped(Arc::new(mapped)))
            }
            _ => self.cache.get_or_open(&file.path).map(WeightSource::from_mapped),
        }
    }
}

impl<'a> Session<'a> for MappedSession {
    fn step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        reader.pulse.beat(JOB, self.way);
        let files = reader.files.of_kind(FileKind::Mapped);
        let file: &'a DataFile = files[reader.dice.index(files.len())];
        let moments = reader.moments(&[file]);
        if reader.dice.chance(20) {
            self.cache.evict_lru(1);
        }
        let opened = self.open(reader, file);
        let mut pins = reader.pins_or_fail(&[file], &moments)?;
        let source = match opened {
            Ok(source) => source,
            Err(error) => return reader.accept(self.way, &error, &pins).map(|()| Step::More),
        };
        for _ in 0..5 {
            let place = reader.dice.pick(&reader.files.tensors);
            let (at, len) = (place.range.start, (place.range.end - place.range.start) as usize);
            if reader.dice.chance(30) {
                source
                    .prepare_tensor(at as usize, len)
                    .map_err(|error| format!("mapped: {error}"))?;
            }
            let bytes = source.get_tensor_bytes(at as usize, len);
            let bytes = bytes.map_err(|error| format!("mapped: {error}"))?;
            let is_right = |contents: crate::model::Contents| contents.is_equal(at, &bytes);
            let checked = pins[0].check(reader.board, is_right, reader.files);
            checked.map_err(|wrong| format!("mapped: {wrong}"))?;
            reader.board.tally.count_reads(self.way, JOB, 1, len as u64);
        }
        Ok(Step::More)
    }

    /// The cache has a lock, and promises nothing to a child.
    fn survives_fork(&self) -> bool {
        false
    }
}
