//! The texts of the errors: `Display` and `Debug`.

use std::fmt;
use std::io;

use super::Error;
use crate::BackendKind;
use crate::sys;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { .. } | Self::NotAFile { .. } | Self::Mapping { .. } => self.fmt_file(f),
            Self::Read { .. }
            | Self::PastEnd { .. }
            | Self::Replaced { .. }
            | Self::OutsideRuntime { .. }
            | Self::ForeignHandle { .. } => self.fmt_read(f),
            Self::PoolExhausted { .. } | Self::OutOfMemory { .. } => self.fmt_memory(f),
            Self::Unavailable { .. }
            | Self::FileUnsupported { .. }
            | Self::InvalidOption { .. }
            | Self::UnknownBackend { .. } => self.fmt_request(f),
        }
    }
}

impl Error {
    /// Writes why a file could not be opened or mapped. It is opened in the same way with every backend, so these
    /// messages do not name the backend.
    fn fmt_file(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, source, .. } => {
                let (cause, hint) = (named(source), open_hint(source));
                write!(f, "cannot open {}: {cause}{hint}", path.display())
            }
            Self::NotAFile { path, what, .. } => {
                let path = path.display();
                write!(f, "{path} is a {what}, and only regular files can be read")
            }
            Self::Mapping { operation, path, offset, len, source } => {
                let (path, cause) = (path.display(), named(source));
                let bytes = Bytes(*len as u64);
                write!(f, "mmap: cannot {operation} {bytes} at offset {offset} of {path}: ")?;
                write!(f, "{cause}{}", mapping_hint(operation, source))
            }
            _ => Ok(()), // `fmt` passes on no other
        }
    }

    /// Writes why a read failed.
    fn fmt_read(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { backend, path, offset, len, source, .. } => {
                let (path, cause) = (path.display(), named(source));
                let hint = match self.is_refused_direct_read() {
                    true => "; the filesystem refuses direct reads: use `pread` or `auto`",
                    false => read_hint(source),
                };
                let bytes = Bytes(*len as u64);
                write!(f, "{backend}: reading {bytes} at offset {offset} of {path} failed: ")?;
                write!(f, "{cause}{hint}")
            }
            Self::PastEnd { backend, path, offset, len, file_len, .. } => write!(
                f,
                "{backend}: reading {} at offset {offset} of {} goes past its end: it has {}",
                Bytes(*len as u64),
                path.display(),
                Bytes(*file_len)
            ),
            Self::Replaced { backend, path, offset } => write!(
                f,
                "{backend}: {} was replaced after it was opened, so the read at offset {offset} \
                 would return bytes of another file; open it again",
                path.display()
            ),
            Self::OutsideRuntime { path } => write!(
                f,
                "tokio-uring: {} was read outside a tokio-uring runtime, or in one that has ended; \
                 await the read inside `tokio_uring::start`",
                path.display()
            ),
            Self::ForeignHandle { backend, path } => write!(
                f,
                "{backend}: the handle of {} was opened by another backend instance; open the \
                 path with the backend that reads it",
                path.display()
            ),
            _ => Ok(()), // `fmt` passes on no other
        }
    }

    /// Writes why there is no memory.
    fn fmt_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolExhausted { requested_bytes, limit_bytes, .. }
                if requested_bytes > limit_bytes =>
            {
                write!(
                    f,
                    "a buffer of {requested_bytes} bytes does not fit into the pool, which holds \
                     {limit_bytes} bytes; raise the memory limit or ask for less at once"
                )
            }
            Self::PoolExhausted { requested_bytes, in_use_bytes, limit_bytes } => write!(
                f,
                "no buffer of {requested_bytes} bytes: {in_use_bytes} of {limit_bytes} bytes of \
                 the pool are in use; drop buffers sooner or raise the memory limit"
            ),
            Self::OutOfMemory { requested_bytes, source } => {
                write!(f, "no memory for a buffer of {requested_bytes} bytes: {}", named(source))
            }
            _ => Ok(()), // `fmt` passes on no other
        }
    }

    /// Writes why the caller cannot have what it asked for.
    fn fmt_request(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { backend, reason, way_out } => {
                write!(f, "backend `{backend}` is not available: {reason}; ")?;
                f.write_str(&or_instead(way_out, "use `auto`"))
            }
            Self::FileUnsupported { backend, path, reason, way_out } => {
                let path = path.display();
                write!(f, "{backend}: {path} cannot be read this way: {reason}; ")?;
                f.write_str(&or_instead(way_out, "use `pread` or `auto`"))
            }
            Self::InvalidOption { option, value, reason } => {
                write!(f, "option `{option}` cannot be {value}: {reason}")
            }
            Self::UnknownBackend { name, suggestion } => {
                write!(f, "there is no backend `{name}`; ")?;
                match suggestion {
                    Some(kind) => write!(f, "did you mean `{kind}`?"),
                    None => write!(
                        f,
                        "there are {}",
                        BackendKind::ALL.map(BackendKind::name).join(", ")
                    ),
                }
            }
            _ => Ok(()), // `fmt` passes on no other
        }
    }
}

