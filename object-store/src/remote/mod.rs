//! Objects of S3, GCS, Azure and HTTP servers, read like files.
//!
//! | type | paths | use it when |
//! |---|---|---|
//! | [`UrlBackend`] | URLs, and files for another backend | a program reads both |
//! | [`ObjectStoreBackend`] | keys of one store | the program has a store of its own |
//!
//! A batch becomes requests for ranges, many at once: near ranges of an object share a request, large ones are split
//! ([`RemoteOptions`]). A request that fails for a reason that may be temporary is sent again, and continues where the
//! last one stopped.
//!
//! # One version
//!
//! A handle is pinned to the version of the object that was opened: by the ETag (`If-Match`), by the version where
//! there is no strong ETag, or else by the time of its last change. Each answer is compared with it. So a read returns
//! bytes of that version, or [`Error::Replaced`], and [`len`] and [`version`] need no request. If the server reports
//! none of the three, the object is refused.
//!
//! # Which thread does what
//!
//! The calling thread itself runs the requests of its batch, and copies what arrives to the destinations. Threads of
//! the backend only move bytes between the network and memory of the client. So nothing can write to a destination
//! after `read_batch` has returned, and a reader may be a task of any runtime.
//!
//! [`Error::Replaced`]: ringmain_backends::Error::Replaced
//! [`len`]: ringmain_backends::ReadBackend::len
//! [`version`]: ringmain_backends::ReadBackend::version

use ringmain_backends::BackendKind;

mod backend;
mod batch;
mod bucket;
mod client;
mod credentials;
mod cryptography;
mod failure;
mod fetch;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod http_date;
mod latency;
#[cfg(test)]
#[cfg(all(unix, feature = "local-store"))]
pub(crate) mod messages;
mod mixed;
mod object;
mod options;
mod plan;
mod runtime;
mod settings;
mod stall;
mod store_backend;
mod stores;
mod url;
mod url_backend;
mod watch;

pub use backend::RemoteStats;
pub use cryptography::choose_cryptography;
pub use failure::{FailureKind, RemoteFailure};
pub use options::{HedgeOptions, RemoteOptions, RetryOptions};
pub use store_backend::ObjectStoreBackend;
pub use url_backend::{UrlBackend, UrlOptions, local_path};

/// The name of the backends of this module.
const KIND: BackendKind = BackendKind::Other("object-store");
