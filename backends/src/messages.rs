//! Compares every error message with `tests/messages.txt`, so that a new or changed message is read in
//! review. `RINGMAIN_UPDATE_MESSAGES=1` rewrites the file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::auto::{AdviceReport, AutoReport};
use crate::retry::Shortfall;
use crate::version::ChangedFile;
use crate::{
    BackendKind, BackendOptions, BufferPool, Error, FileChange, GdsError, Lacking, PoolOptions,
    WhenSpent, open_backend, sys,
};

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");

/// All of `Error::variant`.
const VARIANTS: usize = 14;

fn path() -> PathBuf {
    "/data/a.bin".into()
}

fn os(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Errors of reading files.
fn reading() -> Vec<Error> {
    let backend = BackendKind::Uring;
    let open = |errno| Error::Open { backend, path: path(), source: os(errno) };
    let read =
        |source| Error::Read { backend, path: path(), offset: 4096, len: 512, index: 3, source };
    let mut errors: Vec<_> =
        [libc::ENOENT, libc::EACCES, libc::EMFILE, libc::ENFILE].into_iter().map(open).collect();
    for what in ["directory", "special file (a pipe, socket or device)"] {
        errors.push(Error::NotAFile { backend, path: path(), what });
    }
    errors.extend([libc::EIO, libc::EMFILE, libc::ENOMEM].into_iter().map(|errno| read(os(errno))));
    errors.push(read(io::ErrorKind::UnexpectedEof.into()));
    errors.push(Error::PastEnd {
        backend,
        path: path(),
        offset: 4096,
        len: 512,
        index: 0,
        file_len: 4100,
    });
    errors.push(Error::Replaced { backend, path: path(), offset: 4096 });
    errors.push(Error::OutsideRuntime { path: path() });
    errors.push(Error::ForeignHandle { backend, path: path() });
    for (operation, errno) in
        [("map", libc::ENOMEM), ("lock", libc::ENOMEM), ("release", libc::EINVAL)]
    {
        let source = os(errno);
        errors.push(Error::Mapping { operation, path: path(), offset: 0, len: 4096, source });
    }
    errors
}

/// Errors of opening a backend, and of what a filesystem refuses.
fn setting_up() -> Vec<Error> {
    let errnos = [libc::EPERM, libc::ENOSYS, libc::ENOMEM, libc::EMFILE, libc::EINVAL];
    let mut errors: Vec<_> =
        errnos.into_iter().map(|errno| Error::no_ring(BackendKind::Uring, &os(errno))).collect();
    errors.push(Error::not_built(BackendKind::Uring, "uring", false));
    errors.push(Error::not_built(BackendKind::Uring, "uring", true));
    errors.push(open_backend(BackendKind::Other("mine"), &BackendOptions::default()).unwrap_err());
    for (backend, reason, way_out) in [
        (BackendKind::Direct, "its filesystem refuses O_DIRECT", ""),
        (
            BackendKind::Uncached,
            "RWF_DONTCACHE is refused",
            "use Linux 6.14 or later, and ext4 or XFS",
        ),
        (
            BackendKind::Uncached,
            "RWF_DONTCACHE is refused",
            "allow preadv2 with flags in the seccomp profile of the container",
        ),
    ] {
        let (reason, way_out) = (reason.into(), way_out.into());
        errors.push(Error::FileUnsupported { backend, path: path(), reason, way_out });
    }
    errors.extend(["urnig", "postgres"].map(|name| name.parse::<BackendKind>().unwrap_err()));
    let good = BackendOptions::default;
    for options in [
        BackendOptions { open_files_max: 0, ..good() },
        BackendOptions { depth_max: 1 << 20, ..good() },
        BackendOptions { chunk_bytes: 5000, ..good() },
    ] {
        errors.push(open_backend(BackendKind::Pread, &options).unwrap_err());
    }
    errors
}

/// Errors of buffers.
fn memory() -> Vec<Error> {
    let pool =
        |limit_bytes| BufferPool::new(PoolOptions { limit_bytes, when_spent: WhenSpent::Fail });
    let small = pool(32_768).unwrap();
    let too_large = small.take(100_000).unwrap_err();
    let _all = small.take(32_768).unwrap();
    let spent = small.take(4096).unwrap_err();
    let out = Error::OutOfMemory { requested_bytes: 4096, source: os(libc::ENOMEM) };
    vec![too_large, spent, out, pool(5).unwrap_err()]
}

/// The explanations of `auto`.
fn reports() -> Vec<String> {
    let rejected = |error: &Error| vec![Lacking { what: "uring", reason: error.why() }];
    let refused = rejected(&Error::no_ring(BackendKind::Uring, &os(libc::EPERM)));
    let absent = rejected(&Error::not_built(BackendKind::Uring, "uring", false));
    let advice = |is_used, reason: &str| {
        let path = Path::new("/home/me/.config/ringmain/profile.toml").to_owned();
        Some(AdviceReport { path, is_used, reason: reason.into() })
    };
    let cases = [
        (BackendKind::Uring, vec![], None),
        (BackendKind::Direct, refused, None),
        (BackendKind::Pread, absent, None),
        (BackendKind::Mmap, vec![], advice(true, "mmap: 3 times pread")),
        (BackendKind::Uring, vec![], advice(false, "line 3: `depth_max`: `many` is no number")),
    ];
    let explain = |(choice, rejected, advice): (_, Vec<Lacking>, Option<_>)| {
        AutoReport::new(choice, rejected, advice).explain(true)
    };
    cases.into_iter().map(explain).collect()
}

/// The errors of a read that is never complete.
fn shortfalls() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), [0; 10]).unwrap();
    let file = std::fs::File::open(dir.path().join("a")).unwrap();
    let no_bytes = match crate::retry::shortfall_at_end(&file, 10) {
        Shortfall::Io(error) => error,
        Shortfall::PastEnd(len) => panic!("the file has {len} bytes"),
    };
    vec![no_bytes.to_string(), crate::device::no_progress().to_string()]
}

