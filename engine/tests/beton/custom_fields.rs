//! Fields that a handler of the program reads, and handlers that do not fit the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringmain::beton::{
    BetonDamage, Field, FieldHandler, FieldKind, HEADER_LEN, Header, MemberRegion, MemoryManager,
    ReaderOptions, SampleOptions, Value,
};
use ringmain::{Damage, Engine};

use crate::damage::open_bytes;
use crate::expected::vector;

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

/// Counts how often the place of a sample is looked up.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl FieldHandler for Counted {
    fn member_bytes(&self) -> usize {
        16
    }

    fn region(&self, member: &[u8]) -> Option<MemberRegion> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Blob.region(member)
    }
}

/// Each move planned the rest of the epoch again, on the thread of the caller.
#[test]
fn a_move_within_an_epoch_plans_no_pages() {
    let mut bytes = std::fs::read(vector()).unwrap();
    bytes[HEADER_LEN + 2 * 1041] = 255;
    let memory = ringmain::backends::MemoryBackend::new();
    memory.insert("a", bytes);
    let engine = Engine::builder().with_backend(Arc::new(memory)).build().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let reader = ReaderOptions::new().handle_type(255, Counted(Arc::clone(&calls)));
    let reader = reader.open(&engine, "a").unwrap();
    let cache = MemoryManager::ProcessCache { pages: 2.try_into().unwrap() };
    for window_bytes in [0, 1] {
        let options = SampleOptions::new().memory_manager(cache).batch_size(1);
        let mut source = options.prefetch_window_bytes(window_bytes).open(&reader).unwrap();
        let expected: Vec<u64> = (0..reader.len()).collect();
        calls.store(0, Ordering::Relaxed);
        source.skip_batches(1);
        source.skip_batches(1);
        assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing is read yet");
        source.reset();
        let mut found = Vec::new();
        while let Some(batch) = source.next_batch().unwrap() {
            found.extend_from_slice(batch.ids());
            let skipped = source.next_ids();
            source.skip_batches(1);
            found.extend(skipped);
        }
        assert_eq!(found, expected);
        // Each sample is planned once, and its place is looked up for a few batches that are read ahead.
        let (calls, samples) = (calls.load(Ordering::Relaxed), expected.len());
        assert!(calls <= 10 * samples, "{calls} calls for {samples} samples");
        source.reset();
        assert_eq!(source.next_batch().unwrap().unwrap().ids(), [0]);
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
