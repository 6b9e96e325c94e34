//! Fields of types that only the caller knows.

use std::fmt;
use std::sync::Arc;

use super::Field;

/// Says how the values of a custom field are stored.
///
/// ```
/// use ringmain::beton::{FieldHandler, MemberRegion};
///
/// /// A field whose rows hold a length of 32 bits, and where so many bytes begin.
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
    /// The bytes that the field has in a row of metadata.
    fn member_bytes(&self) -> usize;

    /// What its place in the row is a multiple of: a power of two up to 16. 1 for NumPy's packed
    /// structs, the default; 8 for a plain `f64` or `u64`.
    fn member_align(&self) -> usize {
        1
    }

    /// Where in the pages the rest of a value is, by its bytes in the row; `None` if there is
    /// nothing more to it. The region must be in the allocation table.
    fn region(&self, member: &[u8]) -> Option<MemberRegion>;
}

/// A region of the pages, as a row of metadata names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRegion {
    /// Where it begins in the file.
    pub ptr: u64,
    /// Its bytes; `None` for what the allocation table says.
    pub size: Option<u64>,
}

/// The handlers of a reader or a writer. One for a name comes before one for a type; one for a
/// type of FFCV's own takes its place.
#[derive(Clone, Debug, Default)]
pub struct Handlers {
    named: Vec<(String, Arc<dyn FieldHandler>)>,
    typed: Vec<(u8, Arc<dyn FieldHandler>)>,
}

impl Handlers {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For the field of that name.
    #[must_use]
    pub fn for_name(mut self, name: &str, handler: impl FieldHandler + 'static) -> Self {
        self.named.push((name.to_owned(), Arc::new(handler)));
        self
    }

    /// For all fields of that type.
    #[must_use]
    pub fn for_type(mut self, type_id: u8, handler: impl FieldHandler + 'static) -> Self {
        self.typed.push((type_id, Arc::new(handler)));
        self
    }

    /// Who handles a field of that name and type.
    pub(super) fn find(&self, name: &str, type_id: u8) -> Option<&Arc<dyn FieldHandler>> {
        let named = self.named.iter().find(|(known, _)| known == name).map(|(_, handler)| handler);
        let typed = self.typed.iter().find(|(known, _)| *known == type_id);
        named.or(typed.map(|(_, handler)| handler))
    }

    /// Who handles the field.
    pub(super) fn of(&self, field: &Field) -> Option<&Arc<dyn FieldHandler>> {
        self.find(field.name(), field.kind().type_id())
    }
}
