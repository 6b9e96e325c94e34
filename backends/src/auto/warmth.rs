//! Whether data may become warm, that is, stay in the page cache for the next time.

use crate::{Warmth, sys};

/// Returns `true` if what is read of a file stays in the page cache. `reread_bytes` is the size of the data
/// that the file belongs to, if all of it is going to be read again.
pub(super) fn is_kept(warmth: Warmth, reread_bytes: Option<u64>) -> bool {
    match (warmth, reread_bytes) {
        (Warmth::Keep, _) => true,
        (Warmth::Auto, Some(bytes)) => room_bytes().is_some_and(|room_bytes| bytes <= room_bytes),
        _ => false,
    }
}

/// Returns how many bytes of data fit into the page cache; `None` if the system does not say.
pub(super) fn room_bytes() -> Option<u64> {
    sys::available_memory_bytes().map(room_in)
}

/// A quarter of the available memory is left free.
fn room_in(available_bytes: u64) -> u64 {
    available_bytes / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides() {
        assert!(is_kept(Warmth::Keep, None) && is_kept(Warmth::Keep, Some(u64::MAX)));
        assert!(!is_kept(Warmth::Leave, Some(1)));
        assert!(!is_kept(Warmth::Auto, None), "nothing says that it is read again");
        assert!(!is_kept(Warmth::Auto, Some(u64::MAX)));
    }

    #[test]
    fn a_quarter_of_the_memory_is_left() {
        assert_eq!([0, 1000].map(room_in), [0, 750]);
    }
}
