//! Scripted disasters: an error, short answers, delays, a file that changes between two requests of a
//! batch.

use std::time::Duration;

use ringmain_backends::{
    BackendKind, Error, FileHandle, Read, ReadBackend, ReadBackendExt, Result,
};
use ringmain_fault_fs::{Effect, Fault, Inodes, ODirect, Options};

use crate::{LEN, NAME, Patient, backends};

const PAGE: usize = 4096;

/// Reads of a batch: offset and length. They cover the file, aligned and not, and overlap.
const BATCH: [(usize, usize); 7] = [
    (0, 10_000),
    (10_000, 50_000),
    (65_536, 65_536),
    (131_000, 5),
    (131_072, 300_000),
    (400_001, 299_999),
    (LEN - 1, 1),
];

/// The value of a batch's memory before it is read. No byte of the file has this value, and the kernel writes zeros
/// where it has no data.
const UNTOUCHED: u8 = 0xFF;

/// Reads the batch, and returns each read's bytes with how the batch ended.
fn read_batch(backend: &dyn ReadBackend, file: &FileHandle) -> (Vec<Vec<u8>>, Result<()>) {
    let mut memory = BATCH.map(|(_, len)| vec![UNTOUCHED; len]);
    let mut reads: Vec<_> = BATCH
        .iter()
        .zip(&mut memory)
        .map(|((offset, _), dst)| Read::new(file, *offset as u64, dst))
        .collect();
    let ended = backend.read_batch(&mut reads);
    drop(reads);
    (memory.into(), ended)
}

/// Panics unless the batch has the bytes of the file.
fn assert_right(patient: &Patient, got: &[Vec<u8>], context: &str) {
    for ((offset, len), got) in BATCH.into_iter().zip(got) {
        let right = &patient.contents[offset..offset + len];
        if let Some(at) = (0..len).find(|at| got[*at] != right[*at]) {
            let until = (at..len).rfind(|at| got[*at] != right[*at]).unwrap_or(at);
            panic!("{context}: bytes {at} to {until} of the {len} at {offset} are wrong");
        }
    }
}

/// Opens the file, or `None` if this backend cannot read this filesystem and says so.
fn open(backend: &dyn ReadBackend, patient: &Patient) -> Option<FileHandle> {
    match backend.open(&patient.path()) {
        Ok(file) => Some(file),
        Err(error) => {
            assert!(matches!(error, Error::FileUnsupported { .. }), "{error:?}");
            assert_eq!(error.path(), Some(&*patient.path()));
            None
        }
    }
}

/// Runs a disaster with every backend on a fresh filesystem.
fn with_each(options: Options, mut body: impl FnMut(&dyn ReadBackend, &Patient, &FileHandle)) {
    let mut ran = 0;
    for backend in backends() {
        let Some(patient) = Patient::mount(options) else { return };
        let Some(file) = open(&*backend, &patient) else { continue };
        // `uncached` opens the file, and finds at its first read that FUSE cannot serve it.
        match backend.read_to_vec(&file, 0, 1) {
            Err(Error::FileUnsupported { .. }) => continue,
            outcome => assert_eq!(outcome.unwrap(), patient.contents[..1]),
        }
        patient.forget();
        body(&*backend, &patient, &file);
        ran += 1;
    }
    assert!(ran >= 2, "only {ran} backends could read the filesystem");
}

/// Panics unless the error is of the read that touches the byte, and of this errno.
fn assert_names(patient: &Patient, error: &Error, byte: usize, errno: i32, context: &str) {
    let Error::Read { path, offset, len, index, source, .. } = error else {
        panic!("{context}: not the error of a read: {error:?}");
    };
    assert_eq!(path, &patient.path(), "{context}");
    assert_eq!(source.raw_os_error(), Some(errno), "{context}: {error}");
    let asked = (usize::try_from(*offset).unwrap(), *len);
    assert_eq!(asked, BATCH[*index], "{context}: {error}");
    // The page cache reads whole pages, and the device whole blocks.
    let pages = asked.0 / PAGE..=(asked.0 + asked.1 - 1) / PAGE;
    assert!(pages.contains(&(byte / PAGE)), "{context}: byte {byte} is not near {error}");
}

/// A bad sector fails the first read that needs it, and no other. When it is readable again, so is
/// everything.
#[test]
fn an_error_names_its_read_and_passes() {
    for errno in [libc::EIO, libc::ESTALE, libc::EAGAIN, libc::ENODATA] {
        for byte in [0, 70_000, 131_001, 399_999, LEN - 1] {
            with_each(Options::default(), |backend, patient, file| {
                let context = format!("{}, errno {errno} at {byte}", backend.kind());
                let at = byte as u64;
                patient.fs.add(&Fault::new(NAME, Effect::Error(errno)).at(at..at + 1));
                let (_, ended) = read_batch(backend, file);
                assert_names(patient, &ended.unwrap_err(), byte, errno, &context);
                check_reads_elsewhere(backend, patient, file, byte, &context);
                patient.fs.heal();
                let (got, ended) = read_batch(backend, file);
                ended.unwrap_or_else(|error| panic!("{context}, healed: {error}"));
                assert_right(patient, &got, &context);
            });
        }
    }
}

