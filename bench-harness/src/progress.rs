//! What a long command shows while it works: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of one piece of work, on standard error.
#[derive(Debug)]
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
}

/// Plain lines for logs.
#[derive(Debug)]
pub(crate) struct Lines {
    what: String,
    message: String,
    done: u64,
    total: u64,
    shown: Instant,
    started: Instant,
}

impl Progress {
    /// For something that is counted in bytes.
    pub(crate) fn bytes(what: &str, total: u64) -> Self {
        Self::new(
            what,
            total,
            "{prefix} {wide_bar:.cyan/dim} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
        )
    }

    /// For steps that each have a name.
    pub(crate) fn steps(what: &str, total: u64) -> Self {
        Self::new(what, total, "{prefix} {pos}/{len} {wide_bar:.cyan/dim} {eta} left · {msg}")
    }

    fn new(what: &str, total: u64, template: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            let (what, now) = (what.to_owned(), Instant::now());
            return Self::Lines(Mutex::new(Lines {
                what,
                message: String::new(),
                done: 0,
                total,
                shown: now,
                started: now,
            }));
        }
        let bar = ProgressBar::new(total).with_prefix(what.to_owned());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self::Bar(bar)
    }

    /// Says what is being done now.
    pub(crate) fn message(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.set_message(text.to_owned()),
            Self::Lines(lines) => {
                if let Ok(mut lines) = lines.lock() {
                    text.clone_into(&mut lines.message);
                }
            }
        }
    }

    /// So much more is done.
    pub(crate) fn advance(&self, by: u64) {
        match self {
            Self::Bar(bar) => bar.inc(by),
            Self::Lines(lines) => {
                if let Ok(mut lines) = lines.lock() {
                    lines.advance(by);
                }
            }
        }
    }

    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    fn advance(&mut self, by: u64) {
        self.done += by;
        if self.shown.elapsed() < LINE_INTERVAL {
            return;
        }
        self.shown = Instant::now();
        let share = self.done as f64 / self.total.max(1) as f64;
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = if share > 0.0 { elapsed / share - elapsed } else { 0.0 };
        let now = match self.message.as_str() {
            "" => String::new(),
            message => format!(" · {message}"),
        };
        say(&format!("{}: {:.0} %, about {left:.0} s left{now}", self.what, share * 100.0));
    }
}

/// A line on standard error; with that closed there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
