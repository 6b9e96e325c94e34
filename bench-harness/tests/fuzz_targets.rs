//! The lists of fuzz targets, the programs of cargo-fuzz and the folders of seeds have the same names.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    bin: Vec<Program>,
}

#[derive(Deserialize)]
struct Program {
    name: String,
}

#[test]
fn every_target_has_a_program_and_seeds() {
    let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz"));
    let targets = ringmain::fuzzing::TARGETS.iter().chain(ringmain_bench::fuzzing::TARGETS);
    let targets = targets.chain(ringmain_object_store::fuzzing::TARGETS);
    let targets: BTreeSet<_> = targets.map(|target| target.name.to_owned()).collect();

    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let Manifest { bin } = toml::from_str(&manifest).unwrap();
    let programs: BTreeSet<_> = bin.into_iter().map(|program| program.name).collect();
    assert_eq!(programs, targets);

    let folders = std::fs::read_dir(fuzz.join("seeds")).unwrap().map(Result::unwrap);
    let folders: BTreeSet<_> = folders.map(|it| it.file_name().into_string().unwrap()).collect();
    assert_eq!(folders, targets);

    let readme = std::fs::read_to_string(fuzz.join("README.md")).unwrap();
    let missing: Vec<_> =
        targets.iter().filter(|name| !readme.contains(&format!("\n| `{name}` |"))).collect();
    assert!(missing.is_empty(), "fuzz/README.md does not explain {missing:?}");
}
