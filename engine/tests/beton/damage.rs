//! Wrong files and failing devices: a typed error names the place, and the rest stays readable.

use std::io::{Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use ringmain::backends::fault::Faults;
use ringmain::beton::{
    Allocation, BetonDamage, BetonReader, Damaged, Field, FieldHandler, FieldKind, HEADER_LEN,
    Header, MemberRegion, MemoryManager, Order, ReaderOptions, SampleOptions, Value,
};
use ringmain::{BackendKind, Damage, Engine, Error, Item};

use crate::expected::{check_batch, vector};
use crate::made::{Made, PAGE, check};
use crate::support::{engines_for, or_unavailable};

const SAMPLES: u64 = 60;

fn open(made: &Made) -> Result<BetonReader, Error> {
    BetonReader::open(&Engine::new().unwrap(), &made.file().path)
}

/// Opens a file of these bytes.
fn open_bytes(bytes: &[u8]) -> Result<BetonReader, Error> {
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

/// Bytes preceded by their length, as FFCV stores custom fields.
#[derive(Debug)]
struct Blob;

impl FieldHandler for Blob {
    fn member_bytes(&self) -> usize {
        16
    }

    fn region(&self, member: &[u8]) -> Option<MemberRegion> {
        let ptr = u64::from_le_bytes(*member.first_chunk()?);
        Some(MemberRegion { ptr, size: None })
    }
}

#[test]
fn a_custom_field_is_read_by_its_handler() {
    let mut bytes = std::fs::read(vector()).unwrap();
    let plain = open_bytes(&bytes).unwrap();
    bytes[HEADER_LEN + 2 * 1041] = 255;
    let memory = ringmain::backends::MemoryBackend::new();
    memory.insert("a", bytes);
    let engine = Engine::builder().with_backend(Arc::new(memory)).build().unwrap();
    let by_type = ReaderOptions::new().handle_type(255, Blob);
    let by_name = ReaderOptions::new().handle_name("blob", Blob);
    for options in [by_type, by_name] {
        let reader = options.open(&engine, "a").unwrap();
        assert_eq!(*reader.fields()[2].kind(), FieldKind::Custom { type_id: 255 });
        let cache = MemoryManager::ProcessCache { pages: 1.try_into().unwrap() };
        let sources = [MemoryManager::Direct, cache]
            .map(|memory| SampleOptions::new().memory_manager(memory).open(&reader).unwrap());
        for batch in sources.into_iter().flatten() {
            let batch = batch.unwrap();
            for (at, id) in batch.ids().iter().enumerate() {
                let Value::Custom { member, bytes } = batch.value(at, 2).unwrap() else { panic!() };
                let sample = plain.read_sample(*id).unwrap();
                assert_eq!(sample.value(2).unwrap(), Value::Bytes(bytes));
                assert_eq!(member.len(), 16);
            }
        }
    }
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

/// A field of this many bytes in a row, and no region.
#[derive(Debug)]
struct Opaque(usize);

impl FieldHandler for Opaque {
    fn member_bytes(&self) -> usize {
        self.0
    }

    fn region(&self, _: &[u8]) -> Option<MemberRegion> {
        None
    }
}

/// A handler with a wrong size moved the rows, and the other fields had wrong values without an error.
#[test]
fn a_handler_of_a_wrong_size_is_refused() {
    let mut paged = std::fs::read(vector()).unwrap();
    paged[HEADER_LEN + 2 * 1041] = 255;
    let alloc_table_ptr = HEADER_LEN as u64 + 2 * 1041 + 3 * 24;
    let header = Header { fields: 2, page_bytes: 2 << 20, samples: 3, alloc_table_ptr };
    let id = Field::new("id", FieldKind::Int).unwrap();
    let custom = Field::with_arguments("custom", 255, &[]).unwrap();
    let head = [&header.encode()[..], &id.encode(), &custom.encode()].concat();
    let numbers = [head, vec![1; 3 * 24]].concat();
    for (what, bytes, wrong) in
        [("pages", paged, &[0, 1, 8][..]), ("numbers", numbers, &[0, 8, 17, 24, 400])]
    {
        let memory = ringmain::backends::MemoryBackend::new();
        memory.insert("a", bytes);
        let engine = Engine::builder().with_backend(Arc::new(memory)).build().unwrap();
        let open = |size| ReaderOptions::new().handle_type(255, Opaque(size)).open(&engine, "a");
        open(16).unwrap();
        for size in wrong {
            let error = open(*size).unwrap_err();
            let damage = error.damage();
            assert!(
                matches!(damage, Some(Damage::Beton(BetonDamage::WrongRowSize { .. }))),
                "{what}, {size}: {error}"
            );
        }
    }
}

/// A field without metadata, so that any number of samples fits in any file.
#[derive(Debug)]
struct Nothing;

impl FieldHandler for Nothing {
    fn member_bytes(&self) -> usize {
        0
    }

    fn region(&self, _: &[u8]) -> Option<MemberRegion> {
        None
    }
}

#[test]
fn samples_of_no_bytes_are_refused() {
    let field = Field::new("nothing", FieldKind::Custom { type_id: 255 }).unwrap();
    let dir = crate::support::temp_dir();
    let path = dir.path().join("nothing.beton");
    for (samples, is_good) in [(0, true), (1, false), (u64::MAX, false)] {
        let alloc_table_ptr = 24 + 1041;
        let header = Header { fields: 1, page_bytes: 8 << 20, samples, alloc_table_ptr };
        std::fs::write(&path, [&header.encode()[..], &field.encode()].concat()).unwrap();
        let opened =
            ReaderOptions::new().handle_type(255, Nothing).open(&Engine::new().unwrap(), &path);
        match opened {
            Ok(_) => assert!(is_good),
            Err(error) => {
                assert!(
                    matches!(error.damage(), Some(Damage::Beton(BetonDamage::BadHeader { .. })))
                        && !is_good,
                    "{error}"
                );
            }
        }
    }
}

/// Backends retry short reads and interruptions, so a source never sees them.
#[test]
fn short_and_interrupted_reads_do_not_show() {
    for kind in BackendKind::ALL {
        let faults =
            Faults { seed: 3, short_permille: 300, interrupt_permille: 200, ..Faults::default() };
        let engine = Arc::new(faults).below(|| Engine::builder().backend(kind).build());
        let engine = engine.and_then(|engine| {
            engine.backend().open(&vector())?;
            Ok(engine)
        });
        let Some(engine) = or_unavailable(kind, engine) else { continue };
        let reader = BetonReader::open(&engine, vector()).unwrap();
        for batch in SampleOptions::new().batch_size(100).open(&reader).unwrap() {
            check_batch(&batch.unwrap(), kind.name());
        }
    }
}

#[test]
fn a_device_error_is_delivered_in_order_and_can_be_skipped() {
    let made = Made::new(200, 4);
    let file = made.file();
    let ptr = made.table.iter().find(|row| row.sample == 101).unwrap().ptr;
    for window_bytes in [0, 8 << 20] {
        let faults = Faults { eio_range: Some(ptr..ptr + 1), ..Faults::default() };
        let engine = Engine::builder().backend(BackendKind::Pread);
        let engine = Arc::new(faults).below(|| engine.build().unwrap());
        let reader = BetonReader::open(&engine, &file.path).unwrap();
        let options = SampleOptions::new().batch_size(50).prefetch_window_bytes(window_bytes);
        let mut source = options.damaged(Damaged::LeaveOut).open(&reader).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let error = loop {
                match source.next_batch() {
                    Ok(batch) => seen.extend_from_slice(batch.unwrap().ids()),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Backend { .. }), "{error}");
            assert!(error.to_string().contains("made.beton"), "{error}");
            assert_eq!(error.sample(), Some(101), "{error}");
            assert!(error.to_string().contains("sample 101, field `array`"), "{error}");
        }
        assert!(seen.iter().copied().eq(0..100), "the batches before it, once");
        source.skip_batches(1);
        assert_eq!(source.next_batch().unwrap().unwrap().ids()[0], 150);
        assert!(reader.read_sample(101).is_err() && reader.read_sample(102).is_ok());
    }
}

/// A page that cannot be read fails the batches that need it, not those during which it is read
/// ahead.
#[test]
fn a_device_error_fails_only_the_batches_of_its_page() {
    let made = Made::new(200, 4);
    let file = made.file();
    let first = made.table[0].ptr;
    let bad = made.table.iter().find(|row| row.ptr / PAGE > first / PAGE).unwrap().ptr;
    let is_bad = |id: u64| {
        let row = made.table.iter().find(|row| row.sample == id).unwrap();
        row.ptr / PAGE == bad / PAGE
    };
    for window_bytes in [0, 8 << 20] {
        let faults = Faults { eio_range: Some(bad..bad + 1), ..Faults::default() };
        let engine = Engine::builder().backend(BackendKind::Pread);
        let engine = Arc::new(faults).below(|| engine.build().unwrap());
        let reader = BetonReader::open(&engine, &file.path).unwrap();
        let cache = MemoryManager::ProcessCache { pages: 4.try_into().unwrap() };
        let quasi = Order::PageShuffled { seed: 3, open_pages: 1.try_into().unwrap() };
        let options = SampleOptions::new().memory_manager(cache).order(quasi).batch_size(10);
        let mut source = options.prefetch_window_bytes(window_bytes).open(&reader).unwrap();
        let (mut seen, mut failed) = (0, 0);
        while source.remaining_items() > 0 {
            match source.next_batch() {
                Ok(batch) => {
                    let batch = batch.unwrap();
                    check(&batch, "a page that can be read");
                    seen += batch.len();
                }
                Err(error) => {
                    assert!(matches!(error, Error::Backend { .. }), "{error}");
                    let id = error.sample().unwrap();
                    assert!(is_bad(id) && source.next_ids().contains(&id), "{error}");
                    failed += source.next_ids().len();
                    source.skip_batches(1);
                }
            }
        }
        assert_eq!((seen, failed), (150, 50));
    }
}

/// A change of the file.
type Mishap = (&'static str, fn(&Path) -> std::io::Result<()>);

const MISHAPS: [Mishap; 4] = [
    ("truncated", |path| {
        let file = std::fs::File::options().write(true).open(path)?;
        file.set_len(file.metadata()?.len() - 2 * PAGE)
    }),
    ("written to", |path| {
        let mut file = std::fs::File::options().write(true).open(path)?;
        file.seek(SeekFrom::Start(PAGE))?;
        file.write_all(&[7; 100])
    }),
    ("replaced", |path| {
        std::fs::copy(path, path.with_extension("other"))?;
        std::fs::rename(path.with_extension("other"), path)
    }),
    ("removed", |path| std::fs::remove_file(path)),
];

/// Sets an old time of writing: two writes within one tick of the filesystem's clock look the same.
fn make_old(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
        .unwrap();
}

/// A file that changes after it was opened is an error, never zeros or bytes of two versions.
#[test]
fn a_file_that_changes_under_a_reader_is_an_error() {
    let made = Made::new(100, 2);
    let probe = made.file();
    for (name, happen) in MISHAPS {
        for engine in engines_for(&probe.path) {
            // The `memory` backend has a copy. On Windows an open file exists until it is closed.
            if engine.backend().kind() == BackendKind::Memory
                || (cfg!(windows) && name == "removed")
            {
                continue;
            }
            let what = format!("{name} on {}", engine.backend().kind());
            let file = made.file();
            make_old(&file.path);
            let reader = BetonReader::open(&engine, &file.path).unwrap();
            let memory_manager = MemoryManager::ProcessCache { pages: NonZeroUsize::MIN };
            let paged = SampleOptions::new().memory_manager(memory_manager).open(&reader);
            if let Err(error) = happen(&file.path) {
                // Only Windows refuses to change a mapped file.
                assert_eq!(std::env::consts::OS, "windows", "{what}: {error}");
                continue;
            }
            let errors = [
                reader.read_sample(3).unwrap_err(),
                reader.read_batch(&[99, 0]).unwrap_err(),
                paged.unwrap().next_batch().unwrap_err(),
            ];
            for error in errors {
                let fits = matches!(&error, Error::Changed { what, .. } if *what == name);
                assert!(fits, "{what}: {error:?}");
            }
            if let Ok(mapped) = reader.map_samples(&[0]) {
                assert!(mapped.is_none(), "{what}");
            }
        }
    }
}
