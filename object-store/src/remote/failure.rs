//! Why a request failed, without anything secret.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};

/// Why a store did not deliver an object or a range of it.
///
/// It is the source of [`Error::Open`] and [`Error::Read`]; [`RemoteFailure::of`] finds it there.
///
/// Its text never contains an answer's body, a header, a query or the user part of a URL: signatures, keys and tokens
/// may stand there. Of a server's explanation only the code remains (`NoSuchBucket`, `ExpiredToken`).
///
/// [`Error::Open`]: ringmain_backends::Error::Open
/// [`Error::Read`]: ringmain_backends::Error::Read
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFailure {
    pub(super) kind: FailureKind,
    pub(super) status: Option<u16>,
    pub(super) code: Option<Box<str>>,
    /// The event, for people.
    pub(super) what: String,
    /// The number of the operating system's error, if that is the cause.
    pub(super) os_error: Option<i32>,
    /// How long the server asked to wait.
    pub(super) retry_after: Option<Duration>,
    /// The attempts, if there was more than one request.
    pub(super) effort: Option<Effort>,
    /// The remedy, if there is one.
    pub(super) way_out: Box<str>,
}

/// The code of a failure to get credentials.
pub(super) const NO_CREDENTIALS: &str = "NoCredentials";

/// How often and how long a request was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effort {
    pub(super) attempts: u32,
    pub(super) elapsed: Duration,
}

/// The kinds of [`RemoteFailure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The URL cannot be an address of an object: its scheme is not known, it has no bucket, or a part that is not
    /// allowed.
    Address,
    /// The client of the store cannot be made: an option or a variable of the environment is missing or wrong.
    Setup,
    /// The server refused the credentials, or asked for some.
    Credentials,
    /// There is no such bucket.
    NoBucket,
    /// There is no such object.
    NotFound,
    /// The object is another one than the one that was opened.
    Replaced,
    /// No connection to the server could be made.
    Unreachable,
    /// The server did not answer in time, or stopped in the middle of its answer.
    TimedOut,
    /// The connection broke, or the body ended too early.
    Interrupted,
    /// The server asked to send less (429, 503).
    Throttled,
    /// The server failed (408, 5xx except 501 and 505).
    Server,
    /// The server sends the whole object where a range is asked for.
    RangeIgnored,
    /// The server sent other bytes than those that were asked for.
    WrongRange,
    /// The server names no version of the object, so that one that was replaced could not be noticed.
    NoVersion,
    /// The process has no descriptors or memory left.
    Shortage,
    /// Anything else.
    Other,
}

impl RemoteFailure {
    pub(super) fn new(kind: FailureKind, what: impl Into<String>) -> Self {
        let way_out = Box::default();
        let (status, code, os_error, retry_after, effort) = Default::default();
        Self { kind, status, code, what: what.into(), os_error, retry_after, effort, way_out }
    }

    pub(super) fn with_way_out(mut self, way_out: impl Into<Box<str>>) -> Self {
        self.way_out = way_out.into();
        self
    }

