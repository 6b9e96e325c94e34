//! Paths that are URLs.
//!
//! The key of an `s3://`, `gs://` or `az://` URL is the text after the bucket, byte for byte: `%20` is not a space,
//! which is also how the tools of these stores read it. In `http://` and `file://` URLs, `%20` is a space. A slash at the
//! end marks a folder and is not part of the key.

use std::path::{Path, PathBuf};

use object_store::path::Path as Key;

use super::failure::{FailureKind, RemoteFailure};
use super::settings::is_label;
use super::store_backend::key_of;

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    S3,
    Gcs,
    Azure,
    Http,
}

/// The place that a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file, for the backend of local files.
    Local(PathBuf),
    Remote(Address),
}

/// An object in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) scheme: Scheme,
    /// `s3://bucket`: the URL without the key.
    pub(super) bucket_url: String,
    /// `bucket`.
    pub(super) authority: String,
    pub(super) key: Key,
}

const SCHEMES: &str = "s3, gs, az, abfs, abfss, http, https and file";

/// Returns where a path leads. An error never shows the query or the user of a URL, which may contain passwords and
/// signatures.
pub(super) fn place(path: &Path) -> Result<Place, RemoteFailure> {
    let local = || Ok(Place::Local(path.to_owned()));
    let lossy = path.to_string_lossy();
    let Some((scheme, _)) = lossy.split_once(":/").filter(|(scheme, _)| is_scheme(scheme)) else {
        return local();
    };
    let scheme = scheme.to_ascii_lowercase();
    let is_whole = lossy.get(scheme.len()..).is_some_and(|rest| rest.starts_with("://"));
    if !is_whole {
        // `pathlib` and other normalisation make one slash of two.
        return match kind_of(&scheme) {
            Some(_) if !path.exists() => {
                let what = format!("the URL has one slash behind `{scheme}:`, not two");
                let way_out =
                    "pass the URL as a string: path types such as pathlib merge the two slashes";
                Err(refused(what).with_way_out(way_out))
            }
            _ => local(),
        };
    }
    let text =
        path.to_str().ok_or_else(|| refused("URLs are UTF-8, and this one is not".into()))?;
    let rest = text.get(scheme.len() + 3..).unwrap_or_default();
    if scheme == "file" {
        return local_file(rest).map(Place::Local);
    }
    match kind_of(&scheme) {
        Some(kind) => address(kind, &scheme, rest).map(Place::Remote),
        None => {
            let what = format!("there is no kind of store with the scheme `{scheme}`");
            Err(refused(what).with_way_out(format!("there are {SCHEMES}")))
        }
    }
}

/// The URL without what may be secret, for messages.
pub(super) fn shown(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    let Some((scheme, rest)) = text.split_once(":/").filter(|(scheme, _)| is_scheme(scheme)) else {
        return path.to_owned();
    };
    let (slashes, rest) = match (rest.strip_prefix('/'), kind_of(&scheme.to_ascii_lowercase())) {
        (Some(rest), _) => ("//", rest),
        // `place` refuses it, and its secrets are secrets all the same.
        (None, Some(_)) => ("/", rest),
        (None, None) => return path.to_owned(),
    };
    let visible = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, key) = visible.split_at(visible.find('/').unwrap_or(visible.len()));
    // In URLs of Azure the container comes before the account, and is not secret.
    let host = match (kind_of(&scheme.to_ascii_lowercase()), authority.rsplit_once('@')) {
        (Some(Scheme::Azure), Some((container, _))) if !container.contains(':') => authority,
        (_, Some((_, host))) => host,
        (_, None) => authority,
    };
    let is_cut = visible.len() < rest.len() || host.len() < authority.len();
    match is_cut {
        true => PathBuf::from(format!("{scheme}:{slashes}{host}{key}")),
        false => path.to_owned(),
    }
}

fn refused(what: String) -> RemoteFailure {
    RemoteFailure::new(FailureKind::Address, what)
}

/// A scheme has at least two letters: `C:/` is a drive of Windows.
pub(super) fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.len() > 1 && text.as_bytes()[0].is_ascii_alphabetic() && text.bytes().all(is_part)
}

pub(super) fn kind_of(scheme: &str) -> Option<Scheme> {
    Some(match scheme {
        "s3" | "s3a" => Scheme::S3,
        "gs" | "gcs" => Scheme::Gcs,
        "az" | "azure" | "abfs" | "abfss" | "adl" => Scheme::Azure,
        "http" | "https" => Scheme::Http,
        _ => return None,
    })
}

