//! Wrong files: a typed error names the place, and the rest stays readable.

use std::sync::Arc;

use ringmain::beton::{
    Allocation, BetonDamage, BetonReader, Damaged, Field, FieldKind, HEADER_LEN, Header,
    MemoryManager, Order, ReaderOptions, SampleOptions, SampleSource,
};
use ringmain::{Damage, Engine, Error, Item};

use crate::expected::{check_batch, vector};
use crate::made::{Made, PAGE, check};
use crate::support::engines_for;

const SAMPLES: u64 = 60;

fn open(made: &Made) -> Result<BetonReader, Error> {
    BetonReader::open(&Engine::new().unwrap(), &made.file().path)
}

/// Opens a file of these bytes.
pub(crate) fn open_bytes(bytes: &[u8]) -> Result<BetonReader, Error> {
    let memory = ringmain::backends::MemoryBackend::new();
    memory.insert("bad.beton", bytes);
    let engine = Engine::builder().with_backend(Arc::new(memory)).build().unwrap();
    let outcome = BetonReader::open(&engine, "bad.beton");
    if let Err(error) = &outcome {
        let is_named = error.to_string().matches("bad.beton").count() == 1;
        assert!(
            is_named && error.path().is_some_and(|path| path.ends_with("bad.beton")),
            "{error}"
        );
    }
    outcome
}

#[test]
fn files_that_are_not_datasets_are_refused() {
    let bytes = std::fs::read(vector()).unwrap();
    let with = |at: usize, patch: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + patch.len()].copy_from_slice(patch);
        open_bytes(&bytes).unwrap_err()
    };
    assert!(matches!(open_bytes(b"").unwrap_err(), Error::Truncated { actual: 0, .. }));
    assert!(matches!(open_bytes(&bytes[..23]).unwrap_err(), Error::Truncated { .. }));
    assert!(matches!(
        with(0, &[3, 0]).damage(),
        Some(Damage::Beton(BetonDamage::BadVersion { version: 3, .. }))
    ));
    assert!(
        matches!(
            with(4, &[0, 0, 16, 0]).damage(),
            Some(Damage::Beton(BetonDamage::BadHeader { .. }))
        ),
        "pages of 1 MiB"
    );
    assert!(
        matches!(
            with(4, &[1, 0, 32, 0]).damage(),
            Some(Damage::Beton(BetonDamage::BadHeader { .. }))
        ),
        "not a power of two"
    );
    assert!(
        matches!(with(2, &[0, 0]).damage(), Some(Damage::Beton(BetonDamage::BadHeader { .. }))),
        "no fields"
    );
    let cut = open_bytes(&bytes[..HEADER_LEN + 6 * 1041 - 1]).unwrap_err();
    assert!(matches!(cut, Error::Truncated { what: "fields", .. }), "{cut}");
    let error = with(2, &[255, 255]);
    assert!(matches!(error, Error::Truncated { what: "fields", .. } | Error::Format { .. }));
    for samples in [1 << 20, u64::MAX, u64::MAX / 72, 1 << 60] {
        let error = with(8, &u64::to_le_bytes(samples));
        assert!(matches!(error, Error::Truncated { what: "metadata", .. }), "{error}");
    }
    for table in [0, 24, 6270, u64::MAX, 6_320_257, 6_291_457] {
        let error = with(16, &u64::to_le_bytes(table));
        assert!(
            matches!(error.damage(), Some(Damage::Beton(BetonDamage::BadTable { .. }))),
            "{table}: {error}"
        );
    }
    let cut = open_bytes(&bytes[..bytes.len() - 1]).unwrap_err();
    assert!(matches!(cut.damage(), Some(Damage::Beton(BetonDamage::BadTable { .. }))), "{cut}");
}

