//! The states that a file went through, so that a reader can tell which of them existed during a
//! read.

use std::sync::atomic::{AtomicU64, Ordering};

/// States that are remembered. Files change some times a second, and reads take milliseconds.
const STATES: u64 = 256;

/// How a file came into a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new version took the path, by renaming or by making the file.
    Made,
    /// The file lost its end.
    Cut,
    /// The file got more bytes of its version.
    Grown,
    /// The bytes of another version were written in place.
    Overwritten,
    /// The path was removed.
    Deleted,
}

/// A file between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) len: u64,
    pub(crate) change: Change,
    /// The file is what its format says: not cut, not longer.
    pub(crate) is_whole: bool,
}

/// The states of one file. One thread changes it; any process reads it.
#[repr(C)]
pub(crate) struct History {
    /// Twice the number of the current state, and one more while a change is under way.
    clock: AtomicU64,
    states: [[AtomicU64; 2]; STATES as usize],
    /// The last length of each version.
    lens: [AtomicU64; STATES as usize],
}

impl History {
    /// Enters the first state.
    pub(crate) fn begin(&self, state: State) {
        self.write(0, state);
    }

    /// Runs a change of the file that leads to a new state.
    pub(crate) fn change<T>(&self, state: State, change: impl FnOnce() -> T) -> T {
        let number = self.clock.load(Ordering::SeqCst) / 2;
        self.write(number + 1, state);
        self.clock.store(2 * number + 1, Ordering::SeqCst);
        let result = change();
        self.clock.store(2 * number + 2, Ordering::SeqCst);
        result
    }

    fn write(&self, number: u64, state: State) {
        let flags = (state.change as u64) << 1 | u64::from(state.is_whole);
        let [word, len] = &self.states[(number % STATES) as usize];
        word.store(state.version << 8 | flags, Ordering::SeqCst);
        len.store(state.len, Ordering::SeqCst);
        self.lens[(state.version % STATES) as usize].store(state.len, Ordering::SeqCst);
    }

    fn state(&self, number: u64) -> State {
        let [word, len] = &self.states[(number % STATES) as usize];
        let word = word.load(Ordering::SeqCst);
        let change = match (word >> 1) & 0x7F {
            0 => Change::Made,
            1 => Change::Cut,
            2 => Change::Grown,
            3 => Change::Overwritten,
            _ => Change::Deleted,
        };
        let len = len.load(Ordering::SeqCst);
        State { version: word >> 8, len, change, is_whole: word & 1 == 1 }
    }

    /// The state now, or the one that a change under way leads to.
    pub(crate) fn current(&self) -> State {
        self.state(self.clock.load(Ordering::SeqCst).div_ceil(2))
    }

    /// The moment at which something begins that is judged later.
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// The states between a moment and now; `None` if they are no longer known.
    pub(crate) fn since(&self, begin: u64) -> Option<Window<'_>> {
        let window = Window { history: self, begin, end: self.now() };
        (window.last() - window.first() < STATES - 8).then_some(window)
    }

    fn last_len(&self, version: u64) -> u64 {
        self.lens[(version % STATES) as usize].load(Ordering::SeqCst)
    }
}

/// The states of a file during some time.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    history: &'a History,
    begin: u64,
    end: u64,
}

impl Window<'_> {
    fn first(&self) -> u64 {
        self.begin / 2
    }

    fn last(&self) -> u64 {
        self.end.div_ceil(2)
    }

    /// The file did not change.
    pub(crate) fn is_quiet(&self) -> bool {
        self.begin == self.end && self.begin.is_multiple_of(2)
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = State> + '_ {
        (self.first()..=self.last()).map(|number| self.history.state(number))
    }

    /// The changes that happened, at least in part.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        (self.first() + 1..=self.last()).map(|number| self.history.state(number).change)
    }

    /// The shortest and the longest length of the file that has this version.
    pub(crate) fn lens_of(&self, version: u64) -> (u64, u64) {
        let lens = || {
            let is_it = |state: &State| state.version == version && state.change != Change::Deleted;
            self.states().filter(is_it).map(|state| state.len)
        };
        // A version that is no longer under the path keeps its last length.
        let last = self.history.last_len(version);
        (lens().min().unwrap_or(last), lens().max().unwrap_or(last))
    }

    /// The versions that were under the path.
    pub(crate) fn versions(&self) -> (u64, u64) {
        let versions = || self.states().map(|state| state.version);
        (versions().min().unwrap_or(0), versions().max().unwrap_or(0))
    }

    pub(crate) fn has(&self, change: Change) -> bool {
        self.changes().any(|found| found == change)
    }

    /// The path led to no file at some time.
    pub(crate) fn was_deleted(&self) -> bool {
        self.states().any(|state| state.change == Change::Deleted)
    }

    pub(crate) fn was_whole(&self) -> bool {
        self.states().all(|state| state.is_whole)
    }
}

/// A file of 100 bytes in its first version.
#[cfg(test)]
pub(crate) fn history() -> Box<History> {
    let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
    let states = std::array::from_fn(|_| [AtomicU64::new(0), AtomicU64::new(0)]);
    let history = History { clock: AtomicU64::new(0), states, lens: zeros() };
    history.begin(State { version: 1, len: 100, change: Change::Made, is_whole: true });
    Box::new(history)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_states_that_it_touches() {
        let history = history();
        let before = history.now();
        assert!(history.since(before).is_some_and(|window| window.is_quiet()));
        let cut = State { version: 1, len: 40, change: Change::Cut, is_whole: false };
        let during = history.change(cut, || {
            let window = history.since(before).unwrap();
            assert!(!window.is_quiet() && window.has(Change::Cut));
            assert_eq!(window.lens_of(1), (40, 100));
            history.now()
        });
        assert_eq!(history.since(during).unwrap().lens_of(1), (40, 100));
        let after = history.since(history.now()).unwrap();
        assert!(after.is_quiet() && !after.has(Change::Cut) && !after.was_whole());
        assert_eq!(after.lens_of(1), (40, 40));
    }

    #[test]
    fn a_version_that_was_replaced_keeps_its_length() {
        let history = history();
        let next = State { version: 2, len: 7, change: Change::Made, is_whole: true };
        history.change(next, || ());
        let gone = State { change: Change::Deleted, ..next };
        history.change(gone, || ());
        let now = history.since(history.now()).unwrap();
        assert!(now.was_deleted());
        assert_eq!((now.lens_of(1), now.lens_of(2)), ((100, 100), (7, 7)));
    }

    #[test]
    fn states_are_forgotten_at_last() {
        let history = history();
        let begin = history.now();
        for version in 2..STATES {
            let state = State { version, len: 1, change: Change::Made, is_whole: true };
            history.change(state, || ());
        }
        assert!(history.since(begin).is_none());
    }
}
