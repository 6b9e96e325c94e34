//! Samples as values, and a parser that takes a file apart by its bytes alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringmain::beton::{
    ALLOCATION_LEN, Allocation, ArraySpec, BetonWriter, CustomRegion, FIELD_LEN, Field,
    FieldHandler, FieldKind, HEADER_LEN, Handlers, Header, ImageMode, Member, MemberRegion,
    ReaderOptions, RegionAlignment, RowLayout, SampleBuilder, SampleError, Value as ReadValue,
    WriteReport,
};
use ringmain::{BackendKind, Engine, Kind};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Int(i64),
    Float(f64),
    Bytes(Vec<u8>),
    Json(String),
    Array(Vec<u8>),
    Raw(u16, u16, Vec<u8>),
    Jpeg(Vec<u8>),
    Custom(u32, Option<Vec<u8>>),
}

impl Value {
    pub(crate) fn give(&self, to: &mut SampleBuilder<'_>) -> Result<(), SampleError> {
        match self {
            Self::Int(value) => to.int(*value)?,
            Self::Float(value) => to.float(*value)?,
            Self::Bytes(bytes) => to.bytes(bytes)?,
            Self::Json(text) => to.json(text)?,
            Self::Array(bytes) => to.array(bytes)?,
            Self::Raw(width, height, bytes) => to.image_raw(*width, *height, bytes)?,
            Self::Jpeg(bytes) => to.image_jpeg(bytes)?,
            Self::Custom(number, region) => {
                let mut member = number.to_le_bytes().to_vec();
                member.resize(12, 0);
                let region = region.as_ref().map(|bytes| CustomRegion { bytes, ptr_at: 4 });
                to.custom(&member, region)?
            }
        };
        Ok(())
    }
}

