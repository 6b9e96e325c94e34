//! The whole conformance suite, over files that are cut in two.

use std::path::Path;
use std::sync::Arc;

use concatenated::{Concatenated, Part};
use ringmain_backends::conformance::{self, Subject};
use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, Result, open_backend};

/// The file itself, as its first 4999 bytes and the rest.
fn cut_in_two(path: &Path) -> Vec<Part> {
    let part = |range| Part { path: path.to_owned(), range };
    vec![part(0..4999), part(4999..u64::MAX)]
}

fn over(kind: BackendKind, options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Ok(Arc::new(Concatenated::new(open_backend(kind, options)?, cut_in_two)))
}

conformance::suite! {
    mod over_auto = Subject::new("auto", |options| over(BackendKind::Auto, options));
}
