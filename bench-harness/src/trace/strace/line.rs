//! The lines of a log: thread, time and call.

use super::call::{Call, micros};

const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// Returns whether the first line of a file looks like a line of strace.
pub(in crate::trace) fn is_log(head: &[u8]) -> bool {
    let line = LogLine::parse(head);
    let is_call = || {
        let open = line.rest.iter().position(|byte| *byte == b'(');
        let name = &line.rest[..open.unwrap_or(0)];
        let is_name =
            |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
        !name.is_empty() && name.iter().all(is_name)
    };
    let has_stamp = line.thread.is_some() || line.at_us.is_some();
    let is_event = |start: &[u8]| line.rest.starts_with(start);
    Call::parse(line.rest).is_some()
        || has_stamp && (is_call() || is_event(b"<... ") || is_event(b"+++ ") || is_event(b"--- "))
}

/// A line of a log: the thread and the time if it has them, and the call.
pub(super) struct LogLine<'a> {
    pub(super) thread: Option<u32>,
    pub(super) at_us: Option<Stamp>,
    pub(super) rest: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Microseconds since 1970 (`-ttt`), or since the line before (`-r`).
    Seconds(u64),
    /// Microseconds since midnight (`-t`, `-tt`).
    OfDay(u64),
}

/// Turns the stamps of lines into microseconds since 1970, or since the first midnight of the log.
#[derive(Debug, Default)]
pub(super) struct Clock {
    days: u64,
    last_us: u64,
    /// Whether the first stamp was 0, as with `-r`.
    is_relative: Option<bool>,
}

impl Clock {
    pub(super) fn at_us(&mut self, stamp: Option<Stamp>) -> u64 {
        let at_us = match stamp {
            None => self.last_us,
            Some(Stamp::Seconds(us)) => match *self.is_relative.get_or_insert(us == 0) {
                true => self.last_us.saturating_add(us),
                false => us,
            },
            Some(Stamp::OfDay(of_day_us)) => {
                let at_us = of_day_us.saturating_add(self.days.saturating_mul(DAY_US));
                let is_next_day = at_us.saturating_add(DAY_US / 2) < self.last_us;
                self.days += u64::from(is_next_day);
                at_us.saturating_add(if is_next_day { DAY_US } else { 0 })
            }
        };
        self.last_us = at_us;
        at_us
    }
}

impl<'a> LogLine<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Self {
        let (thread, rest) = split_thread(text);
        let (word, after) = split_word(rest);
        match stamp(word) {
            Some(at_us) => Self { thread, at_us: Some(at_us), rest: without_difference(after) },
            None => Self { thread, at_us: None, rest },
        }
    }
}

/// Skips `(+     0.000123) `, which `-r` adds to other times.
fn without_difference(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b')').filter(|_| text.starts_with(b"(+"));
    end.map_or(text, |end| text[end + 1..].trim_ascii_start())
}

/// Splits off `123 ` or `[pid  123] `.
fn split_thread(text: &[u8]) -> (Option<u32>, &[u8]) {
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    if let Some(inner) = text.strip_prefix(b"[pid ") {
        let end = inner.iter().position(|byte| *byte == b']');
        let end = end.unwrap_or(inner.len().saturating_sub(1));
        let after = inner.get(end + 1..).unwrap_or_default();
        return (number(inner[..end].trim_ascii()), after.trim_ascii_start());
    }
    let (word, after) = split_word(text);
    match number(word) {
        Some(thread) => (Some(thread), after),
        None => (None, text),
    }
}

fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii_start())
}

/// Parses `1794992740.741638`, `12:34:56` or `12:34:56.741638`.
pub(super) fn stamp(word: &[u8]) -> Option<Stamp> {
    if let Some(at_us) = micros(word) {
        return Some(Stamp::Seconds(at_us));
    }
    let text = std::str::from_utf8(word).ok()?;
    let mut fields = text.split(':');
    let (hours, minutes, seconds) = (fields.next()?, fields.next()?, fields.next()?);
    let whole = |text: &str, max: u64| text.parse::<u64>().ok().filter(|number| *number <= max);
    let seconds_us = match seconds.contains('.') {
        true => micros(seconds.as_bytes()).filter(|us| *us < 61_000_000)?,
        false => whole(seconds, 60)? * 1_000_000,
    };
    let minutes = whole(hours, 23)? * 60 + whole(minutes, 59)?;
    Some(Stamp::OfDay(minutes * 60_000_000 + seconds_us))
}
