//! Where the credentials of a client come from, for messages.

use std::collections::BTreeSet;

use super::settings::Config;
use super::url::Scheme;

/// Where a client takes its credentials from. It has names only, never values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CredentialSource {
    /// Settings with these names.
    Settings(Vec<String>),
    /// No setting has credentials, and the client looks for them in these places.
    Elsewhere(&'static str),
    /// Requests have no credentials.
    None,
    /// The program has made the client.
    Program,
}

impl CredentialSource {
    /// The source of a client with these settings.
    pub(super) fn of(scheme: Scheme, config: &Config) -> Self {
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
                return Self::None;
            }
        };
        match are_set(names) {
            names if names.is_empty() => Self::Elsewhere(last),
            names => Self::Settings(names),
        }
    }

    /// A sentence without its end.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Settings(names) => {
                format!("credentials come from {} (environment or options)", names.join(", "))
            }
            Self::Elsewhere(places) => format!("credentials were looked for in {places}"),
            Self::None => "requests to web servers are sent without credentials".into(),
            Self::Program => {
                "the program has made the client and has chosen its credentials".into()
            }
        }
    }

    /// A sentence for a request that the bucket of this name refused.
    pub(super) fn refused(&self, name: &str) -> String {
        match self {
            Self::None => format!("{}, and {name} refuses such a request", self.sentence()),
            _ => format!("{}; check that they may read {name}", self.sentence()),
        }
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
        let text = CredentialSource::of(Scheme::S3, &config).sentence();
        let names = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY";
        assert_eq!(text, format!("credentials come from {names} (environment or options)"));
        for scheme in [Scheme::S3, Scheme::Gcs, Scheme::Azure] {
            let text = CredentialSource::of(scheme, &Config::new()).sentence();
            assert!(text.contains("not set") && !text.contains("5ecret"), "{text}");
        }
    }
}
