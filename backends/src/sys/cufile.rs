//! Calls of cuFile and of CUDA, in libraries that are loaded at run time.
//!
//! The types are those of `cufile.h` and `cuda.h`. Both libraries stay loaded to the end of the process.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::cuda::Library;

/// `CUfileError_t`: cuFile's number, and CUDA's. 0 is success.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuFileStatus {
    pub(crate) code: c_int,
    pub(crate) cuda: c_int,
}

/// `CUfileHandle_t`: a file that cuFile knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CuFileHandle(*mut c_void);

// SAFETY: it is a number to this process. cuFile allows calls with it from every thread.
unsafe impl Send for CuFileHandle {}
// SAFETY: as above.
unsafe impl Sync for CuFileHandle {}

/// Why cuFile did not read.
#[derive(Debug)]
pub(crate) enum CuFileFailed {
    /// The system's error.
    Errno(io::Error),
    /// cuFile's number.
    CuFile(i32),
}

/// `CUfileDescr_t`.
#[repr(C)]
struct Descriptor {
    kind: c_int,
    file: FileUnion,
    operations: *const c_void,
}

/// The union of a descriptor and a pointer in `CUfileDescr_t`.
#[repr(C)]
union FileUnion {
    fd: c_int,
    _handle: *mut c_void,
}

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const KIND_FD: c_int = 1;

/// cuFile's functions.
pub(crate) struct CuFile {
    driver_open: unsafe extern "C" fn() -> CuFileStatus,
    handle_register: unsafe extern "C" fn(*mut *mut c_void, *mut Descriptor) -> CuFileStatus,
    handle_deregister: unsafe extern "C" fn(*mut c_void),
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, libc::off_t, libc::off_t) -> isize,
    get_version: Option<unsafe extern "C" fn(*mut c_int) -> CuFileStatus>,
}

impl CuFile {
    /// Loads the library and finds its functions. Calls none of them.
    ///
    /// # Safety
    /// The library is cuFile, or has functions with its types and its behaviour.
    pub(crate) unsafe fn load(path: &Path) -> Result<Self, String> {
        let library = load(path)?;
        // SAFETY: the types are those of `cufile.h`, and the caller promises that the library has them.
        unsafe {
            Ok(Self {
                driver_open: library.symbol(c"cuFileDriverOpen")?,
                handle_register: library.symbol(c"cuFileHandleRegister")?,
                handle_deregister: library.symbol(c"cuFileHandleDeregister")?,
                read: library.symbol(c"cuFileRead")?,
                // Since version 1.7.
                get_version: library.symbol(c"cuFileGetVersion").ok(),
            })
        }
    }

    pub(crate) fn open_driver(&self) -> CuFileStatus {
        // SAFETY: the function takes nothing, and may be called again.
        unsafe { (self.driver_open)() }
    }

    /// Returns the version, as 1000 times the major one plus 10 times the minor one.
    pub(crate) fn version(&self) -> Option<i32> {
        let (get, mut version) = (self.get_version?, 0);
        // SAFETY: the pointer is to a live number.
        let status = unsafe { get(&raw mut version) };
        (status.code == 0).then_some(version)
    }

    /// Makes an open file known to cuFile.
    pub(crate) fn register(&self, file: &File) -> (CuFileStatus, CuFileHandle) {
        let mut handle = std::ptr::null_mut();
        let mut descriptor = Descriptor {
            kind: KIND_FD,
            file: FileUnion { _handle: std::ptr::null_mut() },
            operations: std::ptr::null(),
        };
        descriptor.file.fd = file.as_raw_fd();
        // SAFETY: both pointers are to live values of the types of `cufile.h`, and the descriptor is open.
        let status = unsafe { (self.handle_register)(&raw mut handle, &raw mut descriptor) };
        (status, CuFileHandle(handle))
    }

    /// Makes cuFile forget a file. The handle is not used after this.
    pub(crate) fn deregister(&self, handle: CuFileHandle) {
        // SAFETY: `register` returned the handle, and the owner calls this once, when it is dropped.
        unsafe { (self.handle_deregister)(handle.0) }
    }

