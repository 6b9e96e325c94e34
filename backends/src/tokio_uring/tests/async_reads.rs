//! Reads that a program awaits in a runtime of its own, and the memory that they hold.

use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use super::{FILE_BYTES, Fixture, odd_ranges, pool};
use crate::tokio_uring::AsyncFile;
use crate::tokio_uring::operation::{RuntimeRead, submit_no_op};
use crate::{Buffer, BufferPool, CachePolicy, Error};

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
