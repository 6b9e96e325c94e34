//! Any bytes as a dataset, or a dataset with mistakes, opened and read to the end in every way: refused or read, but never a
//! panic, nor bytes of another sample.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use ringmain::backends::MemoryBackend;
use ringmain::beton::{
    Allocation, ArraySpec, Batch, Damaged, Field, FieldHandler, FieldKind, Handlers, Header,
    Member, MemberRegion, MemoryManager, Order, ReaderOptions, RowLayout, SampleOptions, Value,
};
use ringmain::{Engine, Kind};

const NAME: &str = "fuzzed";
const PAGE: usize = 2 << 20;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// The file as it is, in place of all that follows.
    raw: Option<&'a [u8]>,
    /// What the fields are.
    kinds: Vec<u8>,
    /// Regions by page, place in it and size: the samples' one after the other.
    regions: Vec<(bool, u16, u16)>,
    /// Bytes before the pages that are other ones.
    patches: Vec<(u16, u8)>,
    /// Rows of the table that are other ones.
    table: Vec<(u8, Allocated)>,
    contents: &'a [u8],
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Allocated {
    sample: u8,
    ptr: u64,
    size: u64,
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

fn field(at: usize, kind: u8) -> Field {
    let name = format!("f{at}");
    let shape = [usize::from(kind >> 5) + 1, 2];
    let spec = ArraySpec::new(Kind::U16.into(), &shape).expect("a small one");
    let kind = match kind % 9 {
        0 => FieldKind::Float,
        1 => FieldKind::Int,
        2 | 3 => FieldKind::RgbImage,
        4 => FieldKind::Bytes,
        5 => FieldKind::NdArray(spec),
        6 => FieldKind::Json,
        7 => FieldKind::TorchTensor(spec),
        _ => FieldKind::Custom { type_id: 255 },
    };
    Field::new(&name, kind).expect("a short name")
}

/// A dataset that is right but for the patches.
fn file(input: &Input<'_>) -> Vec<u8> {
    if let Some(raw) = input.raw {
        return raw.to_vec();
    }
    let kinds = &input.kinds[..input.kinds.len().min(8)];
    let fields: Vec<Field> = kinds.iter().enumerate().map(|(at, kind)| field(at, *kind)).collect();
    let handlers = Handlers::new().for_type(255, Handler);
    let layout = RowLayout::new(&fields, &handlers, Path::new(NAME)).expect("fields that can be");
    let samples = input.regions.len().min(40).div_ceil(fields.len().max(1)) * fields.len().min(1);
    let mut bytes = Header {
        fields: fields.len() as u16,
        page_bytes: PAGE as u32,
        samples: samples as u64,
        alloc_table_ptr: 3 * PAGE as u64,
    }
    .encode()
    .to_vec();
    fields.iter().for_each(|field| bytes.extend_from_slice(&field.encode()));
    let (mut regions, mut table) = (input.regions.iter(), Vec::new());
    for sample in 0..samples {
        let mut row = vec![0; layout.row_bytes()];
        for at in 0..fields.len() {
            let Some((page, place, size)) = regions.next() else { break };
            let ptr = (1 + u64::from(*page)) * PAGE as u64 + u64::from(*place);
            let (width, height) = (size >> 8, size & 0xff);
            let (member, size) = match layout.member(&row, at) {
                Member::Float(_) => (Member::Float(f64::from(*place)), None),
                Member::Int(_) => (Member::Int(i64::from(*place)), None),
                Member::Blob { .. } => (Member::Blob { ptr, size: u64::from(*size) }, Some(*size)),
                Member::Array { .. } => (
                    Member::Array { ptr },
                    fields[at].kind().array().map(|spec| spec.nbytes() as u16),
                ),
                Member::Image { .. } => {
                    let mode = kinds[at] & 1;
                    let raw = width.wrapping_mul(height).wrapping_mul(3);
                    let size = if mode == 1 { raw } else { *size };
                    (Member::Image { mode, width, height, ptr }, Some(size))
                }
                Member::Custom(_) => (Member::Custom(&[1, 0, 0]), Some(*size)),
            };
            assert!(layout.put(&mut row, at, member));
            table.extend(size.map(|size| (sample as u64, ptr, u64::from(size))));
        }
        bytes.extend_from_slice(&row);
    }
    for (at, byte) in &input.patches {
        if let Some(patched) = bytes.get_mut(usize::from(*at)) {
            *patched = *byte;
        }
    }
    bytes.resize(PAGE, 0);
    bytes.extend_from_slice(input.contents);
    bytes.resize(3 * PAGE, 0x20);
    for (at, Allocated { sample, ptr, size }) in &input.table {
        if let Some(row) = table.get_mut(usize::from(*at)) {
            *row = (u64::from(*sample), *ptr, *size);
        }
    }
    for (sample, ptr, size) in table {
        bytes.extend_from_slice(&Allocation { sample, ptr, size }.encode());
    }
    bytes
}

fn check_error(error: &ringmain::Error) {
    let is_about_an_option = matches!(error, ringmain::Error::InvalidOption { .. });
    assert!(is_about_an_option || error.to_string().contains(NAME), "{error}");
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
    let quasi = Order::PageShuffled { seed: 1, open_pages: 1.try_into().expect("one") };
    for memory in [MemoryManager::Direct, cache] {
        let options = SampleOptions::new().memory_manager(memory).damaged(Damaged::LeaveOut);
        let options = options.order(quasi).batch_size(8).prefetch_window_bytes(0);
        let options = options.memory_patience(std::time::Duration::ZERO);
        match options.open(&reader) {
            Ok(source) => source.take(8).for_each(|batch| match batch {
                Ok(batch) => check_batch(&batch),
                Err(error) => check_error(&error),
            }),
            Err(error) => check_error(&error),
        }
    }
});
