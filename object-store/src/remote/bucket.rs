//! A store with one client for each process.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures_util::TryStreamExt;
use object_store::list::PaginatedListOptions;
use object_store::path::{DELIMITER, Path as Key};
use object_store::{GetOptions, GetResult, ObjectMeta, ObjectStore};
use ringmain_backends::PerProcess;

use super::client::Client;
use super::credentials::CredentialSource;
use super::cryptography::choose_cryptography;
use super::failure::{FailureKind, NO_CREDENTIALS, RemoteFailure};
use super::watch::ServerTime;
use crate::locked::locked;

/// The longest pause that a server gets, so that its end is a moment that the clock can represent.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

type MakeClient = dyn Fn() -> Result<Client, RemoteFailure> + Send + Sync;

/// A bucket, a container, or a server.
pub(super) struct Bucket {
    /// Its name in messages: never a secret.
    name: String,
    credentials: CredentialSource,
    /// The server, for keys of a disk cache.
    origin: String,
    make: Box<MakeClient>,
    current: PerProcess<Contact>,
}

/// An object that was found.
pub(super) struct Head {
    pub(super) meta: ObjectMeta,
    /// The time of the answer by the clock of the server, if it sends that.
    pub(super) answered: Option<SystemTime>,
}

impl From<GetResult> for Head {
    fn from(answer: GetResult) -> Self {
        let answered = answer.extensions.get().map(|ServerTime(time)| *time);
        Self { meta: answer.meta, answered }
    }
}

/// A part of the list of a folder.
pub(super) struct Page {
    pub(super) keys: Vec<Key>,
    /// `None` after the last page.
    pub(super) next_token: Option<String>,
}

/// The client of one process and its experience with the server. A forked child makes its own client: connections cannot be shared.
#[derive(Default)]
struct Contact {
    client: Mutex<Option<Client>>,
    /// An answer has arrived from it.
    is_reached: AtomicBool,
    /// No request is sent before this moment: the server has asked for a pause.
    not_before: Mutex<Option<Instant>>,
}

impl Contact {
    /// A child knows that its parent has reached the server: an address that worked need not be given up early.
    fn of_process(inherited: Option<&Self>) -> Self {
        let is_reached = inherited.is_some_and(|parent| parent.is_reached.load(Ordering::Relaxed));
        Self { is_reached: is_reached.into(), ..Self::default() }
    }
}

impl Bucket {
    pub(super) fn new(
        name: impl Into<String>,
        credentials: CredentialSource,
        make: impl Fn() -> Result<Client, RemoteFailure> + Send + Sync + 'static,
    ) -> Self {
        let current = PerProcess::new(Contact::of_process);
        let (name, origin) = (name.into(), String::new());
        Self { name, credentials, origin, make: Box::new(make), current }
    }

