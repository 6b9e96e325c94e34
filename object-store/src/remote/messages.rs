//! The messages about URLs, settings and answers of stores.

use std::path::Path;
use std::time::Duration;

use super::bucket::Bucket;
use super::client::client;
use super::credentials::CredentialSource;
use super::failure::{Effort, FailureKind, RemoteFailure};
use super::settings::Config;
use super::url::{Place, Scheme, place};

/// Failures whose address is refused.
fn addresses() -> Vec<RemoteFailure> {
    let urls = [
        "ftp://host/x",
        "s3:///key",
        "s3://my bucket/x",
        "az://my container/x",
        "https://my host/x",
        "az://@account/x",
        "https:///x",
        "s3:/bucket/key",
        "s3://b//key",
        "s3://b/a//c",
        "s3://b/a/../c",
        "s3://b/a\nb",
        "s3://user:password@b/k",
        "s3://b/k?query",
        "https://h/%ff",
        "file://server/x",
        "file:///a?b",
    ];
    urls.iter().map(|url| place(Path::new(url)).unwrap_err()).collect()
}

/// Answers of servers, with what the bucket adds.
fn answers() -> Vec<RemoteFailure> {
    let bucket = Bucket::of_tests();
    let answers = [
        (301, Some("PermanentRedirect")),
        (400, Some("ExpiredToken")),
        (400, Some("AuthorizationHeaderMalformed")),
        (401, None),
        (403, None),
        (403, Some("SignatureDoesNotMatch")),
        (403, Some("RequestTimeTooSkewed")),
        (404, None),
        (404, Some("NoSuchBucket")),
        (412, None),
        (416, None),
        (418, None),
        (429, None),
        (500, None),
        (503, Some("SlowDown")),
    ];
    let of_status = |(status, code): (u16, Option<&str>)| {
        bucket.explain(RemoteFailure::of_status(status, code.map(Into::into), None))
    };
    let mut failures: Vec<_> = answers.into_iter().map(of_status).collect();
    let effort = Some(Effort { attempts: 21, elapsed: Duration::from_secs(180) });
    failures.push(RemoteFailure { effort, ..RemoteFailure::of_status(500, None, None) });
    failures.push(RemoteFailure::range_ignored());
    failures.push(RemoteFailure::new(FailureKind::TimedOut, "the server sent nothing for 30.0 s"));
    failures
}

/// Settings that no client can be made with.
fn settings() -> Vec<RemoteFailure> {
    let settings = [
        ("aws_session_token", "5ecret\ntoken"),
        ("aws_secret_access_key", "5ecret\u{fffd}"),
        ("aws_region", "us east"),
        ("aws_endpoint", "localhost:9000"),
        ("aws_endpoint_url", "ftp://localhost"),
        ("aws_metadata_endpoint", "http:///x"),
        ("aws_endpoint_url_sts", "https://my host"),
    ];
    let failure = |(name, value): (&str, &str)| {
        let address = match place(Path::new("s3://bucket/key")) {
            Ok(Place::Remote(address)) => address,
            other => panic!("{other:?}"),
        };
        let config = vec![(name.to_owned(), value.to_owned())];
        let source = CredentialSource::of(address.scheme, &config);
        let bucket = Bucket::new("s3://bucket", source, move || client(&address, &config));
        bucket.client().unwrap_err()
    };
    settings.into_iter().map(failure).collect()
}

/// Refused requests of clients whose credentials come from different places.
fn refusals() -> Vec<RemoteFailure> {
    let none = Config::new();
    let schemes = [Scheme::S3, Scheme::Gcs, Scheme::Azure, Scheme::Http];
    let sources = schemes.map(|scheme| CredentialSource::of(scheme, &none));
    let refused = |source| {
        let make = || Err(RemoteFailure::new(FailureKind::Setup, "is not made"));
        let bucket = Bucket::new("the store", source, make);
        bucket.explain(RemoteFailure::of_status(401, None, None))
    };
    sources.into_iter().chain([CredentialSource::Program]).map(refused).collect()
}

pub(crate) fn messages() -> Vec<String> {
    let all = addresses().into_iter().chain(settings()).chain(answers()).chain(refusals());
    all.map(|failure| format!("{:?}\n    {failure}", failure.kind())).collect()
}
