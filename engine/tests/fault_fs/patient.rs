//! A file of one format on a filesystem that fails, and one backend that reads it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use ringmain::backends::probe::drop_cached;
use ringmain::backends::{Error as BackendError, ReadBackendExt};
use ringmain::{BackendKind, Engine, Error, Result};
use ringmain_fault_fs::{Effect, Fault, FaultFs, Options};

use crate::SERVER;
use crate::formats::{FORMATS, Format, Reading};
use crate::support::or_unavailable;

/// More than any reading takes.
const STEPS_MAX: usize = 10_000;

pub(crate) struct Patient {
    fs: FaultFs,
    kind: BackendKind,
    format: &'static Format,
    /// Bytes of the file that every reading needs. The first is in the header.
    pub(crate) needed: Vec<u64>,
    /// A description of the test, for its messages.
    pub(crate) context: String,
}

/// Runs a disaster with every format on every backend, each on a fresh filesystem.
pub(crate) fn with_each(options: Options, mut body: impl FnMut(&mut Patient)) {
    for format in &FORMATS {
        let mut ran = 0;
        for kind in BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Memory) {
            let fs = match FaultFs::mount(options, SERVER) {
                Ok(fs) => fs,
                Err(error) => return say_missing(&error.to_string()),
            };
            let needed = (format.write)(fs.path());
            let context = format!("{}, {kind}, direct_io {}", format.name, options.direct_io);
            let mut patient = Patient { fs, kind, format, needed, context };
            if patient.is_readable() {
                body(&mut patient);
                ran += 1;
            }
        }
        assert!(ran >= 2, "{}: only {ran} backends could read the filesystem", format.name);
    }
}

/// Says that nothing was tested, or fails where it must be.
fn say_missing(why: &str) {
    let required = std::env::var("CI").is_ok_and(|value| value == "true")
        || std::env::var_os("RINGMAIN_REQUIRE_FILESYSTEMS").is_some();
    assert!(!required, "a FUSE filesystem is required and cannot be tested: {why}");
    // Not `eprintln!`, which the test harness captures.
    let _ = writeln!(std::io::stderr(), "a FUSE filesystem: not tested: {why}");
}

impl Patient {
    pub(crate) fn path(&self) -> PathBuf {
        self.fs.path().join(self.format.file)
    }

    pub(crate) fn len(&self) -> u64 {
        self.path().metadata().unwrap().len()
    }

    /// Adds a fault of the file.
    pub(crate) fn add(&self, effect: Effect, configure: impl FnOnce(Fault) -> Fault) {
        self.fs.add(&configure(Fault::new(self.format.file, effect)));
    }

    pub(crate) fn heal(&self) {
        self.fs.heal();
    }

    pub(crate) fn hits(&self) -> u64 {
        self.fs.hits()
    }

    /// Whether the backend can read this filesystem; if not, it says so. `uncached` finds that at its first
    /// read.
    fn is_readable(&self) -> bool {
        let build = Engine::builder().backend(self.kind).ignore_profile().build();
        let Some(engine) = or_unavailable(self.kind, build) else { return false };
        let read = engine.backend().open(&self.path());
        let read = read.and_then(|file| engine.backend().read_to_vec(&file, 0, 1));
        match read {
            Ok(_) => true,
            Err(BackendError::FileUnsupported { .. }) => false,
            Err(error) => panic!("{}: {error}", self.context),
        }
    }

    /// A new engine, and nothing of the files in the page cache.
    pub(crate) fn engine(&self) -> Engine {
        for entry in self.fs.path().read_dir().unwrap() {
            let file = File::open(entry.unwrap().path()).unwrap();
            file.sync_all().unwrap();
            drop_cached(&file, 0..u64::MAX).unwrap();
        }
        Engine::builder().backend(self.kind).ignore_profile().build().unwrap()
    }

    pub(crate) fn open(&self, engine: &Engine) -> Result<Box<dyn Reading>> {
        (self.format.open)(engine, self.fs.path())
    }

    /// Reads to the first error, or to the end.
    pub(crate) fn read(&self, reading: &mut dyn Reading) -> Result<()> {
        for _ in 0..STEPS_MAX {
            if !reading.next()? {
                return Ok(());
            }
        }
        panic!("{}: no end", self.context);
    }

    /// Reads on after the fault was healed.
    pub(crate) fn read_healed(&self, reading: &mut dyn Reading) {
        self.read(reading).unwrap_or_else(|error| panic!("{}, healed: {error}", self.context));
    }

    /// Checks that the error is about the file, and is that of the device.
    pub(crate) fn check_device_error(&self, error: &Error, errno: i32, byte: Option<u64>) {
        const PAGE: u64 = 4096;
        let context = format!("{}: {error:?}", self.context);
        assert_eq!(error.path(), Some(&*self.path()), "{context}");
        assert_eq!(error.raw_os_error(), Some(errno), "{context}");
        let offset = error.offset().unwrap_or_else(|| panic!("no offset, {context}"));
        // The kernel reads whole pages.
        let end = byte.map_or(self.len(), |byte| (byte / PAGE + 1) * PAGE);
        assert!(offset < end, "{context}");
    }

    /// Checks that the error is about the file, and says that it is not what it was.
    pub(crate) fn check_changed(&self, error: &Error) {
        use std::io::ErrorKind::{InvalidData, StaleNetworkFileHandle, UnexpectedEof};
        let context = format!("{}: {error:?}", self.context);
        assert_eq!(error.path(), Some(&*self.path()), "{context}");
        let kinds = [InvalidData, StaleNetworkFileHandle, UnexpectedEof];
        assert!(kinds.contains(&error.kind()), "{context}");
    }
}
