//! The HTTP client below the clients of `object_store`, which looks at each answer first.
//!
//! `object_store` does not pass on `Retry-After`, and it passes on the cause of an error only together with the whole
//! body of the answer, which may contain signatures and keys. So an answer that is an error becomes a
//! [`RemoteFailure`] here.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

use super::failure::{FailureKind, RemoteFailure, checked_code, code_in};
use super::http_date::http_date;

/// Makes clients that type the failures of requests for objects.
#[derive(Debug, Default)]
pub(super) struct WatchingConnector(ReqwestConnector);

impl HttpConnector for WatchingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watching(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Watching(HttpClient);

#[async_trait]
impl HttpService for Watching {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let purpose = Purpose::of(&request);
        match self.0.execute(request).await {
            Ok(response) => match purpose.check(response).await {
                Ok(response) => Ok(with_server_time(response)),
                Err(failure) => Err(HttpError::new(HttpErrorKind::Unknown, failure)),
            },
            Err(error) => match purpose {
                Purpose::Credentials(host) | Purpose::Session(host) => {
                    let failure = RemoteFailure::of_transport(&error).about_credentials(&host);
                    Err(HttpError::new(error.kind(), failure))
                }
                _ => Err(error),
            },
        }
    }
}

/// The time of an answer by the clock of its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerTime(pub(super) SystemTime);

/// Keeps the header `Date`, which `object_store` does not pass on, as an extension, which it does.
fn with_server_time(mut response: HttpResponse) -> HttpResponse {
    if let Some(time) = header(response.headers(), "date").and_then(http_date) {
        response.extensions_mut().insert(ServerTime(time));
    }
    response
}

/// The purpose of a request.
#[derive(Clone, Debug)]
enum Purpose {
    Head,
    /// The first and the last byte.
    Range(u64, u64),
    List,
    /// Asks this host for credentials. No other requests are left: objects are not read as a whole.
    Credentials(String),
    /// Asks the metadata service at this host for a token. The client acts on the status of the answer: an older
    /// service is asked without one.
    Session(String),
}

/// Bodies of errors are short. The rest of a longer one is not looked at.
const BODY_BYTES_MAX: usize = 64 << 10;

impl Purpose {
    fn of(request: &HttpRequest) -> Self {
        let range = header(request.headers(), "range").and_then(range_in);
        let host = || request.uri().host().unwrap_or_default().to_owned();
        match (request.method().as_str(), range) {
            ("HEAD", _) => Self::Head,
            ("GET", Some((first, last))) => Self::Range(first, last),
            ("PROPFIND", _) => Self::List,
            ("GET", None) if is_listing(request.uri().query().unwrap_or_default()) => Self::List,
            ("GET" | "POST", _) => Self::Credentials(host()),
            _ => Self::Session(host()),
        }
    }

    /// Returns the answer if it is one to the request.
    async fn check(&self, response: HttpResponse) -> Result<HttpResponse, RemoteFailure> {
        let status = response.status().as_u16();
        match (self, status) {
            (Self::Range(..), 200) => Err(RemoteFailure::range_ignored()),
            (Self::Range(first, last), 206) => {
                let range = header(response.headers(), "content-range");
                check_range(*first, *last, range).map(|()| response)
            }
            (Self::Session(_), _) => Ok(response),
            _ if response.status().is_success() => Ok(response),
            (Self::Credentials(host), _) => Err(failure_of(response).await.about_credentials(host)),
            _ => Err(failure_of(response).await),
        }
    }
}

/// Returns `true` for the query of a request for a list, of any of the stores.
fn is_listing(query: &str) -> bool {
    ["list-type=", "comp=list", "prefix=", "delimiter="].iter().any(|part| query.contains(part))
}

