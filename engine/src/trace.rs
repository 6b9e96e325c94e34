//! Events for the subscribers of `tracing`, with the feature of that name; nothing without it.

/// Sends an event: a level, then what `tracing`'s macro of that name takes.
macro_rules! event {
    ($level:ident, $($what:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "ringmain", $($what)*);
    };
}

pub(crate) use event;