    /// Sets the text that tells this bucket from one of the same name on another server.
    pub(super) fn with_origin(mut self, origin: String) -> Self {
        self.origin = origin;
        self
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// This process's client, which the first call makes.
    pub(super) fn client(&self) -> Result<Arc<dyn ObjectStore>, RemoteFailure> {
        self.made_client().map(|client| client.store)
    }

    fn made_client(&self) -> Result<Client, RemoteFailure> {
        let mut client = locked(&self.current.get().client);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        choose_cryptography();
        let made = (self.make)().map_err(|found| match found.kind {
            FailureKind::Shortage => found,
            _ => {
                let what = format!("the client of {} cannot be made: {}", self.name, found.what);
                let way_out = match &*found.way_out {
                    "" => self.credentials.sentence().into(),
                    _ => found.way_out,
                };
                RemoteFailure::new(FailureKind::Setup, what).with_way_out(way_out)
            }
        })?;
        *client = Some(made.clone());
        Ok(made)
    }

    /// Finds an object. The answer to a HEAD request has no body that could name the cause of an error, so the
    /// question is put again as a GET then.
    pub(super) async fn head(&self, key: &Key) -> Result<Head, RemoteFailure> {
        let client = self.client()?;
        let error = match client.get_opts(key, GetOptions::new().with_head(true)).await {
            Ok(answer) => return Ok(answer.into()),
            Err(error) => error,
        };
        let failure = RemoteFailure::of_store(&error);
        if failure.status.is_none() || failure.code.is_some() || failure.may_pass() {
            return Err(failure);
        }
        let first_byte = GetOptions::new().with_range(Some(0..1));
        match client.get_opts(key, first_byte).await {
            // A server that does not know HEAD. The length is that of the whole object.
            Ok(answer) => Ok(answer.into()),
            Err(error) => {
                let by_get = RemoteFailure::of_store(&error);
                // An object without bytes has no first one.
                Err(if by_get.status == Some(416) { failure } else { by_get })
            }
        }
    }

    /// Returns a page of the objects in a folder, without those in folders of it: the first one, or the one after `token`.
    pub(super) async fn page(
        &self,
        folder: Option<&Key>,
        token: Option<&str>,
    ) -> Result<Page, RemoteFailure> {
        let client = self.made_client()?;
        let listed = match &client.pages {
            Some(pages) => {
                let prefix = folder.map(|folder| format!("{folder}{DELIMITER}"));
                let options = PaginatedListOptions {
                    delimiter: Some(DELIMITER.into()),
                    page_token: token.map(str::to_owned),
                    ..PaginatedListOptions::default()
                };
                let page = pages.list_paginated(prefix.as_deref(), options).await;
                page.map(|page| (page.result, page.page_token))
            }
            None => client.store.list_with_delimiter(folder).await.map(|all| (all, None)),
        };
        let (found, next_token) = listed.map_err(|error| RemoteFailure::of_store(&error))?;
        let keys = found.objects.into_iter().map(|meta| meta.location).collect();
        Ok(Page { keys, next_token })
    }

    /// Returns `true` if a list arrives in pages, one for each request.
    pub(super) fn lists_pages(&self) -> Result<bool, RemoteFailure> {
        self.made_client().map(|client| client.pages.is_some())
    }

    /// Returns `true` if any object is in the folder or in a folder of it.
    pub(super) async fn has_folder(&self, folder: Option<&Key>) -> Result<bool, RemoteFailure> {
        let first = self.client()?.list(folder).try_next().await;
        first.map(|found| found.is_some()).map_err(|error| RemoteFailure::of_store(&error))
    }

    /// Remembers that the server has answered.
    pub(super) fn reached(&self) {
        self.current.get().is_reached.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_reached(&self) -> bool {
        self.current.get().is_reached.load(Ordering::Relaxed)
    }

    /// Delays all requests to this bucket by `pause`, as the server asked.
    pub(super) fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause.min(PAUSE_MAX);
        let mut not_before = locked(&self.current.get().not_before);
        *not_before = Some(not_before.map_or(until, |before| before.max(until)));
    }

    /// Returns how long requests are still delayed.
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
                    "the session token is no longer valid: get new credentials; {}",
                    credentials.sentence()
                )
            }
            (_, Some("SignatureDoesNotMatch")) => format!(
                "the secret key does not belong to the key id, or a proxy has changed the request; {}",
                credentials.sentence()
            ),
            (_, Some("AuthorizationHeaderMalformed" | "PermanentRedirect")) => {
                "the bucket is in another region: set AWS_REGION".into()
            }
            (FailureKind::Credentials, _) | (_, Some(NO_CREDENTIALS)) => credentials.refused(name),
            (FailureKind::NoBucket, _) => {
                format!("{name} does not exist: check the name, the region and the endpoint")
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
impl From<ObjectMeta> for Head {
    fn from(meta: ObjectMeta) -> Self {
        Self { meta, answered: None }
    }
}

#[cfg(test)]
impl Bucket {
    /// A bucket in memory.
    pub(super) fn of_tests() -> Self {
        let store = Arc::new(object_store::memory::InMemory::new());
        let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(str::to_owned);
        let make = move || Ok(Client::without_pages(Arc::clone(&store) as _));
        Self::new("s3://bucket", CredentialSource::Settings(names.into()), make)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RemoteOptions;
    use super::super::client::client;
    use super::super::runtime::RemoteThreads;
    use super::super::settings::config_of;
    use super::super::url::{Place, place};
    use super::*;

    /// A forked worker gave up a server that was away for 5 seconds, although its parent had read from it.
    #[test]
    fn a_forked_child_knows_that_the_server_was_reached() {
        let contact = Contact::of_process(None);
        assert!(!contact.is_reached.load(Ordering::Relaxed));
        contact.is_reached.store(true, Ordering::Relaxed);
        let child = Contact::of_process(Some(&contact));
        assert!(child.is_reached.load(Ordering::Relaxed));
    }

    /// `object_store` does not pass on the header, and the clock of this machine decided.
    #[test]
    fn an_object_comes_with_the_time_of_its_server() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("object"), "bytes").unwrap();
        let server = ringmain_test_server::Server::start([("bucket", folder.path())]);
        let plain = format!("{}/plain/bucket/object", server.endpoint());
        let objects =
            [(plain.as_str(), Vec::new()), ("s3://bucket/object", server.client_config())];
        for (url, config) in objects {
            let Ok(Place::Remote(address)) = place(url.as_ref()) else { panic!("{url}") };
            let (key, credentials) = (address.key.clone(), CredentialSource::Settings(Vec::new()));
            let config = config_of(address.scheme, &config);
            let bucket = Bucket::new("bucket", credentials, move || client(&address, &config));
            let shift = RemoteThreads::new(RemoteOptions::default()).shift().unwrap();
            let head = shift.block_on(bucket.head(&key)).unwrap();
            let answered = head.answered.expect("a time");
            assert!(answered > SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30), "{url}");
        }
    }
}
