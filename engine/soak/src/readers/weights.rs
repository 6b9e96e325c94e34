//! The tensors of safetensors files, read one by one, many at once, and all with a thread that reads ahead.

use ringmain::weights::{Load, LoadOptions, Tensor, Weights};
use ringmain::{Engine, Error};

use super::{Checked, Reader, Session, Step, name};
use crate::files::FileKind;
use crate::verdict::Pin;

const JOB: usize = 4;

/// See the [module](self).
pub(super) struct WeightsSession<'a> {
    way: usize,
    weights: Weights,
    load: Option<Load>,
    pin: Pin<'a>,
}

impl<'a> WeightsSession<'a> {
    pub(super) fn open(
        reader: &mut Reader<'a>,
        way: usize,
        engine: &'a Engine,
    ) -> Checked<Option<Self>> {
        let files = reader.files.of_kind(FileKind::Weights);
        let file = *reader.dice.pick(&files);
        let moments = reader.moments(&[file]);
        let opened = Weights::open(engine, &file.path);
        let pins = reader.pins_or_fail(&[file], &moments)?;
        match opened {
            Ok(weights) => Ok(Some(Self { way, weights, load: None, pin: pins[0] })),
            Err(error) => reader.accept(way, &error, &pins).map(|()| None),
        }
    }

    fn check(&mut self, reader: &Reader<'a>, tensor: &Tensor) -> Checked {
        let way = name(self.way);
        let place = reader.files.tensors.iter().find(|place| place.name == tensor.name());
        let Some(place) = place else {
            return Err(format!("{way}: there is NO TENSOR {}", tensor.name()));
        };
        let bytes = tensor.bytes();
        if bytes.len() as u64 != place.range.end - place.range.start {
            return Err(format!("{way}: WRONG SIZE of tensor {}", tensor.name()));
        }
        let is_right =
            |contents: crate::model::Contents| contents.is_equal(place.range.start, bytes);
        let checked = self.pin.check(reader.board, is_right, reader.files);
        checked.map_err(|wrong| format!("{way}: tensor {}: {wrong}", tensor.name()))?;
        reader.board.tally.count_reads(self.way, JOB, 1, bytes.len() as u64);
        Ok(())
    }

    fn random_tensors(&self, reader: &mut Reader<'a>) -> Result<Vec<Tensor>, Error> {
        let tensors = &reader.files.tensors;
        let names: Vec<&str> = (0..reader.dice.between(1, 5))
            .map(|_| reader.dice.pick(tensors).name.as_str())
            .collect();
        if reader.dice.chance(50) {
            return self.weights.read(names[0]).map(|tensor| vec![tensor]);
        }
        self.weights.read_many(&names)
    }

    /// The next tensor of a load; a load is begun if there is none.
    fn next_loaded(&mut self, reader: &mut Reader<'a>) -> Option<Result<Tensor, Error>> {
        if self.load.is_none() {
            let window_bytes = *reader.dice.pick(&[0, 1, 200_000, 1 << 20]);
            match self.weights.load(LoadOptions::new().window_bytes(window_bytes)) {
                Ok(load) => self.load = Some(load),
                Err(error) => return Some(Err(error)),
            }
        }
        let next = self.load.as_mut()?.next();
        if next.is_none() {
            self.load = None;
        }
        next
    }
}

impl<'a> Session<'a> for WeightsSession<'a> {
    fn step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        reader.pulse.beat(JOB, self.way);
        let tensors = match reader.dice.chance(70) {
            true => self.next_loaded(reader).transpose().map(Vec::from_iter),
            false => self.random_tensors(reader),
        };
        match tensors {
            Ok(tensors) => {
                tensors.iter().try_for_each(|tensor| self.check(reader, tensor))?;
                Ok(if tensors.is_empty() { Step::Over } else { Step::More })
            }
            Err(error) => {
                reader.accept(self.way, &error, &[self.pin])?;
                Ok(Step::Over)
            }
        }
    }
}
