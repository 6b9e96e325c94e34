//! One system call, as strace prints it: `read(3</data/x>, ""..., 4096) = 4096 <0.000012>`.

use std::path::PathBuf;

use crate::trace::lines::path_from;

/// A call that has returned.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    args: Vec<&'a [u8]>,
    returned: &'a [u8],
    /// The microseconds that it took; 0 if the log does not say (`strace -T`).
    pub(super) took_us: u64,
}

/// A file descriptor, and its file if the log names it (`strace -y`).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) number: i64,
    pub(super) path: Option<PathBuf>,
}

impl<'a> Call<'a> {
    /// Parses the text after the time. Returns `None` for anything but a call that has returned.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let name = std::str::from_utf8(&text[..open]).ok()?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return None;
        }
        let (args, rest) = split_args(&text[open + 1..])?;
        let returned = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
        let (returned, took_us) = split_took(returned);
        Some(Self { name, args, returned, took_us })
    }

    pub(super) fn arg(&self, at: usize) -> &'a [u8] {
        self.args.get(at).copied().unwrap_or_default()
    }

    /// The number that the call returned; `None` if it failed or did not return one.
    pub(super) fn returned(&self) -> Option<u64> {
        let digits = leading_number(self.returned)?;
        u64::try_from(digits).ok()
    }

    /// The descriptor that the call returned.
    pub(super) fn returned_descriptor(&self) -> Option<Descriptor> {
        Descriptor::parse(self.returned).filter(|descriptor| descriptor.number >= 0)
    }

    pub(super) fn descriptor(&self, at: usize) -> Option<Descriptor> {
        Descriptor::parse(self.arg(at))
    }

    /// An argument that is a number, or a number behind a pointer: `[4096]`.
    pub(super) fn number(&self, at: usize) -> Option<u64> {
        let arg = self.arg(at);
        leading_number(arg.strip_prefix(b"[").unwrap_or(arg)).and_then(|n| u64::try_from(n).ok())
    }

    /// Whether any argument names this flag.
    pub(super) fn has_flag(&self, flag: &str) -> bool {
        let is_flag = |word: &[u8]| word == flag.as_bytes();
        let is_part = |byte: &u8| !(byte.is_ascii_alphanumeric() || *byte == b'_');
        self.args.iter().any(|arg| arg.split(is_part).any(is_flag))
    }

    /// The path in an argument that is a string.
    pub(super) fn path(&self, at: usize) -> Option<PathBuf> {
        let quoted = self.arg(at).strip_prefix(b"\"")?;
        let end = end_of_string(quoted)?;
        path_from(unescape(&quoted[..end]))
    }
}

impl Descriptor {
    /// Parses `3`, `3</data/x>` or `3</data/x>(deleted)`.
    fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.iter().position(|byte| *byte == b'<').unwrap_or(text.len());
        let number = i64::try_from(leading_number(&text[..digits])?).ok()?;
        let Some(named) = text.get(digits + 1..) else {
            return Some(Self { number, path: None });
        };
        let end = named.iter().position(|byte| *byte == b'>')?;
        // The name belongs to no file any more.
        let is_deleted = named[end..].starts_with(b">(deleted)");
        let path = path_from(unescape(&named[..end])).filter(|_| !is_deleted);
        Some(Self { number, path: Some(path.unwrap_or_default()) })
    }
}

