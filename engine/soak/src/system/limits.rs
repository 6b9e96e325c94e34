//! Limits on the resources of this process.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

fn set_limit(resource: Resource, value: u64) -> io::Result<()> {
    let (_soft, hard) = getrlimit(resource)?;
    Ok(setrlimit(resource, value.min(hard), hard)?)
}

/// Limits the number of descriptors. Those that are open stay open.
pub(crate) fn limit_descriptors(count: u64) -> io::Result<()> {
    set_limit(Resource::RLIMIT_NOFILE, count)
}

/// Limits the memory that may be locked. It has no effect on a process that has `CAP_IPC_LOCK`.
pub(crate) fn limit_locked_memory(bytes: u64) -> io::Result<()> {
    set_limit(Resource::RLIMIT_MEMLOCK, bytes)
}

/// How many descriptors this process has open.
pub(crate) fn open_descriptors() -> io::Result<u64> {
    // The listing itself has one open, every time.
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64 - 1)
}

/// Gives up all capabilities, so that limits hold for root too. Root still owns its files.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    // `struct __user_cap_header_struct` with _LINUX_CAPABILITY_VERSION_3 and this process, and two empty
    // `struct __user_cap_data_struct`.
    let header: [u32; 2] = [0x2008_0522, 0];
    let data = [0u32; 6];
    // nix has no wrapper for it.
    // SAFETY: both arrays have the size and the layout that the kernel reads for this version.
    match unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