#[test]
fn impossible_fields_are_refused_by_name() {
    let bytes = std::fs::read(vector()).unwrap();
    let field = |index: usize, at: usize, patch: &[u8]| {
        let (mut bytes, at) = (bytes.clone(), HEADER_LEN + index * 1041 + at);
        bytes[at..at + patch.len()].copy_from_slice(patch);
        open_bytes(&bytes).unwrap_err()
    };
    let error = field(1, 1, b"\xe9");
    assert!(
        matches!(error.damage(), Some(Damage::Beton(BetonDamage::BadField { index: 1, .. }))),
        "{error}"
    );
    let error = field(3, 17, &u64::MAX.to_le_bytes());
    assert!(
        matches!(error.damage(), Some(Damage::Beton(BetonDamage::BadField { index: 3, name, .. })) if name == "mat"),
        "{error}"
    );
    let error = field(3, 17 + 256, &u64::MAX.to_le_bytes());
    assert!(
        matches!(error.damage(), Some(Damage::Beton(BetonDamage::BadField { index: 3, .. }))),
        "{error}"
    );
    let error = field(2, 0, &[255]);
    assert!(
        matches!(
            error.damage(),
            Some(Damage::Beton(BetonDamage::UnknownType { index: 2, type_id: 255, .. }))
        ),
        "{error}"
    );
    assert!(error.to_string().contains("blob"), "{error}");
}

#[test]
fn an_index_larger_than_allowed_is_refused() {
    let engine = Engine::new().unwrap();
    let error = ReaderOptions::new().index_limit_bytes(50_399).open(&engine, vector()).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "index_limit_bytes", .. }), "{error}");
    assert!(error.to_string().contains("need 50400 bytes"), "{error}");
    assert!(ReaderOptions::new().index_limit_bytes(50_400).open(&engine, vector()).is_ok());
}

/// Returns the field and the damage of an error, which must name the sample.
fn damage_of(error: &Error, sample: u64) -> (String, BetonDamage) {
    match (error.item(), error.damage()) {
        (Some(Item::Sample { id, field: Some(field) }), Some(Damage::Beton(damage)))
            if *id == sample =>
        {
            (field.to_string(), damage.clone())
        }
        _ => panic!("{error:?}"),
    }
}

