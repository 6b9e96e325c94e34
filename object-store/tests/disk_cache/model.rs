//! Any sequence of reads, restarts, evictions and damage returns the bytes of the objects.

use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;
use ringmain_backends::{Error, Read, ReadBackend};
use ringmain_object_store::disk_cache::{CacheFolder, DiskCache, DiskCacheOptions};

use crate::support::{block_files, bytes, over_memory};

/// Small, so that a few reads fill the cache.
const BLOCK: usize = 16 << 10;
const NAMES: [&str; 3] = ["a", "b", "c"];
const LENS: [usize; 3] = [5 * BLOCK + 1234, 3 * BLOCK, 700];

#[derive(Clone, Debug)]
enum Step {
    /// Object, offset and length of each read; some reach past the end.
    Read(Vec<(usize, usize, usize)>),
    Restart,
    Remove(usize),
    Damage(usize, usize),
    Truncate(usize),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let read = (0..3usize, 0..6 * BLOCK, prop_oneof![Just(0), 1..100usize, 1..3 * BLOCK]);
    let step = prop_oneof![
        8 => prop::collection::vec(read, 1..8).prop_map(Step::Read),
        1 => Just(Step::Restart),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(file, at)| Step::Damage(file, at)),
        1 => any::<usize>().prop_map(Step::Truncate),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 1..24)
}

fn check_reads(backend: &dyn ReadBackend, objects: &[Vec<u8>], wants: &[(usize, usize, usize)]) {
    let files = NAMES.map(|name| backend.open(Path::new(name)).unwrap());
    let mut found: Vec<Vec<u8>> = wants.iter().map(|(_, _, len)| vec![0xEE; *len]).collect();
    let mut reads: Vec<_> = wants
        .iter()
        .zip(&mut found)
        .map(|((object, offset, _), dst)| Read::new(&files[*object], *offset as u64, dst))
        .collect();
    let outcome = backend.read_batch(&mut reads);
    drop(reads);
    let is_past = |(object, offset, len): &(usize, usize, usize)| {
        *len > 0 && offset + len > objects[*object].len()
    };
    match (outcome, wants.iter().position(is_past)) {
        (Ok(()), None) => {
            for ((object, offset, len), found) in wants.iter().zip(&found) {
                let expected =
                    if *len == 0 { &[][..] } else { &objects[*object][*offset..][..*len] };
                assert!(found == expected, "object {object}, {len} bytes at {offset}");
            }
        }
        (Err(Error::PastEnd { index, .. }), Some(first)) => assert_eq!(index, first),
        (outcome, first) => panic!("{outcome:?}, and the first past the end is {first:?}"),
    }
}

fn damage(folder: &Path, step: &Step) {
    let mut files = block_files(folder);
    files.sort();
    let pick = |which: usize| (!files.is_empty()).then(|| &files[which % files.len()]);
    match step {
        Step::Remove(which) => drop(pick(*which).map(std::fs::remove_file)),
        Step::Damage(which, at) => {
            let Some(path) = pick(*which) else { return };
            let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
            let (mut byte, at) = ([0], *at as u64 % file.metadata().unwrap().len().max(1));
            if file.read_at(&mut byte, at).unwrap() == 1 {
                file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            }
        }
        Step::Truncate(which) => {
            let Some(path) = pick(*which) else { return };
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }
        _ => drop(CacheFolder::open(folder).unwrap().clear().unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_sequence_returns_the_bytes_of_the_objects(steps in steps(), blocks in 4..12u64) {
        let dir = tempfile::tempdir().unwrap();
        let objects: Vec<_> = LENS.iter().map(|len| bytes(*len as u64, *len)).collect();
        let limit_bytes = blocks * (BLOCK as u64 + 4096);
        let open = || {
            let options = DiskCacheOptions {
                block_bytes: BLOCK,
                memory_bytes: 4 * BLOCK,
                known_blocks_max: 5,
                ..DiskCacheOptions::new(limit_bytes)
            };
            let cache = DiskCache::open(dir.path(), options).unwrap();
            let named: Vec<_> = NAMES.into_iter().zip(objects.iter().map(Vec::as_slice)).collect();
            (over_memory(&cache, &named), cache)
        };
        let (mut backend, mut cache) = open();
        for step in &steps {
            match step {
                Step::Read(wants) => check_reads(&backend, &objects, wants),
                // Damage that comes after a block was verified is not looked for, as with any file.
                Step::Damage(..) => {
                    damage(dir.path(), step);
                    (backend, cache) = open();
                }
                Step::Restart => (backend, cache) = open(),
                step => damage(dir.path(), step),
            }
            let summary = CacheFolder::open(dir.path()).unwrap().summary().unwrap();
            prop_assert!(summary.bytes + summary.unfinished_bytes <= limit_bytes, "{:?}", summary);
            prop_assert_eq!(cache.stats().degraded, None);
        }
    }
}