    /// The failure inside an error of a backend, if it is one of a store.
    #[must_use]
    pub fn of(error: &ringmain_backends::Error) -> Option<&Self> {
        error.io_error()?.get_ref()?.downcast_ref()
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns the status of the server's answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns the code by which the store names the cause: `NoSuchBucket`, `ExpiredToken`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Returns `true` if another attempt may succeed.
    pub(super) fn may_pass(&self) -> bool {
        use FailureKind::{Interrupted, Server, Throttled, TimedOut, Unreachable};
        matches!(self.kind, Unreachable | TimedOut | Interrupted | Throttled | Server)
    }

    /// The failure that an answer with this status means.
    pub(super) fn of_status(
        status: u16,
        code: Option<Box<str>>,
        retry_after: Option<Duration>,
    ) -> Self {
        use FailureKind as Kind;
        let kind = match (status, code.as_deref()) {
            (_, Some("NoSuchBucket" | "ContainerNotFound" | "InvalidBucketName")) => Kind::NoBucket,
            (400, Some("RequestTimeout")) => Kind::Server,
            (400, Some("ExpiredToken" | "InvalidToken" | "AuthorizationHeaderMalformed"))
            | (401 | 403 | 407, _) => Kind::Credentials,
            (404 | 410, _) => Kind::NotFound,
            (412 | 416, _) => Kind::Replaced,
            (429 | 503, _) | (_, Some("SlowDown" | "TooManyRequests" | "ServerBusy")) => {
                Kind::Throttled
            }
            // A server that does not know the method or the version of the protocol will not learn it.
            (501 | 505, _) => Kind::Other,
            (408 | 500..600, _) => Kind::Server,
            _ => Kind::Other,
        };
        let what = match (reason_of(status), &code) {
            (Some(reason), Some(code)) => format!("{status} {reason} ({code})"),
            (Some(reason), None) => format!("{status} {reason}"),
            (None, Some(code)) => format!("{status} ({code})"),
            (None, None) => format!("status {status}"),
        };
        Self { status: Some(status), code, retry_after, ..Self::new(kind, what) }
    }

    /// The failure of a connection.
    pub(super) fn of_transport(error: &HttpError) -> Self {
        if let Some(shortage) = Self::shortage_in(error) {
            return shortage;
        }
        let kind = match error.kind() {
            HttpErrorKind::Connect => FailureKind::Unreachable,
            HttpErrorKind::Timeout => FailureKind::TimedOut,
            _ => FailureKind::Interrupted,
        };
        let innermost = redacted(&innermost_text(error));
        if innermost.contains("scheme is not allowed") {
            let what = "the endpoint is http, not https, and that is not allowed";
            let way_out = "set AWS_ALLOW_HTTP, GOOGLE_ALLOW_HTTP or AZURE_ALLOW_HTTP to true";
            return Self::new(FailureKind::Setup, what).with_way_out(way_out);
        }
        let way_out = match kind {
            FailureKind::Unreachable => "check that the server runs and that its address is right",
            _ => "",
        };
        let what = match kind {
            FailureKind::Unreachable => format!("the server cannot be reached: {innermost}"),
            FailureKind::TimedOut => format!("the server does not answer: {innermost}"),
            _ => format!("the connection broke: {innermost}"),
        };
        Self::new(kind, what).with_way_out(way_out)
    }

    /// The failure that is behind an error of `object_store`, however deep.
    pub(super) fn of_store(error: &object_store::Error) -> Self {
        if let Some(own) = find::<Self>(error) {
            return own.clone();
        }
        if let Some(http) = find::<HttpError>(error) {
            return Self::of_transport(http);
        }
        if let Some(shortage) = Self::shortage_in(error) {
            return shortage;
        }
        Self::of_foreign(error)
    }

    /// The failure of a client that this crate has not made: there is only its text.
    fn of_foreign(error: &object_store::Error) -> Self {
        use object_store::Error as Store;
        let text = error.to_string();
        let code = code_in(&text);
        let status = match error {
            Store::NotFound { .. } => Some(404),
            Store::Precondition { .. } => Some(412),
            Store::PermissionDenied { .. } => Some(403),
            Store::Unauthenticated { .. } => Some(401),
            _ => status_in(&text),
        };
        if let Some(status) = status {
            return Self::of_status(status, code, None);
        }
        if text.contains("non-partial response") || text.contains("does not support range") {
            return Self::range_ignored();
        }
        match find::<io::Error>(error).map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => Self::of_status(404, code, None),
            Some(io::ErrorKind::PermissionDenied) => {
                Self::new(FailureKind::Credentials, redacted(&text))
            }
            _ => Self::new(FailureKind::Other, redacted(&text)),
        }
    }

    /// The same failure, of a request for credentials.
    pub(super) fn about_credentials(mut self, host: &str) -> Self {
        self.what = format!("asking {host} for credentials failed: {}", self.what);
        self.way_out = Box::default();
        self.code = Some(NO_CREDENTIALS.into());
        if !self.may_pass() {
            self.kind = FailureKind::Credentials;
        }
        self
    }

    pub(super) fn range_ignored() -> Self {
        let what = "the server ignores ranges and sends the whole object";
        let way_out = "download the object, or serve it with a server that answers range requests";
        Self::new(FailureKind::RangeIgnored, what).with_way_out(way_out)
    }

    /// A process without descriptors cannot connect.
    fn shortage_in(error: &(dyn StdError + 'static)) -> Option<Self> {
        let os_error = find::<io::Error>(error).and_then(raw_os_error)?;
        // EMFILE, ENFILE and ENOMEM of Unix.
        let is_short = cfg!(unix) && matches!(os_error, 24 | 23 | 12);
        is_short.then(|| {
            let source = io::Error::from_raw_os_error(os_error);
            let way_out = "a connection needs a file descriptor: lower `requests_max` or raise RLIMIT_NOFILE (`ulimit -n`)";
            let mut failure =
                Self::new(FailureKind::Shortage, source.to_string()).with_way_out(way_out);
            failure.os_error = Some(os_error);
            failure
        })
    }

    /// The same as an error of the operating system or of `std`, which a backend's error has inside.
    pub(super) fn into_io_error(self) -> io::Error {
        use FailureKind as Kind;
        if let Some(number) = self.os_error {
            return io::Error::from_raw_os_error(number);
        }
        let kind = match self.kind {
            Kind::Address | Kind::Setup => io::ErrorKind::InvalidInput,
            Kind::Credentials => io::ErrorKind::PermissionDenied,
            Kind::NoBucket | Kind::NotFound => io::ErrorKind::NotFound,
            Kind::Replaced => io::ErrorKind::StaleNetworkFileHandle,
            Kind::Unreachable => io::ErrorKind::NotConnected,
            Kind::TimedOut => io::ErrorKind::TimedOut,
            Kind::Interrupted => io::ErrorKind::ConnectionReset,
            Kind::Throttled | Kind::Server => io::ErrorKind::ResourceBusy,
            Kind::RangeIgnored | Kind::NoVersion => io::ErrorKind::Unsupported,
            Kind::WrongRange => io::ErrorKind::InvalidData,
            Kind::Shortage | Kind::Other => io::ErrorKind::Other,
        };
        io::Error::new(kind, self)
    }
}

impl fmt::Display for RemoteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(Effort { attempts, elapsed }) = self.effort {
            write!(f, " (the last of {attempts} attempts in {:.1} s)", elapsed.as_secs_f64())?;
        }
        match &*self.way_out {
            "" => Ok(()),
            way_out => write!(f, "; {way_out}"),
        }
    }
}

