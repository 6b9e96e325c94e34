use std::cell::Cell;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::AsyncFile;
use super::backend::TokioUringBackend;
use super::operation::{RuntimeRead, submit_no_op};
#[cfg(feature = "conformance")]
use crate::fault::Faults;
use crate::{
    BackendOptions, Buffer, BufferPool, CachePolicy, Error, FileHandle, PoolOptions, Read,
    ReadBackend, ReadBackendExt, WhenSpent,
};

/// Some files of bytes that tell where they are from.
struct Fixture {
    _dir: TempDir,
    paths: Vec<PathBuf>,
    contents: Vec<Vec<u8>>,
}

const FILE_BYTES: usize = 300_001;

impl Fixture {
    fn new(files: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let byte = |file: usize, at: usize| (at * 7 + at / 251 + file * 13) as u8;
        let contents: Vec<Vec<u8>> =
            (0..files).map(|file| (0..FILE_BYTES).map(|at| byte(file, at)).collect()).collect();
        let paths: Vec<PathBuf> =
            (0..files).map(|file| dir.path().join(file.to_string())).collect();
        for (path, bytes) in paths.iter().zip(&contents) {
            std::fs::write(path, bytes).unwrap();
        }
        Self { _dir: dir, paths, contents }
    }

    fn open(&self, backend: &TokioUringBackend) -> Vec<FileHandle> {
        self.paths.iter().map(|path| backend.open(path).unwrap()).collect()
    }

    /// Reads `ranges` of all files in one batch and compares.
    fn check(&self, backend: &TokioUringBackend, ranges: &[(usize, usize)]) {
        let handles = self.open(backend);
        let wanted: Vec<(usize, usize, usize)> = (ranges.iter())
            .flat_map(|(at, len)| (0..handles.len()).map(move |file| (file, *at, *len)))
            .collect();
        let mut memory: Vec<Vec<u8>> = wanted.iter().map(|(.., len)| vec![0; *len]).collect();
        let mut reads: Vec<Read<'_>> = (wanted.iter().zip(&mut memory))
            .map(|((file, at, _), dst)| Read::new(&handles[*file], *at as u64, dst))
            .collect();
        backend.read_batch(&mut reads).unwrap();
        drop(reads);
        for ((file, at, len), bytes) in wanted.iter().zip(&memory) {
            assert!(*bytes == self.contents[*file][*at..at + len], "{len} of {file} at {at}");
        }
    }
}

fn pool(limit_bytes: usize) -> BufferPool {
    // Threads that share a page get it in no fair order, so one may wait for all the others on a busy
    // machine. Only a deadlock lasts this long.
    let when_spent = WhenSpent::Wait { timeout: Duration::from_secs(300) };
    BufferPool::new(PoolOptions { limit_bytes, when_spent }).unwrap()
}

/// The smallest that every bound can be.
fn tight() -> BackendOptions {
    BackendOptions {
        open_files_max: 1,
        depth_max: 1,
        chunk_bytes: 4096,
        pool: Some(pool(4096)),
        ..BackendOptions::default()
    }
}

fn backend(options: &BackendOptions) -> TokioUringBackend {
    TokioUringBackend::new(options).unwrap()
}

fn odd_ranges() -> Vec<(usize, usize)> {
    let lens = [0, 1, 511, 512, 513, 4095, 4096, 4097, 70_000];
    let starts = [0, 1, 511, 4096, 100_003, FILE_BYTES - 70_000];
    let mut ranges: Vec<_> = starts.iter().flat_map(|at| lens.map(|len| (*at, len))).collect();
    ranges.push((0, FILE_BYTES));
    ranges.push((FILE_BYTES - 1, 1));
    ranges
}

#[test]
fn odd_ranges_of_several_files_have_the_right_bytes() {
    let fixture = Fixture::new(3);
    let policies = [CachePolicy::Direct, CachePolicy::Buffered];
    for cache_policy in policies {
        for options in [BackendOptions::default(), tight()] {
            let options = BackendOptions { cache_policy, ..options };
            fixture.check(&backend(&options), &odd_ranges());
        }
    }
}

#[test]
fn uncached_reads_have_the_right_bytes_or_say_that_there_are_none() {
    let fixture = Fixture::new(1);
    let options = BackendOptions { cache_policy: CachePolicy::Uncached, ..Default::default() };
    let backend = backend(&options);
    match backend.open(&fixture.paths[0]) {
        Ok(_) => fixture.check(&backend, &odd_ranges()),
        Err(error) => assert!(error.is_unsupported(), "{error}"),
    }
}

