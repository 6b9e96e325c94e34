//! NVIDIA's libraries, where they are installed: loaded by name, so that nothing depends on them.

use std::ffi::{CStr, c_int, c_uint};

/// A library that stays loaded: CUDA's register functions to be run when the program ends.
struct Library(*mut libc::c_void);

impl Library {
    fn load(name: &CStr) -> Result<Self, String> {
        // SAFETY: the name ends with a NUL. What the library does when it is loaded is its vendor's
        // business; `RTLD_LOCAL` keeps its symbols from anybody else's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(last_error()) } else { Ok(Self(handle)) }
    }

    fn symbol(&self, name: &CStr) -> Result<*mut libc::c_void, String> {
        // SAFETY: the handle is of a library that stays loaded, and the name ends with a NUL.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() { Err(last_error()) } else { Ok(symbol) }
    }
}

/// What the loader said last on this thread.
fn last_error() -> String {
    // SAFETY: `dlerror` gives null or a string that is valid until the thread's next call of the
    // loader, and it is copied before that.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "the loader gave no reason".into())
}

/// Whether cuFile, which is GPUDirect Storage, can be loaded and is what it should be.
pub(crate) fn load_cufile() -> Result<(), String> {
    Library::load(c"libcufile.so.0")?.symbol(c"cuFileDriverOpen").map(drop)
}

/// How many GPUs the driver has.
pub(crate) fn count_cuda_devices() -> Result<u32, String> {
    let library = Library::load(c"libcuda.so.1")?;
    let (init, count) = (library.symbol(c"cuInit")?, library.symbol(c"cuDeviceGetCount")?);
    // SAFETY: `CUresult cuInit(unsigned int)` since CUDA 2.0.
    let init: extern "C" fn(c_uint) -> c_int = unsafe { std::mem::transmute(init) };
    // SAFETY: `CUresult cuDeviceGetCount(int *)` since CUDA 2.0.
    let count: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(count) };
    check(init(0), "cuInit")?;
    let mut devices = 0;
    // SAFETY: the pointer is to a live integer.
    check(unsafe { count(&raw mut devices) }, "cuDeviceGetCount")?;
    Ok(u32::try_from(devices).unwrap_or(0))
}

fn check(result: c_int, call: &str) -> Result<(), String> {
    if result == 0 { Ok(()) } else { Err(format!("{call} failed with CUDA error {result}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let error = Library::load(c"libringmain-none.so.0").map(drop).unwrap_err();
        assert!(error.contains("libringmain-none.so.0"), "{error}");
        // A library that every program here has, though not as a GPU's.
        let c = Library::load(c"libc.so.6").unwrap();
        assert!(c.symbol(c"malloc").is_ok());
        let error = c.symbol(c"cuFileDriverOpen").unwrap_err();
        assert!(error.contains("cuFileDriverOpen"), "{error}");
        assert_eq!(check(100, "cuInit").unwrap_err(), "cuInit failed with CUDA error 100");
    }
}
