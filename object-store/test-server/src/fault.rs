//! The faults that a test can ask for: everything that can go wrong between a client and a store.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE, RETRY_AFTER};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};

use crate::{InFlight, Shared, plain};

pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;
pub(crate) type Answer = Response<AnswerBody>;

type Frames = BoxStream<'static, Result<Frame<Bytes>, Box<dyn Error + Send + Sync>>>;

/// What is known of a request when its fate is decided.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// How many requests the server had before it.
    pub number: u64,
    /// `GET`, `HEAD`.
    pub method: String,
    /// The path, percent-encoded, with a slash at its beginning.
    pub path: String,
    /// The query, without `?`.
    pub query: String,
    /// The header `Range`.
    pub range: Option<String>,
}

impl RequestInfo {
    pub(crate) fn new(number: u64, request: &Request<Incoming>) -> Self {
        let range = request.headers().get(RANGE).and_then(|value| value.to_str().ok());
        Self {
            number,
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            range: range.map(str::to_owned),
        }
    }

    /// Returns `true` for a request for a range of an object.
    #[must_use]
    pub fn is_ranged(&self) -> bool {
        self.range.is_some()
    }
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The answer is an error.
    Status {
        /// Its status.
        status: u16,
        /// The code in its body.
        code: Option<&'static str>,
        /// The seconds of `Retry-After`.
        retry_after_s: Option<u64>,
    },
    /// The connection ends without an answer.
    Drop,
    /// The connection ends after this number of bytes of the body.
    CutAfter(u64),
    /// The server sends this number of bytes of the body, and then nothing, with the connection open.
    StallAfter(u64),
    /// The answer begins late.
    Delay(Duration),
    /// The server sends this number of bytes a second.
    Throttle(u64),
    /// The whole object is sent, with status 200.
    IgnoreRange,
    /// `Content-Range` names bytes that were not asked for.
    WrongRange,
    /// There is no ETag (behind `/plain/` only).
    NoETag,
    /// There is no `Last-Modified` (behind `/plain/` only).
    NoLastModified,
}

impl Fault {
    /// An answer with this status.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Status { status, code: None, retry_after_s: None }
    }
}

/// The answer to a request, with its faults.
pub(crate) async fn answer_to(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    info: &RequestInfo,
    faults: Vec<Fault>,
) -> io::Result<Answer> {
    for fault in &faults {
        match fault {
            Fault::Delay(delay) => tokio::time::sleep(*delay).await,
            Fault::Drop => return Err(io::Error::other("a test has dropped the connection")),
            Fault::Status { status, code, retry_after_s } => {
                return Ok(error_answer(*status, *code, *retry_after_s));
            }
            _ => {}
        }
    }
    let mut answer = match info.path.strip_prefix("/plain/") {
        Some(path) => {
            let (method, headers) = (request.method(), request.headers());
            plain::answer(&shared.buckets, method, path, headers, &faults)
        }
        None => {
            let request = request.map(s3s::Body::from);
            let answer = shared.s3.call(request).await;
            let answer = answer.map_err(|error| io::Error::other(format!("{error:?}")))?;
            answer.map(|body| body.map_err(Into::into).boxed_unsync())
        }
    };
    for fault in faults {
        answer = match fault {
            Fault::IgnoreRange if info.is_ranged() && answer.status() == 206 => {
                let path = info.path.trim_start_matches("/plain");
                plain::whole(&shared.buckets, path.trim_start_matches('/')).unwrap_or(answer)
            }
            Fault::WrongRange if answer.headers().contains_key(CONTENT_RANGE) => {
                let value = "bytes 1-2/1000000".parse().unwrap();
                answer.headers_mut().insert(CONTENT_RANGE, value);
                answer
            }
            Fault::CutAfter(bytes) => answer.map(|body| ending(body, bytes, Ending::Cut)),
            Fault::StallAfter(bytes) => answer.map(|body| ending(body, bytes, Ending::Stall)),
            Fault::Throttle(bytes_per_s) => answer.map(|body| throttled(body, bytes_per_s)),
            _ => answer,
        };
    }
    Ok(answer)
}

/// An error as S3 sends it. Its body has things in it that no message of a client may show.
pub(crate) fn error_answer(
    status: u16,
    code: Option<&'static str>,
    retry_after_s: Option<u64>,
) -> Answer {
    let mut answer = Response::builder().status(status);
    if let Some(seconds) = retry_after_s {
        answer = answer.header(RETRY_AFTER, seconds);
    }
    let body = code.map_or_else(String::new, |code| {
        let secret = crate::SECRET_KEY;
        format!("<Error><Code>{code}</Code><StringToSign>{secret}</StringToSign></Error>")
    });
    answer.body(Full::from(body).map_err(|never| match never {}).boxed_unsync()).unwrap()
}

#[derive(Clone, Copy)]
enum Ending {
    Cut,
    Stall,
}

/// The first bytes of the body, up to this number.
fn ending(body: AnswerBody, bytes: u64, how: Ending) -> AnswerBody {
    let frames: Frames = StreamExt::boxed(BodyStream::new(body));
    let state = (frames, bytes);
    let cut = stream::unfold(state, move |(mut frames, left)| async move {
        if left == 0 {
            match how {
                // What was sent before must be on its way: hyper throws away what it still has.
                Ending::Cut => tokio::time::sleep(Duration::from_millis(20)).await,
                Ending::Stall => std::future::pending().await,
            }
            return Some((Err("a test has cut the body".into()), (frames, left)));
        }
        let frame = frames.next().await?;
        let Ok(data) = frame.map(|frame| frame.into_data().unwrap_or_default()) else {
            return None;
        };
        let sent = data.slice(..data.len().min(left as usize));
        let left = left - sent.len() as u64;
        Some((Ok(Frame::data(sent)), (frames, left)))
    });
    StreamBody::new(cut).boxed_unsync()
}

fn throttled(body: AnswerBody, bytes_per_s: u64) -> AnswerBody {
    let frames = BodyStream::new(body).then(move |frame| async move {
        let bytes = frame.as_ref().ok().and_then(|frame| frame.data_ref()).map_or(0, Bytes::len);
        tokio::time::sleep(Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64)).await;
        frame
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The answer, which counts as in flight until its last bytes are handed over: before a client can have them, and send
/// the next request.
pub(crate) fn with_guard(answer: Answer, guard: InFlight) -> Answer {
    let len = answer.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let len: Option<u64> = len.and_then(|text| text.parse().ok());
    answer.map(|body| {
        let size = hyper::body::Body::size_hint(&body).exact();
        // An empty body is not polled, and a body of known length keeps its length by its header.
        if size == Some(0) {
            return body;
        }
        let (mut guard, mut left) = (Some(guard), len.unwrap_or(u64::MAX));
        let frames = BodyStream::new(body).map(move |frame| {
            let data = frame.as_ref().ok().and_then(|frame| frame.data_ref());
            left = left.saturating_sub(data.map_or(0, Bytes::len) as u64);
            if left == 0 || frame.is_err() {
                drop(guard.take());
            }
            frame
        });
        StreamBody::new(frames).boxed_unsync()
    })
}