    /// Reads at most `len` bytes of the file from `offset` on, to the bytes of the memory from `at` on.
    ///
    /// # Safety
    /// The handle is registered, and the memory at `address` is of a device, with at least `at + len` bytes, which
    /// nothing else uses during the call.
    pub(crate) unsafe fn read(
        &self,
        handle: CuFileHandle,
        address: u64,
        len: u64,
        offset: u64,
        at: u64,
    ) -> Result<u64, CuFileFailed> {
        let invalid = || CuFileFailed::Errno(io::ErrorKind::InvalidInput.into());
        let offset = libc::off_t::try_from(offset).map_err(|_| invalid())?;
        let at = libc::off_t::try_from(at).map_err(|_| invalid())?;
        let (address, len) = (address as usize as *mut c_void, len as usize); // this code is for 64-bit systems
        // SAFETY: the caller promises the handle and the memory.
        let read = unsafe { (self.read)(handle.0, address, len, offset, at) };
        match read {
            0.. => Ok(read as u64),
            -1 => Err(CuFileFailed::Errno(io::Error::last_os_error())),
            code => Err(CuFileFailed::CuFile(i32::try_from(-code).unwrap_or(i32::MAX))),
        }
    }
}

/// CUDA's functions for copies from memory of the host.
pub(crate) struct Cuda {
    host_register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int,
    host_unregister: unsafe extern "C" fn(*mut c_void) -> c_int,
    copy: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int,
}

impl Cuda {
    /// Loads the library and finds its functions. Calls none of them.
    ///
    /// # Safety
    /// The library is NVIDIA's driver library, or has functions with its types and its behaviour.
    pub(crate) unsafe fn load(path: &Path) -> Result<Self, String> {
        let library = load(path)?;
        // SAFETY: the types are those of `cuda.h`, which gives these names to the current versions.
        unsafe {
            Ok(Self {
                host_register: library.symbol(c"cuMemHostRegister_v2")?,
                host_unregister: library.symbol(c"cuMemHostUnregister")?,
                copy: library.symbol(c"cuMemcpyHtoD_v2")?,
            })
        }
    }

    /// Locks the pages of memory of the host, so that the device can fetch from it. The error is CUDA's number.
    pub(crate) fn pin(&self, memory: &mut [u8]) -> Result<(), i32> {
        // SAFETY: the pointer is to live memory of this length.
        let code = unsafe { (self.host_register)(memory.as_mut_ptr().cast(), memory.len(), 0) };
        succeeded(code)
    }

    /// Undoes `pin`, before the memory is freed.
    pub(crate) fn unpin(&self, memory: &mut [u8]) -> Result<(), i32> {
        // SAFETY: the pointer is to live memory.
        succeeded(unsafe { (self.host_unregister)(memory.as_mut_ptr().cast()) })
    }

    /// Copies bytes to a device and returns when they are there. The error is CUDA's number.
    ///
    /// # Safety
    /// The address is of memory of a device, with at least as many bytes, which nothing else uses during the call.
    pub(crate) unsafe fn copy_to_device(&self, address: u64, bytes: &[u8]) -> Result<(), i32> {
        // SAFETY: the caller promises the device's memory; the bytes are live.
        succeeded(unsafe { (self.copy)(address, bytes.as_ptr().cast(), bytes.len()) })
    }
}

fn succeeded(code: c_int) -> Result<(), i32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn load(path: &Path) -> Result<Library, String> {
    let name = CString::new(path.as_os_str().as_bytes());
    Library::load(&name.map_err(|_| "the path contains a NUL".to_owned())?)
}

impl Library {
    /// Returns a function of the library.
    ///
    /// # Safety
    /// `F` is a function pointer of the type of that function.
    unsafe fn symbol<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.address_of(name)?;
        // SAFETY: the sizes are equal, and the caller promises the type. The library stays loaded.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}
