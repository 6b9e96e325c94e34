//! Fuzz targets: URLs, and what servers say in headers and bodies.
#![allow(clippy::panic, reason = "a target reports what it finds by panicking")]

use std::path::Path;

use super::failure::{RemoteFailure, code_in, redacted};
use super::url::{Place, Scheme, is_scheme, kind_of, place, shown, url_of};
use super::watch::{check_range, pause_in, range_in};

/// A text that must not come back.
const SECRET: &str = "5ecret-9f3a";

/// The bytes are a path or a URL. The URL of an object leads to that object, and neither an error nor what is shown
/// of a URL has its query, its fragment or its user.
pub(crate) fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(Place::Remote(address)) = place(Path::new(text)) {
        let again = url_of(&address, &address.key);
        assert_eq!(place(&again), Ok(Place::Remote(address)), "{text:?} and {again:?}");
    }
    let parts = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme));
    let Some((scheme, rest)) = parts else { return };
    let kind = kind_of(&scheme.to_ascii_lowercase());
    check_secret(&format!("{text}?{SECRET}"));
    // In the other stores `#` may be part of a key.
    if kind == Some(Scheme::Http) {
        check_secret(&format!("{text}#{SECRET}"));
    }
    check_secret(&format!("{scheme}://me:{SECRET}@{rest}"));
    check_secret(&format!("{scheme}://me@home:{SECRET}@{rest}"));
    // In URLs of Azure the container comes before the account.
    if kind != Some(Scheme::Azure) {
        check_secret(&format!("{scheme}://{SECRET}@{rest}"));
    }
}

/// Checks that a URL with a secret is refused, and that the secret is not shown.
fn check_secret(url: &str) {
    let failure = match place(Path::new(url)) {
        Ok(Place::Local(_)) => return,
        Ok(place @ Place::Remote(_)) => panic!("{url:?} leads to {place:?}"),
        Err(failure) => failure,
    };
    let said = format!("{failure:?} {failure}");
    assert!(!said.contains(SECRET), "{url:?}: {said}");
    let shown = shown(Path::new(url));
    assert!(!shown.to_string_lossy().contains(SECRET), "{url:?}: {shown:?}");
}

/// The numbers before the text of a server.
const NUMBERS: usize = 18;

/// The bytes are a range, a status and a text, which is taken for each header, for the body of an error, and for the
/// text of a client. Only the range that was asked for is accepted, and only a code comes out of a body.
pub(crate) fn answers(bytes: &[u8]) {
    let Some((numbers, text)) = bytes.split_first_chunk::<NUMBERS>() else { return };
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = *numbers;
    let first = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let last = u64::from_le_bytes([i, j, k, l, m, n, o, p]);
    let text = &*String::from_utf8_lossy(text);
    check_ranges(first, last, text);
    let code = code_in(text);
    if let Some(code) = &code {
        assert!(text.contains(&format!("<Code>{code}</Code>")));
        assert!(code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
    let pause = pause_in(text, std::time::UNIX_EPOCH);
    let failure = RemoteFailure::of_status(u16::from_le_bytes([q, r]), code.clone(), pause);
    assert_eq!((failure.code(), failure.retry_after), (code.as_deref(), pause));
    assert!(!failure.to_string().is_empty());
    check_redacted(text);
}

fn check_ranges(first: u64, last: u64, text: &str) {
    if let Some(asked) = range_in(text) {
        assert_eq!(numbers_in(text), [asked.0, asked.1], "{text:?}");
    }
    match check_range(first, last, Some(text)) {
        Ok(()) => match numbers_in(text)[..] {
            [from, to, len] => {
                assert_eq!((from, to), (first, last.min(len.saturating_sub(1))), "{text:?}");
            }
            _ => panic!("{text:?} is taken for a range"),
        },
        Err(failure) => {
            let asked = format!("bytes {first}-{last} were asked for");
            assert!(failure.to_string().contains(&asked), "{failure}");
        }
    }
    let right = format!("bytes {first}-{last}/{}", last.saturating_add(1));
    assert!(last == u64::MAX || check_range(first, last, Some(&right)).is_ok(), "{right}");
    assert!(check_range(first.wrapping_add(1), last, Some(&right)).is_err(), "{right}");
}

fn numbers_in(text: &str) -> Vec<u64> {
    let parts = text.split(|letter: char| !letter.is_ascii_digit());
    parts.filter(|part| !part.is_empty()).filter_map(|part| part.parse().ok()).collect()
}

/// A text of a client may have URLs anywhere, and a body at its end.
fn check_redacted(text: &str) {
    let clean = redacted(text);
    assert!(clean.chars().count() <= 300 && !clean.contains(['<', '{', '?']), "{clean:?}");
    let word: String = text.split_whitespace().collect();
    for said in [
        format!("{text} https://me:{SECRET}@host/a"),
        format!("{word}https://me:{SECRET}@host/a"),
        format!("{text} https://host/{word}?{SECRET}"),
        format!("{text}<{SECRET}"),
        format!("{text}{{{SECRET}"),
    ] {
        let clean = redacted(&said);
        assert!(!clean.contains(SECRET), "{said:?}: {clean:?}");
    }
}
