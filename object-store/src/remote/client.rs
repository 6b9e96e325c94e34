//! The clients of buckets, made from their settings.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use super::failure::RemoteFailure;
use super::settings::{Config, check};
use super::url::{Address, Scheme};
use super::watch::WatchingConnector;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of a bucket.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same client, if it can list a folder page by page.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
}

impl Client {
    /// A client that returns a list as a whole.
    pub(super) fn without_pages(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, pages: None }
    }

    fn with_pages<S: ObjectStore + PaginatedListStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self { store: Arc::clone(&store) as _, pages: Some(store) }
    }
}

/// Makes the client of a bucket.
pub(super) fn client(address: &Address, config: &Config) -> Result<Client, RemoteFailure> {
    check(address.scheme, config)?;
    unchecked_client(address, config).map_err(|error| RemoteFailure::of_store(&error))
}

fn unchecked_client(address: &Address, config: &Config) -> object_store::Result<Client> {
    // The backend retries, and notices a request that stalls.
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: Duration::MAX,
    };
    let options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(address.bucket_url.starts_with("http:"));
    macro_rules! configured {
        ($builder:expr) => {{
            let builder = $builder
                .with_client_options(options)
                .with_retry(retry)
                .with_http_connector(WatchingConnector::default());
            // A name that the client does not know is for something else: `AWS_PROFILE`.
            config.iter().fold(builder, |builder, (name, value)| match name.parse() {
                Ok(name) => builder.with_config(name, value),
                Err(_) => builder,
            })
        }};
    }
    Ok(match address.scheme {
        Scheme::S3 => {
            let builder = configured!(AmazonS3Builder::new());
            Client::with_pages(builder.with_bucket_name(&address.authority).build()?)
        }
        Scheme::Gcs => {
            let builder = configured!(GoogleCloudStorageBuilder::new());
            Client::with_pages(builder.with_bucket_name(&address.authority).build()?)
        }
        Scheme::Azure => {
            let builder = configured!(MicrosoftAzureBuilder::new());
            Client::with_pages(builder.with_url(&address.bucket_url).build()?)
        }
        Scheme::Http => {
            let builder = configured!(HttpBuilder::new());
            Client::without_pages(Arc::new(builder.with_url(&address.bucket_url).build()?))
        }
    })
}
