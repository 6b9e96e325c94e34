//! Fills a destination with several calls: continues short reads, repeats interrupted ones, and gives up after a
//! bounded number of calls without progress.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::{BackendKind, Error, sys};

/// Calls without progress after which a read fails.
pub(crate) const RETRIES_MAX: u32 = 64;

/// Counts the calls that brought no bytes.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    spent: u32,
}

impl Patience {
    /// Bytes arrived: all patience is back.
    pub(crate) fn renew(&mut self) {
        self.spent = 0;
    }

    /// Returns `true` if the call may be repeated after it brought nothing new.
    pub(crate) fn spend(&mut self) -> bool {
        let is_left = self.spent < RETRIES_MAX;
        self.spent += u32::from(is_left);
        is_left
    }

    /// Returns `true` if the call may be repeated after this error.
    pub(crate) fn allows(&mut self, error: &io::Error) -> bool {
        let name = sys::errno_name(error);
        if !matches!(name, Some("EINTR" | "EAGAIN" | "ECANCELED")) || !self.spend() {
            return false;
        }
        if name == Some("EAGAIN") && self.spent > 4 {
            // The kernel lacks a resource for the moment; asking again at once would spin.
            std::thread::sleep(Duration::from_micros(u64::from(self.spent) * 50));
        }
        true
    }
}

/// Repeats a system call that a signal has interrupted.
#[cfg_attr(not(linux_rings), allow(dead_code))]
pub(crate) fn retry_interrupted<T>(
    patience: &mut Patience,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if patience.allows(&error) => {}
            outcome => return outcome,
        }
    }
}

/// How a read that must be complete ended.
#[derive(Debug)]
pub(crate) enum Shortfall {
    /// The file ends before; it has this many bytes.
    PastEnd(u64),
    /// The operating system failed the read.
    Io(io::Error),
}

impl Shortfall {
    /// Returns `true` if a call brought no bytes although the file reaches further. Then the file has just grown, or
    /// its filesystem is at fault.
    pub(crate) fn is_unexpected_end(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }

    /// The error of the read that fell short.
    pub(crate) fn into_error(
        self,
        backend: BackendKind,
        path: &Path,
        offset: u64,
        len: usize,
        index: usize,
    ) -> Error {
        let path = path.to_owned();
        match self {
            Self::PastEnd(file_len) => {
                Error::PastEnd { backend, path, offset, len, index, file_len }
            }
            Self::Io(source) => Error::Read { backend, path, offset, len, index, source },
        }
    }
}

impl From<io::Error> for Shortfall {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Fills `dst` from `offset` with as many calls of `read` as it takes.
pub(crate) fn read_fully(
    file: &File,
    dst: &mut [u8],
    offset: u64,
    mut read: impl FnMut(&File, &mut [u8], u64) -> io::Result<usize>,
) -> Result<(), Shortfall> {
    let mut done = 0;
    let mut patience = Patience::default();
    while done < dst.len() {
        match read(file, &mut dst[done..], offset + done as u64) {
            Ok(0) => {
                let shortfall = shortfall_at_end(file, offset + dst.len() as u64);
                if !shortfall.is_unexpected_end() || !patience.spend() {
                    return Err(shortfall);
                }
            }
            Ok(n) => {
                done += n;
                patience.renew();
            }
            Err(error) if patience.allows(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns what a read of no bytes means: the end of the file, unless the file is longer.
pub(crate) fn shortfall_at_end(file: &File, end: u64) -> Shortfall {
    match sys::file_len(file) {
        Ok(len) if len < end => Shortfall::PastEnd(len),
        Ok(_) => io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the filesystem returned no bytes before the end of the file",
        )
        .into(),
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn one_byte_at_a_time_is_complete() {
        let file = file_of(b"abcdef");
        let mut dst = [0; 4];
        let short = |file: &File, dst: &mut [u8], at| sys::read_at(file, &mut dst[..1], at);
        read_fully(&file, &mut dst, 1, short).unwrap();
        assert_eq!(&dst, b"bcde");
    }

    #[test]
    fn interruptions_are_retried_a_bounded_number_of_times() {
        let file = file_of(b"abcdef");
        let mut calls = 0;
        let mut dst = [0; 6];
        read_fully(&file, &mut dst, 0, |file, dst, at| {
            calls += 1;
            if calls % 3 != 0 {
                return Err(sys::eintr());
            }
            sys::read_at(file, &mut dst[..1], at)
        })
        .unwrap();
        assert_eq!((&dst, calls), (b"abcdef", 18));

        let mut calls = 0;
        let result = read_fully(&file, &mut dst, 0, |_, _, _| {
            calls += 1;
            Err(sys::eintr())
        });
        assert!(matches!(result, Err(Shortfall::Io(_))));
        assert_eq!(calls, RETRIES_MAX + 1);
    }

    /// A read at the old end failed, because the file was longer when it was asked for its length.
    #[test]
    fn a_file_that_grows_after_a_read_of_nothing_is_read() {
        let mut file = file_of(b"abc");
        let mut writer = file.try_clone().unwrap();
        let mut dst = [0; 4];
        let mut calls = 0;
        let grow = |file: &File, dst: &mut [u8], at| {
            let read = sys::read_at(file, dst, at)?;
            calls += 1;
            if calls == 2 {
                assert_eq!(read, 0);
                writer.write_all(b"defg")?;
            }
            Ok(read)
        };
        read_fully(&file, &mut dst, 2, grow).unwrap();
        assert_eq!((&dst, calls), (b"cdef", 3));

        // If this goes on without end, the filesystem is at fault.
        file.write_all(b"hi").unwrap();
        let result = read_fully(&file, &mut dst, 2, |_, _, _| Ok(0));
        assert!(result.is_err_and(|shortfall| shortfall.is_unexpected_end()));
    }

    #[test]
    fn the_end_is_reported_with_the_length() {
        let file = file_of(b"abcdef");
        let result = read_fully(&file, &mut [0; 4], 4, sys::read_at);
        assert!(matches!(result, Err(Shortfall::PastEnd(6))), "{result:?}");
    }
}
