//! A backend under test: how to open it, and which cases it is known to fail.

use std::fmt;
use std::sync::Arc;

use crate::{BackendOptions, ReadBackend, Result};

use super::{CASES, run};

type Factory = dyn Fn(&BackendOptions) -> Result<Arc<dyn ReadBackend>> + Send + Sync;

/// A backend under test.
///
/// The factory is called with the options that a case is about; a backend honours those that
/// concern it.
#[derive(Clone)]
pub struct Subject {
    name: String,
    /// Its name in [`REQUIRE_BACKENDS`](super::REQUIRE_BACKENDS).
    backend: String,
    factory: Arc<Factory>,
    skips: Vec<Skip>,
    refusal: Option<Refusal>,
    entry: ChildEntry,
}

#[derive(Clone, Debug)]
pub(super) struct Skip {
    pub(super) case: &'static str,
    pub(super) reason: &'static str,
    pub(super) is_run: bool,
}

/// A filesystem that the backend cannot read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    /// A success is then a failure.
    pub(super) is_certain: bool,
}

/// Which test of the binary leads a child process back to the case that started it.
#[derive(Clone, Debug)]
enum ChildEntry {
    Unknown,
    /// The test of the same name in this module.
    Module(String),
    /// One test for all cases.
    Test(String),
}

impl Subject {
    /// A backend, by its name in [`REQUIRE_BACKENDS`](super::REQUIRE_BACKENDS).
    pub fn new(
        backend: impl Into<String>,
        factory: impl Fn(&BackendOptions) -> Result<Arc<dyn ReadBackend>> + Send + Sync + 'static,
    ) -> Self {
        let backend = backend.into();
        Self {
            name: backend.clone(),
            backend,
            factory: Arc::new(factory),
            skips: Vec::new(),
            refusal: None,
            entry: ChildEntry::Unknown,
        }
    }

    /// The same backend with other options: a name of its own, required together.
    #[must_use]
    pub fn variant(mut self, suffix: &str) -> Self {
        self.name = format!("{}-{suffix}", self.backend);
        self
    }

    /// A case that this backend fails, and why it may. The case is run all the same: if it
    /// passes, the entry is out of date and that is a failure.
    #[must_use]
    pub fn fails(self, case: &'static str, reason: &'static str) -> Self {
        self.with_skip(Skip { case, reason, is_run: true })
    }

    /// A case that is not run with this backend, and why not.
    #[must_use]
    pub fn leaves_out(self, case: &'static str, reason: &'static str) -> Self {
        self.with_skip(Skip { case, reason, is_run: false })
    }

    /// Lists the cases in which a device fails. This backend has none below it, or reads from memory.
    #[must_use]
    pub fn without_device(self, reason: &'static str) -> Self {
        const CASES: [&str; 6] = [
            "endless_interruption_ends",
            "device_error_surfaces",
            "placed_reads_name_the_range_that_failed",
            "device_error_among_neighbours",
            "first_device_error_is_named",
            "nothing_in_flight_after_an_error",
        ];
        CASES.into_iter().fold(self, |subject, case| subject.fails(case, reason))
    }

    /// Lists the cases in which a file grows or is truncated. This backend returns the bytes of the version that was
    /// opened.
    #[must_use]
    pub fn with_snapshots(self, reason: &'static str) -> Self {
        const CASES: [&str; 4] = [
            "file_that_grew",
            "length_follows_the_file",
            "truncated_file",
            "truncated_while_being_read",
        ];
        CASES.into_iter().fold(self, |subject, case| subject.fails(case, reason))
    }

    fn with_skip(mut self, skip: Skip) -> Self {
        self.skips.push(skip);
        self
    }

    /// The backend does not work on the filesystem under test, and why. If it does work, that is
    /// a failure.
    #[must_use]
    pub fn refuses_here(mut self, reason: &'static str) -> Self {
        self.refusal = Some(Refusal { reason, is_certain: true });
        self
    }

    /// The backend does not work on the filesystem under test with every kernel, and why.
    #[must_use]
    pub fn may_refuse_here(mut self, reason: &'static str) -> Self {
        self.refusal = Some(Refusal { reason, is_certain: false });
        self
    }

    /// The subject as the tests of a module: `module_path!()` there.
    #[doc(hidden)]
    #[must_use]
    pub fn in_module(mut self, module_path: &str) -> Self {
        // libtest's names begin after the name of the crate.
        let (_crate_name, module) = module_path.split_once("::").unwrap_or(("", module_path));
        self.entry = ChildEntry::Module(module.to_owned());
        self
    }

    /// The subject for [`run_all`](super::run_all): `test` is the name of a test that calls
    /// [`run_child`](Self::run_child) for it.
    #[must_use]
    pub fn with_child_test(mut self, test: impl Into<String>) -> Self {
        self.entry = ChildEntry::Test(test.into());
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the backend.
    pub fn open(&self, options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
        (self.factory)(options)
    }

    /// Runs one case as the body of a test: it panics if the case fails.
    pub fn test(&self, case: &str) {
        run::test(self, case);
    }

    /// Continues a case in a child process that the case has started. Elsewhere it does nothing.
    pub fn run_child(&self) {
        run::run_child(self);
    }

    /// Panics if an expected skip names a case that does not exist.
    pub fn check_skips(&self) {
        for skip in &self.skips {
            let known = CASES.iter().any(|case| case.name() == skip.case);
            // Cases that this platform lacks may be listed: the lists are for all of them.
            assert!(
                known || cfg!(not(unix)),
                "`{}` lists `{}` as a skip, and there is no such case",
                self.name,
                skip.case
            );
        }
    }

    pub(super) fn backend(&self) -> &str {
        &self.backend
    }

    pub(super) fn skip(&self, case: &str) -> Option<&Skip> {
        self.skips.iter().find(|skip| skip.case == case)
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// The libtest name that leads to the case in a child process.
    pub(super) fn entry(&self, case: &str) -> String {
        match &self.entry {
            ChildEntry::Module(module) if module.is_empty() => case.to_owned(),
            ChildEntry::Module(module) => format!("{module}::{case}"),
            ChildEntry::Test(test) => test.clone(),
            ChildEntry::Unknown => panic!("`{}` has no test for its children", self.name),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("name", &self.name)
            .field("skips", &self.skips)
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}
