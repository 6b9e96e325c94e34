//! Batches of reads straight through a backend, over files without a format.

use ringmain::Engine;
use ringmain::backends::{
    Error as BackendError, FileHandle, Read, ReadBackend, ReadBackendExt, Result as BackendResult,
};

use super::{Checked, POISON, Reader, Session, Step, name};
use crate::board::{Change, Event, Window};
use crate::dice::Dice;
use crate::files::{DataFile, FileKind};
use crate::verdict::{self, Pin};

const JOB: usize = 0;
/// Files that a session has open.
const FILES: usize = 4;

/// A file that was opened through a backend.
struct OpenFile<'a> {
    handle: FileHandle,
    pin: Pin<'a>,
}

/// One read of a batch.
#[derive(Clone, Copy, Debug)]
struct Want {
    /// Which of the session's files.
    file: usize,
    offset: u64,
    len: usize,
    /// Bytes between the memory of the read before and that of this one.
    gap: usize,
}

/// The shape of a batch: how many reads, and how long they are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    reads: u64,
    len_max: u64,
}

const SHAPES: [(u64, Shape); 5] = [
    (60, Shape { reads: 256, len_max: 1024 }),
    (15, Shape { reads: 64, len_max: 8192 }),
    (10, Shape { reads: 16, len_max: 100_000 }),
    (5, Shape { reads: 2, len_max: 1 << 20 }),
    (10, Shape { reads: 1, len_max: 4096 }),
];

/// See the [module](self).
pub(super) struct PlainSession<'a> {
    way: usize,
    engine: &'a Engine,
    chosen: Vec<&'a DataFile>,
    open: Vec<Option<OpenFile<'a>>>,
}

impl<'a> PlainSession<'a> {
    pub(super) fn new(reader: &mut Reader<'a>, way: usize, engine: &'a Engine) -> Self {
        let (steady, plain) =
            (reader.files.of_kind(FileKind::Steady), reader.files.of_kind(FileKind::Plain));
        // Files that never change give most of the reads, and the others most of the errors.
        let pool = if reader.dice.chance(60) { steady } else { plain };
        let chosen: Vec<_> =
            (0..reader.dice.between(1, FILES as u64)).map(|_| *reader.dice.pick(&pool)).collect();
        let open = chosen.iter().map(|_| None).collect();
        Self { way, engine, chosen, open }
    }

    pub(super) fn of_file(way: usize, engine: &'a Engine, file: &'a DataFile) -> Self {
        Self { way, engine, chosen: vec![file], open: vec![None] }
    }

