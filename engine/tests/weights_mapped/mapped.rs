//! Files that are large, empty, missing, not files, or change while they are mapped.

use std::fs::File;

use ringmain::weights::{MappedWeights, MmapAdvice, MmapOptions, WeightsDamage};
use ringmain::{Damage, Error};

use crate::support::temp_dir;
use crate::{promise, write_file};

const ADVICES: [MmapAdvice; 5] = [
    MmapAdvice::Normal,
    MmapAdvice::Sequential,
    MmapAdvice::Random,
    MmapAdvice::WillNeed,
    MmapAdvice::DontNeed,
];

/// Accepts `Unsupported` only for advice that not every platform supports.
fn assert_done_or_unsupported(advice: MmapAdvice, outcome: Result<(), Error>) {
    match outcome {
        Ok(()) if cfg!(unix) || is_everywhere(advice) => {}
        Err(Error::Unsupported { .. }) if cfg!(windows) && !is_everywhere(advice) => {}
        outcome => panic!("{outcome:?}"),
    }
}

fn is_everywhere(advice: MmapAdvice) -> bool {
    matches!(advice, MmapAdvice::Normal | MmapAdvice::WillNeed)
}

#[test]
fn advice_changes_no_byte() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 3 << 20);
    let weights = MappedWeights::open(&path, promise()).unwrap();
    for advice in ADVICES {
        assert_done_or_unsupported(advice, weights.advise(advice));
        assert_done_or_unsupported(advice, weights.advise_range(advice, 5..9000));
        for nothing in [0..0, bytes.len()..usize::MAX, usize::MAX - 1..usize::MAX] {
            weights.advise_range(advice, nothing).unwrap();
        }
        assert_eq!(weights.as_bytes(), bytes, "after {advice:?}");
    }
    weights.populate_range(4097..usize::MAX).unwrap();
    weights.populate().unwrap();
    assert_eq!(weights.as_bytes(), bytes);
    assert!(weights.is_intact() && weights.is_current());
}

#[cfg(target_pointer_width = "64")]
#[test]
fn bytes_beyond_four_gigabytes_are_mapped() {
    let dir = temp_dir();
    let (path, end) = (dir.path().join("large.safetensors"), (5 << 30) + 12_345);
    write_file(&path, 100_000);
    let file = File::options().write(true).open(&path).unwrap();
    // The rest is a hole. Windows would fill it, but Wine does not.
    file.set_len(end as u64 - 4).unwrap();
    drop(file);
    let mut file = File::options().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b"last").unwrap();
    drop(file);
    let weights = MappedWeights::open(&path, promise()).unwrap();
    assert_eq!(weights.nbytes(), end);
    assert_eq!(weights.slice(end - 5, 5).unwrap(), b"\0last");
    assert_eq!(weights.slice(1000, 10).unwrap(), &weights.as_bytes()[1000..1010]);
    assert!(matches!(weights.slice(end - 4, 5), Err(Error::OutsideFile { .. })));
    weights.populate_range(end - 10..end).unwrap();
    // The offset was not cut to 32 bits.
    assert_eq!(weights.slice(end - (1 << 32), 4).unwrap(), [0; 4]);
}

#[test]
fn an_empty_file_can_be_mapped() {
    let dir = temp_dir();
    let path = dir.path().join("empty.safetensors");
    write_file(&path, 0);
    let options = MmapOptions::new().populate().lock().huge_pages().read_ahead_pages(256);
    let weights = MappedWeights::open_with_options(&path, &options, promise()).unwrap();
    assert!(weights.unmet().is_empty(), "{:?}", weights.unmet());
    assert_eq!((weights.as_bytes(), weights.slice(0, 0).unwrap()), (&[][..], &[][..]));
    assert!(weights.slice(0, 1).is_err());
    assert!(weights.is_locked());
    weights.unlock().unwrap();
    assert!(weights.is_intact() && !weights.is_locked());
    weights.advise(MmapAdvice::DontNeed).unwrap();
}

