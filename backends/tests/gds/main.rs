//! Reads into the memory of a GPU, with a library that stands in for cuFile and CUDA. What no test here can show is
//! that NVIDIA's libraries move the bytes: that needs a GPU.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

use std::ffi::{CString, c_char, c_int};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use ringmain_backends::{DeviceMemory, Error, FileChange, Gds, GdsError, GdsFile, GdsRoute};

const FILE_BYTES: usize = (20 << 20) + 777;
const DEVICE_BIT: u64 = 1 << 62;

/// The library has variables that all tests of this process share, so they run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct StandIn {
    gds: Gds,
    library: *mut libc::c_void,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl StandIn {
    /// Compiles the library under a name of its own, so that each test has fresh variables.
    fn new() -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libstandin.so");
        compile(&path);
        // SAFETY: the library behaves like cuFile and CUDA.
        let gds = unsafe { Gds::open_libraries(&path, &path) }.unwrap();
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: it is loaded already.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Self { gds, library, dir, _alone: alone }
    }

    fn variable(&self, name: &str) -> *mut c_int {
        let name = CString::new(format!("standin_{name}")).unwrap();
        // SAFETY: the library stays loaded.
        let variable = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!variable.is_null(), "{name:?}");
        variable.cast()
    }

    fn set(&self, name: &str, value: c_int) {
        // SAFETY: the variable is an `int`, or a `size_t` whose upper half is 0; no call of the library is running.
        unsafe { *self.variable(name) = value }
    }

    fn count(&self, name: &str) -> c_int {
        // SAFETY: as in `set`.
        unsafe { *self.variable(name) }
    }

    fn write_file(&self) -> (PathBuf, Vec<u8>) {
        let path = self.dir.path().join("weights.bin");
        let bytes: Vec<u8> = (0..FILE_BYTES as u32).map(|at| (at * 31 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }
}

fn compile(path: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gds/stand_in.c");
    let status =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(path).arg(source).status();
    assert!(status.unwrap().success(), "a C compiler is needed");
}

/// Memory of the "device", with its contents for comparison.
struct Device(Vec<u8>);

impl Device {
    fn new(len: usize) -> Self {
        Self(vec![0xaa; len])
    }

    fn memory(&mut self) -> DeviceMemory {
        let address = self.0.as_mut_ptr() as u64 | DEVICE_BIT;
        // SAFETY: the stand-in takes the bit off, and the vector lives longer than the reads.
        unsafe { DeviceMemory::new(address, self.0.len()) }
    }
}

fn check_reads(file: &GdsFile, bytes: &[u8]) {
    for (at, start, len) in
        [(0, 0, bytes.len()), (5, 4096, 1), (100, 12_345, 9 << 20), (0, bytes.len(), 0), (3, 7, 0)]
    {
        let mut device = Device::new(bytes.len() + 200);
        file.read(&mut device.memory(), at, start as u64..(start + len) as u64).unwrap();
        assert!(device.0[at..at + len] == bytes[start..start + len], "{len} bytes from {start} on");
        let is_untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0xaa);
        assert!(is_untouched(&device.0[..at]) && is_untouched(&device.0[at + len..]));
    }
}

#[test]
fn cufile_reads_whatever_it_delivers_at_once() {
    let stand_in = StandIn::new();
    let (path, bytes) = stand_in.write_file();
    let file = stand_in.gds.file(&path).unwrap();
    assert_eq!((file.route(), file.file_len()), (&GdsRoute::CuFile, FILE_BYTES as u64));
    for read_max in [0, 1 << 20, 999_983] {
        stand_in.set("read_max", read_max);
        stand_in.set("interrupts", 3);
        check_reads(&file, &bytes);
    }
    assert_eq!((stand_in.count("copies"), stand_in.count("pinned")), (0, 0));
    drop(file);
    assert_eq!(stand_in.count("handles"), 0);
}

