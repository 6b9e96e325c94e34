//! Memory of a GPU.

/// A range of memory of a GPU, which a read fills. The caller allocates and frees it.
///
/// cuFile needs no registration of the memory. If the caller has registered it with `cuFileBufRegister`, the device
/// writes to it directly, while cuFile otherwise goes through buffers of its own where it has to.
///
/// ```
/// use ringmain_backends::DeviceMemory;
///
/// fn whole(address: u64, bytes: usize) -> DeviceMemory {
///     // SAFETY: `cudaMalloc` returned the address for this many bytes; the program reads them only after the
///     // reads have ended, and frees them after this value is dropped.
///     unsafe { DeviceMemory::new(address, bytes) }
/// }
/// ```
#[derive(Debug)]
pub struct DeviceMemory {
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Returns the memory at an address of the device.
    ///
    /// # Safety
    /// While the value exists, the range is allocated on the device, and nothing else reads or writes it during a
    /// read.
    #[must_use]
    pub const unsafe fn new(address: u64, bytes: usize) -> Self {
        Self { address, bytes }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the address on the device.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }
}
