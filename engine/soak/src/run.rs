//! A whole run: starts the crews, changes the files, watches, and judges.

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringmain_surroundings::ControlGroup;

use crate::board::Board;
use crate::crew::{CrewTask, open_way};
use crate::dice::mix;
use crate::files::Files;
use crate::mutator::{Mutator, clock_tick, drop_caches};
use crate::options::Options;
use crate::report::{self, Report};
use crate::watch::{self, Sample};
use crate::ways::{WAYS, Way};

/// How often the crews are looked at.
const TICK: Duration = Duration::from_millis(500);
/// The memory of the second crew with its workers and the page cache of what it reads.
const GROUP_BYTES: u64 = 256 << 20;

/// A crew and what was seen of it.
pub(crate) struct Crew {
    pub(crate) number: u64,
    child: Child,
    pub(crate) samples: Vec<Sample>,
    has_ended: bool,
}

/// Runs the soak, prints the report, and returns the exit code.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let seed = options.seed.unwrap_or_else(random_seed);
    let folder = tempfile::Builder::new().prefix("ringmain-soak-").tempdir_in(&options.dir)?;
    let dir = folder.path().canonicalize()?;
    Board::create(&dir.join("board"))?;
    let board = Board::open(&dir.join("board"))?;
    board.report_panics("the process that changes files");
    let files = Files::new(seed, &dir)?;
    let mutator = Mutator::new(board, &files, seed, clock_tick(&dir)?);
    mutator.write_all()?;
    let has_birth_times = files.list[0].path.metadata()?.created().is_ok();
    let group = ControlGroup::new("soak", GROUP_BYTES);
    report::begin(options, seed, &dir, group.as_ref().err())?;
    check_ways(&files)?;
    let is_interrupted = watch_interrupts()?;

    let begin = Instant::now();
    let tasks = tasks(&dir, seed, has_birth_times, group.as_ref().ok());
    let mut crews = tasks.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let threads =
            [scope.spawn(|| mutator.run()), scope.spawn(|| drop_caches(board, &files, seed))];
        let reading_threads = tasks.iter().map(CrewTask::reading_threads).sum();
        await_warm_crews(options, board, &mut crews, reading_threads, &is_interrupted);
        watch_crews(options, board, &mut crews, &is_interrupted);
        board.stop();
        for thread in threads {
            // A panic is a failure on the board already.
            let _panicked = thread.join();
        }
    });
    end_crews(options, board, &mut crews);
    let kills = group.as_ref().map_or(0, ControlGroup::kills);
    let is_interrupted = is_interrupted.load(Ordering::SeqCst);
    let report =
        Report { board, crews: &crews, seed, took: begin.elapsed(), kills, is_interrupted };
    report.print()
}

fn random_seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    // Short enough to type.
    mix(now.as_nanos() as u64 ^ u64::from(std::process::id())) % 1_000_000
}

/// One crew with room, and one with as little as works.
fn tasks(
    dir: &Path,
    seed: u64,
    has_birth_times: bool,
    group: Option<&ControlGroup>,
) -> [CrewTask; 2] {
    let roomy = CrewTask {
        dir: dir.to_owned(),
        seed,
        crew: 0,
        threads: 5,
        workers: 2,
        memory_limit_bytes: 12 << 20,
        open_files_max: 20,
        group: None,
        has_birth_times,
    };
    let narrow = CrewTask {
        crew: 1,
        threads: 3,
        memory_limit_bytes: 4 << 20,
        open_files_max: 6,
        group: group.map(|group| group.path().to_owned()),
        ..roomy.clone()
    };
    [roomy, narrow]
}

