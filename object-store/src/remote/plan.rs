//! The requests of a batch: near ranges of an object are joined, large ones are split.

use std::ops::Range;

use ringmain_backends::{JoinLimits, Read};

use super::RemoteOptions;
use super::object::Object;

/// A read, or a part of one, and the memory that it fills.
#[derive(Debug)]
pub(super) struct Segment<'d> {
    /// Which read of the batch it belongs to.
    pub(super) index: usize,
    range: Range<u64>,
    dst: &'d mut [u8],
}

/// A range that one request asks for, and the segments in it.
#[derive(Debug)]
pub(super) struct Job<'f, 'd> {
    pub(super) object: &'f Object,
    pub(super) range: Range<u64>,
    /// By the beginning of their ranges.
    segments: Vec<Segment<'d>>,
    /// Everything before this offset has been received.
    received_to: u64,
    /// All segments before this one are complete.
    complete: usize,
}

/// Returns the requests for the reads of these objects.
pub(super) fn jobs<'f, 'd>(
    reads: &'d mut [Read<'_>],
    objects: &[&'f Object],
    options: &RemoteOptions,
) -> Vec<Job<'f, 'd>> {
    let mut segments = Vec::with_capacity(reads.len());
    for ((index, read), object) in reads.iter_mut().enumerate().zip(objects) {
        let mut start = read.offset();
        for dst in read.dst().chunks_mut(options.part_bytes) {
            let range = start..start + dst.len() as u64;
            start = range.end;
            segments.push((*object, Segment { index, range, dst }));
        }
    }
    let address = |object: &Object| std::ptr::from_ref(object).addr();
    segments.sort_by_key(|(object, segment)| (address(object), segment.range.start));
    let limits =
        JoinLimits { gap_bytes: options.gap_bytes as u64, joined_bytes: options.part_bytes as u64 };
    let mut jobs: Vec<Job<'f, 'd>> = Vec::new();
    for (object, segment) in segments {
        match jobs.last_mut() {
            Some(job)
                if address(job.object) == address(object)
                    && limits.allow(&job.range, &segment.range) =>
            {
                job.range.end = job.range.end.max(segment.range.end);
                job.segments.push(segment);
            }
            _ => jobs.push(Job {
                object,
                range: segment.range.clone(),
                received_to: segment.range.start,
                segments: vec![segment],
                complete: 0,
            }),
        }
    }
    // The first read of the batch first: if all of a store fails, its error is found without trying the others.
    jobs.sort_by_key(Job::first_index);
    jobs
}

impl Job<'_, '_> {
    /// The smallest index of its reads.
    pub(super) fn first_index(&self) -> usize {
        self.segments.iter().map(|segment| segment.index).min().unwrap_or(usize::MAX)
    }

    /// The smallest index of the reads that are not complete.
    pub(super) fn failed_index(&self) -> usize {
        let open = self.segments.iter().filter(|segment| segment.range.end > self.received_to);
        open.map(|segment| segment.index).min().unwrap_or_else(|| self.first_index())
    }

    /// The range that has not been received.
    pub(super) fn rest(&self) -> Range<u64> {
        self.received_to..self.range.end
    }

    /// Copies the next bytes of the range to where they belong. Returns `false` if they are more than the rest.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> bool {
        let here = self.received_to..self.received_to.saturating_add(bytes.len() as u64);
        if here.end > self.range.end {
            return false;
        }
        let is_complete = |segment: &Segment<'_>| segment.range.end <= here.start;
        while self.segments.get(self.complete).is_some_and(is_complete) {
            self.complete += 1;
        }
        for segment in self.segments.iter_mut().skip(self.complete) {
            if segment.range.start >= here.end {
                break;
            }
            segment.copy(&here, bytes);
        }
        self.received_to = here.end;
        true
    }
}

