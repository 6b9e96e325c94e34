//! A store with one client for each process.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};
use ringmain_backends::PerProcess;

use super::cryptography::choose_cryptography;
use super::failure::{FailureKind, NO_CREDENTIALS, RemoteFailure};
use super::runtime::locked;

/// The longest pause that a server gets, so that its end is a moment that the clock can represent.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

type MakeClient = dyn Fn() -> object_store::Result<Arc<dyn ObjectStore>> + Send + Sync;

/// A bucket, a container, or a server.
pub(super) struct Bucket {
    /// What messages call it: never a secret.
    name: String,
    /// Where its credentials are looked for, for messages.
    credentials: String,
    make: Box<MakeClient>,
    current: PerProcess<Contact>,
}

/// What a process has of a bucket. A forked child makes its own client: connections cannot be shared.
#[derive(Default)]
struct Contact {
    client: Mutex<Option<Arc<dyn ObjectStore>>>,
    /// An answer has arrived from it.
    is_reached: AtomicBool,
    /// No request is sent before this moment: the server has asked for a pause.
    not_before: Mutex<Option<Instant>>,
}

impl Bucket {
    pub(super) fn new(
        name: impl Into<String>,
        credentials: impl Into<String>,
        make: impl Fn() -> object_store::Result<Arc<dyn ObjectStore>> + Send + Sync + 'static,
    ) -> Self {
        let current = PerProcess::new(|_inherited| Contact::default());
        let (name, credentials) = (name.into(), credentials.into());
        Self { name, credentials, make: Box::new(make), current }
    }

    /// This process's client, which the first call makes.
    pub(super) fn client(&self) -> Result<Arc<dyn ObjectStore>, RemoteFailure> {
        let mut client = locked(&self.current.get().client);
        if let Some(client) = &*client {
            return Ok(Arc::clone(client));
        }
        choose_cryptography();
        let made = (self.make)().map_err(|error| {
            let found = RemoteFailure::of_store(&error);
            let what = format!("the client of {} cannot be made: {}", self.name, found.what);
            let way_out = format!("options and credentials come from {}", self.credentials);
            match found.kind {
                FailureKind::Shortage => found,
                _ => RemoteFailure::new(FailureKind::Setup, what).with_way_out(way_out),
            }
        })?;
        *client = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Finds an object. The answer to a HEAD request has no body that could name the cause of an error, so the
    /// question is put again as a GET then.
    pub(super) async fn head(&self, key: &Key) -> Result<ObjectMeta, RemoteFailure> {
        let client = self.client()?;
        let error = match client.head(key).await {
            Ok(meta) => return Ok(meta),
            Err(error) => error,
        };
        let failure = RemoteFailure::of_store(&error);
        if failure.status.is_none() || failure.code.is_some() || failure.may_pass() {
            return Err(failure);
        }
        let first_byte = GetOptions::new().with_range(Some(0..1));
        match client.get_opts(key, first_byte).await {
            // A server that does not know HEAD. The length is that of the whole object.
            Ok(answer) => Ok(answer.meta),
            Err(error) => {
                let by_get = RemoteFailure::of_store(&error);
                // An object without bytes has no first one.
                Err(if by_get.status == Some(416) { failure } else { by_get })
            }
        }
    }

    /// Returns the keys of the objects in a folder, without those in folders of it.
    pub(super) async fn list(&self, folder: Option<&Key>) -> Result<Vec<Key>, RemoteFailure> {
        let client = self.client()?;
        let listed = client.list_with_delimiter(folder).await;
        let listed = listed.map_err(|error| RemoteFailure::of_store(&error))?;
        Ok(listed.objects.into_iter().map(|meta| meta.location).collect())
    }

    /// Returns `true` if any object is in the folder or in a folder of it.
    pub(super) async fn has_folder(&self, folder: Option<&Key>) -> Result<bool, RemoteFailure> {
        let first = self.client()?.list(folder).try_next().await;
        first.map(|found| found.is_some()).map_err(|error| RemoteFailure::of_store(&error))
    }

    /// Says that the server has answered.
    pub(super) fn reached(&self) {
        self.current.get().is_reached.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_reached(&self) -> bool {
        self.current.get().is_reached.load(Ordering::Relaxed)
    }

    /// Keeps back all requests for so long, because the server asked for it.
    pub(super) fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause.min(PAUSE_MAX);
        let mut not_before = locked(&self.current.get().not_before);
        *not_before = Some(not_before.map_or(until, |before| before.max(until)));
    }

    /// Returns how long requests are kept back.
    pub(super) fn pause_left(&self) -> Duration {
        let not_before = *locked(&self.current.get().not_before);
        not_before.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// The failure with what is known about this bucket: the way out.
    pub(super) fn explain(&self, failure: RemoteFailure) -> RemoteFailure {
        if !failure.way_out.is_empty() {
            return failure;
        }
        let (name, credentials) = (&self.name, &self.credentials);
        let way_out = match (failure.kind, failure.code.as_deref()) {
            (_, Some("RequestTimeTooSkewed")) => {
                "the clock of this machine is off by more than the store accepts: set it (NTP)"
                    .into()
            }
            (_, Some("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired")) => {
                format!(
                    "the session token is no longer valid: get new credentials; they come from {credentials}"
                )
            }
            (_, Some("SignatureDoesNotMatch")) => format!(
                "the secret key does not belong to the key id, or a proxy has changed the request; credentials come from {credentials}"
            ),
            (_, Some("AuthorizationHeaderMalformed" | "PermanentRedirect")) => {
                "the bucket is in another region: set AWS_REGION".into()
            }
            (FailureKind::Credentials, _) | (_, Some(NO_CREDENTIALS)) => {
                format!(
                    "credentials were looked for in {credentials}; check that they may read {name}"
                )
            }
            (FailureKind::NoBucket, _) => {
                format!("there is no {name}: check the name, the region and the endpoint")
            }
            _ => String::new(),
        };
        failure.with_way_out(way_out)
    }
}

/// Without the client: its options may have secrets.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Bucket {
    /// A bucket in memory.
    pub(super) fn of_tests() -> Self {
        let store = Arc::new(object_store::memory::InMemory::new());
        Self::new("a bucket of tests", "nowhere", move || Ok(Arc::clone(&store) as _))
    }
}