/// Reads that share no page with the bad byte succeed beside it.
fn check_reads_elsewhere(
    backend: &dyn ReadBackend,
    patient: &Patient,
    file: &FileHandle,
    byte: usize,
    context: &str,
) {
    let page = byte / PAGE * PAGE;
    for (offset, len) in [(page.wrapping_sub(9000), 9000), (page + PAGE, 9000)] {
        if offset.checked_add(len).is_none_or(|end| end > LEN) {
            continue;
        }
        let got = backend.read_to_vec(file, offset as u64, len);
        let got = got.unwrap_or_else(|error| panic!("{context}, elsewhere: {error}"));
        assert!(got[..] == patient.contents[offset..offset + len], "{context}: wrong at {offset}");
    }
}

/// An error that occurs only once may surface or not (the kernel asks again for what it had only read
/// ahead), and the batch after it is right.
#[test]
fn an_error_at_any_request_is_no_wrong_byte() {
    for after in [0, 1, 2, 3, 5, 8] {
        with_each(Options::default(), |backend, patient, file| {
            let context = format!("{}, the request after {after} fails", backend.kind());
            patient.fs.add(&Fault::new(NAME, Effect::Error(libc::EIO)).after(after).times(1));
            let (got, ended) = read_batch(backend, file);
            match ended {
                Ok(()) => assert_right(patient, &got, &context),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{context}: {error}")
                }
            }
            patient.fs.heal(); // A backend that makes few requests has not met it.
            let (got, ended) = read_batch(backend, file);
            ended.unwrap_or_else(|error| panic!("{context}, again: {error}"));
            assert_right(patient, &got, &context);
        });
    }
}

/// Past the page cache a short answer is a short read, in mid-file and of any length: it is continued.
#[test]
fn short_answers_are_continued() {
    for bytes in [1, 511, 512, 513, 4095, 4096, 4097, 65_535] {
        let options = Options { direct_io: true, ..Options::default() };
        with_each(options, |backend, patient, file| {
            let context = format!("{}, {bytes} bytes at a time", backend.kind());
            // For all of the file at one byte each it would be 700,000 requests.
            let bytes_hit = if bytes == 1 { 69_000..69_100 } else { 0..u64::MAX };
            patient.fs.add(&Fault::new(NAME, Effect::AtMost(bytes)).at(bytes_hit));
            let (got, ended) = read_batch(backend, file);
            ended.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_right(patient, &got, &context);
            assert!(patient.fs.hits() > 0, "{context}: no answer was short");
        });
    }
}

/// A filesystem without `direct_io` must answer in full. If it does not, the kernel takes the short answer for the end of
/// the file, or puts zeros into the page cache if the file's attributes arrived at the same time; then pread(2) returns
/// these zeros too. So a read that succeeds has the file's bytes or the kernel's zeros, and never memory that was not
/// written. Past the page cache there are no zeros.
#[test]
fn short_answers_to_the_page_cache_leave_nothing_unwritten() {
    const SHORT: usize = 200_000;
    for bytes in [1, 4095, 4096, 5000] {
        with_each(Options::default(), |backend, patient, file| {
            let context = format!("{}, {bytes} bytes once", backend.kind());
            let at = SHORT as u64..SHORT as u64 + 1;
            patient.fs.add(&Fault::new(NAME, Effect::AtMost(bytes)).at(at).times(1));
            let (got, ended) = read_batch(backend, file);
            match ended {
                Ok(()) if backend.kind() == BackendKind::Direct => {
                    assert_right(patient, &got, &context)
                }
                Ok(()) => assert_right_or_zeros_around(patient, &got, SHORT, &context),
                Err(Error::PastEnd { path, .. }) => assert_eq!(path, patient.path(), "{context}"),
                Err(error) => panic!("{context}: {error:?}"),
            }
        });
    }
}

/// Panics unless the batch has the bytes of the file, or zeros within one request of the kernel around this byte.
fn assert_right_or_zeros_around(patient: &Patient, got: &[Vec<u8>], byte: usize, context: &str) {
    /// The kernel asks this filesystem for no more than 32 pages at once.
    const REQUEST_BYTES_MAX: usize = 32 * PAGE;
    let near = byte.saturating_sub(REQUEST_BYTES_MAX)..byte + REQUEST_BYTES_MAX;
    for ((offset, len), got) in BATCH.into_iter().zip(got) {
        for at in offset..offset + len {
            let got = got[at - offset];
            let is_right = got == patient.contents[at] || got == 0 && near.contains(&at);
            assert!(is_right, "{context}: byte {at} is {got}");
        }
    }
}