fn header<'h>(headers: &'h http::HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The bytes of `Range: bytes=3-5`.
pub(super) fn range_in(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Checks `Content-Range: bytes 3-5/10`. An object that ends earlier is another version, which the caller finds out by
/// its length.
pub(super) fn check_range(first: u64, last: u64, found: Option<&str>) -> Result<(), RemoteFailure> {
    let range_and_len = found.and_then(|text| text.strip_prefix("bytes ")?.split_once('/'));
    let parsed = range_and_len.and_then(|(range, len)| {
        let (first, last) = range.split_once('-')?;
        let numbers = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        Some((numbers, len.parse::<u64>().ok()?))
    });
    if let Some((found, len)) = parsed
        && found == (first, last.min(len.saturating_sub(1)))
    {
        return Ok(());
    }
    let found = match parsed {
        Some(((from, to), _)) => format!("bytes {from}-{to}"),
        None => "an answer without a usable Content-Range".to_owned(),
    };
    let what = format!("the server sent {found} where bytes {first}-{last} were asked for");
    let way_out = "a proxy or a cache before the store may be at fault";
    Err(RemoteFailure::new(FailureKind::WrongRange, what).with_way_out(way_out))
}

/// How long the server asks to wait. A date is compared with the clock of the server, if it sends that too, because the
/// clock of this machine may be off.
fn retry_after(headers: &http::HeaderMap, now: SystemTime) -> Option<Duration> {
    let now = header(headers, "date").and_then(http_date).unwrap_or(now);
    pause_in(header(headers, "retry-after")?, now)
}

/// The pause that `Retry-After` asks for: a number of seconds, or a date.
pub(super) fn pause_in(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Some(http_date(text)?.duration_since(now).unwrap_or_default())
}

/// The failure that an answer means. Of its body only the code is kept.
async fn failure_of(response: HttpResponse) -> RemoteFailure {
    let (parts, body) = response.into_parts();
    let retry_after = retry_after(&parts.headers, SystemTime::now());
    let from_header = header(&parts.headers, "x-ms-error-code").and_then(checked_code);
    let code = match from_header {
        Some(code) => Some(code),
        None => code_in(&beginning_of(body).await),
    };
    RemoteFailure::of_status(parts.status.as_u16(), code, retry_after)
}

/// The first bytes of a body as text.
async fn beginning_of(body: HttpResponseBody) -> String {
    let (mut frames, mut bytes) = (body.bytes_stream(), Vec::new());
    while let Some(Ok(frame)) = frames.next().await {
        bytes.extend_from_slice(&frame);
        if bytes.len() > BODY_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A date was as if the header were not there, and the server got no pause.
    #[test]
    fn a_server_may_ask_for_a_pause_in_seconds_or_until_a_date() {
        let now = http_date("Tue, 03 Nov 2026 10:00:00 GMT").unwrap();
        let asked = |headers: &[(&'static str, &str)]| {
            let pairs = headers.iter();
            let pairs = pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            retry_after(&pairs.collect::<http::HeaderMap>(), now).map(|pause| pause.as_secs())
        };
        let later = ("retry-after", "Tue, 03 Nov 2026 10:01:30 GMT");
        assert_eq!(asked(&[("retry-after", " 7 ")]), Some(7));
        assert_eq!(asked(&[later]), Some(90));
        assert_eq!(asked(&[later, ("date", "Tue, 03 Nov 2026 10:01:00 GMT")]), Some(30));
        assert_eq!(asked(&[later, ("date", "Tue, 03 Nov 2026 11:00:00 GMT")]), Some(0));
        assert_eq!(asked(&[("retry-after", "soon")]), None);
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn ranges_of_answers_are_compared() {
        assert_eq!(range_in("bytes=3-5"), Some((3, 5)));
        assert!(check_range(3, 5, Some("bytes 3-5/10")).is_ok());
        assert!(check_range(3, 50, Some("bytes 3-9/10")).is_ok());
        for bad in [
            Some("bytes 3-6/10"),
            Some("bytes 2-5/10"),
            Some("bytes 3-4/10"),
            Some("bytes 3-5/*"),
            Some("bytes */10"),
            Some("items 3-5/10"),
            None,
        ] {
            let failure = check_range(3, 5, bad).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::WrongRange, "{bad:?}");
            assert!(failure.to_string().contains("bytes 3-5 were asked"), "{failure}");
        }
    }
}