/// A change to sample 20, and a check of its error; some changes damage sample 21 too.
type Harm = (&'static str, fn(&mut Made), fn(&BetonDamage) -> bool);

const HARMS: [Harm; 8] = [
    (
        "a pointer that is not in the table",
        |made| made.table.retain(|row| row.sample != 20),
        |damage| matches!(damage, BetonDamage::NotAllocated { .. }),
    ),
    (
        "a pointer to the region of another sample",
        |made| {
            let row = *made.bytes_row(21);
            made.set_bytes(20, row.ptr, row.size);
        },
        |damage| matches!(damage, BetonDamage::ForeignRegion { owner: 21, .. }),
    ),
    (
        "a pointer past the end of the file",
        |made| {
            made.set_bytes(20, u64::MAX - 10, 100);
            *made.bytes_row(20) = Allocation { sample: 20, ptr: u64::MAX - 10, size: 100 };
        },
        |damage| matches!(damage, BetonDamage::OutsidePages { .. }),
    ),
    (
        "a region in the metadata",
        |made| {
            made.set_bytes(20, 24, 100);
            *made.bytes_row(20) = Allocation { sample: 20, ptr: 24, size: 100 };
        },
        |damage| matches!(damage, BetonDamage::OutsidePages { ptr: 24, size: 100 }),
    ),
    (
        "a region over the end of a page",
        |made| {
            let ptr = 2 * PAGE - 50;
            made.set_bytes(20, ptr, 100);
            *made.bytes_row(20) = Allocation { sample: 20, ptr, size: 100 };
        },
        |damage| matches!(damage, BetonDamage::CrossesPage { size: 100, .. }),
    ),
    (
        "a region that shares bytes with another",
        |made| {
            let ptr = made.bytes_row(21).ptr + 1;
            made.set_bytes(20, ptr, 100);
            *made.bytes_row(20) = Allocation { sample: 20, ptr, size: 100 };
        },
        |damage| matches!(damage, BetonDamage::Overlaps { size: 100, .. }),
    ),
    (
        "another size in the table",
        |made| made.bytes_row(20).size -= 1,
        |damage| matches!(damage, BetonDamage::WrongSize { .. }),
    ),
    (
        "an array of another size",
        |made| {
            let mut rows = made.table.iter_mut();
            rows.find(|row| row.sample == 20).unwrap().size = 1023;
        },
        |damage| matches!(damage, BetonDamage::WrongSize { expected: 1024, found: 1023, .. }),
    ),
];

#[test]
fn a_damaged_sample_is_an_error_and_the_others_are_read() {
    for (at, (name, harm, fits)) in HARMS.into_iter().enumerate() {
        let mut made = Made::new(SAMPLES, 3);
        harm(&mut made);
        let file = made.file();
        // The damage is found before anything is read, so one backend is enough for most.
        let engines = engines_for(&file.path).into_iter().take(if at == 0 { 99 } else { 1 });
        for engine in engines {
            let reader = BetonReader::open(&engine, &file.path).unwrap();
            let mut damaged = Vec::new();
            for id in 0..SAMPLES {
                match reader.read_sample(id) {
                    Ok(sample) => check(sample.as_batch(), name),
                    Err(error) => {
                        let (field, damage) = damage_of(&error, id);
                        assert!(field == "bytes" || field == "array", "{name}");
                        assert!(id != 20 || fits(&damage), "{name}: {damage}");
                        assert!(reader.check_sample(id).is_err());
                        assert!(!matches!(reader.map_samples(&[id]), Ok(Some(_))));
                        damaged.push(id);
                    }
                }
            }
            // A sample that shares bytes with another counts as damaged too.
            assert!(damaged == [20] || (damaged == [20, 21] && name.contains("shares")), "{name}");
            let error = reader.read_batch(&[0, 20, 1]).unwrap_err();
            assert_eq!(error.sample(), Some(20), "{name}");
            check_epochs(&reader, &damaged, name);
        }
    }
}

fn check_epochs(reader: &BetonReader, damaged: &[u64], name: &str) {
    let cache = MemoryManager::ProcessCache { pages: 2.try_into().unwrap() };
    for memory in [MemoryManager::Direct, cache] {
        let options = SampleOptions::new().batch_size(8).memory_manager(memory);
        let options = options.order(Order::Shuffled { seed: 1 });
        let mut source = options.clone().damaged(Damaged::LeaveOut).open(reader).unwrap();
        let mut seen = Vec::new();
        for batch in source.by_ref() {
            let batch = batch.unwrap();
            check(&batch, name);
            seen.extend_from_slice(batch.ids());
        }
        assert_eq!(source.left_out(), damaged.len() as u64, "{name}");
        let told = source.take_left_out().into_iter().map(|error| error.sample().unwrap());
        let mut told: Vec<u64> = told.collect();
        told.sort_unstable();
        assert_eq!(told, damaged, "{name}");
        assert!(source.take_left_out().is_empty());
        seen.sort_unstable();
        assert!(seen.into_iter().eq((0..SAMPLES).filter(|id| !damaged.contains(id))), "{name}");
        // The error comes twice; then the batch is skipped.
        let mut source = options.open(reader).unwrap();
        let (mut seen, mut errors) = (0, 0);
        while source.remaining_items() > 0 {
            match source.next_batch() {
                Ok(batch) => seen += batch.map_or(0, |batch| batch.len() as u64),
                Err(error) => {
                    assert!(error.sample().is_some_and(|id| damaged.contains(&id)), "{error}");
                    let again = source.next_batch().unwrap_err();
                    assert_eq!(again.sample(), error.sample());
                    for id in source.next_ids() {
                        assert_eq!(reader.read_sample(id).is_err(), damaged.contains(&id));
                    }
                    let left = source.remaining_items();
                    source.skip_batches(1);
                    errors += left - source.remaining_items();
                }
            }
        }
        assert!(seen + errors == SAMPLES && errors > 0, "{name}: {seen} and {errors}");
    }
}

/// A share of a global batch without any undamaged sample was left out: this rank had a batch less than the others, and
/// its count of batches was a wrong position.
#[test]
fn every_rank_delivers_its_share_of_a_global_batch() {
    let mut made = Made::new(12, 2);
    // The second share of rank 0, and a sample of the third share of rank 1.
    for id in [4, 5, 11] {
        made.set_bytes(id, u64::MAX / 2, 8);
    }
    let file = made.file();
    let reader = BetonReader::open(&Engine::new().unwrap(), &file.path).unwrap();
    let cache = MemoryManager::ProcessCache { pages: 2.try_into().unwrap() };
    for (memory, window_bytes) in [(MemoryManager::Direct, 0), (cache, 8 << 20)] {
        let open = |rank| {
            let options = SampleOptions::new().damaged(Damaged::LeaveOut).memory_manager(memory);
            let options = options.prefetch_window_bytes(window_bytes).partition(rank, 2);
            options.global_batch(4).open(&reader).unwrap()
        };
        let ids =
            |source: &mut SampleSource| source.next_batch().unwrap().map(|b| b.ids().to_vec());
        let mut first = open(0);
        assert_eq!(ids(&mut first), Some(vec![0, 1]));
        assert_eq!(ids(&mut first), Some(vec![]));
        assert_eq!((first.left_out(), first.state().batches_done()), (2, Some(2)));
        let mut later = open(0);
        later.resume(&first.state()).unwrap();
        for source in [&mut first, &mut later] {
            assert_eq!(ids(source), Some(vec![8, 9]));
            assert_eq!(ids(source), None);
        }
        let mut second = open(1);
        for expected in [Some(vec![2, 3]), Some(vec![6, 7]), Some(vec![10]), None] {
            assert_eq!(ids(&mut second), expected);
        }
    }
}

#[test]
fn bad_image_modes_and_text_are_errors() {
    let mut bytes = std::fs::read(vector()).unwrap();
    let rows_at = HEADER_LEN + 6 * 1041;
    bytes[rows_at + 7 * 72 + 56] = 2; // the mode of the image of sample 7
    let meta_at = u64::from_le_bytes(bytes[rows_at + 8 * 72 + 40..][..8].try_into().unwrap());
    bytes[meta_at as usize] = 0xff; // the JSON of sample 8
    bytes[rows_at + 56 + 1] += 1; // the width of sample 0, which is raw
    let reader = open_bytes(&bytes).unwrap();
    let damage = |id| {
        let read = reader.read_sample(id).and_then(|sample| sample.get("meta").map(drop));
        damage_of(&read.unwrap_err(), id)
    };
    assert_eq!(damage(7), ("img".to_owned(), BetonDamage::BadImageMode { mode: 2 }));
    assert_eq!(damage(8), ("meta".to_owned(), BetonDamage::NotUtf8));
    assert!(matches!(damage(0), (_, BetonDamage::WrongSize { expected: 486, found: 432, .. })));
    check_batch(&reader.read_batch(&[1, 2, 3]).unwrap(), "the others");
}

#[test]
fn a_dataset_without_pages_or_samples_is_valid() {
    let engine = Engine::new().unwrap();
    let made = Made::new(0, 1).file();
    let reader = BetonReader::open(&engine, &made.path).unwrap();
    assert!(reader.is_empty());
    let mut source = SampleOptions::new().open(&reader).unwrap();
    assert!(source.next_batch().unwrap().is_none());
    // With numbers alone, FFCV's table is at the end of the metadata, and empty.
    let field = Field::new("label", FieldKind::Int).unwrap();
    let mut bytes = Vec::new();
    let alloc_table_ptr = 24 + 1041 + 5 * 8;
    let header = Header { fields: 1, page_bytes: 8 << 20, samples: 5, alloc_table_ptr };
    bytes.extend_from_slice(&header.encode());
    bytes.extend_from_slice(&field.encode());
    (10..15i64).for_each(|label| bytes.extend_from_slice(&label.to_le_bytes()));
    let reader = open_bytes(&bytes).unwrap();
    assert_eq!((reader.pages(), reader.regions(), reader.region_alignment()), (0, 0, 0));
    let cache = MemoryManager::ProcessCache { pages: 1.try_into().unwrap() };
    let quasi = Order::PageShuffled { seed: 1, open_pages: 1.try_into().unwrap() };
    let options = SampleOptions::new().order(quasi).memory_manager(cache);
    let batch = options.open(&reader).unwrap().next().unwrap().unwrap();
    let labels: Vec<i64> = batch.ids().iter().map(|id| *id as i64 + 10).collect();
    assert_eq!(batch.ints(0).unwrap(), labels);
    drop(open(&Made::new(1, 1)).unwrap());
    let dir = crate::support::temp_dir();
    let path = dir.path().join("numbers.beton");
    std::fs::write(&path, bytes).unwrap();
    for engine in engines_for(&path) {
        let reader = BetonReader::open(&engine, &path).unwrap();
        for ids in [&[][..], &[4, 0]] {
            let mapped = reader.map_samples(ids).unwrap();
            assert_eq!(mapped.is_some(), engine.backend().capabilities().zero_copy);
            assert!(mapped.is_none_or(|mapped| mapped.ids() == ids));
        }
    }
}