    fn backend(&self) -> &'a dyn ReadBackend {
        self.engine.backend()
    }

    /// Opens the files that are not open. False if one cannot be opened, for a reason.
    fn open_all(&mut self, reader: &mut Reader<'a>) -> Checked<bool> {
        for at in 0..self.chosen.len() {
            if self.open[at].is_some() {
                continue;
            }
            let file = self.chosen[at];
            let begin = reader.board.files[file.number].now();
            let (opened, pin) = Pin::open(reader.board, file, || self.backend().open(&file.path));
            match (opened, pin) {
                (Ok(handle), Some(pin)) => self.open[at] = Some(OpenFile { handle, pin }),
                (Ok(_), None) => return Ok(false),
                (Err(error), _) => {
                    let window = reader.board.files[file.number].since(begin);
                    self.accept(reader, &error, file, None, window, 0)?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn file(&self, at: usize) -> Option<&OpenFile<'a>> {
        self.open.get(at)?.as_ref()
    }

    /// Counts an error that has a reason.
    fn accept(
        &self,
        reader: &Reader<'a>,
        error: &BackendError,
        file: &DataFile,
        pin: Option<&Pin<'a>>,
        window: Option<Window<'_>>,
        reach: u64,
    ) -> Checked {
        let fault = reader.fault(self.way, verdict::fault_of_backend(error), error)?;
        let is_lacking = verdict::is_lacking(fault, reader.lacks, self.way);
        // A backend that the machine refuses is named instead of a file.
        if !(is_lacking && matches!(error, BackendError::Unavailable { .. })) {
            verdict::named(error.path(), [file], error)?;
        }
        if is_lacking
            || verdict::plain_has_reason(fault, window, pin, reach, reader.has_birth_times)
        {
            return reader.count_fault(self.way, fault);
        }
        let state = reader.board.files[file.number].current();
        Err(format!("{}: NO REASON for an error of {state:?}: {error}", name(self.way)))
    }

    /// Random reads inside the files, and sometimes across their ends.
    fn wants(&self, reader: &mut Reader<'a>) -> Vec<Want> {
        let shape = pick_shape(&mut reader.dice);
        let crosses_end = reader.dice.chance(2);
        let mut room = reader.arena.len();
        let mut wants = Vec::with_capacity(shape.reads as usize);
        for _ in 0..shape.reads {
            let dice = &mut reader.dice;
            let at = dice.index(self.chosen.len());
            let Some(open) = self.file(at) else { continue };
            let history = &reader.board.files[open.pin.file.number];
            let Some(window) = history.since(history.now()) else { continue };
            let file_len = window.lens_of(open.pin.version()).0;
            let len = dice.between(1, shape.len_max).min(file_len.max(1));
            let mut offset = dice.below((file_len + 1).saturating_sub(len));
            if dice.chance(10) {
                offset &= !511;
            }
            if crosses_end && dice.chance(5) {
                offset = file_len.saturating_sub(dice.below(len + 1));
            }
            let len = if dice.chance(1) { 0 } else { len as usize };
            let gap = if dice.chance(30) { dice.index(600) } else { 0 };
            if gap + len > room {
                break;
            }
            room -= gap + len;
            wants.push(Want { file: at, offset, len, gap });
        }
        wants
    }

    fn read_batch(&self, arena: &mut [u8], wants: &[Want]) -> BackendResult<()> {
        let mut rest = arena;
        let mut reads = Vec::with_capacity(wants.len());
        for want in wants {
            let Some(open) = self.file(want.file) else { continue };
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(want.gap + want.len);
            part.fill(POISON);
            reads.push(Read::new(&open.handle, want.offset, &mut part[want.gap..]));
            rest = tail;
        }
        self.backend().read_batch(&mut reads)
    }

    /// Reads a batch and checks it.
    fn batch_step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        let wants = self.wants(reader);
        let moments = reader.moments(&self.chosen);
        let mut arena = std::mem::take(&mut reader.arena);
        let outcome = self.read_batch(&mut arena, &wants);
        let judged = match outcome {
            Ok(()) => self.check_batch(reader, &arena, &wants, &moments),
            Err(error) => self.check_error(reader, &error, &wants, &moments),
        };
        reader.arena = arena;
        judged
    }

    fn check_batch(
        &mut self,
        reader: &Reader<'a>,
        arena: &[u8],
        wants: &[Want],
        moments: &[u64],
    ) -> Checked<Step> {
        let (mut at, mut reads, mut bytes) = (0, 0, 0);
        for want in wants {
            let part = &arena[at + want.gap..at + want.gap + want.len];
            at += want.gap + want.len;
            let window = self.window(reader, want.file, moments);
            let Some(window) = window else {
                reader.board.tally.count(Event::Unjudged);
                continue;
            };
            self.check_read(reader, want, part, &window)?;
            (reads, bytes) = (reads + 1, bytes + want.len as u64);
        }
        reader.board.tally.count_reads(self.way, JOB, reads, bytes);
        Ok(Step::More)
    }

    fn window(&self, reader: &Reader<'a>, at: usize, moments: &[u64]) -> Option<Window<'static>> {
        reader.board.files[self.chosen[at].number].since(moments[at])
    }

    /// Checks the bytes of one read, and that the file had them.
    fn check_read(
        &mut self,
        reader: &Reader<'a>,
        want: &Want,
        bytes: &[u8],
        window: &Window<'_>,
    ) -> Checked {
        let way = self.way;
        let Some(open) = self.open[want.file].as_mut() else { return Ok(()) };
        let (_, longest) = open.pin.lens(window);
        if window.has(Change::Cut) {
            reader.board.tally.count(Event::TruncationsDuringReads);
        }
        let reach = want.offset + want.len as u64;
        if want.len > 0 && reach > longest {
            return Err(format!(
                "{}: a read of {} bytes at offset {} SUCCEEDED BEHIND THE END of {}, which has {longest}",
                name(way),
                want.len,
                want.offset,
                open.pin.file.path.display()
            ));
        }
        let low_len = verdict::zeros_from(way, window, &open.pin);
        let checked = open.pin.check_bytes(reader.files, want.offset, bytes, low_len);
        checked.map_err(|wrong| format!("{}: {wrong}", name(way)))
    }

    /// Checks that the error of a batch has a reason, and closes its file.
    fn check_error(
        &mut self,
        reader: &Reader<'a>,
        error: &BackendError,
        wants: &[Want],
        moments: &[u64],
    ) -> Checked<Step> {
        let meant = self.meant_by(error, wants)?;
        if meant.is_empty() {
            // Without a file: only for what a process lacks.
            self.accept(reader, error, self.chosen[0], None, None, 0)?;
            return Ok(Step::Over);
        }
        let has_reason = |want: &Want| {
            let (file, pin) = (self.chosen[want.file], self.file(want.file).map(|open| open.pin));
            let window = self.window(reader, want.file, moments);
            let reach = want.offset + want.len as u64;
            self.accept(reader, error, file, pin.as_ref(), window, reach).map(|()| want.file)
        };
        let (mut at, mut judged) = (0, has_reason(meant[0]));
        while judged.is_err() && at + 1 < meant.len() {
            at += 1;
            judged = has_reason(meant[at]);
        }
        let file = judged?;
        self.check_first(reader, error, wants, moments)?;
        // Most handles stay: they must keep reading what is left of their file.
        if !matches!(error, BackendError::PastEnd { .. }) {
            self.open[file] = None;
        }
        Ok(Step::More)
    }

    /// The reads that an error may be about. One that has no index names path and offset, and a session may
    /// have several handles of one path, each of another version.
    fn meant_by<'w>(&self, error: &BackendError, wants: &'w [Want]) -> Checked<Vec<&'w Want>> {
        let is_at = |want: &Want| error.offset().is_none_or(|offset| offset == want.offset);
        if let Some(want) = error.index().and_then(|index| wants.get(index)) {
            let complaint =
                || format!("{}: ANOTHER OFFSET than that of {want:?}: {error}", name(self.way));
            return is_at(want).then(|| vec![want]).ok_or_else(complaint);
        }
        let is_named = |want: &Want| error.path() == Some(&*self.chosen[want.file].path);
        Ok(wants.iter().filter(|want| is_named(want) && is_at(want)).collect())
    }

    /// A batch names the first of its reads that reaches past the end.
    fn check_first(
        &self,
        reader: &Reader<'a>,
        error: &BackendError,
        wants: &[Want],
        moments: &[u64],
    ) -> Checked {
        let (BackendError::PastEnd { file_len, .. }, Some(index)) = (error, error.index()) else {
            return Ok(());
        };
        for (number, want) in wants[..=index].iter().enumerate() {
            let Some(window) = self.window(reader, want.file, moments) else { return Ok(()) };
            let Some(open) = self.file(want.file) else { return Ok(()) };
            if !window.is_quiet() {
                return Ok(());
            }
            let (_, longest) = open.pin.lens(&window);
            let is_past = want.len > 0 && want.offset + want.len as u64 > longest;
            if is_past && number < index {
                return Err(format!(
                    "{}: NOT THE FIRST bad read ({number}): {error}",
                    name(self.way)
                ));
            }
            if number == index && !open.pin.may_have_len(&window, *file_len) {
                return Err(format!(
                    "{}: WRONG LENGTH, it has {longest} bytes: {error}",
                    name(self.way)
                ));
            }
        }
        Ok(())
    }

    /// Hints, lengths, versions and single reads.
    fn side_step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        let at = reader.dice.index(self.chosen.len());
        let Some(open) = self.file(at) else { return Ok(Step::More) };
        let (handle, pin) = (open.handle.clone(), open.pin);
        let history = &reader.board.files[pin.file.number];
        let begin = history.now();
        let offset = reader.dice.below(1 << 20);
        let range = offset..offset + reader.dice.below(1 << 20);
        let mut len = None;
        let outcome = match reader.dice.below(4) {
            0 => self.backend().prefetch(&handle, range),
            1 => self.backend().release(&handle, range),
            2 => self.backend().version(&handle).map(drop),
            _ => self.backend().len(&handle).map(|found| len = Some(found)),
        };
        let window = history.since(begin);
        match outcome {
            Ok(()) => check_len(len, window, &pin).map(|()| Step::More),
            Err(error) => {
                self.accept(reader, &error, pin.file, Some(&pin), window, u64::MAX)?;
                self.open[at] = None;
                Ok(Step::More)
            }
        }
    }

    /// One range in a buffer of the pool.
    fn buffer_step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        let Some(want) = self.wants(reader).into_iter().next() else { return Ok(Step::More) };
        let want = Want { len: want.len.min(200_000), ..want };
        let moments = reader.moments(&self.chosen);
        let Some(handle) = self.file(want.file).map(|open| open.handle.clone()) else {
            return Ok(Step::More);
        };
        let pool = self.engine.pool();
        let outcome = self.backend().read_to_buf(pool, &handle, want.offset, want.len);
        match outcome {
            Ok(buffer) => {
                let Some(window) = self.window(reader, want.file, &moments) else {
                    return Ok(Step::More);
                };
                self.check_read(reader, &want, &buffer, &window)?;
                reader.board.tally.count_reads(self.way, JOB, 1, want.len as u64);
                Ok(Step::More)
            }
            Err(error) => self.check_error(reader, &error, &[want], &moments),
        }
    }
}

