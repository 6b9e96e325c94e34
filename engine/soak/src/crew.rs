//! A process that reads with every way at once, in threads and in forked workers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringmain::backends::ReadBackendExt;
use ringmain_surroundings::ControlGroup;

use crate::board::{Board, Event};
use crate::dice::{Dice, mix_all};
use crate::files::{FileKind, Files};
use crate::readers::{Fleet, Reader};
use crate::system::{self, AlarmTimer};
use crate::ways::{Bounds, WAYS, Way};
use crate::workers::Forker;

/// How often a crew as a whole gets a signal. Each second thread gets its own besides.
const PROCESS_ALARM: Duration = Duration::from_millis(7);

/// The arguments that a crew is started with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CrewTask {
    /// The folder of the run.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The number of the crew.
    #[arg(long)]
    pub(crate) crew: u64,
    #[arg(long)]
    pub(crate) threads: u64,
    /// Workers at a time.
    #[arg(long)]
    pub(crate) workers: usize,
    #[arg(long)]
    pub(crate) memory_limit_bytes: usize,
    #[arg(long)]
    pub(crate) open_files_max: usize,
    /// A control group to enter.
    #[arg(long)]
    pub(crate) group: Option<PathBuf>,
    #[arg(long)]
    pub(crate) has_birth_times: bool,
}

impl CrewTask {
    /// The task as arguments of this program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["crew".to_owned()];
        let mut add = |name: &str, value: String| arguments.push(format!("--{name}={value}"));
        add("dir", self.dir.display().to_string());
        add("seed", self.seed.to_string());
        add("crew", self.crew.to_string());
        add("threads", self.threads.to_string());
        add("workers", self.workers.to_string());
        add("memory-limit-bytes", self.memory_limit_bytes.to_string());
        add("open-files-max", self.open_files_max.to_string());
        if let Some(group) = &self.group {
            add("group", group.display().to_string());
        }
        if self.has_birth_times {
            arguments.push("--has-birth-times".to_owned());
        }
        arguments
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let Self { memory_limit_bytes, open_files_max, .. } = *self;
        Bounds { memory_limit_bytes, open_files_max }
    }

    /// Runs the crew until the board says stop.
    pub(crate) fn run(self) -> Result<(), Box<dyn std::error::Error>> {
        system::die_with_parent();
        system::ignore_interrupts();
        if let Some(group) = &self.group {
            ControlGroup::enter(group)?;
        }
        let board = Board::open(&self.dir.join("board"))?;
        board.report_panics(&format!("crew {}", self.crew));
        system::count_alarms(board.tally.counter(Event::Signals))?;
        // The kernel would give every signal of the process to this thread.
        system::block_alarms();
        let files = Files::new(self.seed, &self.dir)?;
        let descriptors = system::open_descriptors()?;
        self.read(board, &files)?;
        self.check_left_over(board, descriptors)
    }

    fn read(&self, board: &'static Board, files: &Files) -> Result<(), Box<dyn std::error::Error>> {
        let fleet = open_fleet(self.bounds(), files)?;
        fleet.iter().flatten().for_each(fill_pool);
        let _timer = AlarmTimer::for_process(PROCESS_ALARM)?;
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let (task, fleet) = (self, &fleet);
                scope.spawn(move || task.read_in_thread(board, files, fleet, thread));
            }
            let numbers = [self.seed, self.crew, u64::MAX];
            let mut reader = Reader::new(board, files, &fleet, &numbers, self.has_birth_times);
            self.warm_up(&mut reader);
            Forker::new(reader, self.clone()).run();
        });
        Ok(())
    }

    fn warm_up(&self, reader: &mut Reader<'_>) {
        if let Err(failure) = reader.warm_up() {
            reader.board.fail(&format!("crew {}, at the start: {failure}", self.crew));
        }
        reader.board.count_warm_thread();
    }

    /// The threads that read, without those of workers.
    pub(crate) fn reading_threads(&self) -> u64 {
        // The thread that forks reads too.
        self.threads + 1
    }

    /// Session after session. Each has dice of its own, so that the sessions of a thread follow from the seed
    /// alone, whatever happens in those before.
    fn read_in_thread(&self, board: &'static Board, files: &Files, fleet: &Fleet, thread: u64) {
        let numbers = [self.seed, self.crew, thread];
        system::unblock_alarms();
        let period = Duration::from_micros(1000 + mix_all(&numbers) % 8000);
        let _timer = (thread % 2 == 1).then(|| AlarmTimer::for_this_thread(period));
        let mut reader = Reader::new(board, files, fleet, &numbers, self.has_birth_times);
        self.warm_up(&mut reader);
        for number in 0.. {
            if board.is_stopped() {
                return;
            }
            reader.dice = Dice::new(&[self.seed, self.crew, thread, number]);
            let steps = reader.dice.between(1, 60);
            if let Err(failure) = reader.run_one(steps) {
                let crew = self.crew;
                board.fail(&format!("crew {crew}, thread {thread}, session {number}: {failure}"));
            }
        }
    }

    /// After the last engine is gone, nothing of it is left.
    fn check_left_over(
        &self,
        board: &Board,
        before: u64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let after = system::open_descriptors()?;
        // The kernel lists a thread that was joined for a moment longer.
        let begin = Instant::now();
        let mut threads = thread_count()?;
        while threads > 1 && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
            threads = thread_count()?;
        }
        if after != before || threads != 1 {
            board.fail(&format!(
                "crew {}: LEFT OVER after all engines were dropped: {after} descriptors ({before} before), \
                 {threads} threads (1 before)",
                self.crew
            ));
        }
        Ok(())
    }
}

/// Takes and touches all memory of the engine's pool once. The pool keeps it, so memory that grows later is a
/// leak.
fn fill_pool(engine: &ringmain::Engine) {
    let mut taken = Vec::new();
    while let Ok(mut buffer) = engine.pool().try_take(256 << 10) {
        buffer.fill(1);
        taken.push(buffer);
    }
}

fn thread_count() -> std::io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Opens all ways that the machine has.
fn open_fleet(bounds: Bounds, files: &Files) -> Result<Fleet, ringmain::Error> {
    WAYS.iter()
        .map(|way| match open_way(way, bounds, files) {
            Ok(engine) => Ok(Some(engine)),
            Err(error) if Way::is_unavailable(&error) => Ok(None),
            Err(error) => Err(error),
        })
        .collect()
}

/// Opens a way and reads with it.
pub(crate) fn open_way(
    way: &Way,
    bounds: Bounds,
    files: &Files,
) -> Result<ringmain::Engine, ringmain::Error> {
    let steady = files.of_kind(FileKind::Steady);
    let engine = way.open(bounds)?;
    let handle = engine.backend().open(&steady[0].path)?;
    engine.backend().read_to_vec(&handle, 4096, 100)?;
    Ok(engine)
}