/// Splits the arguments at their commas, and returns them with the text after the closing parenthesis.
fn split_args(text: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let (mut args, mut depth, mut start, mut at) = (Vec::new(), 0_usize, 0, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at += 1 + end_of_string(&text[at + 1..])?,
            b'<' if is_descriptor(&text[..at]) => {
                at += text[at..].iter().position(|byte| *byte == b'>')?;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                args.push(text[start..at].trim_ascii());
                return Some((args, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                args.push(text[start..at].trim_ascii());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Whether the text ends with a descriptor, so that a `<` after it begins the name of its file.
fn is_descriptor(text: &[u8]) -> bool {
    text.last().is_some_and(u8::is_ascii_digit) || text.ends_with(b"AT_FDCWD")
}

/// Returns where a string ends whose opening quote is before the text.
fn end_of_string(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Splits `4096 <0.000012>` into the value and microseconds.
fn split_took(text: &[u8]) -> (&[u8], u64) {
    let took = || {
        let inner = text.strip_suffix(b">")?;
        let open = inner.iter().rposition(|byte| *byte == b'<')?;
        let us = micros(&inner[open + 1..])?;
        Some((text[..open].trim_ascii_end(), us))
    };
    took().unwrap_or((text, 0))
}

/// Parses seconds with a fraction, `1794992740.741638`, as microseconds.
pub(super) fn micros(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
}

/// The number at the beginning of the text, decimal or hexadecimal.
fn leading_number(text: &[u8]) -> Option<i128> {
    let text = text.trim_ascii();
    if let Some(hex) = text.strip_prefix(b"0x") {
        let len = hex.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(hex.len());
        return i128::from_str_radix(std::str::from_utf8(&hex[..len.min(16)]).ok()?, 16).ok();
    }
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let len = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let number: i128 = std::str::from_utf8(&digits[..len.min(20)]).ok()?.parse().ok()?;
    Some(sign * number)
}

/// Undoes the escapes of C that strace writes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let octal = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
        if octal > 0 {
            let value =
                rest[..octal].iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
            bytes.push((value & 0xFF) as u8);
            rest = &rest[octal..];
            continue;
        }
        let Some((kind, after)) = rest.split_first() else { break };
        rest = after;
        bytes.push(match kind {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0B,
            b'f' => 0x0C,
            other => *other,
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_call_is_split_into_its_parts() {
        let text = br#"read(3</d/a, \"b\" (c)>, "x\"), ("..., 4096) = 4096 <0.000012>"#;
        let call = Call::parse(text).unwrap();
        assert_eq!((call.name, call.returned(), call.took_us), ("read", Some(4096), 12));
        let file = call.descriptor(0).unwrap();
        assert_eq!((file.number, file.path.as_deref()), (3, Some(Path::new("/d/a, \"b\" (c)"))));
        assert_eq!(call.number(2), Some(4096));
    }

    #[test]
    fn failures_and_odd_values_return_nothing() {
        let failed = Call::parse(b"pread64(3, 0x7f, 10, 5) = -1 EIO (Input/output error) <0.1>");
        let failed = failed.unwrap();
        assert_eq!((failed.returned(), failed.number(3), failed.took_us), (None, Some(5), 100_000));
        assert_eq!(Call::parse(b"exit_group(0) = ?").unwrap().returned(), None);
        for text in
            ["", "read", "read(3", "read(3)", "+++ exited with 0 +++", "--- SIGCHLD {si=1} ---"]
        {
            assert_eq!(Call::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn flags_pointers_and_addresses() {
        let call = Call::parse(
            b"clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD, exit_signal=0} => {tid=[12]}, 88) = 12",
        );
        let call = call.unwrap();
        assert!(call.has_flag("CLONE_FILES") && !call.has_flag("CLONE_FS"));
        let mapped = Call::parse(
            b"mmap(NULL, 4194304, PROT_READ, MAP_SHARED, 3</tmp/x.bin>, 0x1000) = 0x7f9b3bc00000 <0.000010>",
        );
        let mapped = mapped.unwrap();
        assert_eq!(mapped.returned(), Some(0x7f9b_3bc0_0000));
        assert_eq!((mapped.number(1), mapped.number(5)), (Some(4_194_304), Some(0x1000)));
        let sent = Call::parse(b"sendfile(1<pipe:[7]>, 3</x>, [512] => [612], 100) = 100").unwrap();
        assert_eq!(sent.number(2), Some(512));
    }

    #[test]
    fn names_with_escapes_and_deleted_files() {
        let opened = Call::parse(
            br#"openat(AT_FDCWD</tmp>, "a\303\244\n", O_RDONLY) = 4</tmp/a\303\244\n>"#,
        );
        let opened = opened.unwrap();
        let name = "/tmp/a\u{e4}\n";
        assert_eq!(opened.returned_descriptor().unwrap().path.unwrap(), Path::new(name));
        assert_eq!(opened.path(1).unwrap(), Path::new("a\u{e4}\n"));
        let gone = Call::parse(b"read(3</tmp/x>(deleted), \"\"..., 5) = 5").unwrap();
        assert_eq!(gone.descriptor(0).unwrap().path, Some(PathBuf::new()));
    }

    #[test]
    fn times_in_microseconds() {
        let cases =
            [("1.5", Some(1_500_000)), ("0.000012", Some(12)), ("2.1234567", Some(2_123_456))];
        for (text, expected) in cases {
            assert_eq!(micros(text.as_bytes()), expected, "{text}");
        }
        for text in ["", "1", ".5", "1.", "1.x", "-1.0", "99999999999999999999.0"] {
            assert_eq!(micros(text.as_bytes()), None, "{text}");
        }
    }
}