#[test]
fn slow_answers_change_nothing() {
    with_each(Options::default(), |backend, patient, file| {
        let slow = Effect::Delay(Duration::from_millis(50));
        patient.fs.add(&Fault::new(NAME, slow).at(100_000..100_001).times(3));
        let (got, ended) = read_batch(backend, file);
        ended.unwrap();
        assert_right(patient, &got, &format!("{}", backend.kind()));
    });
}

/// Another machine cuts the file between two requests of a batch: reads before the cut are right, and
/// the batch fails because the file ends, or was complete before the cut.
#[test]
fn a_file_that_shrinks_in_mid_batch_is_an_error() {
    for direct_io in [false, true] {
        for (after, len) in [(0, 0), (0, 300_000), (1, 131_072), (2, 401_000), (1, LEN - 2)] {
            with_each(Options { direct_io, ..Options::default() }, |backend, patient, file| {
                let context = format!(
                    "{}, direct_io {direct_io}, cut to {len} after {after}",
                    backend.kind()
                );
                let cut = Effect::SetLen(len as u64);
                patient.fs.add(&Fault::new(NAME, cut).after(after).times(1));
                let (got, ended) = read_batch(backend, file);
                match ended {
                    Ok(()) => assert_right(patient, &got, &context),
                    Err(Error::PastEnd { path, offset, len: asked, .. }) => {
                        assert_eq!(path, patient.path(), "{context}");
                        assert!(offset as usize + asked > len, "{context}: {offset} + {asked}");
                    }
                    Err(error) => panic!("{context}: {error:?}"),
                }
            });
        }
    }
}

#[test]
fn a_file_that_grows_in_mid_batch_is_read_as_it_was() {
    for direct_io in [false, true] {
        with_each(Options { direct_io, ..Options::default() }, |backend, patient, file| {
            let grown = Effect::SetLen(LEN as u64 + 100_000);
            patient.fs.add(&Fault::new(NAME, grown).after(1).times(1));
            let (got, ended) = read_batch(backend, file);
            ended.unwrap();
            assert_right(patient, &got, &format!("{}, direct_io {direct_io}", backend.kind()));
            let new = backend.read_to_vec(file, LEN as u64 - 1, 100).unwrap();
            assert_eq!(new[0], patient.contents[LEN - 1], "{}", backend.kind());
            assert!(new[1..].iter().all(|byte| *byte == 0), "{}", backend.kind());
        });
    }
}

/// `auto` reads on without `O_DIRECT`, whether it is refused when the file is opened or when it is read.
/// The backends that are nothing without it say so and name a way out.
#[test]
fn a_refused_o_direct_has_a_way_out() {
    for o_direct in [ODirect::RefusedAtOpen, ODirect::RefusedAtRead] {
        for backend in backends() {
            let Some(patient) = Patient::mount(Options { o_direct, ..Options::default() }) else {
                return;
            };
            let kind = backend.kind();
            let read = backend.open(&patient.path()).and_then(|file| {
                let (got, ended) = read_batch(&*backend, &file);
                ended.map(|()| got)
            });
            match read {
                Ok(got) => assert_right(&patient, &got, &format!("{kind}, {o_direct:?}")),
                Err(error) => {
                    assert!(kind.name() != "auto" && kind.name() != "pread", "{kind}: {error}");
                    assert_eq!(error.path(), Some(&*patient.path()), "{error:?}");
                    assert!(error.is_unsupported(), "{kind}, {o_direct:?}: {error:?}");
                    assert!(error.to_string().contains("use `pread`"), "no way out in: {error}");
                }
            }
        }
    }
}

/// A file that is evicted from the handle cache is found again where inode numbers do not last.
#[test]
fn new_inode_numbers_are_no_replacement() {
    let options = Options { inodes: Inodes::NewAtEachLookup, ..Options::default() };
    with_each(options, |backend, patient, file| {
        let kind = backend.kind();
        let (got, ended) = read_batch(backend, file);
        ended.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_right(patient, &got, &format!("{kind}"));
        let again = backend.open(&patient.path()).unwrap();
        let (got, ended) = read_batch(backend, &again);
        ended.unwrap_or_else(|error| panic!("{kind}, opened again: {error}"));
        assert_right(patient, &got, &format!("{kind}, opened again"));
    });
}

/// Every look at the file finds another inode number. The file counted as replaced, and every reader of a
/// format refused it.
#[test]
fn a_file_with_a_new_inode_number_has_not_changed() {
    let options = Options { inodes: Inodes::NewAtEachLookup, ..Options::default() };
    let Some(patient) = Patient::mount(options) else { return };
    for backend in backends() {
        let Some(file) = open(&*backend, &patient) else { continue };
        let before = backend.version(&file).unwrap();
        let now = backend.version(&file).unwrap();
        assert_eq!(now.change_since(&before), None, "{}", backend.kind());
    }
}
