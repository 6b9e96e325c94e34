//! The `Debug` text of an error.

use super::Error;

/// Implements [`Debug`](std::fmt::Debug) for the enum of a crate's errors: the message, then the name of the
/// variant. `main` and `unwrap` print this text, and the fields alone would say neither the cause nor the way
/// out. A new variant does not compile until it is listed.
#[doc(hidden)]
#[macro_export]
macro_rules! __debug_as_message {
    ($error:ident: $($variant:ident)+) => {
        impl $error {
            /// Returns the name of the variant.
            pub(crate) fn variant(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)+
                }
            }
        }

        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{self} ({})", self.variant())
            }
        }
    };
}

crate::__debug_as_message!(
    Error: Open NotAFile Read PastEnd Replaced Unavailable FileUnsupported OutsideRuntime PoolExhausted
    OutOfMemory InvalidOption ForeignHandle Mapping UnknownBackend
);

#[cfg(test)]
mod tests {
    use super::*;

    /// A `main` that returns an error prints its `Debug` text, which had fields instead of the message.
    #[test]
    fn debug_is_the_message_and_the_variant() {
        let error = Error::UnknownBackend { name: "urin".into(), suggestion: "uring".parse().ok() };
        let text = format!("{error:?}");
        assert_eq!(text, "there is no backend `urin`; did you mean `uring`? (UnknownBackend)");
    }
}
