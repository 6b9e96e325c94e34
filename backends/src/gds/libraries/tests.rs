//! NVIDIA's own library, as far as it goes without a driver. Reads are tested in `tests/gds/main.rs`.

use super::*;

/// NVIDIA publishes cuFile on PyPI (nvidia-cufile-cu12). The test script sets this variable to its path.
const LIBRARY: &str = "RINGMAIN_CUFILE_LIBRARY";

#[test]
fn the_real_library_has_the_functions_and_says_why_it_cannot_open() {
    let Some(path) = std::env::var_os(LIBRARY) else {
        eprintln!("skipped: {LIBRARY} does not name NVIDIA's libcufile.so.0");
        return;
    };
    // SAFETY: the variable names NVIDIA's library.
    let cufile = unsafe { CuFile::load(Path::new(&path)) }.unwrap();
    assert!(cufile.version().unwrap() >= 1000);
    if sys::count_gpus().is_ok_and(|count| count > 0) {
        return; // its driver may well open
    }
    // Version 1.17 never returns from this without a driver, so the test script has version 1.14.
    let error = check("cuFileDriverOpen", cufile.open_driver()).unwrap_err();
    let GdsError::CuFile { code, .. } = error else { panic!("{error:?}") };
    assert_eq!(code, 5033);
    let text = "cuFileDriverOpen failed: the driver nvidia-fs could not be initialised (cuFile's error 5033)";
    assert_eq!(error.to_string(), text);

    // The library refuses a file before the driver is open.
    let (status, _) = cufile.register(&std::fs::File::open(&path).unwrap());
    assert_ne!(status.code, 0);
}

#[test]
fn nothing_is_loaded_without_a_gpu() {
    let missing = check_devices(Err("/proc/driver/nvidia/gpus: no such file".into())).unwrap_err();
    assert_eq!(missing.to_string(), "there is no GPU: /proc/driver/nvidia/gpus: no such file");
    assert!(matches!(check_devices(Ok(0)), Err(GdsError::NoDevice { .. })));
    check_devices(Ok(1)).unwrap();
}
