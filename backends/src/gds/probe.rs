//! Whether GPUDirect Storage is here: NVIDIA's cuFile, and a GPU for it to write to.

use std::fmt;
use std::sync::OnceLock;

use crate::sys;

/// The result of [`probe_gds`]. With the feature `gds`, [`Gds`](crate::Gds) reads with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdsProbe {
    /// cuFile can be loaded, and the driver has GPUs.
    Available {
        /// How many.
        devices: u32,
    },
    /// cuFile cannot be loaded.
    NoLibrary {
        /// The library that was tried.
        library: &'static str,
        /// The loader's error.
        reason: String,
    },
    /// cuFile is there, but no GPU.
    NoDevice {
        /// Where the driver lists no GPU, or that there is no driver.
        reason: String,
    },
}

impl fmt::Display for GdsProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available { devices } => write!(f, "cuFile and {devices} GPUs are there"),
            Self::NoLibrary { library, reason } => {
                write!(f, "{library} could not be loaded: {reason}")
            }
            Self::NoDevice { reason } => write!(f, "cuFile is there, but no GPU: {reason}"),
        }
    }
}

/// Tries to load cuFile, and counts the GPUs that the driver lists under `/proc`, without a call into
/// CUDA. Once for the process: the answer is kept, and so is the library if it was found.
///
/// ```
/// match ringmain_backends::probe_gds() {
///     ringmain_backends::GdsProbe::Available { devices } => assert!(devices > 0),
///     missing => println!("no GPUDirect Storage: {missing}"),
/// }
/// ```
#[must_use]
pub fn probe_gds() -> GdsProbe {
    static FOUND: OnceLock<GdsProbe> = OnceLock::new();
    probe_once(&FOUND, || probe_with(sys::load_cufile, sys::count_gpus))
}

/// Without `get_or_init`: in a child that is forked while another thread is in there, it never returns.
fn probe_once(found: &OnceLock<GdsProbe>, probe: impl FnOnce() -> GdsProbe) -> GdsProbe {
    found.get().cloned().unwrap_or_else(|| {
        let answer = probe();
        let _ = found.set(answer.clone());
        answer
    })
}

fn probe_with(
    load_library: impl FnOnce() -> Result<(), String>,
    count_devices: impl FnOnce() -> Result<u32, String>,
) -> GdsProbe {
    if let Err(reason) = load_library() {
        return GdsProbe::NoLibrary { library: "libcufile.so.0", reason };
    }
    match count_devices() {
        Ok(0) => GdsProbe::NoDevice { reason: "the driver lists none".into() },
        Ok(devices) => GdsProbe::Available { devices },
        Err(reason) => GdsProbe::NoDevice { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_says_what_is_missing() {
        let missing = || Err("no such file".to_owned());
        let text = probe_with(missing, || panic!("no library, no question")).to_string();
        assert_eq!(text, "libcufile.so.0 could not be loaded: no such file");
        let failed = || Err("/proc/driver/nvidia/gpus: no such file".to_owned());
        let text = probe_with(|| Ok(()), failed).to_string();
        assert_eq!(text, "cuFile is there, but no GPU: /proc/driver/nvidia/gpus: no such file");
        assert!(matches!(probe_with(|| Ok(()), || Ok(0)), GdsProbe::NoDevice { .. }));
        assert_eq!(probe_with(|| Ok(()), || Ok(2)), GdsProbe::Available { devices: 2 });
    }

    /// The child waited for the thread of its parent that probed, which it does not have.
    #[cfg(all(unix, feature = "conformance"))]
    #[test]
    fn a_child_that_is_forked_during_a_probe_probes_by_itself() {
        use std::sync::mpsc;

        use crate::conformance::child::{in_child, in_forked_child};

        static FOUND: OnceLock<GdsProbe> = OnceLock::new();
        let test = "gds::probe::tests::a_child_that_is_forked_during_a_probe_probes_by_itself";
        in_child(test, || {
            let with_devices = |devices| GdsProbe::Available { devices };
            let ((began, begins), (end, ended)) = (mpsc::channel(), mpsc::channel());
            let probe = move || {
                began.send(()).unwrap();
                ended.recv().unwrap();
                with_devices(1)
            };
            let parent = std::thread::spawn(|| probe_once(&FOUND, probe));
            begins.recv().unwrap();
            in_forked_child(|| {
                assert_eq!(probe_once(&FOUND, || with_devices(2)), with_devices(2));
            });
            end.send(()).unwrap();
            assert_eq!(parent.join().unwrap(), with_devices(1));
            assert_eq!(probe_once(&FOUND, || with_devices(3)), with_devices(1), "it is kept");
        });
    }
}