#[test]
fn the_only_buffer_of_the_pool_may_be_the_destination() {
    let fixture = Fixture::new(1);
    let options = tight();
    let backend = backend(&options);
    let file = backend.open(&fixture.paths[0]).unwrap();
    let pool = options.pool.unwrap();
    let bytes = backend.read_to_buf(&pool, &file, 4096, 4096).unwrap();
    assert_eq!(bytes[..], fixture.contents[0][4096..8192]);
}

#[test]
fn the_first_read_past_the_end_is_named() {
    let fixture = Fixture::new(1);
    let backend = backend(&BackendOptions::default());
    let file = backend.open(&fixture.paths[0]).unwrap();
    let len = FILE_BYTES as u64;
    let (mut a, mut b, mut c) = ([0; 10], [0; 10], [0; 10]);
    let error = backend
        .read_batch(&mut [
            Read::new(&file, 5, &mut a),
            Read::new(&file, len - 9, &mut b),
            Read::new(&file, len + 70_000, &mut c),
        ])
        .unwrap_err();
    let Error::PastEnd { offset, len: read_len, index, file_len, path, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((offset, read_len, index, file_len), (len - 9, 10, 1, len));
    assert_eq!(path, fixture.paths[0]);
}

#[cfg(feature = "conformance")]
#[test]
fn short_reads_and_interruptions_change_nothing() {
    let fixture = Fixture::new(2);
    for seed in 0..8 {
        let faults = Arc::new(Faults {
            seed,
            short_permille: 400,
            interrupt_permille: 300,
            ..Faults::default()
        });
        for options in [BackendOptions::default(), tight()] {
            fixture.check(&faults.below(|| backend(&options)), &odd_ranges());
        }
        assert!(faults.injected.load(std::sync::atomic::Ordering::Relaxed) > 10);
    }
}

#[cfg(feature = "conformance")]
#[test]
fn a_device_error_names_its_read_and_leaves_the_backend_usable() {
    let fixture = Fixture::new(1);
    let faults = Arc::new(Faults { eio_range: Some(200_000..200_001), ..Faults::default() });
    let backend = faults.below(|| backend(&BackendOptions::default()));
    let file = backend.open(&fixture.paths[0]).unwrap();
    let mut memory = vec![[0; 5000]; 60];
    let mut reads: Vec<Read<'_>> = (memory.iter_mut().enumerate())
        .map(|(at, dst)| Read::new(&file, at as u64 * 5000, dst))
        .collect();
    let error = backend.read_batch(&mut reads).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    // Neighbours share a request, so an earlier read may be the first that lacks its bytes.
    assert!(error.offset().is_some_and(|offset| offset <= 200_000), "{error}");
    let bytes = backend.read_to_vec(&file, 100, 5000).unwrap();
    assert_eq!(bytes, fixture.contents[0][100..5100]);
}

/// The threads of this process with our runtime's name, as folders of `/proc`. Other tests have
/// such threads too, so a test that counts them runs alone.
fn runtime_threads() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let is_ours = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "ringmain-tokio\n")
    };
    tasks.map(|task| task.unwrap().path()).filter(is_ours).collect()
}

