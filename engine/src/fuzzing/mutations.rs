//! Runs a target on its seeds and on mutations of them, with stable Rust and the same bytes each time.
//!
//! It knows nothing of coverage, so it finds less than cargo-fuzz in the same time.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use super::Target;

/// Mutated inputs do not grow beyond this.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// Mutations that one input gets at most.
const CHANGES_MAX: u64 = 6;
/// The clock is read once in this many executions.
const CLOCK_EVERY: u64 = 256;

/// Runs the targets as the test command does: each on the seeds in the folder of its name, and on a
/// bounded number of mutations of them.
///
/// With the variable `RINGMAIN_FUZZ_SECONDS` each target runs for that time instead, and
/// `RINGMAIN_FUZZ_TARGET` names the only one that runs.
pub fn explore_all(targets: &[Target], seeds: &Path) {
    let seconds = std::env::var("RINGMAIN_FUZZ_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().expect("a number of seconds"));
    let only = std::env::var("RINGMAIN_FUZZ_TARGET").ok();
    for target in
        targets.iter().filter(|target| only.as_deref().is_none_or(|only| only == target.name))
    {
        let folder = seeds.join(target.name);
        let seeds =
            Seeds::read(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        assert!(!seeds.0.is_empty(), "{} has no files", folder.display());
        let budget = match seconds {
            Some(seconds) => Budget::Time(Duration::from_secs(seconds)),
            None => Budget::Executions(target.mutations),
        };
        let executions = explore(target, &seeds, budget);
        eprintln!("{}: {executions} executions from {} seeds", target.name, seeds.0.len());
    }
}

/// The inputs that a run begins with.
#[derive(Clone, Debug)]
struct Seeds(Vec<Vec<u8>>);

impl Seeds {
    /// Reads all files of a folder, in the order of their names.
    fn read(folder: &Path) -> io::Result<Self> {
        let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        paths.iter().map(fs::read).collect::<io::Result<_>>().map(Self)
    }
}

/// How long a run takes.
#[derive(Clone, Copy, Debug)]
enum Budget {
    Executions(u64),
    Time(Duration),
}

/// Runs the target on the seeds, and then on mutations of them. Returns the number of executions. An
/// input that fails is printed before the panic continues.
fn explore(target: &Target, seeds: &Seeds, budget: Budget) -> u64 {
    let (start, mut dice) = (Instant::now(), Dice(0x9E37_79B9_7F4A_7C15));
    for seed in &seeds.0 {
        run(target, seed);
    }
    let (mut executions, mut input) = (seeds.0.len() as u64, Vec::new());
    let is_over = |executions: u64| match budget {
        Budget::Executions(limit) => executions >= limit,
        Budget::Time(limit) => executions % CLOCK_EVERY == 0 && start.elapsed() >= limit,
    };
    while !is_over(executions) {
        input.clear();
        input.extend_from_slice(dice.seed(seeds));
        for _ in 0..=dice.below(CHANGES_MAX) {
            change(&mut input, &mut dice, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        run(target, &input);
        executions += 1;
    }
    executions
}

fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        eprintln!("the target `{}` fails on b\"{}\"", target.name, input.escape_ascii());
        resume_unwind(panic);
    }
}

/// Numbers at which mistakes are likely.
const EDGES: [u64; 12] = [
    0,
    1,
    7,
    63,
    0x7F,
    0xFF,
    0x8000,
    0xFFFF_FFFF,
    0x8000_0000,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX,
];

/// Changes the input in one place.
fn change(input: &mut Vec<u8>, dice: &mut Dice, seeds: &Seeds) {
    let at = dice.below(input.len() as u64 + 1) as usize;
    let end = (at + 1 + dice.below(16) as usize).min(input.len());
    match dice.below(9) {
        0 => flip_bit(input, at, dice),
        1 => overwrite(input, at, &[dice.next() as u8]),
        2 => overwrite(input, at, &dice.edge().to_le_bytes()[..1 << dice.below(4)]),
        3 => drop(input.drain(at..end)),
        4 => insert(input, at, &[dice.next() as u8]),
        5 => insert(input, at, dice.edge().to_string().as_bytes()),
        6 => {
            let copy = input[at..end].to_vec();
            insert(input, at, &copy);
        }
        7 => {
            let other = dice.seed(seeds);
            let from = dice.below(other.len() as u64 + 1) as usize;
            let to = (from + dice.below(32) as usize).min(other.len());
            insert(input, at, &other[from..to]);
        }
        _ => {
            let other = dice.seed(seeds);
            input.truncate(at);
            input.extend_from_slice(&other[at.min(other.len())..]);
        }
    }
}

fn flip_bit(input: &mut [u8], at: usize, dice: &mut Dice) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << dice.below(8);
    }
}

fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    input.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = *new);
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}

/// Numbers that look random: xorshift64*.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Returns a number below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn edge(&mut self) -> u64 {
        EDGES[self.below(EDGES.len() as u64) as usize]
    }

    fn seed<'a>(&mut self, seeds: &'a Seeds) -> &'a [u8] {
        match seeds.0.as_slice() {
            [] => &[],
            seeds => &seeds[self.below(seeds.len() as u64) as usize],
        }
    }
}
