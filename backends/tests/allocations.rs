//! A steady loop of batches allocates nothing for a read, the resident size stays, and a huge batch
//! leaves no memory behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;
#[path = "common/counting_allocator.rs"]
mod counting_allocator;

use aligned_vec::avec;
use counting_allocator::{allocations, live_bytes};
use ringmain_backends::{BackendKind, BackendOptions, FileHandle, Read, ReadBackend, Residency};

const FILE_BYTES: u64 = 16 << 20;
const READ_BYTES: usize = 4096;
/// The name of the file that is read, by which its mappings are found.
const FILE_NAME: &str = "steadily-read-data";

/// One test, because what it counts belongs to the whole process.
#[test]
fn steady_batches_allocate_nothing_and_stay_resident() {
    refuse_huge_pages();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let word = |i: u64| (i * 0x9E37_79B9).to_le_bytes();
    std::fs::write(&path, (0..FILE_BYTES / 8).flat_map(word).collect::<Vec<u8>>()).unwrap();
    let release = Residency::Release;
    let options = BackendOptions { residency: release, ..BackendOptions::default() };
    let mut complaints = Vec::new();
    for kind in BackendKind::ALL {
        let Some(backend) = common::open_or_excuse(kind, &options) else { continue };
        let file = backend.open(&path).unwrap();
        complaints.extend(check_residency(&*backend, &file).err());
        complaints.extend(check_allocations(&*backend, &file).err());
        complaints.extend(check_huge_batch(&*backend, &file).err());
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn check_allocations(backend: &dyn ReadBackend, file: &FileHandle) -> Result<(), String> {
    let mut memory = avec![[READ_BYTES]| 0; 257 * READ_BYTES];
    let mut count = |reads| count_allocations(backend, file, &mut memory, reads);
    let (small, large) = (count(64), count(256));
    let kind = backend.kind();
    let found =
        format!("{kind}: {BATCHES} batches of 64 reads allocate {small} times, of 256 {large}");
    eprintln!("{found}");
    // A batch may allocate a little, whatever its size; a read may not.
    if small < 2 * BATCHES && large <= small + 10 { Ok(()) } else { Err(found) }
}

/// How many batches are counted together.
const BATCHES: u64 = 33;

/// Counts for `BATCHES` batches, after 100 that may still grow what is kept. Returns the fewest of
/// three rounds: allocations of a batch or a read show in all of them. The test harness allocates in
/// its own thread when a test has taken a minute, and only Linux leaves that thread out of the count.
fn count_allocations(
    backend: &dyn ReadBackend,
    file: &FileHandle,
    memory: &mut [u8],
    count: usize,
) -> u64 {
    // Half of the destinations are aligned, half are not; the same offsets come every time.
    let offset = |at: usize| (at as u64 * 77_777) % (FILE_BYTES - 2 * READ_BYTES as u64);
    let mut reads: Vec<_> = memory
        .chunks_exact_mut(READ_BYTES)
        .take(count)
        .enumerate()
        .map(|(at, dst)| match at % 2 {
            0 => Read::new(file, offset(at) / 4096 * 4096, dst),
            _ => Read::new(file, offset(at) | 1, &mut dst[1..4000]),
        })
        .collect();
    assert_eq!(reads.len(), count);
    let mut run = |batches: u64| (0..batches).for_each(|_| backend.read_batch(&mut reads).unwrap());
    run(100);
    (0..3).map(|_| allocations(|| run(BATCHES))).min().unwrap_or(0)
}

/// How much a backend may keep for its next batches.
const KEPT_BYTES_MAX: u64 = 8 << 20;

/// The plan of a huge batch was kept, 40 to 100 bytes for each of its reads.
fn check_huge_batch(backend: &dyn ReadBackend, file: &FileHandle) -> Result<(), String> {
    let before = live_bytes();
    let mut memory = vec![0; 400_000 * 16];
    let parts = memory.chunks_exact_mut(16).enumerate();
    let mut reads: Vec<_> = parts.map(|(at, dst)| Read::new(file, at as u64 * 20, dst)).collect();
    backend.read_batch(&mut reads).unwrap();
    drop(reads);
    drop(memory);
    let kept = live_bytes().saturating_sub(before);
    let found = format!("{}: {kept} bytes kept after a huge batch", backend.kind());
    eprintln!("{found}");
    if kept <= KEPT_BYTES_MAX { Ok(()) } else { Err(found) }
}

/// 10,000 batches all over the file leave the resident size where it was.
fn check_residency(backend: &dyn ReadBackend, file: &FileHandle) -> Result<(), String> {
    let mut memory = [[0; READ_BYTES]; 2];
    let mut turn = 0u64;
    let mut run = |batches: u64, file_bytes: u64| {
        for _ in 0..batches {
            turn += 1;
            let mut at = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut reads = memory.each_mut().map(|dst| {
                at = at.rotate_left(16).wrapping_mul(0x2545_F491_4F6C_DD1D);
                Read::new(file, at % (file_bytes - READ_BYTES as u64), dst.as_mut_slice())
            });
            backend.read_batch(&mut reads).unwrap();
        }
    };
    // A corner of the file first, so that a backend that keeps pages would still gain most of them.
    run(1000, 1 << 20);
    let Some(before_kib) = resident_kib() else { return Ok(()) };
    run(10_000, FILE_BYTES);
    let growth_kib = resident_kib().unwrap().saturating_sub(before_kib);
    let kind = backend.kind();
    let found =
        format!("{kind}: {before_kib} KiB resident, {growth_kib} KiB more 10,000 batches on");
    eprintln!("{found}");
    if growth_kib <= 1024 { Ok(()) } else { Err(found) }
}

/// The anonymous memory of this process, and how much of the file is resident; `None` where the
/// system does not say.
///
/// By walking the page tables (`smaps`): the counters in `status` are kept for each processor and may be
/// megabytes off. Without the pages of the program itself, which the kernel takes and brings back, and
/// with those that it has swapped out.
fn resident_kib() -> Option<u64> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let (mut total_kib, mut is_the_file) = (0, false);
    for line in smaps.lines() {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| !name.contains(' '))
        else {
            is_the_file = line.ends_with(FILE_NAME);
            continue;
        };
        if matches!(name, "Anonymous" | "Swap") || (name == "Rss" && is_the_file) {
            total_kib += value.trim().trim_end_matches(" kB").parse::<u64>().ok()?;
        }
    }
    Some(total_kib)
}

/// Keeps the kernel from making huge pages of memory that was hardly touched, at a time of its own.
fn refuse_huge_pages() {
    // SAFETY: the call touches no memory. Kernels that do not know it refuse it.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}
