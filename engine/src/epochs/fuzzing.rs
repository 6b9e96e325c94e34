//! The fuzz target of the variables that launchers set.
#![allow(clippy::panic, reason = "a target reports what it finds by panicking")]

use super::JobPlace;
use crate::Error;

/// The variables, in the order of their lines in the input.
const NAMES: [&str; 5] = ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK"];

/// The bytes are the values of the variables, one in each line, and then the rank and world that are given. A place
/// is in the job, and agrees with what is given and with the variables; an error names an option.
pub(crate) fn job_place(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split('\n').collect();
    let line = |at: usize| lines.get(at).copied().unwrap_or_default();
    let number = |at: usize| line(at).parse::<u64>().ok();
    let given = number(NAMES.len()).zip(number(NAMES.len() + 1));
    let value_of = |name: &str| NAMES.iter().position(|other| *other == name).map(line);
    // An empty variable is as good as none.
    let variable = |name: &str| value_of(name).map(str::to_owned);
    match JobPlace::find_with(given, variable) {
        Ok(place) => {
            assert!(place.rank() < place.world(), "{place:?}");
            match place.nodes() {
                Ok(nodes) => assert!((1..=place.world()).contains(&nodes), "{place:?}"),
                Err(error) => assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}"),
            }
            let set = number(0).zip(number(1));
            for (rank, world) in given.into_iter().chain(set) {
                assert_eq!((place.rank(), place.world()), (rank, world));
            }
            let is_alone = given.is_none() && set.is_none();
            assert!(!is_alone || (place.rank(), place.world()) == (0, 1), "{place:?}");
            // The same values give the same place, however they are given.
            let again = JobPlace::find_with(Some((place.rank(), place.world())), variable);
            assert_eq!(again.ok(), Some(place));
        }
        Err(Error::InvalidOption { option, .. }) => {
            assert!(option == "partition" || NAMES.contains(&option), "{option}");
        }
        Err(error) => panic!("{error:?}"),
    }
}
