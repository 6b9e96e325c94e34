//! Bad addresses, missing objects, refused credentials: each is a clear error without a secret.

mod support;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use ringmain_backends::{Error, ReadBackend, ReadBackendExt};
use ringmain_object_store::remote::{
    FailureKind, RemoteFailure, RemoteOptions, RetryOptions, UrlBackend, UrlOptions,
};
use ringmain_test_server::{Fault, KEY_ID, SECRET_KEY};
use support::{Store, assert_refused, failure, hasty, read, url};

#[test]
fn bad_addresses_name_the_way_out() {
    let store = Store::new();
    let backend = store.backend();
    for (bad, words) in [
        ("ftp://host/x", ["ftp", "s3, gs, az"]),
        ("s3://", ["no bucket", "s3://bucket/key"]),
        ("s3:///x", ["no bucket", "s3://bucket/key"]),
        ("s3://my bucket/x", ["my bucket", "names have letters"]),
        ("gs://my\tbucket/x", ["not the name of a bucket", "names have letters"]),
        ("az://my container/x", ["my container", "names have letters"]),
        ("http://my host/x", ["my host", "https://host:8443"]),
        ("s3://bucket/a//b", ["two slashes", "s3://bucket/a//b"]),
        ("s3://me:5ecret@bucket/x", ["before the `@`", "s3://bucket/x"]),
        ("s3://bucket/x?X-Amz-Signature=5ecret", ["query", "s3://bucket/x"]),
        ("https://host/x?sig=5ecret", ["query", "https://host/x"]),
    ] {
        assert_refused(&backend, bad, FailureKind::Address, &words);
        let error = backend.list(Path::new(bad)).unwrap_err();
        assert_eq!(failure(&error).kind(), FailureKind::Address);
    }
    assert_eq!(store.server.requests(), 0);
}

#[test]
fn what_is_not_there_is_not_found() {
    let store = Store::new();
    store.put("folder/object", "bytes");
    let backend = store.backend();
    for key in ["missing", "folder", "folder/", "folder/object/below"] {
        let name = format!("s3://bucket/{key}");
        assert_refused(&backend, &name, FailureKind::NotFound, &[&name, "404", "NoSuchKey"]);
        let error = backend.open(name.as_ref()).unwrap_err();
        assert!(error.is_not_found() && error.kind() == ErrorKind::NotFound, "{error:?}");
    }
    let words = ["404", "NoSuchBucket", "s3://other", "region and the endpoint"];
    assert_refused(&backend, "s3://other/object", FailureKind::NoBucket, &words);
}

#[test]
fn an_empty_object_has_no_bytes() {
    let store = Store::new();
    let url = store.put("empty", "");
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    assert_eq!(backend.len(&file).unwrap(), 0);
    assert_eq!(read(&backend, &file, 0, 0), b"");
    let error = backend.read_to_vec(&file, 0, 1).unwrap_err();
    assert!(matches!(error, Error::PastEnd { file_len: 0, .. }), "{error:?}");
}