/// Says which ways this machine lacks. Those that `RINGMAIN_REQUIRE_BACKENDS` names must be there.
fn check_ways(files: &Files) -> Result<(), Box<dyn Error>> {
    let required = std::env::var("RINGMAIN_REQUIRE_BACKENDS").unwrap_or_default();
    let bounds = crate::ways::Bounds { memory_limit_bytes: 4 << 20, open_files_max: 8 };
    for way in &WAYS {
        match open_way(way, bounds, files) {
            Ok(_) => {}
            Err(error) if Way::is_unavailable(&error) => {
                if required.split(',').any(|name| name == way.kind.name()) {
                    return Err(format!("{} is required: {error}", way.name).into());
                }
                writeln!(std::io::stdout(), "without {}: {error}", way.name)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn watch_interrupts() -> Result<Arc<AtomicBool>, Box<dyn Error>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    ctrlc::set_handler(move || set.store(true, Ordering::SeqCst))?;
    Ok(flag)
}

fn start(task: &CrewTask) -> std::io::Result<Crew> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(task.arguments()).stdin(Stdio::null());
    let child = command.spawn()?;
    Ok(Crew { number: task.crew, child, samples: Vec::new(), has_ended: false })
}

/// Waits until all threads have warmed up. The time and the resources of a run count from then on.
fn await_warm_crews(
    options: &Options,
    board: &Board,
    crews: &mut [Crew],
    threads: u64,
    is_interrupted: &AtomicBool,
) {
    let begin = Instant::now();
    while board.warm_threads() < threads
        && !board.is_stopped()
        && !is_interrupted.load(Ordering::SeqCst)
    {
        std::thread::sleep(Duration::from_millis(50));
        crews.iter_mut().for_each(|crew| crew.check_end(board));
        if begin.elapsed() > options.hang_limit() {
            board.fail("HANG: the crews have not warmed up");
        }
    }
}

/// Until the time is over, a failure, or an interruption.
fn watch_crews(options: &Options, board: &Board, crews: &mut [Crew], is_interrupted: &AtomicBool) {
    let begin = Instant::now();
    let is_terminal = std::io::stdout().is_terminal();
    let progress_every = Duration::from_secs(if is_terminal { 2 } else { 60 });
    let mut progress_at = begin + progress_every;
    while begin.elapsed() < options.duration()
        && !board.is_stopped()
        && !is_interrupted.load(Ordering::SeqCst)
    {
        std::thread::sleep(TICK);
        for crew in &mut *crews {
            crew.look(board);
        }
        for text in watch::hung(board, options.hang_limit()) {
            board.fail(&text);
        }
        if Instant::now() >= progress_at {
            report::progress(board, begin.elapsed(), is_terminal);
            progress_at += progress_every;
        }
    }
    if is_terminal {
        report::end_progress();
    }
}

/// Waits for the crews to finish. Those that do not have hung.
fn end_crews(options: &Options, board: &Board, crews: &mut [Crew]) {
    let begin = Instant::now();
    while begin.elapsed() < options.hang_limit() && !crews.iter().all(|crew| crew.has_ended) {
        std::thread::sleep(Duration::from_millis(20));
        crews.iter_mut().for_each(|crew| crew.check_end(board));
    }
    for crew in crews.iter_mut().filter(|crew| !crew.has_ended) {
        let texts = watch::hung(board, Duration::from_secs(10));
        board.fail(&format!("HANG: crew {} did not end: {}", crew.number, texts.join("; ")));
        let _ended = crew.child.kill();
        let _status = crew.child.wait();
    }
}

impl Crew {
    fn look(&mut self, board: &Board) {
        self.check_end(board);
        if let (false, Some(sample)) = (self.has_ended, Sample::of(self.child.id())) {
            self.samples.push(sample);
        }
    }

    /// A crew ends when the run does, and with success.
    fn check_end(&mut self, board: &Board) {
        if self.has_ended {
            return;
        }
        let ended = match self.child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) if status.success() && board.is_stopped() => None,
            Ok(Some(status)) => Some(format!("crew {} DIED: {status}", self.number)),
            Err(error) => Some(format!("crew {}: {error}", self.number)),
        };
        self.has_ended = true;
        if let Some(failure) = ended {
            board.fail(&failure);
        }
    }
}
