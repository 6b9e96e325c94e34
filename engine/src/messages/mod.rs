//! Compares every error message with `tests/messages.txt`, so that a new or changed message is read in
//! review. The file has samples of all variants, and then the texts from which the sources make messages.
//! `RINGMAIN_UPDATE_MESSAGES=1` rewrites the file.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod source_texts;

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::io;
use std::path::PathBuf;

use ringmain_backends::{BackendKind, FileChange};

use crate::beton::BetonDamage;
use crate::shards::ShardDamage;
use crate::weights::{Dtype, TensorDamage, WeightsDamage};
use crate::{Damage, Error, Item};

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");

/// An enum of messages. Its variants are listed below: a new one does not compile until it is there.
trait Messages: Display + Sized {
    const VARIANTS: &'static [&'static str];

    fn variant(&self) -> &'static str;

    /// Returns at least one value of each variant.
    fn samples() -> Vec<Self>;
}

macro_rules! messages {
    ($enum:ident, $samples:expr, $($variant:ident)+) => {
        impl Messages for $enum {
            const VARIANTS: &'static [&'static str] =
                &[$(concat!(stringify!($enum), "::", stringify!($variant))),+];

            fn variant(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => {
                        concat!(stringify!($enum), "::", stringify!($variant))
                    })+
                }
            }

            fn samples() -> Vec<Self> {
                $samples
            }
        }
    };
}

messages!(
    Error, [file_errors(), request_errors(), view_errors()].into_iter().flatten().collect(),
    NotFound Io Backend Truncated Changed Format OutsideFile NoSuchItem MemorySpent OutOfMemory
    CacheFull InvalidOption StateMismatch Unsupported InvalidItem Maker Transform Panicked IndexOutOfRange
    TooManyIndices InvalidIndex NonContiguous Shape Overflow UnknownDType ElementType BufferSize
);
messages!(Item, items(), Row Sample Field Tensor TensorRows View);
messages!(Damage, damages(), Array Shard Beton Weights);
messages!(
    ShardDamage, shard_damages(),
    BadMagic BadDtype ZeroWidth WidthMismatch TooManyRows Empty
);
messages!(
    BetonDamage, beton_damages(),
    BadVersion BadHeader BadField UnknownType WrongRowSize BadTable NotAllocated ForeignRegion
    OutsidePages CrossesPage Overlaps WrongSize BadImageMode NotUtf8 EmptyImage TooManyPixels BadJpeg
);
messages!(
    WeightsDamage, weights_damages(),
    BadHeader BadTensor BadIndex MissingFile MissingTensor NoModel
);
messages!(
    TensorDamage, tensor_damages(),
    Twice UnknownDtype Reversed OutsideFile Overlap Hole Overflow PartByte WrongSize
);

fn path() -> PathBuf {
    "/data/a.bin".into()
}

fn tensor() -> Item {
    Item::Tensor("layer.1.weight".into())
}

fn sample(field: Option<&str>) -> Item {
    Item::Sample { id: 7, field: field.map(Into::into) }
}

/// Returns errors of files and of their contents.
fn file_errors() -> Vec<Error> {
    let path = path();
    let failed = |path: Option<PathBuf>, item| {
        let (backend, source) = (BackendKind::Pread, io::ErrorKind::UnexpectedEof.into());
        let file = self::path();
        let cause = ringmain_backends::Error::Read {
            backend,
            path: file,
            offset: 4096,
            len: 512,
            index: 0,
            source,
        };
        Error::Backend { path, item, cause: Box::new(cause) }
    };
    let refused = io::ErrorKind::PermissionDenied;
    let format =
        |item, damage: Damage| Error::Format { path: self::path(), item, damage: Box::new(damage) };
    vec![
        Error::NotFound { path: path.clone(), cause: io::ErrorKind::NotFound.into() },
        Error::Io { path: path.clone(), action: "writing the shard", cause: refused.into() },
        failed(None, None),
        failed(None, Some(Item::Row(300))),
        failed(Some("/data".into()), Some(sample(Some("image")))),
        Error::Truncated { path: path.clone(), what: "header", expected: 32, actual: 20 },
        Error::Truncated { path: path.clone(), what: "rows", expected: 64, actual: 1 },
        Error::Changed { path: path.clone(), change: FileChange::Written },
        Error::Changed { path: path.clone(), change: FileChange::Removed },
        format(None, ShardDamage::BadMagic.into()),
        format(Some(sample(Some("text"))), BetonDamage::NotUtf8.into()),
        Error::OutsideFile { path: path.clone(), offset: 4096, len: 512, file_len: 4100 },
        Error::OutsideFile { path: path.clone(), offset: 4096, len: 1, file_len: 1 },
        Error::NoSuchItem {
            path: path.clone(),
            item: sample(None),
            reason: "the dataset has 5 samples".to_owned(),
        },
        Error::StateMismatch {
            path: path.clone(),
            reason: "the shards have other names, rows, columns or first values; open the shards \
                     that it was saved with"
                .to_owned(),
        },
        Error::Unsupported { path, reason: "this platform cannot lock a mapped file".to_owned() },
    ]
}