impl StdError for RemoteFailure {}

/// The first error of this type in the chain of sources. `io::Error` hides what it wraps from `source`.
fn find<'e, T: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e T> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|wrapped| find(wrapped)) {
            return Some(found);
        }
        current = error.source();
    }
    None
}

/// The number of the operating system's error, also of one that another `io::Error` wraps.
fn raw_os_error(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let inner = error.get_ref()?;
        find::<io::Error>(inner).and_then(io::Error::raw_os_error)
    })
}

/// The text of the innermost cause, which says most.
fn innermost_text(error: &dyn StdError) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

/// The code in the body of an error, if it looks like one: `<Code>NoSuchBucket</Code>`.
pub(super) fn code_in(text: &str) -> Option<Box<str>> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    checked_code(code)
}

/// A code consists of letters and digits; anything else may be a text with secrets.
pub(super) fn checked_code(code: &str) -> Option<Box<str>> {
    let is_code = (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric());
    is_code.then(|| code.into())
}

/// The status in the text of a client: `… status code: 503 Service Unavailable …`.
fn status_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok().filter(|status| (100..600).contains(status))
}

/// The text without bodies of answers, queries and users of URLs, and not too long.
pub(super) fn redacted(text: &str) -> String {
    // A body begins with `<` or `{`.
    let text = text.split(['<', '{']).next().unwrap_or_default();
    let words = text.split_whitespace().map(redacted_word);
    let joined = words.collect::<Vec<_>>().join(" ");
    joined.chars().take(300).collect()
}

/// One word of a text; of a URL only scheme, host and path. A word may have several URLs: `http://proxy/https://host`.
fn redacted_word(word: &str) -> String {
    let word = word.split('?').next().unwrap_or_default();
    let without_user = |(number, part): (usize, &str)| {
        if number == 0 {
            return part.to_owned();
        }
        let (authority, path) = part.split_at(part.find('/').unwrap_or(part.len()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{host}{path}")
    };
    word.split("://").enumerate().map(without_user).collect::<Vec<_>>().join("://")
}

/// The usual word for a status.
fn reason_of(status: u16) -> Option<&'static str> {
    Some(match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_what_may_be_secret() {
        let cases = [
            (
                "Error performing GET https://me:pw@host/a/b?X-Amz-Signature=5ec in 3s - Server returned: <Error>5ec",
                "Error performing GET https://host/a/b in 3s - Server returned:",
            ),
            ("invalid token {\"token\":\"5ec\"}", "invalid token"),
            ("https://host?sig=5ec", "https://host"),
            // Only the first URL of a word lost its user.
            ("https://proxy/http://me:5ec@host/a", "https://proxy/http://host/a"),
            ("(https://a/b,https://me:5ec@host)", "(https://a/b,https://host)"),
            ("plain text", "plain text"),
        ];
        for (text, expected) in cases {
            assert_eq!(redacted(text), expected);
        }
        assert_eq!(redacted(&"x".repeat(1000)).len(), 300);
    }

    #[test]
    fn codes_are_short_words() {
        assert_eq!(code_in("<Error><Code>NoSuchKey</Code>").as_deref(), Some("NoSuchKey"));
        for bad in ["<Code></Code>", "<Code>a secret</Code>", "<Code>x", "", "<Code>a=b</Code>"] {
            assert_eq!(code_in(bad), None, "{bad}");
        }
        assert_eq!(checked_code(&"x".repeat(65)), None);
    }

    #[test]
    fn the_text_of_a_foreign_client_gives_status_and_code_only() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code><StringToSign>5ec</StringToSign>";
        let source = io::Error::other(body).into();
        let failure =
            RemoteFailure::of_store(&object_store::Error::Generic { store: "S3", source });
        assert_eq!((failure.kind, failure.status), (FailureKind::Credentials, Some(403)));
        assert_eq!(failure.to_string(), "403 Forbidden (SignatureDoesNotMatch)");
    }
}
