//! Methods of a backend that call the same method of another one.

/// Implements methods of [`ReadBackend`](crate::ReadBackend) by calling the same method of a field,
/// for a backend that wraps another one.
///
/// ```
/// use std::sync::Arc;
/// use ringmain_backends::{Read, ReadBackend, Result, forward_to};
///
/// /// Prints how many reads each batch has.
/// #[derive(Debug)]
/// struct Chatty {
///     inner: Arc<dyn ReadBackend>,
/// }
///
/// impl ReadBackend for Chatty {
///     forward_to!(inner: kind, open, len, capabilities, prefetch, release, expect, version);
///     forward_to!(inner: explain, stats, list, map);
///
///     fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
///         println!("{} reads", reads.len());
///         self.inner.read_batch(reads)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_to {
    ($field:ident: $($method:ident),+ $(,)?) => {
        $($crate::__forward_method! { $field $method })+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forward_method {
    ($field:ident kind) => {
        fn kind(&self) -> $crate::BackendKind {
            self.$field.kind()
        }
    };
    ($field:ident open) => {
        fn open(&self, path: &::std::path::Path) -> $crate::Result<$crate::FileHandle> {
            self.$field.open(path)
        }
    };
    ($field:ident len) => {
        fn len(&self, file: &$crate::FileHandle) -> $crate::Result<u64> {
            self.$field.len(file)
        }
    };
    ($field:ident read_batch) => {
        fn read_batch(&self, reads: &mut [$crate::Read<'_>]) -> $crate::Result<()> {
            self.$field.read_batch(reads)
        }
    };
    ($field:ident capabilities) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.$field.capabilities()
        }
    };
    ($field:ident prefetch) => {
        fn prefetch(
            &self,
            file: &$crate::FileHandle,
            range: ::std::ops::Range<u64>,
        ) -> $crate::Result<()> {
            self.$field.prefetch(file, range)
        }
    };
    ($field:ident release) => {
        fn release(
            &self,
            file: &$crate::FileHandle,
            range: ::std::ops::Range<u64>,
        ) -> $crate::Result<()> {
            self.$field.release(file, range)
        }
    };
    ($field:ident expect) => {
        fn expect(
            &self,
            files: &[&$crate::FileHandle],
            expectation: &$crate::Expectation,
        ) -> $crate::Result<()> {
            self.$field.expect(files, expectation)
        }
    };
    ($field:ident version) => {
        fn version(&self, file: &$crate::FileHandle) -> $crate::Result<$crate::FileVersion> {
            self.$field.version(file)
        }
    };
    ($field:ident explain) => {
        fn explain(
            &self,
            file: ::std::option::Option<&$crate::FileHandle>,
        ) -> ::std::option::Option<::std::string::String> {
            self.$field.explain(file)
        }
    };
    ($field:ident stats) => {
        fn stats(&self) -> $crate::BackendStats {
            self.$field.stats()
        }
    };
    ($field:ident list) => {
        fn list(
            &self,
            folder: &::std::path::Path,
        ) -> $crate::Result<::std::option::Option<::std::vec::Vec<::std::path::PathBuf>>> {
            self.$field.list(folder)
        }
    };
    ($field:ident map) => {
        fn map(
            &self,
            file: &$crate::FileHandle,
            range: ::std::ops::Range<u64>,
        ) -> $crate::Result<::std::option::Option<$crate::MappedRange>> {
            self.$field.map(file, range)
        }
    };
}
