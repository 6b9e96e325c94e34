//! What can be wrong with a dataset, or with one of its samples while the others are readable.

/// Why a file is not a dataset, or a sample of it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BetonDamage {
    /// The file has another version, or is not a dataset.
    #[error("this is not a .beton file of version 2: its version field is {version}")]
    BadVersion {
        /// The version that it begins with.
        version: u16,
    },
    /// The header contradicts itself or the file.
    #[error("bad header: {reason}")]
    BadHeader {
        /// What is wrong.
        reason: String,
    },
    /// The descriptor of a field cannot be understood, or the field cannot be written.
    #[error("field {index} (`{name}`): {reason}")]
    BadField {
        /// The number of the field, from 0.
        index: usize,
        /// Its name, as far as it is text.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A field has a type that only its author knows.
    #[error(
        "field {index} (`{name}`) has the type id {type_id}, which has no handler; give one to \
         `ReaderOptions::handle_type` or `handle_name`"
    )]
    UnknownType {
        /// The number of the field, from 0.
        index: usize,
        /// Its name.
        name: String,
        /// Its type.
        type_id: u8,
    },
    /// The allocation table cannot be where the header says, or is not a table.
    #[error("bad allocation table: {reason}")]
    BadTable {
        /// What is wrong.
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
        /// Its bytes.
        size: u64,
    },
    /// The region crosses into the next page.
    #[error("the region of {size} bytes at byte {ptr} crosses into the next page")]
    CrossesPage {
        /// The region's offset.
        ptr: u64,
        /// Its bytes.
        size: u64,
    },
    /// The region shares bytes with another.
    #[error("the region of {size} bytes at byte {ptr} overlaps another")]
    Overlaps {
        /// The region's offset.
        ptr: u64,
        /// Its bytes.
        size: u64,
    },
    /// The region has another size than the field or the metadata says.
    #[error("the region at byte {ptr} has {found} bytes in the allocation table, not {expected}")]
    WrongSize {
        /// The region's offset.
        ptr: u64,
        /// The size that it should have.
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
    /// The JPEG cannot be decoded.
    #[error("bad JPEG: {reason}")]
    BadJpeg {
        /// The decoder's message.
        reason: String,
    },
}