fn address(kind: Scheme, scheme: &str, rest: &str) -> Result<Address, RemoteFailure> {
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let has_query = rest.contains('?') || (kind == Scheme::Http && rest.contains('#'));
    if has_query {
        let what =
            "the URL has a query (`?`) or a fragment, which is not part of an object's address";
        let way_out = "leave it out: credentials come from the environment. A key that contains `?` can be read with \
                       `ObjectStoreBackend`, whose paths are keys";
        return Err(refused(what.into()).with_way_out(way_out));
    }
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    if user.is_some_and(|user| kind != Scheme::Azure || user.contains(':')) {
        let what = "the URL has a user or a password before the `@`, which is not sent";
        let way_out = "leave it out: credentials come from the environment";
        return Err(refused(what.into()).with_way_out(way_out));
    }
    if authority.is_empty() || user.is_some_and(str::is_empty) {
        let noun = noun_of(kind);
        let form = if kind == Scheme::Http { "server/path" } else { &format!("{noun}/key") };
        let what = format!("the URL names no {noun}");
        return Err(refused(what).with_way_out(format!("write `{scheme}://{form}`")));
    }
    if let Some(way_out) = fault_of_authority(kind, scheme, authority) {
        let what = format!("`{authority}` is not the name of a {}", noun_of(kind));
        return Err(refused(what).with_way_out(way_out));
    }
    if key.starts_with('/') {
        let what = format!("the key begins with `/`, because two slashes follow `{authority}`");
        let way_out = "leave one out; objects whose key begins with `/` cannot be read";
        return Err(refused(what).with_way_out(way_out));
    }
    let key = match kind {
        Scheme::Http => key_of(Some(&percent_decoded(key)?))?,
        _ => key_of(Some(key))?,
    };
    let bucket_url = format!("{scheme}://{authority}");
    Ok(Address { scheme: kind, bucket_url, authority: authority.to_owned(), key })
}

/// The noun for what the authority of a URL names.
fn noun_of(kind: Scheme) -> &'static str {
    match kind {
        Scheme::S3 | Scheme::Gcs => "bucket",
        Scheme::Azure => "container",
        Scheme::Http => "server",
    }
}

/// Returns the way out if the text cannot be the name of a bucket, a container or a server: requests with it cannot be
/// made.
fn fault_of_authority(kind: Scheme, scheme: &str, authority: &str) -> Option<&'static str> {
    let (container, account) = authority.split_once('@').unwrap_or((authority, "account"));
    let is_name = match kind {
        Scheme::S3 | Scheme::Gcs => is_label(authority),
        // `$root` and `$web` are containers.
        Scheme::Azure => is_label(container.trim_start_matches('$')) && is_label(account),
        Scheme::Http => {
            let url = reqwest::Url::parse(&format!("{scheme}://{authority}/"));
            url.is_ok_and(|url| url.has_host())
        }
    };
    let way_out = match kind {
        Scheme::Http => {
            "write the name of a host, with a port if it has one: `https://host:8443/path`"
        }
        _ => "names have letters, digits, `-`, `_` and `.`; the key begins after the next slash",
    };
    (!is_name).then_some(way_out)
}

/// The path of `file:///folder/name`.
fn local_file(rest: &str) -> Result<PathBuf, RemoteFailure> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        let what = "the URL names a server, and files are read on this machine only";
        return Err(refused(what.into()).with_way_out("write `file:///folder/name`"));
    }
    if path.contains(['?', '#']) {
        let what = "the URL has a query (`?`) or a fragment (`#`)";
        return Err(refused(what.into()).with_way_out("write `?` as %3F and `#` as %23"));
    }
    Ok(percent_decoded(path)?.into())
}

/// The text with bytes in place of `%20`.
fn percent_decoded(text: &str) -> Result<String, RemoteFailure> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        match hex_pair(after).filter(|_| *byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| refused("the URL does not contain UTF-8".into()))
}

