//! Runs a scenario under many schedules.

use std::env;
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use super::{Arc, clock};

/// Each scheduler tries this many schedules, unless `RINGMAIN_SCHEDULES` has another number.
const SCHEDULES: u64 = 500;

/// The seed, unless `RINGMAIN_SCHEDULES_SEED` has another.
const SEED: u64 = 17;

/// How many changes of priority the PCT scheduler makes in a schedule, plus one: it finds a fault that
/// needs that many events in a certain order.
const PCT_DEPTH: usize = 3;

/// A schedule with more steps than this is taken for one that never ends.
const STEPS_MAX: usize = 100_000;

/// Runs the scenario under random schedules, and under those of the PCT scheduler. If one fails, it
/// is printed, and `scripts/schedules.sh --replay` repeats it.
pub fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    let body = move || {
        clock::reset();
        scenario();
    };
    let _hint = ReplayHint;
    if let Ok(schedule) = env::var("RINGMAIN_SCHEDULE") {
        return shuttle::replay(body, &schedule);
    }
    let schedules = number_from("RINGMAIN_SCHEDULES").unwrap_or(SCHEDULES) as usize;
    let seed = number_from("RINGMAIN_SCHEDULES_SEED").unwrap_or(SEED);
    run(RandomScheduler::new_from_seed(seed, schedules), body.clone());
    run(PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules), body);
}

/// A number below `choices`, which the schedule chooses.
#[must_use]
pub fn choose(choices: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..choices)
}

/// Lets another thread run if the schedule wants it: for work that takes time. Unlike a yield, it does
/// not prefer the others.
pub fn step() {
    shuttle::thread::sleep(Duration::ZERO);
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    Runner::new(scheduler, config).run(body);
}

#[allow(clippy::panic)] // Only tests call it.
fn number_from(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    let Ok(number) = text.parse() else {
        panic!("{variable} must be a number, and is '{text}'");
    };
    Some(number)
}

/// Says how to repeat a schedule that fails.
struct ReplayHint;

impl Drop for ReplayHint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test's name, unless all tests run on one thread.
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("main");
            eprintln!("to repeat it: scripts/schedules.sh --test {test} --replay 'SCHEDULE'");
        }
    }
}
