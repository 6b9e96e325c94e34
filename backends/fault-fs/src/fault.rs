//! A fault: what goes wrong, in which bytes of which file, and with which requests.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// The way in which a read goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this `errno`.
    Error(i32),
    /// It returns at most this number of bytes. Without [`Options::direct_io`](crate::Options::direct_io)
    /// the kernel takes a short answer for the end of the file.
    AtMost(usize),
    /// It is answered after this time.
    Delay(Duration),
    /// The file has this length before the read is answered, as if another machine had set it: the
    /// kernel of this one is not informed. New bytes are zeros.
    SetLen(u64),
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(errno) => write!(f, "error {errno}"),
            Self::AtMost(bytes) => write!(f, "at-most {bytes}"),
            Self::Delay(time) => write!(f, "delay-us {}", time.as_micros()),
            Self::SetLen(len) => write!(f, "set-len {len}"),
        }
    }
}

impl Effect {
    fn new(what: &str, amount: u64) -> Result<Self, String> {
        Ok(match what {
            "error" => Self::Error(amount as i32),
            "at-most" => Self::AtMost(amount as usize),
            "delay-us" => Self::Delay(Duration::from_micros(amount)),
            "set-len" => Self::SetLen(amount),
            _ => return Err(format!("no effect {what}")),
        })
    }
}

/// A fault of one file.
#[derive(Clone, Debug)]
pub struct Fault {
    name: String,
    bytes: Range<u64>,
    requests_to_spare: u32,
    requests_to_hit: u32,
    effect: Effect,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bytes, requests_to_spare, requests_to_hit, effect } = self;
        let (start, end) = (bytes.start, bytes.end);
        write!(f, "{start} {end} {requests_to_spare} {requests_to_hit} {effect} {name}")
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.splitn(7, ' ').collect();
        let &[start, end, spare, hit, effect, amount, name] = words.as_slice() else {
            return Err(text.to_owned());
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        let effect = Effect::new(effect, number(amount)?)?;
        let fault = Self::new(name, effect).at(number(start)?..number(end)?);
        Ok(fault.after(number(spare)? as u32).times(number(hit)? as u32))
    }
}

impl Fault {
    /// A fault of every read of the file with this name, in whichever folder it is.
    #[must_use]
    pub fn new(name: impl Into<String>, effect: Effect) -> Self {
        let (name, bytes) = (name.into(), 0..u64::MAX);
        Self { name, bytes, requests_to_spare: 0, requests_to_hit: u32::MAX, effect }
    }

    /// Only of requests that ask for one of these bytes.
    #[must_use]
    pub fn at(mut self, bytes: Range<u64>) -> Self {
        self.bytes = bytes;
        self
    }

    /// Only after this many requests that it would have hit.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Self {
        self.requests_to_spare = requests;
        self
    }

    /// Only this often.
    #[must_use]
    pub fn times(mut self, requests: u32) -> Self {
        self.requests_to_hit = requests;
        self
    }

    /// Returns the effect on a request, and counts the request.
    pub(crate) fn hit(&mut self, name: &OsStr, request: &Range<u64>) -> Option<Effect> {
        let overlaps = self.bytes.start < request.end && request.start < self.bytes.end;
        if OsStr::new(&self.name) != name || !overlaps || self.requests_to_hit == 0 {
            return None;
        }
        if self.requests_to_spare > 0 {
            self.requests_to_spare -= 1;
            return None;
        }
        // The largest count stands for "always".
        if self.requests_to_hit != u32::MAX {
            self.requests_to_hit -= 1;
        }
        Some(self.effect)
    }
}
