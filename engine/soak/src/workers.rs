//! Forked workers: children that continue with the engines and sources of their parent, some of them
//! with tighter limits than the parent's.

use std::time::{Duration, Instant};

use crate::board::Event;
use crate::crew::{CrewTask, open_way};
use crate::dice::Dice;
use crate::readers::{Checked, JOBS, Reader, Session, Step};
use crate::system::{self, AlarmTimer, Ended, Worker};
use crate::ways::{Bounds, WAYS};

/// A worker begins no session after this time.
const WORK: Duration = Duration::from_millis(600);

/// The trouble that befalls a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It gets signals.
    Signals,
    /// It may open only a few descriptors.
    FewDescriptors,
    /// It may lock no memory, and has no capabilities.
    NoLockedMemory,
    /// io_uring is refused after it has been used.
    NoRings,
    /// It is killed at some moment.
    Killed,
    /// It drops all that it has from its parent, and opens engines of its own.
    DropsEverything,
    /// It forks.
    Forks,
}

const TROUBLES: [Trouble; 7] = [
    Trouble::Signals,
    Trouble::FewDescriptors,
    Trouble::NoLockedMemory,
    Trouble::NoRings,
    Trouble::Killed,
    Trouble::DropsEverything,
    Trouble::Forks,
];

/// A worker that has not been waited for.
struct Running {
    worker: Worker,
    number: u64,
    trouble: Trouble,
    /// When it is to be killed.
    kill_at: Option<Instant>,
}

/// Forks workers, and reads on beside them.
pub(crate) struct Forker<'a> {
    reader: Reader<'a>,
    task: CrewTask,
    /// Sessions that parent and children both read from, one of each kind.
    heirlooms: Vec<Option<Box<dyn Session<'a> + 'a>>>,
    running: Vec<Running>,
    forks: u64,
}

impl<'a> Forker<'a> {
    pub(crate) fn new(reader: Reader<'a>, task: CrewTask) -> Self {
        let heirlooms = JOBS.iter().map(|_| None).collect();
        Self { reader, task, heirlooms, running: Vec::new(), forks: 0 }
    }

    /// Until the run ends, and no worker is left.
    pub(crate) fn run(mut self) {
        while !self.reader.board.is_stopped() {
            if let Err(failure) = self.read_on() {
                let crew = self.task.crew;
                self.reader.board.fail(&format!("crew {crew}, forking thread: {failure}"));
            }
            if self.running.len() < self.task.workers {
                self.fork();
            }
            self.reap(false);
        }
        self.reap(true);
    }

    /// Reads a step with everything that is open, and opens what is not.
    fn read_on(&mut self) -> Checked {
        for (job, place) in self.heirlooms.iter_mut().enumerate() {
            if place.is_none() {
                *place = self.reader.open(job)?;
            }
            let Some(session) = place else { continue };
            if session.step(&mut self.reader)? == Step::Over {
                *place = None;
            }
        }
        Ok(())
    }

    fn fork(&mut self) {
        self.forks += 1;
        let number = self.forks;
        let mut dice = Dice::new(&[self.task.seed, self.task.crew, u64::MAX, number]);
        let trouble = *dice.pick(&TROUBLES);
        let kill_after = Duration::from_micros(dice.below(300_000));
        let board = self.reader.board;
        board.tally.count(Event::Forks);
        let forked = system::fork(|| self.work(dice, number, trouble));
        match forked {
            Ok(worker) => {
                let kill_at = (trouble == Trouble::Killed).then(|| Instant::now() + kill_after);
                self.running.push(Running { worker, number, trouble, kill_at });
            }
            Err(error) => board.fail(&format!("crew {}: fork: {error}", self.task.crew)),
        }
    }

    /// In a child: its whole life.
    fn work(&mut self, dice: Dice, number: u64, trouble: Trouble) {
        let parent = &self.reader;
        let mut reader = Reader::new(parent.board, parent.files, parent.fleet, &[], false);
        (reader.dice, reader.has_birth_times) = (dice, parent.has_birth_times);
        let worked = self.work_with(&mut reader, trouble);
        if let Err(failure) = worked {
            let crew = self.task.crew;
            reader.board.fail(&format!("crew {crew}, worker {number} ({trouble:?}): {failure}"));
        }
    }

    fn work_with(&mut self, reader: &mut Reader<'a>, trouble: Trouble) -> Checked {
        let begin = Instant::now();
        let _timer = make_trouble(reader, &mut self.heirlooms, trouble)?;
        if trouble == Trouble::DropsEverything {
            self.heirlooms.clear();
            open_engines(reader, self.task.bounds())?;
        }
        if trouble == Trouble::Forks {
            self.fork_again(reader)?;
        }
        for session in self.heirlooms.iter_mut().flatten().filter(|it| it.survives_fork()) {
            for _ in 0..reader.dice.between(1, 5) {
                if session.step(reader)? == Step::Over {
                    break;
                }
            }
        }
        while (begin.elapsed() < WORK || trouble == Trouble::Killed) && !reader.board.is_stopped() {
            let steps = reader.dice.between(1, 30);
            reader.run_one(steps)?;
        }
        Ok(())
    }