#[test]
fn directories_and_missing_files_are_refused_by_name() {
    let dir = temp_dir();
    let missing = dir.path().join("missing.safetensors");
    let error = MappedWeights::open(&missing, promise()).unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
    assert_eq!(error.to_string().matches("missing.safetensors").count(), 1, "{error}");
    let error = MappedWeights::open(dir.path(), promise()).unwrap_err();
    assert!(error.to_string().contains("is a directory"), "{error}");
    #[cfg(target_os = "linux")]
    {
        let pipe = dir.path().join("pipe");
        crate::system::make_pipe(&pipe);
        let error = MappedWeights::open(&pipe, promise()).unwrap_err();
        assert!(error.to_string().contains("a pipe"), "{error}");
    }
}

/// Reading from a page that the file has lost would end the process.
#[cfg(unix)]
#[test]
fn a_file_truncated_under_its_mapping_is_noticed() {
    let dir = temp_dir();
    let path = dir.path().join("cut.safetensors");
    write_file(&path, 1 << 20);
    let weights = MappedWeights::open(&path, promise()).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let opened = file.metadata().unwrap().modified().unwrap();
    file.set_len(5000).unwrap();
    assert!(!weights.is_intact());
    let error = weights.populate().unwrap_err();
    let lost = matches!(error.backend_error(), Some(ringmain::backends::Error::PastEnd { .. }));
    assert!(lost, "{error:?}");
    // The length is as before, but the modification time differs. It is set, because the clock of a
    // filesystem may not have advanced.
    file.set_len(1 << 20).unwrap();
    file.set_modified(opened + std::time::Duration::from_secs(1)).unwrap();
    assert!(!weights.is_intact(), "it stays changed");
    assert_eq!(weights.slice(1 << 19, 4).unwrap(), [0; 4], "as in the file now");
}

/// Windows does not replace a mapped file.
#[cfg(unix)]
#[test]
fn a_file_replaced_under_its_mapping_stays_as_it_was() {
    let dir = temp_dir();
    let (path, next) = (dir.path().join("a.safetensors"), dir.path().join("next"));
    let bytes = write_file(&path, 10_000);
    let weights = MappedWeights::open(&path, promise()).unwrap();
    assert!(weights.is_current());
    std::fs::write(&next, b"another model").unwrap();
    std::fs::rename(&next, &path).unwrap();
    assert!(!weights.is_current());
    assert!(weights.is_intact());
    assert_eq!(weights.as_bytes(), bytes);
    std::fs::remove_file(&path).unwrap();
    assert!(!weights.is_current());
}

#[test]
fn unmet_options_are_listed_and_the_file_is_mapped() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 32 << 10);
    #[cfg(unix)]
    let _turn = crate::turn_to_lock();
    let options = MmapOptions::new().lock().populate().huge_pages().read_ahead_pages(4);
    let weights = MappedWeights::open_with_options(&path, &options, promise()).unwrap();
    assert_eq!(weights.as_bytes(), bytes);
    let unmet: Vec<_> = weights.unmet().iter().map(|lacking| lacking.what).collect();
    assert!(!unmet.contains(&"populated pages"), "{unmet:?}");
    assert_eq!(unmet.contains(&"locked pages"), !weights.is_locked());
    if cfg!(windows) {
        assert_eq!(unmet, ["huge pages", "locked pages"]);
        let text = weights.unmet()[1].to_string();
        assert!(text.starts_with("without locked pages: ") && text.contains("platform"), "{text}");
    }
}

#[test]
fn other_files_have_bytes_but_no_tensors() {
    let dir = temp_dir();
    let path = dir.path().join("a.bin");
    for bytes in [&b""[..], b"1234567", b"12345678", &[0xFF; 20], b"\x02\0\0\0\0\0\0\0{]"] {
        std::fs::write(&path, bytes).unwrap();
        let weights = MappedWeights::open(&path, promise()).unwrap();
        assert_eq!(weights.as_bytes(), bytes);
        for error in [weights.tensors().unwrap_err(), weights.tensor("w").unwrap_err()] {
            assert!(
                matches!(error.damage(), Some(Damage::Weights(WeightsDamage::BadHeader { .. }))),
                "{error:?}"
            );
            assert_eq!(error.path(), Some(&*path));
        }
    }
}