/// Waits until the process has this number of runtime threads. A worker that the kernel starts for io_uring has the name of the thread
/// that caused it for a moment, and a thread that has ended is listed a moment longer.
#[track_caller]
fn expect_runtime_threads(count: usize) {
    let started = Instant::now();
    while runtime_threads().len() != count {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", runtime_threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// True in a process that runs only this test. Elsewhere it starts one, and waits for it to pass.
fn alone(test: &str) -> bool {
    const ALONE: &str = "RINGMAIN_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let name = format!("tokio_uring::tests::{test}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name.as_str(), "--exact", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

#[test]
fn dropping_the_backend_ends_its_thread() {
    if !alone("dropping_the_backend_ends_its_thread") {
        return;
    }
    let fixture = Fixture::new(1);
    let before = descriptors();
    for _ in 0..20 {
        let backend = backend(&BackendOptions::default());
        expect_runtime_threads(1);
        fixture.check(&backend, &[(1, 100)]);
        drop(backend);
        expect_runtime_threads(0);
    }
    assert_eq!(descriptors(), before);
}

#[test]
fn an_idle_runtime_sleeps() {
    if !alone("an_idle_runtime_sleeps") {
        return;
    }
    let fixture = Fixture::new(1);
    let backend = backend(&BackendOptions::default());
    fixture.check(&backend, &odd_ranges());
    let thread = runtime_threads().remove(0);
    let wake_ups = || {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        let is_count = |line: &&str| line.starts_with("voluntary_ctxt_switches");
        status.lines().find(is_count).unwrap().to_owned()
    };
    // It may lose its processor before it first sleeps. A runtime that ticks is never at rest.
    let started = Instant::now();
    let is_at_rest = || {
        let before = wake_ups();
        std::thread::sleep(Duration::from_millis(200));
        wake_ups() == before
    };
    while !is_at_rest() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not sleep");
    }
}

#[test]
fn a_forked_child_reads_with_a_runtime_of_its_own() {
    if !alone("a_forked_child_reads_with_a_runtime_of_its_own") {
        return;
    }
    let fixture = Fixture::new(2);
    let backend = backend(&BackendOptions::default());
    fixture.check(&backend, &odd_ranges());
    // SAFETY: the child only reads and leaves without unwinding into the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| {
            fixture.check(&backend, &odd_ranges());
            expect_runtime_threads(1);
        }));
        // SAFETY: ends the child, and nothing else.
        unsafe { libc::_exit(i32::from(read.is_err())) };
    }
    fixture.check(&backend, &odd_ranges());
    let mut status = 0;
    // SAFETY: `status` is valid to write to, and the child is a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    expect_runtime_threads(1);
}

/// From now on every call of `io_uring_enter` in this process fails with `EIO`.
fn refuse_io_uring_enter() {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_enter as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
    let (set, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program lives during the call, which copies it.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_seccomp, set, all_threads, &raw const program) != 0
    };
    assert!(!failed, "{}", std::io::Error::last_os_error());
}

/// tokio-uring ignores that the kernel does not take its queue, and a read then waits forever.
#[test]
fn a_ring_that_is_refused_is_an_error_and_not_a_hang() {
    if !alone("a_ring_that_is_refused_is_an_error_and_not_a_hang") {
        return;
    }
    let fixture = Fixture::new(1);
    let refused = backend(&BackendOptions::default());
    fixture.check(&refused, &odd_ranges());
    let file = refused.open(&fixture.paths[0]).unwrap();
    refuse_io_uring_enter();
    let started = Instant::now();
    for _ in 0..3 {
        let error = refused.read_to_vec(&file, 77, 100).unwrap_err();
        assert!(matches!(error, Error::Read { offset: 77, len: 100, .. }), "{error}");
        assert!(error.to_string().contains("took no more reads"), "{error}");
    }
    drop(refused);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    expect_runtime_threads(0);
    let error = TokioUringBackend::new(&BackendOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[test]
fn threads_share_the_runtime_and_a_small_pool() {
    let fixture = Fixture::new(4);
    for options in [
        BackendOptions::default(),
        BackendOptions { open_files_max: 2, depth_max: 3, pool: Some(pool(8192)), ..tight() },
        tight(),
    ] {
        let backend = backend(&options);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fixture.check(&backend, &odd_ranges()));
            }
        });
    }
}

fn in_runtime<T>(test: impl Future<Output = T>) -> T {
    tokio_uring::start(test)
}

#[test]
fn async_reads_have_the_right_bytes() {
    let fixture = Fixture::new(1);
    for policy in [CachePolicy::Direct, CachePolicy::Buffered] {
        in_runtime(async {
            let pool = pool(1 << 20);
            let file = AsyncFile::open(&fixture.paths[0], policy).unwrap();
            assert_eq!(file.file_len().unwrap(), FILE_BYTES as u64);
            for (at, len) in odd_ranges() {
                let bytes = file.read_at(at as u64, len, &pool).await.unwrap();
                assert!(bytes[..] == fixture.contents[0][at..at + len], "{len} at {at}");
            }
            assert_eq!(file.read_at(u64::MAX, 0, &pool).await.unwrap().len(), 0);
        });
    }
}

#[test]
fn async_reads_past_the_end_say_so() {
    let fixture = Fixture::new(1);
    in_runtime(async {
        let pool = pool(1 << 20);
        let file = AsyncFile::open(&fixture.paths[0], CachePolicy::Direct).unwrap();
        let len = FILE_BYTES as u64;
        let far = i64::MAX as u64;
        for (at, read_len) in [
            (len, 1),
            (len - 1, 2),
            (len + 9999, 600),
            (far - 600, 9),
            (far - 5000, 9),
            (far, 1),
            (u64::MAX, 2),
        ] {
            let error = file.read_at(at, read_len, &pool).await.unwrap_err();
            assert!(
                matches!(&error, Error::PastEnd { offset, len: l, file_len, path, .. }
                    if (*offset, *l, *file_len) == (at, read_len, len) && *path == fixture.paths[0]),
                "{error}"
            );
        }
        let missing = AsyncFile::open("/nonexistent/file", CachePolicy::Direct).unwrap_err();
        assert!(matches!(missing, Error::Open { .. }), "{missing}");
        let directory = AsyncFile::open("/", CachePolicy::Direct).unwrap_err();
        assert!(matches!(directory, Error::NotAFile { .. }), "{directory}");
    });
}

