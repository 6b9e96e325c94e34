//! Handlers, with which the caller describes fields of types that FFCV does not define.

use std::fmt;
use std::sync::Arc;

use super::Field;

/// Describes how the values of a custom field are stored.
///
/// ```
/// use ringmain::beton::{FieldHandler, MemberRegion};
///
/// /// A field whose rows hold a length of 32 bits, and the offset of that many bytes.
/// #[derive(Debug)]
/// struct ShortText;
///
/// impl FieldHandler for ShortText {
///     fn member_bytes(&self) -> usize {
///         12
///     }
///
///     fn region(&self, member: &[u8]) -> Option<MemberRegion> {
///         let size = u32::from_le_bytes(*member.first_chunk()?);
///         let ptr = u64::from_le_bytes(*member.last_chunk()?);
///         Some(MemberRegion { ptr, size: Some(u64::from(size)) })
///     }
/// }
/// ```
pub trait FieldHandler: fmt::Debug + Send + Sync {
    /// Returns the number of bytes that the field has in a row of metadata. The file does not store
    /// it. Opening a file fails if the size does not fit the file, but a file with pages can hide this.
    fn member_bytes(&self) -> usize;

    /// Returns the alignment of the field in the row: a power of two up to 16. The default 1 fits
    /// NumPy's packed structs; a plain `f64` or `u64` needs 8.
    fn member_align(&self) -> usize {
        1
    }

    /// Returns the region of the pages that holds the rest of a value, given its bytes in the row;
    /// `None` if the value has no region. The region must be in the allocation table.
    fn region(&self, member: &[u8]) -> Option<MemberRegion>;
}

/// A region of the pages, as a row of metadata refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRegion {
    /// The region's first byte in the file.
    pub ptr: u64,
    /// The size of the region in bytes; `None` to take it from the allocation table.
    pub size: Option<u64>,
}

/// The handlers of a reader or a writer. A handler for a name takes precedence over one for a type.
/// A handler for one of FFCV's own types replaces the built-in decoder.
#[derive(Clone, Debug, Default)]
pub struct Handlers {
    named: Vec<(String, Arc<dyn FieldHandler>)>,
    typed: Vec<(u8, Arc<dyn FieldHandler>)>,
}

impl Handlers {
    /// Returns an empty set of handlers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler for the field with this name.
    #[must_use]
    pub fn for_name(mut self, name: &str, handler: impl FieldHandler + 'static) -> Self {
        self.named.push((name.to_owned(), Arc::new(handler)));
        self
    }

    /// Adds a handler for all fields of this type.
    #[must_use]
    pub fn for_type(mut self, type_id: u8, handler: impl FieldHandler + 'static) -> Self {
        self.typed.push((type_id, Arc::new(handler)));
        self
    }

    /// Returns the handler of a field with this name and type.
    pub(super) fn find(&self, name: &str, type_id: u8) -> Option<&Arc<dyn FieldHandler>> {
        let named = self.named.iter().find(|(known, _)| known == name).map(|(_, handler)| handler);
        let typed = self.typed.iter().find(|(known, _)| *known == type_id);
        named.or(typed.map(|(_, handler)| handler))
    }

    /// Returns the handler of the field.
    pub(super) fn of(&self, field: &Field) -> Option<&Arc<dyn FieldHandler>> {
        self.find(field.name(), field.kind().type_id())
    }
}