#[test]
fn wrong_credentials_are_named_and_not_shown() {
    let store = Store::new();
    store.put("object", "bytes");
    let wrong_secret = store.backend_with_config(&[("aws_secret_access_key", "an0ther-5ecret")]);
    let words = [
        "s3://bucket/object",
        "403",
        "SignatureDoesNotMatch",
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
    ];
    assert_refused(&wrong_secret, "s3://bucket/object", FailureKind::Credentials, &words);
    let wrong_id = store.backend_with_config(&[("aws_access_key_id", "AKID5ecret")]);
    let words = ["403", "AWS_ACCESS_KEY_ID"];
    assert_refused(&wrong_id, "s3://bucket/object", FailureKind::Credentials, &words);
    let unsigned = store.backend_with_config(&[("aws_skip_signature", "true")]);
    let words = ["403", "AWS_SKIP_SIGNATURE"];
    assert_refused(&unsigned, "s3://bucket/object", FailureKind::Credentials, &words);
    let error = unsigned.open(&url("object")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

/// A server cannot be made to refuse these without faking a clock, so the answers are written here as S3 sends them.
#[test]
fn an_expired_token_and_a_wrong_clock_say_so() {
    let store = Store::new();
    store.put("object", "bytes");
    let file = {
        let backend = store.backend();
        (backend.open(&url("object")).unwrap(), backend)
    };
    for (status, code, word) in [
        (400, "ExpiredToken", "get new credentials"),
        (403, "RequestTimeTooSkewed", "clock of this machine"),
        (403, "AccessDenied", "may read s3://bucket"),
        (400, "AuthorizationHeaderMalformed", "AWS_REGION"),
        (301, "PermanentRedirect", "AWS_REGION"),
    ] {
        // The answer to HEAD has no body, so the code arrives with a second request.
        store.server.set_faults(move |info| {
            let code = (info.method != "HEAD").then_some(code);
            vec![Fault::Status { status, code, retry_after_s: None }]
        });
        let error = store.backend().open(&url("object")).unwrap_err();
        let found = failure(&error);
        assert_eq!((found.status(), found.code()), (Some(status), Some(code)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
        // The same for a read.
        let (file, backend) = &file;
        let error = backend.read_to_vec(file, 1, 3).unwrap_err();
        assert!(matches!(error, Error::Read { offset: 1, len: 3, .. }), "{error:?}");
        assert_eq!(failure(&error).code(), Some(code));
        let text = error.to_string();
        for part in ["s3://bucket/object", "bytes 1-3", word] {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
    }
}

#[test]
fn an_endpoint_that_refuses_is_given_up_soon() {
    let mut store = Store::new();
    store.put("object", "bytes");
    store.server.stop();
    let retry = RetryOptions {
        timeout: Duration::from_secs(3600),
        first_contact: Duration::from_millis(300),
        ..RetryOptions::default()
    };
    let backend = store.backend_with(RemoteOptions { retry, ..RemoteOptions::default() });
    // Whether there was time for a second attempt depends on the machine.
    let words = ["cannot be reached", "refused", "check that the server runs"];
    assert_refused(&backend, "s3://bucket/object", FailureKind::Unreachable, &words);
    // The server comes up later.
    store.server.start_again();
    assert!(backend.open(&url("object")).is_ok());
}

#[test]
fn an_http_endpoint_that_is_not_allowed_names_the_variable() {
    let store = Store::new();
    let backend = store.backend_with_config(&[("aws_allow_http", "false")]);
    assert_refused(&backend, "s3://bucket/x", FailureKind::Setup, &["AWS_ALLOW_HTTP"]);
}

#[test]
fn settings_that_do_not_fit_name_what_is_wrong() {
    let store = Store::new();
    let backend = store.backend_with_config(&[("aws_skip_signature", "perhaps")]);
    let words = ["the client of s3://bucket cannot be made", "perhaps"];
    assert_refused(&backend, "s3://bucket/x", FailureKind::Setup, &words);
    let options = RemoteOptions { requests_max: 0, ..RemoteOptions::default() };
    let error = UrlBackend::over_auto(UrlOptions::default().remote(options)).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "requests_max", .. }), "{error}");
}

/// `object_store` panicked in the middle of a request.
#[test]
fn settings_that_cannot_be_sent_are_refused_by_name() {
    let store = Store::new();
    store.put("object", "bytes");
    for (name, value, word) in [
        ("aws_endpoint", "localhost:9000", "has no scheme"),
        ("aws_endpoint_url_s3", "localhost", "has no scheme"),
        ("aws_endpoint", "http:// localhost", "is not a URL"),
        ("aws_endpoint", "ftp://localhost", "another scheme than http and https"),
        ("aws_session_token", "5ecret\ntoken", "control character"),
        ("aws_access_key_id", "5ecret\u{e9}", "not ASCII"),
        ("aws_region", "us east 1", "letters, digits"),
    ] {
        let backend = store.backend_with_config(&[(name, value)]);
        let words = [&*name.to_ascii_uppercase(), word, "the client of s3://bucket cannot be made"];
        assert_refused(&backend, "s3://bucket/object", FailureKind::Setup, &words);
    }
    assert_eq!(store.server.requests(), 0);
}

/// Mounted secrets are files that end with a newline. A request with it in a header panicked.
#[test]
fn newlines_around_settings_do_not_count() {
    let store = Store::new();
    let url = store.put("object", "bytes");
    let endpoint = format!(" {}\n", store.server.endpoint());
    let backend = store.backend_with_config(&[
        ("aws_endpoint", &endpoint),
        ("aws_access_key_id", &format!("{KEY_ID}\n")),
        ("aws_secret_access_key", &format!("{SECRET_KEY}\r\n")),
        ("aws_session_token", "\n"),
        ("aws_region", "us-east-1\n"),
    ]);
    let file = backend.open(&url).unwrap();
    assert_eq!(read(&backend, &file, 0, 5), b"bytes");
}

/// No metadata service answers there.
#[test]
fn credentials_that_cannot_be_fetched_are_the_cause() {
    let mut store = Store::new();
    store.put("object", "bytes");
    let options = [("aws_endpoint", store.server.endpoint()), ("aws_allow_http", "true".into())];
    let dead = store.server.endpoint();
    let options = options
        .into_iter()
        .chain([("aws_metadata_endpoint", dead)])
        .fold(UrlOptions::default().remote(hasty()), |it, (name, value)| it.config(name, value));
    store.server.stop();
    let backend = UrlBackend::over_auto(options).unwrap();
    let error = backend.open(&url("object")).unwrap_err();
    let text = error.to_string();
    for part in ["credentials", "AWS_ACCESS_KEY_ID", "not set", "metadata service"] {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    assert_ne!(failure(&error).kind(), FailureKind::NotFound);
}

#[test]
fn debug_texts_have_no_secret() {
    let store = Store::new();
    let url = store.put("object", "bytes");
    let backend = store.backend();
    let file = backend.open(&url).unwrap();
    read(&backend, &file, 0, 5);
    let texts = [
        format!("{backend:?} {file:?} {:?}", store.options()),
        format!("{:?} {:?}", backend.explain(Some(&file)), backend.capabilities()),
    ];
    for text in texts {
        assert!(!text.contains(SECRET_KEY) && !text.contains(KEY_ID), "{text}");
    }
}

#[test]
fn a_handle_of_another_backend_is_refused() {
    let store = Store::new();
    let url = store.put("object", "bytes");
    let (one, two) = (store.backend(), store.backend());
    let file = one.open(&url).unwrap();
    let error = two.read_to_vec(&file, 0, 1).unwrap_err();
    assert!(matches!(error, Error::ForeignHandle { .. }), "{error:?}");
    assert!(RemoteFailure::of(&error).is_none());
}