impl<'a> Session<'a> for PlainSession<'a> {
    fn step(&mut self, reader: &mut Reader<'a>) -> Checked<Step> {
        reader.pulse.beat(JOB, self.way);
        if !self.open_all(reader)? {
            return Ok(Step::Over);
        }
        match reader.dice.below(100) {
            0..3 => self.side_step(reader),
            3..10 => self.buffer_step(reader),
            _ => self.batch_step(reader),
        }
    }
}

fn pick_shape(dice: &mut Dice) -> Shape {
    let mut roll = dice.below(100);
    let found = SHAPES.iter().find(|(share, _)| {
        let is_it = roll < *share;
        roll = roll.saturating_sub(*share);
        is_it
    });
    found.map_or(SHAPES[0].1, |(_, shape)| *shape)
}

/// The length that a backend reports is one that the file had.
fn check_len(found: Option<u64>, window: Option<Window<'_>>, pin: &Pin<'_>) -> Checked {
    let (Some(found), Some(window)) = (found, window) else { return Ok(()) };
    if !window.is_quiet() || pin.may_have_len(&window, found) {
        return Ok(());
    }
    let (path, (_, longest)) = (pin.file.path.display(), pin.lens(&window));
    Err(format!("WRONG LENGTH: {path} has {longest} bytes, but the backend says {found}"))
}
