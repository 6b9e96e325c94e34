//! Progress of a long command: a bar on a terminal, a line every ten seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The interval between lines if there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of one piece of work, on standard error.
#[derive(Debug)]
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines(Lines),
}

/// Plain lines for logs. A thread writes them until this is dropped.
#[derive(Debug)]
pub(crate) struct Lines {
    state: Arc<Mutex<State>>,
    /// Closed when this is dropped, which ends the thread.
    _open: Sender<()>,
}

/// How far the work has come.
#[derive(Debug)]
struct State {
    what: String,
    message: String,
    done: u64,
    total: u64,
    started: Instant,
}

impl Progress {
    /// Progress that is counted in bytes.
    pub(crate) fn bytes(what: &str, total: u64) -> Self {
        Self::new(
            what,
            total,
            "{prefix} {wide_bar:.cyan/dim} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
        )
    }

    /// Progress in steps with names.
    pub(crate) fn steps(what: &str, total: u64) -> Self {
        Self::new(what, total, "{prefix} {pos}/{len} {wide_bar:.cyan/dim} {eta} left · {msg}")
    }

    fn new(what: &str, total: u64, template: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Lines::start(what, total, LINE_INTERVAL, say));
        }
        let bar = ProgressBar::new(total).with_prefix(what.to_owned());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self::Bar(bar)
    }

    /// Sets the name of the current step.
    pub(crate) fn message(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.set_message(text.to_owned()),
            Self::Lines(lines) => lines.change(|state| text.clone_into(&mut state.message)),
        }
    }

    /// Counts work that has been done.
    pub(crate) fn advance(&self, by: u64) {
        match self {
            Self::Bar(bar) => bar.inc(by),
            Self::Lines(lines) => lines.change(|state| state.done += by),
        }
    }

    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    /// Starts a thread that writes a line after every interval. Without a thread there are no lines.
    fn start(
        what: &str,
        total: u64,
        interval: Duration,
        write: impl Fn(&str) + Send + 'static,
    ) -> Self {
        let state = Arc::new(Mutex::new(State {
            what: what.to_owned(),
            message: String::new(),
            done: 0,
            total,
            started: Instant::now(),
        }));
        let (open, closed) = channel();
        let shown = Arc::clone(&state);
        let work = move || {
            while closed.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let line = shown.lock().unwrap_or_else(PoisonError::into_inner).line();
                write(&line);
            }
        };
        let _ = std::thread::Builder::new().name("progress".into()).spawn(work);
        Self { state, _open: open }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl State {
    /// Returns `measuring: 40 %, about 12 s left · rand cold: uring`.
    fn line(&self) -> String {
        let share = self.done as f64 / self.total.max(1) as f64;
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = match share > 0.0 {
            true => format!("about {:.0} s left", (elapsed / share - elapsed).max(0.0)),
            false => format!("{elapsed:.0} s so far"),
        };
        let now = match self.message.as_str() {
            "" => String::new(),
            message => format!(" · {message}"),
        };
        format!("{}: {:.0} %, {left}{now}", self.what, share * 100.0)
    }
}

/// Writes a line to standard error. If that is closed, the line is lost.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single long step used to show nothing until it ended.
    #[test]
    fn lines_are_written_during_a_long_step() {
        let (sender, lines) = channel();
        let write = move |line: &str| drop(sender.send(line.to_owned()));
        let progress =
            Progress::Lines(Lines::start("measuring", 4, Duration::from_millis(1), write));
        progress.message("rand cold: direct");
        let line = lines.into_iter().find(|line| line.contains("direct")).unwrap();
        assert!(
            line.starts_with("measuring: 0 %, ") && line.ends_with(" so far · rand cold: direct")
        );
        progress.advance(2);
    }
}