#[test]
fn an_async_read_waits_for_a_buffer_that_another_task_holds() {
    let fixture = Fixture::new(1);
    let pool = pool(4096);
    in_runtime(async {
        let file = AsyncFile::open(&fixture.paths[0], CachePolicy::Direct).unwrap();
        let held = file.read_at(0, 10, &pool).await.unwrap();
        tokio_uring::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(held);
        });
        let bytes = file.read_at(4096, 10, &pool).await.unwrap();
        assert_eq!(bytes[..], fixture.contents[0][4096..4106]);
        let too_much = file.read_at(0, 5000, &pool).await.unwrap_err();
        assert!(matches!(too_much, Error::PoolExhausted { .. }), "{too_much}");
    });
}

/// A page of the pipe. The kernel completes it only when something is written to the pipe.
fn pipe_read(pipe: &PipeReader) -> RuntimeRead {
    RuntimeRead { descriptor: pipe.as_raw_fd(), offset: 0, part: 0..4096, rw_flags: 0 }
}

/// Uses the pool and completes the read of a pipe, at the moment when tokio-uring drops what it
/// keeps for an operation.
struct OtherUser {
    pool: BufferPool,
    pipe: PipeWriter,
    was_overwritten: Rc<Cell<Option<bool>>>,
}

impl Drop for OtherUser {
    fn drop(&mut self) {
        let mut buffer = self.pool.take(4096).unwrap();
        buffer.fill(1);
        self.pipe.write_all(&[2; 4096]).unwrap();
        self.was_overwritten.set(Some(buffer.iter().any(|byte| *byte != 1)));
    }
}

/// tokio-uring's driver drops what it keeps for unfinished operations before it cancels them. A
/// buffer that was kept there went back to the pool while the kernel could still write to it.
#[test]
fn the_pool_does_not_get_a_buffer_of_a_read_in_flight_when_the_runtime_ends() {
    let (reader, pipe) = std::io::pipe().unwrap();
    let (pool, was_overwritten) = (pool(8192), Rc::default());
    let buffer = pool.take(4096).unwrap();
    let user = OtherUser { pool: pool.clone(), pipe, was_overwritten: Rc::clone(&was_overwritten) };
    in_runtime(async {
        let read = pipe_read(&reader).submit(buffer, user).unwrap();
        tokio_uring::spawn(async move { drop(read.await) });
    });
    assert_eq!(was_overwritten.get(), Some(false));
    let stats = pool.stats();
    assert_eq!((stats.in_use_bytes, stats.idle_bytes), (4096, 4096), "{stats:?}");
}

/// Lets other tasks run until none of them holds a buffer of the pool.
async fn all_buffers_are_back(pool: &BufferPool) {
    let back = async {
        while pool.stats().in_use_bytes > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("a buffer is lost");
}

#[test]
fn a_dropped_read_keeps_its_buffer_until_the_kernel_has_completed_it() {
    let (reader, mut pipe) = std::io::pipe().unwrap();
    let pool = pool(4096);
    in_runtime(async {
        let read = pipe_read(&reader).read(pool.take(4096).unwrap(), ());
        assert!(tokio::time::timeout(Duration::ZERO, read).await.is_err(), "the pipe is empty");
        let no_op = submit_no_op().unwrap();
        assert_eq!(no_op.await.unwrap(), 0, "the kernel has the read now");
        assert_eq!(pool.stats().in_use_bytes, 4096);
        pipe.write_all(b"late").unwrap();
        all_buffers_are_back(&pool).await;
    });
    assert_eq!(&pool.take(4).unwrap()[..], b"late", "the read has ended in its own buffer");
}

#[test]
fn a_read_that_panics_with_its_task_keeps_its_buffer() {
    let (reader, pipe) = std::io::pipe().unwrap();
    let pool = pool(4096);
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| {
        in_runtime(async {
            let _read = pipe_read(&reader).submit(pool.take(4096).unwrap(), ()).unwrap();
            submit_no_op().unwrap().await.unwrap();
            panic!("a bug of the program");
        })
    }));
    assert!(ended.is_err());
    assert_eq!(pool.stats().in_use_bytes, 4096);
    drop(pipe);
}

