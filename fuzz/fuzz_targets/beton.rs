//! Any bytes as a dataset, opened and read to the end in every way: refused or read, but never a
//! panic, nor bytes of another sample.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use ringmain::Engine;
use ringmain::backends::MemoryBackend;
use ringmain::beton::{
    Allocation, Batch, BetonError, BetonReader, Damaged, FieldHandler, FIELD_LEN, HEADER_LEN,
    Header, MemberRegion, MemoryManager, ReaderOptions, SampleOptions, Traversal, Value,
};

const NAME: &str = "fuzzed";
const PAGE: usize = 2 << 20;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// The file as it is, or what follows in pages that begin where they must.
    is_raw: bool,
    fields: u8,
    samples: u16,
    alloc_table_ptr: Option<u64>,
    /// Regions by sample, page, place in it and size.
    table: Vec<(u8, u8, u16, u16)>,
    rows: &'a [u8],
    bytes: &'a [u8],
}

/// A member of three bytes: the page, and the place in it.
#[derive(Debug)]
struct Handler;

impl FieldHandler for Handler {
    fn member_bytes(&self) -> usize {
        3
    }

    fn region(&self, member: &[u8]) -> Option<MemberRegion> {
        let (page, place) = (u64::from(member[0]), u16::from_le_bytes([member[1], member[2]]));
        Some(MemberRegion { ptr: page * PAGE as u64 + u64::from(place), size: None })
    }
}

fn file(input: &Input<'_>) -> Vec<u8> {
    if input.is_raw {
        return input.bytes.to_vec();
    }
    let fields = u16::from(input.fields % 8);
    let table_at = input.alloc_table_ptr.unwrap_or(2 * PAGE as u64);
    let samples = u64::from(input.samples);
    let header = Header { fields, page_bytes: PAGE as u32, samples, alloc_table_ptr: table_at };
    let mut bytes = header.encode().to_vec();
    let described = HEADER_LEN + usize::from(fields) * FIELD_LEN;
    bytes.extend_from_slice(input.bytes);
    bytes.resize(described, 0);
    bytes.extend_from_slice(input.rows);
    bytes.resize(2 * PAGE, 0x20);
    for (sample, page, place, size) in &input.table {
        let ptr = u64::from(*page) * PAGE as u64 + u64::from(*place);
        let row = Allocation { sample: u64::from(*sample), ptr, size: u64::from(*size) };
        bytes.extend_from_slice(&row.encode());
    }
    bytes
}

fn check_error(error: &BetonError) {
    assert!(error.to_string().contains(NAME), "{error}");
}

fn check_batch(batch: &Batch) {
    for at in 0..batch.len() {
        for field in 0..batch.fields().len() {
            match batch.value(at, field) {
                Ok(Value::Image(image)) if image.rgb_bytes() <= 1 << 20 => {
                    let mut rgb = vec![0; image.rgb_bytes()];
                    if let Err(error) = batch.decode_image(at, field, &mut rgb) {
                        check_error(&error);
                    }
                }
                Ok(Value::Array(array)) => {
                    let elements: usize = array.shape.iter().product();
                    assert_eq!(array.bytes.len(), elements * array.dtype.itemsize());
                }
                Ok(_) => {}
                Err(error) => check_error(&error),
            }
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let memory = MemoryBackend::new();
    memory.insert(NAME, file(&input));
    let engine = Engine::builder().with_backend(Arc::new(memory)).memory_limit_bytes(32 << 20);
    let engine = engine.build().expect("an engine");
    let options = ReaderOptions::new().handle_type(255, Handler).index_limit_bytes(64 << 20);
    let reader = match options.open(&engine, NAME) {
        Ok(reader) => reader,
        Err(error) => return check_error(&error),
    };
    let few: Vec<u64> = (0..reader.len().min(32)).collect();
    let mut good = Vec::new();
    for id in few.iter().copied().chain([reader.len(), u64::MAX]) {
        match reader.read_sample(id) {
            Ok(sample) => {
                assert!(reader.check_sample(id).is_ok());
                check_batch(sample.as_batch());
                good.push(id);
            }
            Err(error) => check_error(&error),
        }
    }
    match reader.read_batch(&good) {
        Ok(batch) => check_batch(&batch),
        Err(error) => check_error(&error),
    }
    let cache = MemoryManager::ProcessCache { pages: 1.try_into().expect("one") };
    let quasi =
        Traversal::QuasiRandom { seed: 1, epoch: 0, open_pages: 1.try_into().expect("one") };
    for memory in [MemoryManager::Direct, cache] {
        let options = SampleOptions::new().memory_manager(memory).damaged(Damaged::LeaveOut);
        let options = options.traversal(quasi).batch_size(8).prefetch_window_bytes(0);
        let options = options.memory_patience(std::time::Duration::ZERO);
        match options.start(&reader) {
            Ok(source) => source.take(8).for_each(|batch| match batch {
                Ok(batch) => check_batch(&batch),
                Err(error) => check_error(&error),
            }),
            Err(error) => check_error(&error),
        }
    }
});
