//! NVIDIA's cuFile and driver, where they are installed. The library is loaded by name, so that
//! nothing depends on it. No call is made into the driver here, but only in `cufile.rs`: once a process has initialised CUDA, its forked
//! children cannot use it, and a probe must not cause that.

use std::ffi::CStr;
use std::path::Path;

/// Where the driver lists its GPUs, a directory for each.
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// A library that stays loaded: CUDA's register functions to be run when the program ends.
pub(super) struct Library(*mut libc::c_void);

impl Library {
    pub(super) fn load(name: &CStr) -> Result<Self, String> {
        // SAFETY: the name ends with a NUL. The vendor answers for what the library does when it is
        // loaded; `RTLD_LOCAL` keeps its symbols apart.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(last_error()) } else { Ok(Self(handle)) }
    }

    /// Returns the address of a function.
    pub(super) fn address_of(&self, name: &CStr) -> Result<*mut libc::c_void, String> {
        // SAFETY: the handle is of a library that stays loaded, and the name ends with a NUL.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() { Err(last_error()) } else { Ok(symbol) }
    }
}

/// The loader's last error on this thread.
fn last_error() -> String {
    // SAFETY: `dlerror` gives null or a string that is valid until the thread's next call of the
    // loader, and it is copied before that.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "the loader gave no reason".into())
}

/// Returns whether cuFile, which is GPUDirect Storage, can be loaded and is what it should be.
pub(crate) fn load_cufile() -> Result<(), String> {
    Library::load(c"libcufile.so.0")?.address_of(c"cuFileDriverOpen").map(drop)
}

/// Returns how many GPUs the driver has.
pub(crate) fn count_gpus() -> Result<u32, String> {
    count_entries(Path::new(GPUS))
}

fn count_entries(directory: &Path) -> Result<u32, String> {
    let entries = directory.read_dir();
    let entries = entries.map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(u32::try_from(entries.flatten().count()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_missing_library() {
        let error = Library::load(c"libringmain-none.so.0").map(drop).unwrap_err();
        assert!(error.contains("libringmain-none.so.0"), "{error}");
        // A library that every program here has, which is not cuFile.
        let c = Library::load(c"libc.so.6").unwrap();
        c.address_of(c"malloc").unwrap();
        let error = c.address_of(c"cuFileDriverOpen").unwrap_err();
        assert!(error.contains("cuFileDriverOpen"), "{error}");
    }

    /// A library that is unloaded takes the functions with it that it has registered for the end of the
    /// program.
    #[test]
    fn a_library_is_never_unloaded() {
        assert!(!std::mem::needs_drop::<Library>());
    }

    #[test]
    fn gpus_are_counted_without_a_call_into_the_driver() {
        let dir = tempfile::tempdir().unwrap();
        let error = count_entries(&dir.path().join("gpus")).unwrap_err();
        assert!(error.contains("gpus: No such file"), "{error}");
        for (at, name) in ["0000:17:00.0", "0000:65:00.0"].into_iter().enumerate() {
            assert_eq!(count_entries(dir.path()), Ok(at as u32));
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(count_entries(dir.path()), Ok(2));
    }
}