#[test]
fn async_reads_that_time_out_give_their_buffers_back() {
    let fixture = Fixture::new(1);
    let pool = pool(4096);
    in_runtime(async {
        let file = AsyncFile::open(&fixture.paths[0], CachePolicy::Direct).unwrap();
        for at in 0..50 {
            // Each of them waits for the only buffer, which the one before has.
            let read = file.read_at(at * 4096, 4096, &pool);
            let _ = tokio::time::timeout(Duration::ZERO, read).await;
        }
        let bytes = file.read_at(4096, 10, &pool).await.unwrap();
        assert_eq!(bytes[..], fixture.contents[0][4096..4106]);
        drop(bytes);
        all_buffers_are_back(&pool).await;
    });
}

#[test]
fn a_read_that_the_runtime_has_not_started_gives_its_buffer_back() {
    let (reader, _pipe) = std::io::pipe().unwrap();
    let pool = pool(4096);
    in_runtime(async {
        // The first poll only makes the task, which the end of the runtime drops before it runs.
        let mut read = Box::pin(pipe_read(&reader).read(pool.take(4096).unwrap(), ()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(read.as_mut().poll(&mut context).is_pending());
    });
    assert_eq!(pool.stats().in_use_bytes, 0);
}

/// Polls a read of ten bytes once, which must be enough.
fn poll_read(file: &AsyncFile, pool: &BufferPool) -> crate::Result<usize> {
    let mut read = Box::pin(file.read_at(0, 10, pool));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match read.as_mut().poll(&mut context) {
        std::task::Poll::Ready(outcome) => outcome.map(|bytes: Buffer| bytes.len()),
        std::task::Poll::Pending => panic!("the read waits for a runtime that is not there"),
    }
}

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// The read panicked inside tokio and caught the panic, which ends a process that aborts on panics.
#[test]
fn an_async_read_outside_a_runtime_is_an_error_without_a_panic() {
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        earlier(info);
    }));
    let fixture = Fixture::new(1);
    let file = AsyncFile::open(&fixture.paths[0], CachePolicy::Buffered).unwrap();
    let pool = pool(4096);
    assert!(matches!(poll_read(&file, &pool), Err(Error::OutsideRuntime { .. })));
    let _all = pool.take(4096).unwrap();
    assert!(matches!(poll_read(&file, &pool), Err(Error::OutsideRuntime { .. })));
    assert_eq!(PANICS.get(), 0, "a panic was caught");
}

/// tokio-uring cannot be asked whether a runtime of tokio is one of its own.
#[test]
fn an_async_read_in_another_runtime_of_tokio_is_an_error() {
    let fixture = Fixture::new(1);
    let file = AsyncFile::open(&fixture.paths[0], CachePolicy::Buffered).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    assert!(matches!(poll_read(&file, &pool(4096)), Err(Error::OutsideRuntime { .. })));
}

#[test]
fn a_file_that_shrinks_and_grows() {
    let fixture = Fixture::new(1);
    let backend = backend(&BackendOptions::default());
    let file = backend.open(&fixture.paths[0]).unwrap();
    let writer = File::options().write(true).open(&fixture.paths[0]).unwrap();
    writer.set_len(1000).unwrap();
    let error = backend.read_to_vec(&file, 500, 501).unwrap_err();
    assert!(matches!(error, Error::PastEnd { file_len: 1000, .. }), "{error}");
    writer.set_len(2_000_000).unwrap();
    assert_eq!(backend.read_to_vec(&file, 1_999_999, 1).unwrap(), [0]);
}

#[test]
fn a_batch_of_one_is_not_slow() {
    // 20 ms is the tick of the runtime's watch: a read that waits for it has missed its wake-up. Then the
    // next one begins right after a tick, and waits as long.
    let fixture = Fixture::new(1);
    let options = BackendOptions { cache_policy: CachePolicy::Buffered, ..Default::default() };
    let backend = backend(&options);
    let file = backend.open(&fixture.paths[0]).unwrap();
    let mut times: Vec<Duration> = (0..501)
        .map(|at| {
            let started = Instant::now();
            backend.read_to_vec(&file, at * 100, 100).unwrap();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    assert!(times[250] < Duration::from_millis(10), "the median is {:?}", times[250]);
}
