//! The ways in which a dataset, or a single sample of it, can be damaged.

/// The reason why a file is not a dataset, or why a sample cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BetonDamage {
    /// The file has another version, or is not a dataset.
    #[error("this is not a .beton file of version 2: its version field is {version}")]
    BadVersion {
        /// The version field of the file.
        version: u16,
    },
    /// The header contradicts itself or the file.
    #[error("bad header: {reason}")]
    BadHeader {
        /// The contradiction.
        reason: String,
    },
    /// The descriptor of a field cannot be decoded, or the field cannot be written.
    #[error("field {index} (`{name}`): {reason}")]
    BadField {
        /// The number of the field, from 0.
        index: usize,
        /// The name of the field, with non-UTF-8 bytes replaced.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A field has a custom type and no handler.
    #[error(
        "field {index} (`{name}`) has the type id {type_id}, which has no handler; give one to \
         `ReaderOptions::handle_type` or `handle_name`"
    )]
    UnknownType {
        /// The number of the field, from 0.
        index: usize,
        /// The name of the field.
        name: String,
        /// The type id of the field.
        type_id: u8,
    },
    /// The rows of metadata do not fit the file, so the handler of a custom field has a wrong size.
    #[error(
        "rows of {row_bytes} bytes do not fit the file: {reason}; check `member_bytes` and \
         `member_align` of the handlers of its fields"
    )]
    WrongRowSize {
        /// The size of a row in bytes, according to the fields and their handlers.
        row_bytes: u64,
        /// The part that does not fit.
        reason: String,
    },
    /// The allocation table has an impossible place or size.
    #[error("bad allocation table: {reason}")]
    BadTable {
        /// The reason.
        reason: String,
    },

    /// The allocation table has no region that begins where the sample's metadata says.
    #[error("the allocation table has no region at byte {ptr}")]
    NotAllocated {
        /// The offset in the metadata.
        ptr: u64,
    },
    /// The region belongs to another sample.
    #[error("the region at byte {ptr} belongs to sample {owner}")]
    ForeignRegion {
        /// The region's offset.
        ptr: u64,
        /// The sample that owns it.
        owner: u64,
    },
    /// The region is not inside the pages.
    #[error("the region of {size} bytes at byte {ptr} is not inside the pages")]
    OutsidePages {
        /// The region's offset.
        ptr: u64,
        /// The size of the region in bytes.
        size: u64,
    },
    /// The region crosses into the next page.
    #[error("the region of {size} bytes at byte {ptr} crosses into the next page")]
    CrossesPage {
        /// The region's offset.
        ptr: u64,
        /// The size of the region in bytes.
        size: u64,
    },
    /// The region shares bytes with another.
    #[error("the region of {size} bytes at byte {ptr} overlaps another")]
    Overlaps {
        /// The region's offset.
        ptr: u64,
        /// The size of the region in bytes.
        size: u64,
    },
    /// The region does not have the size that the field or the metadata states.
    #[error("the region at byte {ptr} has {found} bytes in the allocation table, not {expected}")]
    WrongSize {
        /// The region's offset.
        ptr: u64,
        /// The size that the region should have.
        expected: u64,
        /// The size in the allocation table.
        found: u64,
    },
    /// An image is neither JPEG (0) nor raw (1).
    #[error("an image of mode {mode} is neither JPEG (0) nor raw (1)")]
    BadImageMode {
        /// The mode in the metadata.
        mode: u8,
    },
    /// A JSON value is not UTF-8.
    #[error("the JSON is not UTF-8")]
    NotUtf8,
    /// An image has no pixels, so it cannot be resized.
    #[error("an image without pixels cannot be resized")]
    EmptyImage,
    /// A JPEG has more pixels than the limit, so it was not decoded.
    #[error(
        "a JPEG of {width} × {height} pixels is larger than the limit of {limit} pixels; raise `pixels_max` if it is not \
         an attack"
    )]
    TooManyPixels {
        /// The number of pixel columns.
        width: u16,
        /// The number of pixel rows.
        height: u16,
        /// The limit.
        limit: u64,
    },
    /// The JPEG cannot be decoded.
    #[error("bad JPEG: {reason}")]
    BadJpeg {
        /// The message of the decoder.
        reason: String,
    },
}