/// `EAGAIN` was final, `EINTR` was retried for ever, and a read of nothing was taken for the end of the file.
#[test]
fn reads_that_deliver_nothing_are_repeated_a_bounded_number_of_times() {
    const ALWAYS: c_int = 1 << 20;
    let stand_in = StandIn::new();
    let (path, bytes) = stand_in.write_file();
    let file = stand_in.gds.file(&path).unwrap();
    for (name, kind) in [
        ("interrupts", ErrorKind::Interrupted),
        ("refusals", ErrorKind::WouldBlock),
        ("empty_reads", ErrorKind::UnexpectedEof),
    ] {
        stand_in.set(name, 60);
        check_reads(&file, &bytes);
        stand_in.set(name, ALWAYS);
        let mut device = Device::new(100);
        let error = file.read(&mut device.memory(), 0, 7..107).unwrap_err();
        let GdsError::File(error @ Error::Read { offset: 7, len: 100, .. }) = error else {
            panic!("{name}: {error:?}")
        };
        assert_eq!((error.kind(), ALWAYS - stand_in.count(name)), (kind, 65), "{name}");
        stand_in.set(name, 0);
    }
}

#[test]
fn what_cufile_does_not_read_is_staged_in_pinned_memory() {
    let stand_in = StandIn::new();
    let (path, bytes) = stand_in.write_file();
    stand_in.set("register_error", 5008);
    let file = stand_in.gds.file(&path).unwrap();
    let GdsRoute::Staged { reason } = file.route() else { panic!("{file:?}") };
    assert_eq!(
        reason,
        "cuFileHandleRegister failed: this filesystem does not support it (cuFile's error 5008)"
    );
    check_reads(&file, &bytes);
    assert_eq!((stand_in.count("reads"), stand_in.count("pinned")), (0, 1));
    assert!(stand_in.count("copies") > 3, "in parts");
    let pinned = stand_in.variable("pinned");
    drop((file, stand_in.gds.clone()));
    let StandIn { gds, dir: _dir, _alone, .. } = stand_in;
    drop(gds);
    // SAFETY: the library stays loaded.
    assert_eq!(unsafe { *pinned }, 0);
}

#[test]
fn memory_that_cannot_be_pinned_is_staged_all_the_same() {
    let stand_in = StandIn::new();
    let (path, bytes) = stand_in.write_file();
    stand_in.set("register_error", 5011);
    stand_in.set("pin_error", 2);
    let file = stand_in.gds.file(&path).unwrap();
    let GdsRoute::Staged { reason } = file.route() else { panic!("{file:?}") };
    assert!(reason.ends_with("CUDA failed (cuFile's error 5011, CUDA's error 700)"), "{reason}");
    check_reads(&file, &bytes);
}

#[test]
fn errors_say_which_function_failed() {
    let stand_in = StandIn::new();
    let (path, _) = stand_in.write_file();
    let mut device = Device::new(4096);
    let direct = stand_in.gds.file(&path).unwrap();
    stand_in.set("register_error", 5008);
    let staged = stand_in.gds.file(&path).unwrap();
    stand_in.set("read_error", 5015);
    stand_in.set("copy_error", 201);
    let text = |file: &GdsFile, device: &mut Device| {
        file.read(&mut device.memory(), 0, 0..4096).unwrap_err().to_string()
    };
    let found = text(&direct, &mut device);
    assert_eq!(
        found,
        "cuFileRead failed: the calling thread has another CUDA context (cuFile's error 5015)"
    );
    let found = text(&staged, &mut device);
    assert!(found.starts_with("cuMemcpyHtoD failed with CUDA's error 201"), "{found}");

    for file in [&direct, &staged] {
        for (at, range) in [(1, 0..4096), (usize::MAX, 0..4096), (0, 0..u64::MAX), (4097, 0..0)] {
            let error = file.read(&mut device.memory(), at, range).unwrap_err();
            assert!(matches!(error, GdsError::OutsideMemory { .. }), "{error}");
        }
        let end = FILE_BYTES as u64;
        let error = file.read(&mut device.memory(), 0, end - 10..end + 10).unwrap_err();
        assert!(matches!(error, GdsError::File(Error::PastEnd { .. })), "{error}");
    }
    let error = stand_in.gds.file(path.with_file_name("absent")).unwrap_err();
    assert!(matches!(error, GdsError::File(Error::Open { .. })), "{error}");
}

