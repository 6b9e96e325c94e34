//! FFCV's datasets.

use std::path::Path;
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};

use super::engine_over;
use super::pieces::PieceBackend;
use crate::beton::{
    ALLOCATION_LEN, Allocation, ArraySpec, Batch, Damaged, FIELD_LEN, Field, FieldHandler,
    FieldKind, HEADER_LEN, Handlers, Header, Member, MemberRegion, MemoryManager, Order,
    ReaderOptions, RowLayout, SampleOptions, Value,
};
use crate::{Engine, Error, Kind};

const NAME: &str = "fuzzed";
const PAGE: u64 = 2 << 20;
/// Samples of a dataset that are looked at.
const SAMPLES_MAX: u64 = 32;

/// The bytes are the beginning of a dataset: header, fields, metadata and allocation table, without
/// pages. All of it lies in the file and is written again as it was, or the file is refused.
pub(super) fn beton_index(bytes: &[u8]) {
    let engine = engine_over(&[(NAME, bytes)]);
    let options = ReaderOptions::new().handle_type(255, Handler);
    let reader = match options.open(&engine, NAME) {
        Ok(reader) => reader,
        Err(error) => return check_error(&error),
    };
    let header = Header::decode(bytes, bytes.len() as u64, Path::new(NAME)).expect("it is open");
    assert_eq!(header.encode(), bytes[..HEADER_LEN]);
    let fields = bytes[HEADER_LEN..].chunks_exact(FIELD_LEN);
    assert_eq!(reader.fields().len(), usize::from(header.fields));
    for (field, stored) in reader.fields().iter().zip(fields) {
        assert_eq!(field.encode()[..], *stored);
    }
    let table_bytes = (reader.regions() * ALLOCATION_LEN) as u64;
    assert_eq!(header.alloc_table_ptr + table_bytes, bytes.len() as u64);
    assert!(header.metadata_at() + reader.len() <= header.alloc_table_ptr);
    for sample in 0..reader.len().min(SAMPLES_MAX) {
        let is_good = match reader.check_sample(sample) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.sample(), Some(sample));
                false
            }
        };
        // Only the sizes of pages and the limit of memory can refuse a sample that was found good.
        if let Ok(sample) = reader.read_sample(sample) {
            assert!(is_good);
            check_batch(sample.as_batch());
        }
    }
}

/// A dataset with mistakes.
#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// The kinds of the fields.
    kinds: Vec<u8>,
    /// The regions of one sample after the other: page, place in it, and size.
    regions: Vec<(bool, u16, u16)>,
    /// Bytes before the pages that are replaced.
    patches: Vec<(u16, u8)>,
    /// Rows of the table that are replaced.
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
        Some(MemberRegion { ptr: page * PAGE + u64::from(place), size: None })
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

/// Returns the pieces of a dataset that is right but for the patches: its beginning, its first page,
/// and its table.
fn pieces(input: &Input<'_>) -> [(u64, Vec<u8>); 3] {
    let kinds = &input.kinds[..input.kinds.len().min(8)];
    let fields: Vec<Field> = kinds.iter().enumerate().map(|(at, kind)| field(at, *kind)).collect();
    let handlers = Handlers::new().for_type(255, Handler);
    let layout = RowLayout::new(&fields, &handlers, Path::new(NAME)).expect("fields that can be");
    let samples = input.regions.len().min(40).div_ceil(fields.len().max(1)) * fields.len().min(1);
    let mut bytes = Header {
        fields: fields.len() as u16,
        page_bytes: PAGE as u32,
        samples: samples as u64,
        alloc_table_ptr: 3 * PAGE,
    }
    .encode()
    .to_vec();
    fields.iter().for_each(|field| bytes.extend_from_slice(&field.encode()));
    let (mut regions, mut table) = (input.regions.iter(), Vec::new());
    for sample in 0..samples {
        let mut row = vec![0; layout.row_bytes()];
        for at in 0..fields.len() {
            let Some((page, place, size)) = regions.next() else { break };
            let ptr = (1 + u64::from(*page)) * PAGE + u64::from(*place);
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
    for (at, Allocated { sample, ptr, size }) in &input.table {
        if let Some(row) = table.get_mut(usize::from(*at)) {
            *row = (u64::from(*sample), *ptr, *size);
        }
    }
    let encode = |(sample, ptr, size)| Allocation { sample, ptr, size }.encode();
    let table = table.into_iter().flat_map(encode).collect();
    [(0, bytes), (PAGE, input.contents.to_vec()), (3 * PAGE, table)]
}

/// Asserts that an error names the file, or an option that can be raised.
fn check_error(error: &Error) {
    let is_about_an_option = matches!(error, Error::InvalidOption { .. });
    assert!(is_about_an_option || error.path() == Some(Path::new(NAME)), "{error:?}");
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

/// The bytes are a dataset with mistakes, which is read to the end in every way. No error is about
/// another file, and no value has another size than its field.
pub(super) fn beton_samples(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let backend = PieceBackend::new(pieces(&input));
    let engine = Engine::builder().with_backend(Arc::new(backend)).memory_limit_bytes(32 << 20);
    let engine = engine.build().expect("the options work");
    let options = ReaderOptions::new().handle_type(255, Handler).index_limit_bytes(64 << 20);
    let reader = match options.open(&engine, NAME) {
        Ok(reader) => reader,
        Err(error) => return check_error(&error),
    };
    let few: Vec<u64> = (0..reader.len().min(SAMPLES_MAX)).collect();
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
}
