//! One list of cases that every [`ReadBackend`](crate::ReadBackend) passes.
//!
//! The cases are the obligations of the trait's documentation, one test each. An implementor
//! writes one line for each backend and gets one `#[test]` for each case:
//!
//! ```
//! use ringmain_backends::conformance::{self, Subject};
//! use ringmain_backends::{BackendKind, open_backend};
//!
//! conformance::suite! {
//!     mod pread = Subject::new("pread", |options| open_backend(BackendKind::Pread, options));
//! }
//! # fn main() {}
//! ```
//!
//! There is no other list of cases, so every backend runs a new case at once.
//!
//! - A case that a backend cannot pass is on that backend's list, with the reason
//!   ([`Subject::fails`]). It is run all the same: once it passes, the entry is an error.
//! - A backend that this machine cannot run says so in a line on standard error and passes,
//!   unless the environment variable [`REQUIRE_BACKENDS`] names it.
//! - [`run_all`] runs the same list in a directory of choice, for another filesystem.
//!
//! Cases that end processes, lower limits or fork run in their own process: the test binary starts
//! itself again with the name of that one test (see [`child`]).

// This module is test code, although it is not compiled as tests: it reports with panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(all(unix, target_pointer_width = "64"))]
mod aliased;
mod arena;
mod cases;
pub mod child;
mod data;
#[cfg(unix)]
pub(crate) mod process;
mod rig;
mod run;
mod subject;

pub use run::{Outcome, REQUIRE_BACKENDS, Report, required_backends, run_all};
pub use subject::Subject;

use rig::Rig;

/// One obligation of every backend, as a test.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    name: &'static str,
    run: fn(&Rig<'_>),
}

impl Case {
    /// The name of its test.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// The list. It is passed to the macro in brackets, after that macro's own arguments: here to make
/// [`CASES`], in a test crate to make the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ([$($callback:tt)*] $($context:tt)*) => {
        $($callback)* ! {
            $($context)*

            bytes::empty_file
            bytes::whole_file
            bytes::odd_lengths_at_odd_offsets
            bytes::unaligned_destinations
            bytes::ranges_at_across_and_past_the_end
            bytes::first_read_past_the_end_is_named
            bytes::reads_of_nothing
            bytes::offsets_beyond_any_file
            #[cfg(all(unix, target_pointer_width = "64"))]
            bytes::reads_over_2_gib
            batches::duplicate_ranges
            batches::overlapping_ranges
            batches::reversed_ranges
            batches::shuffled_ranges
            batches::adjacent_small_reads
            batches::several_files
            batches::a_batch_larger_than_the_ring
            batches::one_batch_of_every_size
            cache_states::cached_dropped_and_half_dropped
            cache_states::first_failure_among_cached_and_dropped
            cache_states::failure_far_behind_in_a_batch
            cache_states::expected_in_every_way
            cache_states::dropped_while_being_read
            bounds::queue_depth_one
            bounds::one_open_file
            bounds::pool_of_one_buffer
            bounds::pool_that_does_not_wait
            bounds::smallest_chunk
            bounds::everything_at_its_smallest
            bounds::impossible_options_are_refused
            threads::eight_threads
            threads::eight_threads_with_little_of_everything
            threads::more_threads_than_rings
            threads::hints_while_others_read
            threads::dropped_after_its_threads
            changes::file_that_grew
            changes::length_follows_the_file
            #[cfg(unix)]
            changes::file_replaced
            #[cfg(unix)]
            changes::file_made_again
            #[cfg(unix)]
            changes::file_deleted
            #[cfg(unix)]
            changes::working_directory_changed
            #[cfg(unix)]
            changes::truncated_file
            #[cfg(unix)]
            changes::truncated_while_being_read
            #[cfg(unix)]
            changes::truncated_and_regrown_while_being_read
            refusals::missing_file
            refusals::directory
            refusals::foreign_handle
            refusals::errors_name_the_file_and_the_place
            #[cfg(unix)]
            refusals::fifo
            #[cfg(unix)]
            refusals::no_permission
            #[cfg(unix)]
            refusals::odd_paths
            #[cfg(unix)]
            descriptors::out_of_descriptors
            #[cfg(unix)]
            descriptors::out_of_descriptors_with_an_idle_file
            #[cfg(unix)]
            descriptors::out_of_descriptors_in_a_new_thread
            #[cfg(unix)]
            descriptors::a_thousand_opens
            #[cfg(unix)]
            descriptors::failed_opens_leak_nothing
            #[cfg(unix)]
            descriptors::dropping_gives_everything_back
            #[cfg(unix)]
            forks::parent_and_child_both_read
            #[cfg(unix)]
            forks::fork_while_threads_read
            hints::odd_ranges
            hints::hints_change_no_bytes
            mapping::zero_copy
            #[cfg(unix)]
            mapping::truncated_under_a_mapped_range
            faults::short_reads_change_nothing
            faults::ragged_reads_change_nothing
            faults::interruptions_change_nothing
            faults::endless_interruption_ends
            faults::device_error_surfaces
            faults::placed_reads_name_the_range_that_failed
            faults::device_error_among_neighbours
            faults::first_device_error_is_named
            faults::nothing_in_flight_after_an_error
        }
    };
}

macro_rules! case_table {
    ($($(#[$attr:meta])* $module:ident::$case:ident)*) => {
        /// Every case there is on this platform.
        pub const CASES: &[Case] = &[$(
            $(#[$attr])*
            Case { name: stringify!($case), run: cases::$module::$case },
        )*];
    };
}

__conformance_cases! { [case_table] }

/// Makes a module of tests for each backend, one for each case.
///
/// `mod name = subject;`, where the subject is a [`Subject`]. The
/// [module](self) has an example.
#[doc(inline)]
pub use crate::__conformance_suite as suite;

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_suite {
    ($(mod $name:ident = $subject:expr;)+) => {
        $(
            mod $name {
                #[allow(unused_imports)]
                use super::*;

                fn subject() -> $crate::conformance::Subject {
                    $subject.in_module(module_path!())
                }

                #[test]
                fn expected_skips_are_cases() {
                    subject().check_skips();
                }

                $crate::__conformance_cases! { [$crate::__conformance_tests] }
            }
        )+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($($(#[$attr:meta])* $module:ident::$case:ident)*) => {
        $(
            $(#[$attr])*
            #[test]
            fn $case() {
                subject().test(stringify!($case));
            }
        )*
    };
}
