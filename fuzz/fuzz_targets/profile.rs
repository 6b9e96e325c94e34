//! Any text as a profile of `auto`: refused or understood, and what is understood comes back as it
//! was when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringmain::Profile;

fuzz_target!(|text: &str| {
    let Ok(profile) = Profile::parse(text) else { return };
    assert_eq!(Profile::parse(&profile.render()).ok(), Some(profile));
});