/// The byte that the first two hexadecimal digits mean.
fn hex_pair(text: &[u8]) -> Option<u8> {
    let [high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from((digit(*high)? << 4) | digit(*low)?).ok()
}

/// The URL of another object in the bucket.
pub(super) fn url_of(address: &Address, key: &Key) -> PathBuf {
    let key = match address.scheme {
        Scheme::Http => percent_encoded(key.as_ref()),
        _ => key.as_ref().to_owned(),
    };
    PathBuf::from(format!("{}/{key}", address.bucket_url))
}

/// The text with `%20` in place of the bytes that may not stand in the path of a URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> Address {
        match place(Path::new(text)) {
            Ok(Place::Remote(address)) => address,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn urls_have_a_scheme_a_bucket_and_a_key() {
        for (text, scheme, bucket, key) in [
            ("s3://bucket/a/b.npy", Scheme::S3, "bucket", "a/b.npy"),
            ("S3://bucket/a/", Scheme::S3, "bucket", "a"),
            ("s3://bucket", Scheme::S3, "bucket", ""),
            ("s3a://my.bucket_1/ünï cöde%20#1.bin", Scheme::S3, "my.bucket_1", "ünï cöde%20#1.bin"),
            ("gs://b/文", Scheme::Gcs, "b", "文"),
            (
                "abfss://c@account.dfs.core.windows.net/x",
                Scheme::Azure,
                "c@account.dfs.core.windows.net",
                "x",
            ),
            ("https://host:8080/a%20b/%E6%96%87", Scheme::Http, "host:8080", "a b/文"),
            ("http://[::1]:80/a", Scheme::Http, "[::1]:80", "a"),
            ("az://$web/a", Scheme::Azure, "$web", "a"),
        ] {
            let address = remote(text);
            assert_eq!((address.scheme, &*address.authority), (scheme, bucket), "{text}");
            assert_eq!(address.key.as_ref(), key, "{text}");
            let again = remote(url_of(&address, &address.key).to_str().unwrap());
            assert_eq!(again, address, "{text}");
        }
    }

    #[test]
    fn other_paths_are_local() {
        for text in ["", "a", "/a/b", "a:b", "C:/x", "./s3://b/k", "a b://c", "1s://x"] {
            assert_eq!(place(Path::new(text)).unwrap(), Place::Local(text.into()));
        }
        for (text, decoded) in [("/a%20b/c", "/a b/c"), ("/x%+f%2", "/x%+f%2"), ("/%41%4a", "/AJ")]
        {
            let file = place(Path::new(&format!("file://{text}"))).unwrap();
            assert_eq!(file, Place::Local(decoded.into()));
        }
    }

    #[test]
    fn bad_urls_are_refused_with_the_way_out() {
        for (text, expected) in [
            ("ftp://host/x", "there are s3, gs"),
            ("s3:///key", "s3://bucket/key"),
            ("s3://my bucket/x", "`my bucket` is not the name of a bucket"),
            ("s3://my\nbucket/x", "names have letters"),
            ("gs://büro/x", "`büro` is not the name of a bucket"),
            ("az://my container/x", "`my container` is not the name of a container"),
            ("abfss://c@my account/x", "is not the name of a container"),
            ("https://my host/x", "`my host` is not the name of a server"),
            ("https://h:port/x", "https://host:8443"),
            ("s3://", "s3://bucket/key"),
            ("az://@account/x", "az://container/key"),
            ("https:///x", "https://server/path"),
            ("s3:/bucket/key", "as a string"),
            ("https:/host/k?X-Amz-Signature=5ecret", "as a string"),
            ("s3://b//key", "leave one out"),
            ("https://h//key", "leave one out"),
            ("s3://b/a//c", "two slashes"),
            ("s3://b/a/../c", "`..`"),
            ("s3://b/a\nb", "control character"),
            ("file://server/x", "file:///folder/name"),
            ("https://h/%ff", "UTF-8"),
            ("s3://me:5ecret@b/k", "leave it out"),
            ("https://5ecret@h/k", "leave it out"),
            ("az://c:5ecret@h/k", "leave it out"),
            ("s3://b/k?X-Amz-Signature=5ecret", "leave it out"),
            ("https://h?sig=5ecret", "leave it out"),
            ("https://h/k#5ecret", "leave it out"),
            ("file:///a?b=5ecret", "%3F"),
        ] {
            let failure = place(Path::new(text)).expect_err(text);
            assert_eq!(failure.kind(), FailureKind::Address);
            assert!(failure.to_string().contains(expected), "{text}: {failure}");
            let all = format!("{failure:?} {}", shown(Path::new(text)).display());
            assert!(!all.contains("5ecret"), "{all}");
        }
    }

    #[test]
    fn what_is_shown_of_a_url_without_secrets_is_the_url() {
        for text in
            ["s3://b/k", "abfss://c@a.dfs.core.windows.net/k", "/a?b", "s3://b/a//c", "ab:/c?d"]
        {
            assert_eq!(shown(Path::new(text)).as_os_str(), text);
        }
        assert_eq!(shown(Path::new("https://me@h/a?b")), Path::new("https://h/a"));
    }
}
