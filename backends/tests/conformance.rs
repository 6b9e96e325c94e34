//! The suite, one line for each backend.

mod common;

use common::subjects;
use ringmain_backends::BackendKind;
use ringmain_backends::conformance::{self, required_backends};

conformance::suite! {
    mod pread = subjects::of(BackendKind::Pread);
    mod mmap = subjects::of(BackendKind::Mmap);
    mod mmap_release = subjects::mmap_release();
    mod direct = subjects::of(BackendKind::Direct);
    mod uring = subjects::of(BackendKind::Uring);
    mod uring_buffered = subjects::uring_buffered();
    mod uring_uncached = subjects::uring_uncached();
    mod uncached = subjects::of(BackendKind::Uncached);
    mod tokio_uring = subjects::of(BackendKind::TokioUring);
    mod memory = subjects::of(BackendKind::Memory);
    mod auto = subjects::of(BackendKind::Auto);
    mod auto_with_advice = subjects::auto_with_advice();
}

/// A slip in the variable would require nothing.
#[test]
fn required_backends_exist() {
    for name in required_backends() {
        name.parse::<BackendKind>().unwrap();
    }
}
