//! Random files, changes and requests, with the local store as the model.

use std::ops::Range;
use std::path::PathBuf;

use futures::executor::block_on;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use proptest::prelude::*;
use ringmain_object_store::local_store::RingmainStore;
use tempfile::TempDir;

use crate::errors::assert_same;
use crate::{backends, local, numbered};

#[derive(Clone, Debug)]
enum Step {
    /// Another file takes the path.
    Replace {
        len: usize,
        seed: usize,
    },
    /// The file is cut or extended with zeros.
    SetLen(u64),
    /// A part of the file is written again.
    Overwrite {
        at: usize,
        len: usize,
        seed: usize,
    },
    Remove,
    GetRanges(Vec<Range<u64>>),
    Get(Option<GetRange>),
}

const LEN_MAX: usize = 300_000;

fn range() -> impl Strategy<Value = Range<u64>> {
    let len = prop_oneof![Just(0u64), 1..600u64, 1..70_000u64];
    let start = prop_oneof![0..LEN_MAX as u64, (0..600u64).prop_map(|block| block * 512)];
    (start, len).prop_map(|(start, len)| start..start + len)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..LEN_MAX, 0..9usize).prop_map(|(len, seed)| Step::Replace { len, seed }),
        1 => (0..LEN_MAX as u64).prop_map(Step::SetLen),
        1 => (0..LEN_MAX, 1..9000usize, 0..9usize).prop_map(|(at, len, seed)| Step::Overwrite { at, len, seed }),
        1 => Just(Step::Remove),
        8 => prop::collection::vec(range(), 0..20).prop_map(Step::GetRanges),
        4 => prop::option::of(prop_oneof![
            range().prop_map(GetRange::Bounded),
            (0..LEN_MAX as u64).prop_map(GetRange::Offset),
            (0..LEN_MAX as u64).prop_map(GetRange::Suffix),
        ]).prop_map(Step::Get),
    ]
}

fn change(path: &PathBuf, step: &Step) {
    let next = path.with_extension("tmp");
    match step {
        Step::Replace { len, seed } => {
            std::fs::write(&next, numbered(*len, *seed)).unwrap();
            std::fs::rename(&next, path).unwrap();
        }
        Step::SetLen(len) => {
            if let Ok(file) = std::fs::File::options().write(true).open(path) {
                file.set_len(*len).unwrap();
            }
        }
        Step::Overwrite { at, len, seed } => {
            if let Ok(mut bytes) = std::fs::read(path) {
                let (at, end) = ((*at).min(bytes.len()), (at + len).min(bytes.len()));
                bytes[at..end].copy_from_slice(&numbered(end - at, *seed));
                // Not as a new file: the same one gets other bytes.
                std::fs::write(path, bytes).unwrap();
            }
        }
        Step::Remove => drop(std::fs::remove_file(path)),
        Step::GetRanges(_) | Step::Get(_) => {}
    }
}

async fn whole(
    store: &dyn ObjectStore,
    path: &Path,
    range: Option<GetRange>,
) -> object_store::Result<(u64, bytes::Bytes)> {
    let result = store.get_opts(path, GetOptions::new().with_range(range)).await?;
    Ok((result.range.start, result.bytes().await?))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_that_of_the_local_store(steps in prop::collection::vec(step(), 1..30)) {
        let dir = TempDir::new().unwrap();
        let (file, path, theirs) = (dir.path().join("data"), Path::from("data"), local(dir.path()));
        let stores = backends().into_iter().map(|backend| {
            RingmainStore::builder().backend(backend).recycled_bytes_max(128 << 10).build(local(dir.path())).unwrap()
        });
        let stores: Vec<_> = stores.collect();
        change(&file, &Step::Replace { len: 200_000, seed: 1 });
        for step in &steps {
            change(&file, step);
            for ours in &stores {
                let what = format!("{} after {step:?}", ours.backend().kind());
                match step {
                    Step::GetRanges(ranges) => block_on(async {
                        let ours = ours.get_ranges(&path, ranges).await;
                        assert_same(&what, ours, theirs.get_ranges(&path, ranges).await);
                    }),
                    Step::Get(range) => block_on(async {
                        let ours = whole(ours, &path, range.clone()).await;
                        assert_same(&what, ours, whole(&theirs, &path, range.clone()).await);
                    }),
                    _ => {}
                }
            }
        }
    }
}