/// Returns errors of memory, options and writing.
fn request_errors() -> Vec<Error> {
    let full = |requested_bytes, held_bytes| Error::CacheFull {
        path: path(),
        requested_bytes,
        limit_bytes: 1000,
        held_bytes,
    };
    let reason = "the batch size must be at least 1".to_owned();
    let spent = |what, needed_bytes, in_use_bytes| Error::MemorySpent {
        path: path(),
        what,
        needed_bytes,
        in_use_bytes,
        limit_bytes: 32768,
    };
    vec![
        spent("a batch", 8192, 28672),
        spent("a buffer", 65536, 0),
        spent("a batch", 65536, 0),
        spent("a page", 65536, 0),
        spent("a tensor", 65536, 0),
        Error::OutOfMemory { bytes: 1 << 40 },
        full(2000, 0),
        full(800, 600),
        Error::InvalidOption { option: "batch_size", value: "0".to_owned(), reason },
        Error::InvalidItem {
            path: path(),
            item: Some(sample(Some("label"))),
            reason: "it has no value".to_owned(),
        },
        Error::InvalidItem {
            path: path(),
            item: None,
            reason: "10 samples were declared, but the iterator yielded only 9; declare the exact \
                     number"
                .to_owned(),
        },
        Error::Transform {
            path: path(),
            samples: (0..64).collect(),
            cause: "the images are too bright".into(),
        },
        Error::Maker { path: path(), item: sample(None), cause: "no such picture".into() },
        Error::Panicked {
            path: path(),
            thread: "makes samples",
            message: "index out of bounds".to_owned(),
        },
        Error::reader_panicked(&path()),
    ]
}

/// Returns errors of indexing and converting views.
fn view_errors() -> Vec<Error> {
    vec![
        Error::IndexOutOfRange { axis: 1, index: -5, len: 4 },
        Error::TooManyIndices { given: 3, ndim: 2 },
        Error::InvalidIndex { reason: "an index can have only one ellipsis".to_owned() },
        Error::NonContiguous { shape: vec![3, 2] },
        Error::Shape { reason: "axis 0 of shape [3, 4] does not have length 1".to_owned() },
        Error::Overflow { shape: vec![1 << 40, 1 << 40], itemsize: 4 },
        Error::UnknownDType { text: "flaot32".to_owned() },
        Error::ElementType {
            path: None,
            item: Some(tensor()),
            stored: "BF16".to_owned(),
            reason: "they cannot be read as f32".to_owned(),
        },
        Error::ElementType {
            path: Some(path()),
            item: Some(Item::View(3)),
            stored: "<f4".to_owned(),
            reason: "they are not u8; `read_as` converts".to_owned(),
        },
        Error::BufferSize { item: None, needed: 100, given: 12 },
        Error::BufferSize { item: Some(Item::View(3)), needed: 1, given: 1 << 20 },
    ]
}

fn items() -> Vec<Item> {
    vec![
        Item::Row(300),
        sample(None),
        sample(Some("image")),
        Item::Field("label".into()),
        tensor(),
        Item::TensorRows { tensor: "layer.1.weight".into(), rows: 10..20 },
        Item::View(3),
    ]
}

fn damages() -> Vec<Damage> {
    vec![
        Damage::Array { reason: "the shape has a negative length".to_owned() },
        ShardDamage::ZeroWidth.into(),
        BetonDamage::NotUtf8.into(),
        WeightsDamage::BadTensor(TensorDamage::Twice).into(),
    ]
}

fn shard_damages() -> Vec<ShardDamage> {
    vec![
        ShardDamage::BadMagic,
        ShardDamage::BadDtype { tag: 3 },
        ShardDamage::ZeroWidth,
        ShardDamage::WidthMismatch { expected: 64, found: 32 },
        ShardDamage::TooManyRows,
        ShardDamage::Empty { reason: "the folder has no `*.shard` files" },
    ]
}

