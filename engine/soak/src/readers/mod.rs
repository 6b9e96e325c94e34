//! Readers: sessions that open files one way and read them step by step, with every byte checked.

mod beton;
mod mapped;
mod plain;
mod shards;
mod views;
mod weights;

use ringmain::backends::Error as BackendError;
use ringmain::{Engine, Error};

use crate::board::{Board, Event, Fault, Pulse};
use crate::dice::Dice;
use crate::files::{DataFile, FileKind, Files};
use crate::verdict::{self, Lacks, Pin};
use crate::ways::WAYS;

/// The kinds of sessions, with how often each is chosen, in percent.
pub(crate) const JOBS: [(&str, u64); 6] =
    [("files", 60), ("views", 12), ("shards", 8), ("samples", 8), ("weights", 8), ("mapped", 4)];

/// The result of a step: right bytes or an error with a reason, or the description of a failure.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// Whether a session can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    More,
    Over,
}

/// Something opened that is read in steps.
pub(crate) trait Session<'a> {
    fn step(&mut self, reader: &mut Reader<'a>) -> Checked<Step>;

    /// Whether a forked child may continue with it.
    fn survives_fork(&self) -> bool {
        true
    }
}

/// The engines of a process, in the order of the ways; `None` where the machine does not have one.
pub(crate) type Fleet = Vec<Option<Engine>>;

/// Everything that a thread needs to read.
pub(crate) struct Reader<'a> {
    pub(crate) board: &'static Board,
    pub(crate) files: &'a Files,
    pub(crate) fleet: &'a Fleet,
    pub(crate) dice: Dice,
    pub(crate) pulse: Pulse<'static>,
    pub(crate) lacks: Lacks,
    pub(crate) has_birth_times: bool,
    /// Memory to read into.
    pub(crate) arena: Vec<u8>,
}

/// The value of bytes before they are read into, so that bytes that were not read are noticed.
const POISON: u8 = 0;
const ARENA_BYTES: usize = 4 << 20;

impl<'a> Reader<'a> {
    pub(crate) fn new(
        board: &'static Board,
        files: &'a Files,
        fleet: &'a Fleet,
        numbers: &[u64],
        has_birth_times: bool,
    ) -> Self {
        Self {
            board,
            files,
            fleet,
            dice: Dice::new(numbers),
            pulse: board.pulse(),
            lacks: Lacks::default(),
            has_birth_times,
            arena: vec![POISON; ARENA_BYTES],
        }
    }

    /// A way that this machine has.
    pub(crate) fn pick_way(&mut self) -> (usize, &'a Engine) {
        loop {
            let way = self.dice.index(WAYS.len());
            if let Some(engine) = &self.fleet[way] {
                return (way, engine);
            }
        }
    }

    /// Opens every file and reads a little in every way, so that all caches are full and all rings are made
    /// before resources are compared.
    pub(crate) fn warm_up(&mut self) -> Checked {
        for way in 0..WAYS.len() {
            let Some(engine) = &self.fleet[way] else { continue };
            for file in &self.files.list {
                self.pulse.beat(0, way);
                // It may have been deleted just now.
                let _opened = engine.backend().open(&file.path);
            }
            let file = self.files.of_kind(FileKind::Steady)[0];
            plain::PlainSession::of_file(way, engine, file).step(self)?;
        }
        Ok(())
    }

    /// Opens a session of any kind. `None` if that failed for a reason.
    pub(crate) fn open_any(&mut self) -> Checked<Option<Box<dyn Session<'a> + 'a>>> {
        let mut roll = self.dice.below(100);
        let is_it = |(_, share): &(&str, u64)| {
            let is_it = roll < *share;
            roll = roll.saturating_sub(*share);
            is_it
        };
        let job = JOBS.iter().position(is_it).unwrap_or(0);
        self.open(job)
    }

