//! Scripted disasters: errors, short answers, delays, a file that changes between two requests.

use std::time::Duration;

use ringmain::{Error, Result};
use ringmain_fault_fs::{Effect, Options};

use crate::patient::{Patient, with_each};

/// Reads all, past one error at each step. Each error must pass the check; then the fault is healed if
/// `is_lasting`, and the same step must succeed. Returns the number of errors.
fn read_past_errors(patient: &Patient, is_lasting: bool, check: impl Fn(&Error)) -> u32 {
    let engine = patient.engine();
    let mut reading = match patient.open(&engine) {
        Ok(reading) => reading,
        Err(error) => {
            check(&error);
            if is_lasting {
                check(&patient.open(&engine).map(drop).unwrap_err());
                patient.heal();
            }
            let reopened = patient.open(&engine);
            let mut reading =
                reopened.unwrap_or_else(|error| panic!("{}, healed: {error}", patient.context));
            patient.read_healed(&mut *reading);
            return 1;
        }
    };
    let Err(error) = patient.read(&mut *reading) else { return 0 };
    check(&error);
    if is_lasting {
        check(&reading.next().unwrap_err());
        patient.heal();
    }
    patient.read_healed(&mut *reading);
    1
}

/// A bad sector is an error for as long as it is bad. Then the same step succeeds, and no item is lost or comes
/// twice.
#[test]
fn an_error_names_the_file_and_passes() {
    for direct_io in [false, true] {
        with_each(Options { direct_io, ..Options::default() }, |patient| {
            let context = patient.context.clone();
            for errno in [libc::EIO, libc::ESTALE] {
                for byte in patient.needed.clone() {
                    patient.context = format!("{context}, errno {errno} at {byte}");
                    patient.add(Effect::Error(errno), |fault| fault.at(byte..byte + 1));
                    let check = |error: &_| patient.check_device_error(error, errno, Some(byte));
                    let errors = read_past_errors(patient, true, check);
                    assert_eq!(errors, 1, "{}: no error", patient.context);
                }
            }
        });
    }
}

/// An error that occurs once is reported once, or not at all: the kernel asks again for what it had only read
/// ahead.
#[test]
fn an_error_at_any_request_is_reported_at_most_once() {
    with_each(Options::default(), |patient| {
        let context = patient.context.clone();
        for after in [0, 1, 2, 3, 5, 8, 13] {
            patient.context = format!("{context}, the request after {after} fails");
            patient.add(Effect::Error(libc::EIO), |fault| fault.after(after).times(1));
            let check = |error: &_| patient.check_device_error(error, libc::EIO, None);
            read_past_errors(patient, false, check);
            patient.heal(); // A backend that makes few requests has not met it.
        }
    });
}

/// With `direct_io` a short answer is a short read, of any length: it is continued. Without, it is the promise
/// that the file ends there, and the kernel may show zeros in place of the rest.
#[test]
fn short_answers_are_continued() {
    with_each(Options { direct_io: true, ..Options::default() }, |patient| {
        let context = patient.context.clone();
        for bytes in [1, 511, 4096, 4097, 65_535] {
            patient.context = format!("{context}, {bytes} bytes at a time");
            let before = patient.hits();
            // All of the file at one byte each would be millions of requests.
            patient.add(Effect::AtMost(bytes), |fault| fault.after(2).times(200));
            let mut reading = patient.open(&patient.engine()).unwrap();
            patient.read_healed(&mut *reading);
            assert!(patient.hits() > before, "{}: no answer was short", patient.context);
            patient.heal();
        }
    });
}

/// Reads all, and returns whether an error said that the file is not what it was. The second attempt may not
/// give wrong bytes either.
fn reads_or_says_changed(patient: &Patient) -> bool {
    let mut reading = match patient.open(&patient.engine()) {
        Ok(reading) => reading,
        Err(error) => {
            patient.check_changed(&error);
            return true;
        }
    };
    let mut attempt = || -> Result<()> { patient.read(&mut *reading) };
    let Err(error) = attempt() else { return false };
    patient.check_changed(&error);
    if let Err(error) = attempt() {
        patient.check_changed(&error);
    }
    true
}

/// Another machine cuts the file between two requests: what was read before is right, and then an error says
/// that the file ends or has changed.
#[test]
fn a_file_that_shrinks_is_an_error() {
    for direct_io in [false, true] {
        for (after, divisor) in [(0, 2), (1, 3), (2, 2), (3, 50)] {
            with_each(Options { direct_io, ..Options::default() }, |patient| {
                let len = patient.len() / divisor;
                patient.context += &format!(", cut to {len} after {after}");
                patient.add(Effect::SetLen(len), |fault| fault.after(after).times(1));
                let is_noticed = reads_or_says_changed(patient);
                assert!(is_noticed || patient.hits() == 0 || !direct_io, "{}", patient.context);
            });
        }
    }
}

/// A longer file has the right bytes too, but a format may refuse a file that has changed.
#[test]
fn a_file_that_grows_has_no_wrong_bytes() {
    for direct_io in [false, true] {
        with_each(Options { direct_io, ..Options::default() }, |patient| {
            let len = patient.len() + 100_000;
            patient.context += &format!(", extended to {len}");
            patient.add(Effect::SetLen(len), |fault| fault.after(1).times(1));
            reads_or_says_changed(patient);
        });
    }
}

#[test]
fn slow_answers_change_nothing() {
    with_each(Options::default(), |patient| {
        patient.add(Effect::Delay(Duration::from_millis(50)), |fault| fault.after(1).times(4));
        let mut reading = patient.open(&patient.engine()).unwrap();
        patient.read_healed(&mut *reading);
    });
}