fn beton_damages() -> Vec<BetonDamage> {
    let name = || "image".to_owned();
    vec![
        BetonDamage::BadVersion { version: 3 },
        BetonDamage::BadHeader { reason: "it has 5 samples, but no fields".to_owned() },
        BetonDamage::BadField {
            index: 1,
            name: name(),
            reason: "its name is not ASCII".to_owned(),
        },
        BetonDamage::UnknownType { index: 1, name: name(), type_id: 255 },
        BetonDamage::WrongRowSize {
            row_bytes: 24,
            reason: "they end at byte 5000, but the allocation table begins at byte 5400"
                .to_owned(),
        },
        BetonDamage::BadTable { reason: "its 30 bytes are not a whole number of rows".to_owned() },
        BetonDamage::NotAllocated { ptr: 4096 },
        BetonDamage::ForeignRegion { ptr: 4096, owner: 8 },
        BetonDamage::OutsidePages { ptr: 4096, size: 512 },
        BetonDamage::CrossesPage { ptr: 4096, size: 512 },
        BetonDamage::Overlaps { ptr: 4096, size: 512 },
        BetonDamage::WrongSize { ptr: 4096, expected: 512, found: 500 },
        BetonDamage::BadImageMode { mode: 2 },
        BetonDamage::NotUtf8,
        BetonDamage::EmptyImage,
        BetonDamage::TooManyPixels { width: 65535, height: 65535, limit: 178_956_970 },
        BetonDamage::BadJpeg {
            reason: "it has (3, 4) pixels, but the metadata says (4, 4)".to_owned(),
        },
    ]
}

fn weights_damages() -> Vec<WeightsDamage> {
    let file = || "model-00002-of-00002.safetensors".into();
    vec![
        WeightsDamage::BadHeader { reason: "its header is not UTF-8".to_owned() },
        WeightsDamage::BadTensor(TensorDamage::Twice),
        WeightsDamage::BadIndex { reason: "it names no tensors".to_owned() },
        WeightsDamage::MissingFile { file: file() },
        WeightsDamage::MissingTensor { file: file() },
        WeightsDamage::NoModel {
            reason: "there is no *.safetensors file in this directory".to_owned(),
        },
    ]
}

fn tensor_damages() -> Vec<TensorDamage> {
    let shape = || vec![3, 5];
    vec![
        TensorDamage::Twice,
        TensorDamage::UnknownDtype { dtype: "F7".to_owned() },
        TensorDamage::Reversed { begin: 8, end: 4 },
        TensorDamage::OutsideFile { end: 9, data_len: 6 },
        TensorDamage::Overlap { begin: 2, covered: 4 },
        TensorDamage::Hole { begin: 8, covered: 4 },
        TensorDamage::Overflow { dtype: Dtype::F32, shape: vec![1 << 40, 1 << 40] },
        TensorDamage::PartByte { dtype: Dtype::F4, shape: shape() },
        TensorDamage::WrongSize { dtype: Dtype::F32, shape: shape(), expected: 60, actual: 56 },
    ]
}

fn write_all<T: Messages>(text: &mut String) {
    let samples = T::samples();
    let covered: BTreeSet<_> = samples.iter().map(T::variant).collect();
    assert_eq!(covered, T::VARIANTS.iter().copied().collect(), "a variant has no sample");
    for sample in samples {
        writeln!(text, "{}\n    {sample}", sample.variant()).unwrap();
    }
}

#[test]
fn every_message_is_in_the_snapshot() {
    let mut text = String::new();
    write_all::<Error>(&mut text);
    write_all::<Item>(&mut text);
    write_all::<Damage>(&mut text);
    write_all::<ShardDamage>(&mut text);
    write_all::<BetonDamage>(&mut text);
    write_all::<WeightsDamage>(&mut text);
    write_all::<TensorDamage>(&mut text);
    text.push_str(&source_texts::source_texts());
    if std::env::var_os("RINGMAIN_UPDATE_MESSAGES").is_some() {
        std::fs::write(SNAPSHOT, &text).unwrap();
    }
    let expected = std::fs::read_to_string(SNAPSHOT).unwrap().replace("\r\n", "\n");
    assert!(
        text == expected,
        "messages differ from tests/messages.txt; run the test with RINGMAIN_UPDATE_MESSAGES=1 and \
         read the difference:\n{text}"
    );
}
