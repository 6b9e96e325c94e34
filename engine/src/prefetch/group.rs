//! Jobs that are read together.

use super::Room;
use crate::Result;
use crate::memory::Need;

/// Takes memory for the first job, and for more while they fit in `room` and there is memory. Only the first job's error
/// counts. A job comes with the bytes that it takes of the window.
pub(crate) fn stage_group<J, T>(
    jobs: impl Iterator<Item = (J, usize)>,
    room: Room,
    staged: &mut Vec<T>,
    mut take: impl FnMut(J, Need) -> Result<T>,
) -> Result<()> {
    let (mut need, mut total) = (room.need, 0usize);
    for (job, bytes) in jobs {
        let is_first = staged.is_empty();
        total = total.saturating_add(bytes);
        if !is_first && total > room.budget_bytes {
            break;
        }
        match take(job, need) {
            Ok(taken) => staged.push(taken),
            Err(error) if is_first => return Err(error),
            Err(_) => break, // the next group begins with it
        }
        need = Need::Ahead;
    }
    Ok(())
}

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