impl Segment<'_> {
    /// Copies its part of the bytes `here` of the object.
    fn copy(&mut self, here: &Range<u64>, bytes: &[u8]) {
        let start = self.range.start.max(here.start);
        let end = self.range.end.min(here.end);
        if start >= end {
            return;
        }
        // Both differences are at most the length of a slice.
        let from = (start - here.start) as usize..(end - here.start) as usize;
        let to = (start - self.range.start) as usize..(end - self.range.start) as usize;
        if let (Some(dst), Some(src)) = (self.dst.get_mut(to), bytes.get(from)) {
            dst.copy_from_slice(src);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use proptest::prelude::*;
    use ringmain_backends::{Alignment, FileHandle, HandleOwner};

    use super::super::bucket::Bucket;
    use super::*;

    fn handle(size: u64) -> FileHandle {
        let meta = object_store::ObjectMeta {
            location: "key".into(),
            last_modified: Default::default(),
            size,
            e_tag: Some("\"1\"".into()),
            version: None,
        };
        let object = Object::new(Arc::new(Bucket::of_tests()), meta.into()).unwrap();
        FileHandle::new(HandleOwner::unique(), Path::new("key"), Alignment::NONE, object)
    }

    proptest! {
        /// Whatever the ranges and the limits: every destination gets its bytes, in frames of any size, and every
        /// request keeps to the limits.
        #[test]
        fn every_destination_gets_its_bytes(
            ranges in prop::collection::vec((0..2000u64, 0..700usize, 0..2usize), 0..40),
            part_bytes in 1..900usize,
            gap_bytes in 0..200usize,
            frame_bytes in 1..300usize,
        ) {
            let files = [handle(5000), handle(5000)];
            // The bytes of the two objects differ.
            let byte = |file: usize, at: u64| (at as usize * 7 + file * 100 + at as usize / 251) as u8;
            let mut memory: Vec<Vec<u8>> = ranges.iter().map(|(_, len, _)| vec![0; *len]).collect();
            let mut reads: Vec<_> = ranges
                .iter()
                .zip(&mut memory)
                .map(|((offset, _, file), dst)| Read::new(&files[*file], *offset, dst))
                .collect();
            let objects: Vec<_> =
                ranges.iter().map(|(_, _, file)| object_of(&files[*file])).collect();
            let options = RemoteOptions { part_bytes, gap_bytes, ..RemoteOptions::default() };
            for mut job in jobs(&mut reads, &objects, &options) {
                prop_assert!(job.range.end - job.range.start <= part_bytes as u64);
                let file = usize::from(!std::ptr::eq(job.object, object_of(&files[0])));
                let bytes: Vec<u8> = job.range.clone().map(|at| byte(file, at)).collect();
                for frame in bytes.chunks(frame_bytes) {
                    prop_assert!(job.receive(frame));
                }
                prop_assert!(job.rest().is_empty() && !job.receive(&[0]));
            }
            drop(reads);
            for ((offset, _, file), found) in ranges.iter().zip(&memory) {
                let expected: Vec<u8> =
                    (0..found.len() as u64).map(|at| byte(*file, offset + at)).collect();
                prop_assert!(found == &expected);
            }
        }
    }

    fn object_of(file: &FileHandle) -> &Object {
        file.attachment().unwrap()
    }

    #[test]
    fn near_reads_share_a_request_and_large_ones_are_split() {
        let file = handle(1 << 20);
        let options = RemoteOptions { part_bytes: 1000, gap_bytes: 10, ..RemoteOptions::default() };
        let plan = |ranges: &[(u64, usize)]| -> Vec<(u64, u64)> {
            let mut memory: Vec<Vec<u8>> = ranges.iter().map(|(_, len)| vec![0; *len]).collect();
            let mut reads: Vec<_> =
                ranges.iter().zip(&mut memory).map(|(r, dst)| Read::new(&file, r.0, dst)).collect();
            let objects = vec![object_of(&file); ranges.len()];
            let jobs = jobs(&mut reads, &objects, &options);
            jobs.into_iter().map(|job| (job.range.start, job.range.end)).collect()
        };
        assert_eq!(plan(&[(110, 50), (0, 100), (171, 5)]), [(0, 160), (171, 176)]);
        assert_eq!(plan(&[(0, 2500)]), [(0, 1000), (1000, 2000), (2000, 2500)]);
        assert_eq!(plan(&[(0, 1000), (0, 1000), (500, 0)]), [(0, 1000)]);
        assert_eq!(plan(&[]), []);
    }

    #[test]
    fn the_first_read_that_is_not_complete_is_named() {
        let file = handle(1 << 20);
        let mut memory = [[0; 10], [0; 10], [0; 10]];
        let offsets = [20, 10, 0];
        let mut reads: Vec<_> =
            memory.iter_mut().zip(offsets).map(|(dst, at)| Read::new(&file, at, dst)).collect();
        let objects = vec![object_of(&file); 3];
        let mut jobs = jobs(&mut reads, &objects, &RemoteOptions::default());
        let job = &mut jobs[0];
        assert!(job.receive(&[1; 25]));
        assert_eq!((job.failed_index(), job.rest()), (0, 25..30));
        assert!(job.receive(&[1; 5]));
        assert_eq!(job.failed_index(), 0);
    }
}
