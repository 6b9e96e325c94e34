//! The meanings of the numbers of cuFile's errors, in the words of `cufile.h`.

/// The number from which cuFile counts its errors (`CUFILEOP_BASE_ERR`).
const BASE: i32 = 5000;

/// The error after which CUDA's own number is valid.
pub(super) const CUDA_DRIVER_ERROR: i32 = BASE + 11;

/// Returns the meaning of a number.
pub(super) fn meaning(code: i32) -> &'static str {
    match code - BASE {
        1 => {
            "the driver nvidia-fs is not loaded, and cufile.json does not allow the compatible mode"
        }
        4 | 5 => "the version of the driver nvidia-fs does not fit",
        6 => "the driver is being closed",
        7 => "this platform does not support it",
        8 => "this filesystem does not support it",
        9 => "this GPU does not support it",
        10 => "the driver nvidia-fs failed",
        11 => "CUDA failed",
        12 => "the pointer is not to memory of a device",
        13 => "the memory is of a type that cannot be used",
        14 => "the range exceeds the allocation of the pointer",
        15 => "the calling thread has another CUDA context",
        16 | 17 => "the range exceeds the memory that can be pinned or is mapped",
        18 => "this type of file is not supported",
        19 | 20 => "the file is not open for direct reads",
        22 => "an argument is not valid",
        23 => "the memory is registered already",
        24 => "the memory is not registered",
        25 => "access to the driver or the file was denied",
        26 => "the driver is open already",
        27 => "the file is not registered",
        28 => "the file is registered already",
        29 => "the GPU was not found",
        30 => "an internal error",
        33 => "the driver nvidia-fs could not be initialised",
        34 => "cufile.json switches it off for this file",
        36 => "memory of the GPU could not be pinned",
        43 => "cuFile has no memory left",
        44 => "the device failed",
        45 => "the memory could not be registered",
        47 => "the calling thread has no valid CUDA context",
        _ => "an error that Ringmain has no text for",
    }
}
