//! The user's profile.

use crate::Profile;

/// The bytes are the text of a profile. A profile that is written and read again is the same.
pub(super) fn profile(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Profile::parse(text) {
        Ok(profile) => {
            assert_eq!(Profile::parse(&profile.render()).ok().as_ref(), Some(&profile));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