impl Value {
    /// A custom value without a region looks like one with an empty region, so `like` decides.
    fn from_read(value: &ReadValue<'_>, like: &Self) -> Self {
        match value {
            ReadValue::Int(value) => Self::Int(*value),
            ReadValue::Float(value) => Self::Float(*value),
            ReadValue::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            ReadValue::Json(text) => Self::Json((*text).to_owned()),
            ReadValue::Array(array) => Self::Array(array.bytes.to_vec()),
            ReadValue::Image(image) if image.mode == ImageMode::Raw => {
                Self::Raw(image.width, image.height, image.bytes.to_vec())
            }
            ReadValue::Image(image) => Self::Jpeg(image.bytes.to_vec()),
            ReadValue::Custom { member, bytes } => {
                let number = u32::from_le_bytes(*member.first_chunk().unwrap());
                let is_none = matches!(like, Self::Custom(_, None)) && bytes.is_empty();
                Self::Custom(number, (!is_none).then(|| bytes.to_vec()))
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn give_all(values: &[Value], to: &mut SampleBuilder<'_>) -> Result<(), SampleError> {
    values.iter().try_for_each(|value| value.give(to))
}

/// A number of 32 bits, and the offset of the rest, or 0.
#[derive(Debug)]
pub(crate) struct Opaque;

impl FieldHandler for Opaque {
    fn member_bytes(&self) -> usize {
        12
    }

    fn region(&self, member: &[u8]) -> Option<MemberRegion> {
        let ptr = u64::from_le_bytes(*member.last_chunk()?);
        (ptr != 0).then_some(MemberRegion { ptr, size: None })
    }
}

pub(crate) fn handlers() -> Handlers {
    Handlers::new().for_type(255, Opaque)
}

/// Returns a field of each kind.
pub(crate) fn all_fields() -> Vec<Field> {
    let array = ArraySpec::new(Kind::F32.into(), &[2, 3]).unwrap();
    let tensor = ArraySpec::new(Kind::I16.into(), &[5]).unwrap();
    let kinds = [
        FieldKind::Int,
        FieldKind::RgbImage,
        FieldKind::Float,
        FieldKind::Bytes,
        FieldKind::NdArray(array),
        FieldKind::Json,
        FieldKind::TorchTensor(tensor),
        FieldKind::Custom { type_id: 255 },
    ];
    let field = |(at, kind)| Field::new(&format!("field{at}"), kind).unwrap();
    kinds.into_iter().enumerate().map(field).collect()
}

/// Returns the smallest JPEG that a dataset accepts, followed by `len` bytes.
pub(crate) fn jpeg(width: u16, height: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xC0, 0, 11, 8];
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([1, 1, 0x11, 0]);
    bytes.resize(bytes.len() + len, 0x55);
    bytes
}

pub(crate) fn writer(fields: Vec<Field>) -> BetonWriter {
    BetonWriter::new(fields).handlers(handlers()).page_bytes(2 << 20)
}

/// Returns a field `data` of bytes.
pub(crate) fn bytes_field() -> Vec<Field> {
    vec![Field::new("data", FieldKind::Bytes).unwrap()]
}

/// Returns samples of one bytes field with these sizes and distinct bytes.
pub(crate) fn blobs(sizes: &[usize]) -> Vec<Vec<Value>> {
    let blob = |(at, size): (usize, &usize)| vec![Value::Bytes(vec![at as u8 + 1; *size])];
    sizes.iter().enumerate().map(blob).collect()
}

/// Writes the samples, takes the file apart, and compares them.
pub(crate) fn round_trip(
    path: &Path,
    writer: &BetonWriter,
    fields: &[Field],
    alignment: RegionAlignment,
    samples: &[Vec<Value>],
) -> (WriteReport, File) {
    let report = writer
        .write_indexed(path, samples.len() as u64, |id, to| give_all(&samples[id as usize], to))
        .unwrap();
    let file = File::take_apart(&std::fs::read(path).unwrap(), fields, alignment);
    assert_eq!(report.file_bytes, std::fs::metadata(path).unwrap().len());
    assert_eq!(report.samples, samples.len() as u64);
    assert!(file.samples == samples, "{} samples differ after the round trip", samples.len());
    check_by_reader(path, samples);
    (report, file)
}

/// Compares with the samples that the reader returns.
fn check_by_reader(path: &Path, samples: &[Vec<Value>]) {
    let options = ReaderOptions::new().handle_type(255, Opaque);
    let engine = Engine::builder().backend(BackendKind::Pread).build().unwrap();
    let reader = options.open(&engine, path).unwrap();
    assert_eq!(reader.len(), samples.len() as u64);
    let ids: Vec<u64> = (0..reader.len()).collect();
    let batch = reader.read_batch(&ids).unwrap();
    for (at, values) in samples.iter().enumerate() {
        for (field, expected) in values.iter().enumerate() {
            let found = Value::from_read(&batch.value(at, field).unwrap(), expected);
            assert!(found == *expected, "sample {at}, field {field}: {found:?}");
        }
    }
}

/// The contents of a file, after every part was checked.
pub(crate) struct File {
    pub(crate) header: Header,
    pub(crate) samples: Vec<Vec<Value>>,
    /// The rows, in the order of the table.
    pub(crate) table: Vec<Allocation>,
}

impl File {
    pub(crate) fn take_apart(bytes: &[u8], fields: &[Field], alignment: RegionAlignment) -> Self {
        let header = Header::decode(bytes, bytes.len() as u64, Path::new("a")).unwrap();
        assert_eq!(usize::from(header.fields), fields.len());
        for (at, field) in fields.iter().enumerate() {
            let descriptor = &bytes[HEADER_LEN + at * FIELD_LEN..][..FIELD_LEN];
            assert!(descriptor == field.encode(), "field {at}");
        }
        let table = &bytes[header.alloc_table_ptr as usize..];
        let (rows, rest) = table.as_chunks::<ALLOCATION_LEN>();
        assert!(rest.is_empty());
        let table: Vec<Allocation> = rows.iter().map(Allocation::decode).collect();
        check_places(&header, &table, alignment);
        let sizes: BTreeMap<u64, Allocation> = table.iter().map(|row| (row.ptr, *row)).collect();
        assert_eq!(sizes.len(), table.len(), "two regions begin at the same offset");
        let layout = RowLayout::new(fields, &handlers(), Path::new("a")).unwrap();
        let pages_at = header.pages_at(layout.row_bytes() as u64).unwrap();
        assert!(table.iter().all(|row| row.ptr >= pages_at));
        let mut named = BTreeSet::new();
        let mut samples = Vec::new();
        for sample in 0..header.samples {
            let at = header.metadata_at() as usize + sample as usize * layout.row_bytes();
            let row = &bytes[at..at + layout.row_bytes()];
            let mut region = |ptr: u64| {
                let found = sizes[&ptr];
                assert_eq!(found.sample, sample);
                assert!(named.insert(ptr), "two values are at {ptr}");
                bytes[ptr as usize..][..found.size as usize].to_vec()
            };
            let value = |(at, field): (usize, &Field)| match layout.member(row, at) {
                Member::Int(value) => Value::Int(value),
                Member::Float(value) => Value::Float(value),
                Member::Array { ptr } => Value::Array(region(ptr)),
                Member::Image { mode: 1, width, height, ptr } => {
                    Value::Raw(width, height, region(ptr))
                }
                Member::Image { width, height, ptr, .. } => {
                    let bytes = region(ptr);
                    assert_eq!(jpeg(width, height, bytes.len() - 15), bytes);
                    Value::Jpeg(bytes)
                }
                Member::Blob { ptr, size } => {
                    let bytes = region(ptr);
                    assert_eq!(bytes.len() as u64, size);
                    if *field.kind() == FieldKind::Json {
                        let text = bytes.strip_suffix(&[0]).unwrap().to_vec();
                        Value::Json(String::from_utf8(text).unwrap())
                    } else {
                        Value::Bytes(bytes)
                    }
                }
                Member::Custom(member) => {
                    let number = u32::from_le_bytes(*member.first_chunk().unwrap());
                    let ptr = u64::from_le_bytes(*member.last_chunk().unwrap());
                    Value::Custom(number, (ptr != 0).then(|| region(ptr)))
                }
            };
            samples.push(fields.iter().enumerate().map(value).collect());
        }
        assert_eq!(named.len(), table.len(), "a region that no sample refers to");
        check_rest_is_zeros(bytes, pages_at, &header, &table);
        Self { header, samples, table }
    }

    /// Returns the page of a sample that has regions.
    pub(crate) fn page_of(&self, sample: u64) -> u64 {
        let region = self.table.iter().find(|row| row.sample == sample).unwrap();
        region.ptr / u64::from(self.header.page_bytes)
    }
}

fn check_places(header: &Header, table: &[Allocation], alignment: RegionAlignment) {
    let page_bytes = u64::from(header.page_bytes);
    let mut pages = BTreeMap::new();
    for row in table {
        assert_eq!(row.ptr % alignment.bytes() as u64, 0, "{row:?}");
        let page = row.ptr / page_bytes;
        // An empty region must be inside too.
        assert!(row.ptr % page_bytes + row.size.max(1) <= page_bytes, "{row:?}");
        assert_eq!(*pages.entry(row.sample).or_insert(page), page, "{row:?}");
    }
    let mut sorted = table.to_vec();
    sorted.sort_by_key(|row| row.ptr);
    assert!(sorted.windows(2).all(|rows| rows[0].ptr + rows[0].size.max(1) <= rows[1].ptr));
    let last = sorted.last().map(|row| row.ptr / page_bytes + 1);
    if let Some(end) = last {
        assert_eq!(header.alloc_table_ptr, end * page_bytes, "no page is empty");
    }
}

/// Bytes outside regions must be zeros, not remains of memory.
fn check_rest_is_zeros(bytes: &[u8], pages_at: u64, header: &Header, table: &[Allocation]) {
    if table.is_empty() {
        return;
    }
    let mut rest = bytes[pages_at as usize..header.alloc_table_ptr as usize].to_vec();
    for row in table {
        rest[(row.ptr - pages_at) as usize..][..row.size as usize].fill(0);
    }
    assert!(rest == vec![0; rest.len()], "there are bytes between the regions");
}
