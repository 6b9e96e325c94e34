//! The text that a run prints.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::board::{Board, Event, Fault};
use crate::options::Options;
use crate::readers::JOBS;
use crate::run::Crew;
use crate::watch::{Halves, RESOURCES};
use crate::ways::WAYS;

const EXIT_INTERRUPTED: u8 = 130;

/// The first lines: how to repeat the run, and what it does without.
pub(crate) fn begin(
    options: &Options,
    seed: u64,
    dir: &Path,
    no_group: Option<&String>,
) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "soak of {} min with seed {seed} in {}", options.minutes, dir.display())?;
    if let Some(reason) = no_group {
        writeln!(out, "without a limit on memory: no control group can be made ({reason})")?;
    }
    Ok(())
}

/// One line while it runs.
pub(crate) fn progress(board: &Board, took: Duration, is_terminal: bool) {
    let (reads, bytes) = board.tally.total();
    let seconds = took.as_secs().max(1);
    let count = |event| board.tally.events(event);
    let line = format!(
        "{:3}:{:02}  {} reads ({} a second), {} MB/s, {} truncations, {} forks, {} signals",
        seconds / 60,
        seconds % 60,
        grouped(reads),
        grouped(reads / seconds),
        bytes / seconds / 1_000_000,
        grouped(count(Event::Truncations)),
        grouped(count(Event::Forks)),
        grouped(count(Event::Signals)),
    );
    let (start, end) = if is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
    let mut out = io::stdout();
    // Nothing depends on a line of progress.
    let _ = write!(out, "{start}{line}{end}").and_then(|()| out.flush());
}

/// Leaves the line of progress.
pub(crate) fn end_progress() {
    let _ = writeln!(io::stdout());
}

/// A finished run.
pub(crate) struct Report<'a> {
    pub(crate) board: &'a Board,
    pub(crate) crews: &'a [Crew],
    pub(crate) seed: u64,
    pub(crate) took: Duration,
    /// Processes that the kernel killed because their control group had no memory left.
    pub(crate) kills: u64,
    pub(crate) is_interrupted: bool,
}

impl Report<'_> {
    /// Prints everything, and returns the exit code.
    pub(crate) fn print(&self) -> Result<ExitCode, Box<dyn Error>> {
        let mut out = io::stdout().lock();
        self.print_ways(&mut out)?;
        self.print_jobs(&mut out)?;
        self.print_faults(&mut out)?;
        self.print_events(&mut out)?;
        let has_grown = self.print_resources(&mut out)?;
        let failures = self.board.failures.texts();
        for failure in &failures {
            writeln!(out, "\nFAILURE: {failure}")?;
        }
        let more = self.board.failures.count() as usize - failures.len();
        if more > 0 {
            writeln!(out, "\n{more} more failures")?;
        }
        let (seed, seconds) = (self.seed, self.took.as_secs());
        if !failures.is_empty() || has_grown {
            writeln!(
                out,
                "\nFAILED after {seconds} s; `scripts/soak.sh MINUTES {seed}` does the same again (the threads \
                 will meet each other at other moments)"
            )?;
            return Ok(ExitCode::FAILURE);
        }
        if self.is_interrupted {
            writeln!(out, "\ninterrupted after {seconds} s; nothing was wrong until then")?;
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        }
        writeln!(out, "\npassed in {seconds} s: nothing wrong, seed {seed}")?;
        Ok(ExitCode::SUCCESS)
    }

    fn print_ways(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\n{:<16} {:>14} {:>10} {:>9}", "backend", "reads", "MB", "errors")?;
        let tally = &self.board.tally;
        for (number, way) in WAYS.iter().enumerate() {
            let (reads, bytes) = tally.reads(number);
            let faults: u64 =
                Fault::ALL.iter().map(|(fault, _)| tally.faults(number, *fault)).sum();
            let (reads, megabytes, faults) =
                (grouped(reads), grouped(bytes / 1_000_000), grouped(faults));
            writeln!(out, "{:<16} {reads:>14} {megabytes:>10} {faults:>9}", way.name)?;
        }
        let (reads, bytes) = tally.total();
        let per_minute = reads as f64 / self.took.as_secs_f64() * 60.0;
        writeln!(out, "{:<16} {:>14} {:>10}", "all", grouped(reads), grouped(bytes / 1_000_000))?;
        writeln!(out, "{} reads a minute", grouped(per_minute as u64))
    }

    fn print_jobs(&self, out: &mut impl Write) -> io::Result<()> {
        let reads = |(job, (name, _)): (usize, &(&'static str, u64))| {
            (*name, self.board.tally.reads_of_job(job))
        };
        let counts: Vec<_> = JOBS.iter().enumerate().map(reads).collect();
        print_counts(out, "reads by what was read", &counts)
    }

    fn print_faults(&self, out: &mut impl Write) -> io::Result<()> {
        let of = |fault| (0..WAYS.len()).map(|way| self.board.tally.faults(way, fault)).sum();
        let counts = Fault::ALL.map(|(fault, name)| (name, of(fault)));
        print_counts(out, "errors, each with its reason", &counts)
    }

    fn print_events(&self, out: &mut impl Write) -> io::Result<()> {
        let mut counts: Vec<_> = Event::ALL
            .iter()
            .map(|(event, name)| (*name, self.board.tally.events(*event)))
            .collect();
        counts.push(("processes killed by the memory group", self.kills));
        print_counts(out, "what happened", &counts)
    }

    /// Returns whether a resource has grown.
    fn print_resources(&self, out: &mut impl Write) -> io::Result<bool> {
        writeln!(out, "\nmiddle and peak in the first and in the second half")?;
        let mut has_grown = false;
        let is_short =
            self.crews.iter().all(|crew| Halves::of(&crew.samples, RESOURCES[0]).is_none());
        if is_short {
            writeln!(out, "  not compared: the run was shorter than five minutes")?;
        }
        for crew in self.crews {
            for resource in RESOURCES {
                let Some(halves) = Halves::of(&crew.samples, resource) else { continue };
                let Halves { first, second, .. } = halves;
                writeln!(
                    out,
                    "  crew {}, {:<16} {:>5} {:>5}   {:>5} {:>5} {}{}",
                    crew.number,
                    resource.name,
                    first.median,
                    first.peak,
                    second.median,
                    second.peak,
                    resource.unit,
                    if halves.has_grown() { "  GROWN" } else { "" },
                )?;
                has_grown |= halves.has_grown();
            }
        }
        Ok(has_grown)
    }
}

fn print_counts(out: &mut impl Write, title: &str, counts: &[(&str, u64)]) -> io::Result<()> {
    writeln!(out, "\n{title}")?;
    for (name, count) in counts {
        writeln!(out, "  {name:<36} {:>12}", grouped(*count))?;
    }
    Ok(())
}

/// The number with a comma after each thousand.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
