//! Views of arrays in files without a format: rows, selections, batches, reading ahead.

use ringmain::{ContiguousMemmap, Engine, Error, Kind};

use super::{Checked, POISON, Reader, Session, Step, name};
use crate::board::Event;
use crate::files::{DataFile, FileKind};
use crate::verdict::{self, Pin};

const JOB: usize = 1;
const WIDTHS: [usize; 4] = [16, 100, 1000, 4096];

/// See the [module](self).
pub(super) struct ViewSession<'a> {
    way: usize,
    engine: &'a Engine,
    view: ContiguousMemmap,
    pin: Pin<'a>,
    rows: usize,
    width: usize,
}

impl<'a> ViewSession<'a> {
    /// Opens as many rows as the file has now.
    pub(super) fn open(
        reader: &mut Reader<'a>,
        way: usize,
        engine: &'a Engine,
    ) -> Checked<Option<Self>> {
        let kind = if reader.dice.chance(50) { FileKind::Steady } else { FileKind::Plain };
        let files = reader.files.of_kind(kind);
        let (file, width) = (*reader.dice.pick(&files), *reader.dice.pick(&WIDTHS));
        let history = &reader.board.files[file.number];
        let begin = history.now();
        let rows = (history.current().len / width as u64) as usize;
        let opened = engine.open_raw(&file.path, Kind::U8, &[rows, width], 0);
        let pin = Pin::since(reader.board, file, begin);
        match (opened, pin) {
            (Ok(view), Some(pin)) if rows > 0 => {
                Ok(Some(Self { way, engine, view, pin, rows, width }))
            }
            (Ok(_), _) => Ok(None),
            (Err(error), pin) => {
                let reach = (rows * width) as u64;
                accept(reader, way, &error, file, begin, pin.as_ref(), reach)?;
                Ok(None)
            }
        }
    }

    fn random_rows(&self, reader: &mut Reader<'a>) -> Vec<usize> {
        let count = reader.dice.between(1, 64);
        (0..count).map(|_| reader.dice.index(self.rows)).collect()
    }

    fn view_of(&self, row: usize) -> Result<ContiguousMemmap, Error> {
        self.view.at(row as i64)
    }

    /// Checks rows that lie one after the other in memory.
    fn check_rows(
        &mut self,
        reader: &Reader<'a>,
        begin: u64,
        rows: &[usize],
        bytes: &[u8],
    ) -> Checked {
        let window = reader.board.files[self.pin.file.number].since(begin);
        let Some(window) = window else {
            reader.board.tally.count(Event::Unjudged);
            return Ok(());
        };
        let (_, longest) = self.pin.lens(&window);
        let low_len = verdict::zeros_from(self.way, &window, &self.pin);
        for (row, bytes) in rows.iter().zip(bytes.chunks_exact(self.width)) {
            let offset = (row * self.width) as u64;
            if offset + self.width as u64 > longest {
                let path = self.pin.file.path.display();
                return Err(format!(
                    "{}: row {row} of {} bytes was READ BEHIND THE END of {path}, which has {longest}",
                    name(self.way),
                    self.width
                ));
            }
            let checked = self.pin.check_bytes(reader.files, offset, bytes, low_len);
            checked.map_err(|wrong| format!("{}: view: {wrong}", name(self.way)))?;
        }
        reader.board.tally.count_reads(self.way, JOB, rows.len() as u64, bytes.len() as u64);
        Ok(())
    }

    /// Rows on a thread that reads ahead, not always to the end.
    fn read_ahead(&mut self, reader: &mut Reader<'a>, rows: &[usize], begin: u64) -> Checked<Step> {
        let views = rows.iter().map(|row| self.view_of(*row)).collect::<Result<Vec<_>, _>>();
        let window_bytes = reader.dice.index(100_000);
        let ahead = views.and_then(|views| self.engine.read_ahead(views, window_bytes));
        let ahead = ahead.map_err(|error| format!("{}: {error}", name(self.way)))?;
        let taken = reader.dice.index(rows.len()) + 1;
        for (row, buffer) in rows.iter().zip(ahead).take(taken) {
            match buffer {
                Ok(buffer) => self.check_rows(reader, begin, &[*row], &buffer)?,
                Err(error) => return self.end(reader, &error, begin),
            }
        }
        Ok(Step::More)
    }

    fn end(&self, reader: &Reader<'a>, error: &Error, begin: u64) -> Checked<Step> {
        let reach = (self.rows * self.width) as u64;
        accept(reader, self.way, error, self.pin.file, begin, Some(&self.pin), reach)?;
        Ok(Step::Over)
    }
}

impl<'a> Session<'a> for ViewSession<'a> {
    fn step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        reader.pulse.beat(JOB, self.way);
        let rows = self.random_rows(reader);
        let begin = reader.board.files[self.pin.file.number].now();
        let mut arena = std::mem::take(&mut reader.arena);
        let bytes = &mut arena[..rows.len() * self.width];
        bytes.fill(POISON);
        let outcome = match reader.dice.below(4) {
            0 => {
                let views =
                    rows.iter().map(|row| self.view_of(*row)).collect::<Result<Vec<_>, _>>();
                views.and_then(|views| self.engine.read_many_bytes(&views, bytes))
            }
            1 => {
                let list: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
                self.view.read_selection_bytes_into(&[list.into()], bytes)
            }
            2 => rows
                .iter()
                .zip(bytes.chunks_exact_mut(self.width))
                .try_for_each(|(row, bytes)| self.view_of(*row)?.read_bytes_into(bytes)),
            _ => {
                reader.arena = arena;
                return self.read_ahead(reader, &rows, begin);
            }
        };
        let judged = match outcome {
            Ok(()) => {
                let bytes = &arena[..rows.len() * self.width];
                self.check_rows(reader, begin, &rows, bytes).map(|()| Step::More)
            }
            Err(error) => self.end(reader, &error, begin),
        };
        reader.arena = arena;
        judged
    }
}

/// Counts an error of a view that has a reason.
fn accept<'a>(
    reader: &Reader<'a>,
    way: usize,
    error: &Error,
    file: &'a DataFile,
    begin: u64,
    pin: Option<&Pin<'a>>,
    reach: u64,
) -> Checked {
    let fault = reader.fault(way, verdict::fault_of(error), error)?;
    if !reader.is_unnamed_for_a_reason(error) {
        verdict::named(error.path(), [file], error)?;
    }
    let window = reader.board.files[file.number].since(begin);
    if verdict::is_lacking(fault, reader.lacks, way)
        || verdict::plain_has_reason(fault, window, pin, reach, reader.has_birth_times)
    {
        return reader.count_fault(way, fault);
    }
    let state = reader.board.files[file.number].current();
    Err(format!("{}: NO REASON for an error of a view of {state:?}: {error}", name(way)))
}
