//! Objects as a web server shows them: without signatures, and perhaps without names of their versions.

use futures_util::StreamExt;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, RANGE};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;

use crate::fault::{Answer, Fault, error_answer};
use crate::files::{Buckets, Object};

/// Answers a request for `bucket/key`, percent-encoded.
pub(crate) fn answer(
    buckets: &Buckets,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    faults: &[Fault],
) -> Answer {
    let path = decoded(path);
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    let Some(object) = buckets.open(bucket, key) else { return error_answer(404, None, None) };
    let has = |fault: &Fault| faults.contains(fault);
    let mut answer = Response::builder();
    if !has(&Fault::NoETag) {
        answer = answer.header(ETAG, format!("\"{}\"", object.e_tag));
    }
    if !has(&Fault::NoLastModified) {
        answer = answer.header(LAST_MODIFIED, "Tue, 03 Nov 2026 10:00:00 GMT");
    }
    let wanted = headers.get("if-match").and_then(|value| value.to_str().ok());
    if wanted.is_some_and(|wanted| wanted != format!("\"{}\"", object.e_tag)) {
        return error_answer(412, None, None);
    }
    let len = object.len;
    let range = headers.get(RANGE).filter(|_| !has(&Fault::IgnoreRange));
    let range = range.and_then(|value| s3s::dto::Range::parse(value.to_str().ok()?).ok());
    let range = match range.map(|range| range.check(len)) {
        None => 0..len,
        Some(Err(_)) => return error_answer(416, None, None),
        Some(Ok(range)) => {
            let text = format!("bytes {}-{}/{len}", range.start, range.end - 1);
            answer = answer.header(CONTENT_RANGE, text).status(StatusCode::PARTIAL_CONTENT);
            range
        }
    };
    let answer = answer.header(CONTENT_LENGTH, range.end - range.start);
    let body = match method == Method::HEAD {
        true => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        false => body_of(object, range),
    };
    answer.body(body).unwrap()
}

/// The whole object, whatever the request asked for.
pub(crate) fn whole(buckets: &Buckets, path: &str) -> Option<Answer> {
    let path = decoded(path);
    let (bucket, key) = path.split_once('/')?;
    let object = buckets.open(bucket, key)?;
    let len = object.len;
    let answer = Response::builder()
        .header(ETAG, format!("\"{}\"", object.e_tag))
        .header(LAST_MODIFIED, "Tue, 03 Nov 2026 10:00:00 GMT")
        .header(CONTENT_LENGTH, len);
    Some(answer.body(body_of(object, 0..len)).unwrap())
}

fn body_of(object: Object, range: std::ops::Range<u64>) -> crate::fault::AnswerBody {
    let frames = object.body(range).map(|frame| frame.map(|bytes| Frame::data(bytes.into())));
    StreamBody::new(frames.map(|frame| frame.map_err(Into::into))).boxed_unsync()
}

fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        match (byte, after) {
            (b'%', [a, b, after @ ..]) => {
                let digits = [*a, *b];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = after;
            }
            _ => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}