/// The errors of reads into memory of a GPU. Those about files are above.
fn gds() -> Vec<GdsError> {
    let library = || "libcufile.so.0".to_owned();
    let reason = || "/proc/driver/nvidia/gpus: No such file or directory (os error 2)".to_owned();
    let cufile =
        |code, meaning, cuda| GdsError::CuFile { function: "cuFileRead", code, meaning, cuda };
    let changed = |change| {
        let source = io::Error::new(io::ErrorKind::StaleNetworkFileHandle, ChangedFile(change));
        let (backend, path) = (BackendKind::Direct, path());
        GdsError::File(Error::Read { backend, path, offset: 4096, len: 512, index: 0, source })
    };
    vec![
        GdsError::Disabled,
        GdsError::Library { library: library(), reason: "undefined symbol: cuFileRead".into() },
        GdsError::NoDevice { reason: reason() },
        cufile(5008, "this filesystem does not support it", None),
        cufile(5011, "CUDA failed", Some(700)),
        GdsError::Cuda { function: "cuMemcpyHtoD", code: 201 },
        GdsError::OutsideMemory { at: 100, len: 4096, memory_bytes: 4096 },
        GdsError::Forked,
        changed(FileChange::Truncated { len: 10 }),
        changed(FileChange::Written),
    ]
}

#[test]
fn every_message_is_in_the_snapshot() {
    let errors: Vec<Error> = reading().into_iter().chain(setting_up()).chain(memory()).collect();
    let variants: std::collections::BTreeSet<_> = errors.iter().map(Error::variant).collect();
    assert_eq!(variants.len(), VARIANTS, "{variants:?}");
    // The limit depends on the machine.
    let limit = sys::memlock_limit_bytes()
        .map_or_else(|| "no limit".to_owned(), |bytes| format!("{bytes} bytes"));
    let mut text = String::new();
    for error in &errors {
        let message = error.to_string().replace(&limit, "8388608 bytes");
        writeln!(text, "{}\n    {message}", error.variant()).unwrap();
        assert!(std::error::Error::source(error).is_none(), "the message has it already");
    }
    for message in reports() {
        writeln!(text, "auto\n    {message}").unwrap();
    }
    for error in gds() {
        writeln!(text, "gds\n    {error}").unwrap();
    }
    for message in shortfalls() {
        writeln!(text, "source of Read\n    {message}").unwrap();
    }
    if std::env::var_os("RINGMAIN_UPDATE_MESSAGES").is_some() {
        std::fs::write(SNAPSHOT, &text).unwrap();
    }
    let expected = std::fs::read_to_string(SNAPSHOT).unwrap();
    assert_eq!(text, expected, "look at tests/messages.txt");
}
