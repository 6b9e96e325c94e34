//! The clock of explored schedules. `shuttle` has no time, so the clock stands still until a thread
//! sleeps, a wait times out or a test moves it.

use std::cell::Cell;
use std::time::Duration;

/// A wait of at least this long never times out: a thread that is not woken is reported as a deadlock.
pub const FOREVER: Duration = Duration::from_secs(3600);

std::thread_local! {
    /// All threads of a schedule are coroutines of one thread.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A moment of this clock. It stands for [`std::time::Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self(NOW.get())
    }

    /// The time since then.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        NOW.get().saturating_sub(self.0)
    }

    /// The moment that much later.
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// The moment that much earlier.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }

    /// The time since an earlier moment.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0)
    }
}

/// Sets the clock to zero, for a new schedule.
pub(super) fn reset() {
    NOW.set(Duration::ZERO);
}

/// Moves the clock forward.
pub fn advance(duration: Duration) {
    NOW.set(NOW.get() + duration);
}

/// Moves the clock forward to a moment, if that has not passed.
pub(super) fn advance_to(moment: Instant) {
    NOW.set(NOW.get().max(moment.0));
}

/// Lets other threads run, and moves the clock forward. It stands for [`std::thread::sleep`].
pub fn sleep(duration: Duration) {
    advance(duration);
    shuttle::thread::yield_now();
}
