//! Jobs that are read together.

use crate::Result;

/// Reads the next `count` jobs together. `read` reads and delivers the given number of jobs. If that fails, the
/// jobs are read one by one: those before the bad one are delivered, and the error is about the bad one.
pub(crate) fn read_group(count: usize, mut read: impl FnMut(usize) -> Result<()>) -> Result<()> {
    match read(count) {
        Err(_) if count > 1 => (0..count).try_for_each(|_| read(1)),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_group_that_fails_is_read_one_by_one() {
        let bad = 2;
        let (mut delivered, mut calls) = (0, Vec::new());
        let outcome = read_group(4, |count| {
            calls.push(count);
            if (delivered..delivered + count).contains(&bad) {
                return Err(Error::OutOfMemory { bytes: delivered });
            }
            delivered += count;
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::OutOfMemory { bytes }) if bytes == bad));
        assert_eq!((delivered, calls), (bad, vec![4, 1, 1, 1]));
        assert!(read_group(1, |_| Err(Error::OutOfMemory { bytes: 1 })).is_err());
    }
}