    /// In a child: makes a grandchild, which continues with the same sessions.
    fn fork_again(&mut self, reader: &mut Reader<'a>) -> Checked {
        let board = reader.board;
        board.tally.count(Event::NestedForks);
        let dice = Dice::new(&[reader.dice.next()]);
        let forked = system::fork(|| self.work(dice, 0, Trouble::Signals));
        let ended = forked.map_err(|error| format!("fork: {error}"))?;
        let pid = ended.pid();
        let ended = ended.wait();
        board.forget_process(pid);
        match ended {
            Ended::Code(0) => Ok(()),
            ended => Err(format!("a worker's own worker DIED: {ended:?}")),
        }
    }

    /// Waits for workers that have ended, and kills those whose time has come; all of them at the end.
    fn reap(&mut self, all: bool) {
        let (board, crew) = (self.reader.board, self.task.crew);
        self.running.retain_mut(|running| {
            let is_due = running.kill_at.is_some_and(|at| all || Instant::now() > at);
            if is_due {
                running.worker.kill();
                board.tally.count(Event::WorkersKilled);
                running.kill_at = None;
            }
            let ended = if all { Some(running.worker.wait()) } else { running.worker.try_wait() };
            let Some(ended) = ended else { return true };
            board.forget_process(running.worker.pid());
            let is_killed =
                running.trouble == Trouble::Killed && ended == Ended::Signal(libc::SIGKILL);
            if ended != Ended::Code(0) && !is_killed {
                let Running { number, trouble, .. } = running;
                board.fail(&format!("crew {crew}: worker {number} ({trouble:?}) DIED: {ended:?}"));
            }
            false
        });
    }
}

type Heirlooms<'a> = [Option<Box<dyn Session<'a> + 'a>>];

/// Takes from this process what the trouble takes. Returns the timer that interrupts it.
fn make_trouble<'a>(
    reader: &mut Reader<'a>,
    heirlooms: &mut Heirlooms<'a>,
    trouble: Trouble,
) -> Checked<Option<AlarmTimer>> {
    let failed = |error: std::io::Error| format!("{trouble:?}: {error}");
    let tally = &reader.board.tally;
    match trouble {
        Trouble::Signals => {
            system::unblock_alarms();
            let period = Duration::from_micros(reader.dice.between(300, 5000));
            return AlarmTimer::for_this_thread(period).map(Some).map_err(failed);
        }
        Trouble::FewDescriptors => {
            // New ones get the lowest free numbers, which those inherited leave as they are closed.
            system::limit_descriptors(reader.dice.between(5, 20)).map_err(failed)?;
            reader.lacks.descriptors = true;
            tally.count(Event::WorkersWithFewDescriptors);
        }
        Trouble::NoLockedMemory => {
            system::drop_capabilities().map_err(failed)?;
            system::limit_locked_memory(reader.dice.below(2) << 16).map_err(failed)?;
            reader.lacks.locked_memory = true;
            tally.count(Event::WorkersWithoutLockedMemory);
        }
        Trouble::NoRings => {
            use_rings(reader, heirlooms)?;
            system::refuse_rings().map_err(failed)?;
            reader.lacks.rings = true;
            tally.count(Event::WorkersWithoutRings);
        }
        Trouble::Killed | Trouble::DropsEverything | Trouble::Forks => {}
    }
    Ok(None)
}

/// Makes this process use io_uring on this thread, with nothing in flight afterwards. Sessions that read
/// ahead are left alone: their threads would be reading.
fn use_rings<'a>(reader: &mut Reader<'a>, heirlooms: &mut Heirlooms<'a>) -> Checked {
    if let Some(Some(session)) = heirlooms.first_mut() {
        session.step(reader)?;
    }
    for _ in 0..6 {
        let Some(mut session) = reader.open(0)? else { continue };
        session.step(reader)?;
    }
    Ok(())
}

/// Opens every way in this process, reads, and drops it.
fn open_engines(reader: &mut Reader<'_>, bounds: Bounds) -> Checked {
    reader.board.tally.count(Event::WorkersThatDropEverything);
    for (way, inherited) in WAYS.iter().zip(reader.fleet) {
        if inherited.is_some() {
            open_way(way, bounds, reader.files)
                .map_err(|error| format!("{}: {error}", way.name))?;
        }
    }
    Ok(())
}