#[test]
fn a_file_that_changes_is_an_error() {
    let stand_in = StandIn::new();
    let (path, bytes) = stand_in.write_file();
    let mut device = Device::new(4096);
    for register_error in [0, 5008] {
        stand_in.set("register_error", register_error);
        std::fs::write(&path, &bytes).unwrap();
        let file = stand_in.gds.file(&path).unwrap();
        file.read(&mut device.memory(), 0, 0..4096).unwrap();
        let opened = std::fs::File::options().write(true).open(&path).unwrap();
        opened.set_len(1000).unwrap();
        let error = file.read(&mut device.memory(), 0, 0..4096).unwrap_err();
        assert!(matches!(error, GdsError::File(Error::PastEnd { .. })), "{error}");
        let error = file.read(&mut device.memory(), 0, 0..1000).unwrap_err();
        let GdsError::File(error) = error else { panic!("{error}") };
        assert_eq!(error.file_change(), Some(FileChange::Truncated { len: 1000 }), "{error}");
        assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle);
        // cuFile keeps reading the file that it has open.
        let is_staged = register_error != 0;
        let newer = path.with_extension("new");
        std::fs::write(&newer, &bytes).unwrap();
        std::fs::rename(&newer, &path).unwrap();
        let error = file.read(&mut device.memory(), 0, 0..1000).unwrap_err();
        let GdsError::File(error) = error else { panic!("{error}") };
        assert_eq!(error.file_change() == Some(FileChange::Replaced), is_staged, "{error}");
    }
}

/// The version was that of the new file, and reads returned the bytes of the old one.
#[test]
fn a_file_that_is_replaced_while_it_is_opened_is_an_error() {
    let stand_in = StandIn::new();
    let (path, bytes) = stand_in.write_file();
    let newer = path.with_extension("new");
    std::fs::write(&newer, &bytes).unwrap();
    stand_in.set("register_error", 5008);
    let names = [&newer, &path].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    for (name, variable) in names.iter().zip(["rename_from", "rename_to"]) {
        // SAFETY: the variable is a pointer, and the name lives longer than the call that reads it.
        unsafe { stand_in.variable(variable).cast::<*const c_char>().write(name.as_ptr()) };
    }
    let error = stand_in.gds.file(&path).unwrap_err();
    let GdsError::File(error) = error else { panic!("{error}") };
    assert_eq!(error.file_change(), Some(FileChange::Replaced), "{error}");
}

#[test]
fn a_forked_child_does_not_call_cuda() {
    let stand_in = StandIn::new();
    let (path, _) = stand_in.write_file();
    let file = stand_in.gds.file(&path).unwrap();
    let mut device = Device::new(4096);
    // SAFETY: the child only calls this library, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused =
            matches!(file.read(&mut device.memory(), 0, 0..4096), Err(GdsError::Forked))
                && matches!(stand_in.gds.file(&path), Err(GdsError::Forked));
        drop(file);
        let is_kept = stand_in.count("handles") == 1;
        // SAFETY: no destructor of the parent's test runs.
        unsafe { libc::_exit(c_int::from(!(is_refused && is_kept))) };
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    file.read(&mut device.memory(), 0, 0..4096).unwrap();
}

#[test]
fn many_threads_read_one_file() {
    let stand_in = StandIn::new();
    let (path, bytes) = stand_in.write_file();
    stand_in.set("register_error", 5008);
    let file = stand_in.gds.file(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                let start = thread * (3 << 20) + 11;
                let mut device = Device::new(3 << 20);
                file.read(&mut device.memory(), 0, start as u64..(start + (3 << 20)) as u64)
                    .unwrap();
                assert!(device.0 == bytes[start..start + (3 << 20)]);
            });
        }
    });
}

#[test]
fn missing_libraries_and_functions_are_errors() {
    let missing = Path::new("libringmain-none.so.0");
    // SAFETY: there is no such library.
    let error = unsafe { Gds::open_libraries(missing, missing) }.unwrap_err();
    assert!(
        error.to_string().starts_with("libringmain-none.so.0 could not be loaded: "),
        "{error}"
    );
    let other = Path::new("libc.so.6");
    // SAFETY: it has none of the functions, so that none is called.
    let error = unsafe { Gds::open_libraries(other, other) }.unwrap_err();
    assert!(error.to_string().contains("cuMemHostRegister_v2"), "{error}");
}