/// Implements [`Debug`](std::fmt::Debug) for the enum of a crate's errors: the message, then the name of the
/// variant. `main` and `unwrap` print this text, and the fields alone would say neither the cause nor the way
/// out. A new variant does not compile until it is listed.
#[doc(hidden)]
#[macro_export]
macro_rules! __debug_as_message {
    ($error:ident: $($variant:ident)+) => {
        impl $error {
            /// Returns the name of the variant.
            pub(crate) fn variant(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)+
                }
            }
        }

        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{self} ({})", self.variant())
            }
        }
    };
}

crate::__debug_as_message!(
    Error: Open NotAFile Read PastEnd Replaced Unavailable FileUnsupported OutsideRuntime PoolExhausted
    OutOfMemory InvalidOption ForeignHandle Mapping UnknownBackend
);

/// A number of bytes with its noun: `1 byte`, `2 bytes`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// The way out and the alternative to it, or the alternative alone.
fn or_instead(way_out: &str, alternative: &str) -> String {
    if way_out.is_empty() { alternative.to_owned() } else { format!("{way_out}, or {alternative}") }
}

/// The error with its name, which people search for.
pub(super) fn named(source: &io::Error) -> String {
    match sys::errno_name(source) {
        Some(name) => format!("{name}: {source}"),
        None => source.to_string(),
    }
}

/// The way out for the failures of `open` that have one.
fn open_hint(source: &io::Error) -> &'static str {
    match sys::errno_name(source) {
        Some("EMFILE") => {
            "; this process has no file descriptors left: lower `open_files_max` or raise \
             RLIMIT_NOFILE (`ulimit -n`)"
        }
        Some("ENFILE") => "; the whole system has no file descriptors left (fs.file-max)",
        Some("EACCES") => "; check the permissions of the file and of every folder above it",
        _ => "",
    }
}

/// The way out for the failures of a read that have one.
fn read_hint(source: &io::Error) -> &'static str {
    match sys::errno_name(source) {
        Some("EIO") => "; the device reported a read error (see `dmesg`)",
        Some("EMFILE") => open_hint(source),
        Some("ENOMEM") => "; the kernel has no memory for the request: lower the queue depth",
        _ => "",
    }
}

/// The way out for operations that are refused on a mapping.
fn mapping_hint(operation: &str, source: &io::Error) -> String {
    match (operation, sys::errno_name(source)) {
        ("lock", Some("ENOMEM" | "EPERM" | "EAGAIN")) => {
            let limit = sys::memlock_limit_bytes()
                .map_or_else(|| "no limit".to_owned(), |bytes| format!("{bytes} bytes"));
            format!(
                "; RLIMIT_MEMLOCK allows {limit} for all that is locked: raise it (`ulimit -l`) \
                 or lock less"
            )
        }
        ("map", Some("ENOMEM")) => {
            "; there is no address space for it, or vm.max_map_count is reached".into()
        }
        ("release", Some("EINVAL")) => "; the pages are locked: unlock them first".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_refused_lock_names_the_limit_and_the_way_out() {
        let text = mapping_hint("lock", &io::Error::from_raw_os_error(12));
        if cfg!(unix) {
            assert!(text.contains("RLIMIT_MEMLOCK") && text.contains("ulimit -l"), "{text}");
        }
        assert_eq!(mapping_hint("lock", &io::ErrorKind::Unsupported.into()), "");
    }

    #[test]
    fn read_error_says_file_place_and_cause() {
        let error = Error::Read {
            backend: BackendKind::Uring,
            path: "/data/a.bin".into(),
            offset: 4096,
            len: 512,
            index: 3,
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        let text = error.to_string();
        for part in ["uring", "/data/a.bin", "4096", "512"] {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
        assert_eq!(error.offset(), Some(4096));
        assert_eq!(error.path(), Some(Path::new("/data/a.bin")));
    }

    #[test]
    fn one_byte_is_not_bytes() {
        let path = "/data/a.bin".into();
        let backend = BackendKind::Pread;
        let error = Error::PastEnd { backend, path, offset: 1, len: 1, index: 0, file_len: 1 };
        let text = error.to_string();
        assert!(text.contains("reading 1 byte at") && text.ends_with("it has 1 byte"), "{text}");
    }

    #[test]
    fn unknown_backend_lists_the_names() {
        let error = Error::UnknownBackend { name: "tape".into(), suggestion: None };
        assert!(error.to_string().contains("pread, "), "{error}");
    }

    /// A `main` that returns an error prints its `Debug` text, which had fields instead of the message.
    #[test]
    fn debug_is_the_message_and_the_variant() {
        let error = Error::UnknownBackend { name: "urin".into(), suggestion: "uring".parse().ok() };
        let text = format!("{error:?}");
        assert_eq!(text, "there is no backend `urin`; did you mean `uring`? (UnknownBackend)");
    }
}