    /// Opens a session of one kind.
    pub(crate) fn open(&mut self, job: usize) -> Checked<Option<Box<dyn Session<'a> + 'a>>> {
        let (way, engine) = self.pick_way();
        self.board.tally.count(Event::Sessions);
        self.pulse.beat(job, way);
        match JOBS[job].0 {
            "files" => Ok(Some(Box::new(plain::PlainSession::new(self, way, engine)))),
            "views" => boxed(views::ViewSession::open(self, way, engine)),
            "shards" => boxed(shards::ShardSession::open(self, way, engine)),
            "samples" => boxed(beton::BetonSession::open(self, way, engine)),
            "weights" => boxed(weights::WeightsSession::open(self, way, engine)),
            _ => Ok(Some(Box::new(mapped::MappedSession::new(self)))),
        }
    }

    /// Runs a session of any kind for a number of steps, or until it is over.
    pub(crate) fn run_one(&mut self, steps: u64) -> Checked {
        let Some(mut session) = self.open_any()? else { return Ok(()) };
        for _ in 0..steps {
            if self.board.is_stopped() || session.step(self)? == Step::Over {
                break;
            }
        }
        Ok(())
    }

    /// Counts an error of a session over files of a format, or fails if it has no reason.
    fn accept(&self, way: usize, error: &Error, pins: &[Pin<'a>]) -> Checked {
        let fault = self.fault(way, verdict::fault_of(error), error)?;
        if self.is_unnamed_for_a_reason(error) {
            return self.count_fault(way, fault);
        }
        let file = verdict::named(error.path(), pins.iter().map(|pin| pin.file), error)?;
        if verdict::is_lacking(fault, self.lacks, way) {
            return self.count_fault(way, fault);
        }
        let pin = pins.iter().find(|pin| pin.file.number == file.number);
        if pin.is_some_and(|pin| pin.has_changed(self.board)) {
            return self.count_fault(way, fault);
        }
        Err(format!("{}: NO REASON for an error, the file has not changed: {error}", name(way)))
    }

    /// A backend that the machine refuses is named instead of a file.
    fn is_unnamed_for_a_reason(&self, error: &Error) -> bool {
        let is_unavailable =
            matches!(error.backend_error(), Some(BackendError::Unavailable { .. }));
        is_unavailable && (self.lacks.rings || self.lacks.descriptors)
    }

    fn fault(
        &self,
        way: usize,
        fault: Option<Fault>,
        error: &dyn std::fmt::Display,
    ) -> Checked<Fault> {
        fault.ok_or_else(|| format!("{}: UNEXPECTED KIND of error: {error}", name(way)))
    }

    fn count_fault(&self, way: usize, fault: Fault) -> Checked {
        self.board.tally.count_fault(way, fault);
        Ok(())
    }

    /// The moment on the clock of each file.
    fn moments(&self, files: &[&DataFile]) -> Vec<u64> {
        files.iter().map(|file| self.board.files[file.number].now()).collect()
    }

    /// The pins of files that were opened since these moments; `None` if they cannot be judged.
    fn pins(&self, files: &[&'a DataFile], moments: &[u64]) -> Option<Vec<Pin<'a>>> {
        let pin = |(file, begin): (&&'a DataFile, &u64)| Pin::since(self.board, file, *begin);
        files.iter().zip(moments).map(pin).collect()
    }

    /// Pins for the errors of files that could not be opened.
    fn pins_or_fail(&self, files: &[&'a DataFile], moments: &[u64]) -> Checked<Vec<Pin<'a>>> {
        self.pins(files, moments).ok_or_else(|| "opening files took hundreds of changes".into())
    }
}

fn boxed<'a, S: Session<'a> + 'a>(
    session: Checked<Option<S>>,
) -> Checked<Option<Box<dyn Session<'a> + 'a>>> {
    Ok(session?.map(|session| Box::new(session) as Box<dyn Session<'a> + 'a>))
}

/// The name of a way, for messages.
pub(crate) fn name(way: usize) -> &'static str {
    WAYS[way].name
}
