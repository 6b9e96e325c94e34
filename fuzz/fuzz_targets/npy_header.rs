//! Any bytes as a `.npy` file: refused or understood, but never a panic, nor an array that would
//! reach beyond what a file can hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringmain::fuzzing::npy_header;

fuzz_target!(|bytes: &[u8]| {
    let Ok((dtype, arrangement, data_offset)) = npy_header(bytes) else { return };
    assert!(data_offset <= bytes.len() as u64, "a header that ends after the file");
    let Ok(array) = arrangement else { return };
    assert_eq!((array.offset(), array.itemsize()), (data_offset, dtype.itemsize()));
    let end = array.offset() + array.nbytes() as u64;
    assert!(end <= i64::MAX as u64);
    let whole = Some((data_offset, array.nbytes()));
    assert_eq!(array.byte_range(), whole, "a whole array is one range, in either order");

    // The same header must be understood without what follows it, and not without its last byte.
    let header = &bytes[..data_offset as usize];
    assert!(npy_header(header).is_ok());
    assert!(npy_header(&header[..header.len() - 1]).is_err());
});
