//! The clients of buckets, made from the environment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, Result, RetryConfig};

use super::url::{Address, Scheme};
use super::watch::WatchingConnector;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Names and values that configure a client, later ones before earlier ones.
pub(super) type Config = Vec<(String, String)>;

/// The variables of the environment for the clients of a scheme, and then the program's own settings.
pub(super) fn config_of(scheme: Scheme, own: &Config) -> Config {
    let prefix = match scheme {
        Scheme::S3 => "AWS_",
        Scheme::Gcs => "GOOGLE_",
        Scheme::Azure => "AZURE_",
        // Requests to any server have no credentials.
        Scheme::Http => return own.clone(),
    };
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with(prefix))?;
        Some((name.to_ascii_lowercase(), value.to_str()?.to_owned()))
    });
    // Two variables have other names than all the rest.
    let other = match scheme {
        Scheme::Gcs => Some(("SERVICE_ACCOUNT", "google_service_account_path")),
        Scheme::Azure => Some(("IDENTITY_ENDPOINT", "azure_msi_endpoint")),
        _ => None,
    };
    let other = other.and_then(|(name, key)| Some((key.to_owned(), std::env::var(name).ok()?)));
    let mut config: Config = other.into_iter().chain(variables).collect();
    config.extend(own.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
    config
}

/// Makes the client of a bucket.
pub(super) fn client(address: &Address, config: &Config) -> Result<Arc<dyn ObjectStore>> {
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
            Arc::new(builder.with_bucket_name(&address.authority).build()?)
        }
        Scheme::Gcs => {
            let builder = configured!(GoogleCloudStorageBuilder::new());
            Arc::new(builder.with_bucket_name(&address.authority).build()?)
        }
        Scheme::Azure => {
            let builder = configured!(MicrosoftAzureBuilder::new());
            Arc::new(builder.with_url(&address.bucket_url).build()?)
        }
        Scheme::Http => {
            let builder = configured!(HttpBuilder::new());
            Arc::new(builder.with_url(&address.bucket_url).build()?)
        }
    })
}

/// Says where the credentials of a client come from. Names only, never values.
pub(super) fn credentials_of(scheme: Scheme, config: &Config) -> String {
    let set: BTreeSet<&str> = config.iter().map(|(name, _)| name.as_str()).collect();
    let are_set = |names: &[&str]| -> Vec<String> {
        let found = names.iter().filter(|name| set.contains(**name));
        found.map(|name| name.to_ascii_uppercase()).collect()
    };
    let (names, last): (&[&str], &str) = match scheme {
        Scheme::S3 => (
            &[
                "aws_skip_signature",
                "aws_access_key_id",
                "aws_secret_access_key",
                "aws_session_token",
                "aws_web_identity_token_file",
                "aws_container_credentials_relative_uri",
                "aws_container_credentials_full_uri",
            ],
            "AWS_ACCESS_KEY_ID and the like, which are not set, and then the metadata service of the instance \
             (profiles of ~/.aws are not read; AWS_SKIP_SIGNATURE=true reads without credentials)",
        ),
        Scheme::Gcs => (
            &[
                "google_skip_signature",
                "google_service_account",
                "google_service_account_path",
                "google_service_account_key",
                "google_application_credentials",
            ],
            "GOOGLE_SERVICE_ACCOUNT and the like, which are not set, then the application default credentials, and \
             then the metadata service of the instance",
        ),
        Scheme::Azure => (
            &[
                "azure_skip_signature",
                "azure_storage_account_name",
                "azure_storage_account_key",
                "azure_storage_sas_key",
                "azure_storage_token",
                "azure_storage_client_id",
                "azure_storage_client_secret",
                "azure_client_id",
                "azure_client_secret",
                "azure_federated_token_file",
            ],
            "AZURE_STORAGE_ACCOUNT_KEY and the like, which are not set, and then the managed identity of the machine",
        ),
        Scheme::Http => {
            return "nothing: requests to web servers are sent without credentials".into();
        }
    };
    match are_set(names) {
        names if names.is_empty() => last.to_owned(),
        names => format!("{} (environment or options)", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_described_by_their_names() {
        let config = vec![
            ("aws_access_key_id".to_owned(), "5ecret-id".to_owned()),
            ("aws_secret_access_key".to_owned(), "5ecret".to_owned()),
        ];
        let text = credentials_of(Scheme::S3, &config);
        assert_eq!(text, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY (environment or options)");
        for scheme in [Scheme::S3, Scheme::Gcs, Scheme::Azure] {
            let text = credentials_of(scheme, &Config::new());
            assert!(text.contains("not set") && !text.contains("5ecret"), "{text}");
        }
    }
}
