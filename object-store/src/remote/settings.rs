//! The settings of clients, checked before a client is made.
//!
//! The clients of `object_store` do not check these values. They panic in the middle of a request if a value cannot
//! stand in a header or in a URL.

use std::collections::{BTreeMap, HashSet};

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

use super::failure::{FailureKind, RemoteFailure};
use super::url::Scheme;

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
    // A value that is not UTF-8 is refused later, by the replacement characters in it.
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with(prefix))?;
        Some((name.to_ascii_lowercase(), value.to_string_lossy().into_owned()))
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
    trimmed(config)
}

/// The settings without white space around their values, which mounted secrets have at their end. An empty value counts
/// as none, and takes back an earlier value of the same name.
fn trimmed(config: Config) -> Config {
    let mut seen = HashSet::new();
    let last_first = config.into_iter().rev();
    let mut kept: Config = last_first
        .filter(|(name, _)| seen.insert(name.clone()))
        .map(|(name, value)| (name, value.trim().to_owned()))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    kept.reverse();
    kept
}

/// How a value is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It is part of a header or of a query.
    Visible,
    /// It is part of the name of a host.
    Label,
    /// It is the beginning of URLs.
    Url,
    /// The path of a file, or a text of several lines.
    Any,
}

/// Refuses a setting with which requests cannot be made, by its name. Values are not shown: they may be secret.
pub(super) fn check(scheme: Scheme, config: &Config) -> Result<(), RemoteFailure> {
    for (name, value) in config {
        // A name that the client does not know is for something else: `AWS_PROFILE`.
        let Some(known_name) = known_name(scheme, name) else { continue };
        let form = form_of(&known_name);
        let is_visible = value.chars().all(|letter| matches!(letter, ' '..='~'));
        let what = match form {
            Form::Any => continue,
            _ if !is_visible => "has a control character or a letter that is not ASCII",
            Form::Visible => continue,
            Form::Label if is_label(value) => continue,
            Form::Label => "can have letters, digits, `-`, `_` and `.` only",
            Form::Url => match fault_of_url(value) {
                Some(fault) => fault,
                None => continue,
            },
        };
        let what = format!("{} {what}", name.to_ascii_uppercase());
        let way_out = match form {
            Form::Url => "write `https://host` or `http://host:port`",
            _ => "check the value in the environment or in the options",
        };
        return Err(RemoteFailure::new(FailureKind::Setup, what).with_way_out(way_out));
    }
    Ok(())
}

/// The one name of a setting that has several: `aws_endpoint` for `aws_endpoint_url`.
fn known_name(scheme: Scheme, name: &str) -> Option<String> {
    Some(match scheme {
        Scheme::S3 => name.parse::<AmazonS3ConfigKey>().ok()?.as_ref().to_owned(),
        Scheme::Gcs => name.parse::<GoogleConfigKey>().ok()?.as_ref().to_owned(),
        Scheme::Azure => name.parse::<AzureConfigKey>().ok()?.as_ref().to_owned(),
        Scheme::Http => name.to_owned(),
    })
}

fn form_of(known_name: &str) -> Form {
    match known_name {
        "google_service_account"
        | "google_service_account_key"
        | "google_application_credentials"
        | "proxy_ca_certificate" => Form::Any,
        name if name.ends_with("_file") => Form::Any,
        "aws_endpoint"
        | "aws_endpoint_url_s3"
        | "aws_endpoint_url_sts"
        | "aws_metadata_endpoint"
        | "aws_container_credentials_full_uri"
        | "google_base_url"
        | "azure_storage_endpoint"
        | "azure_msi_endpoint"
        | "azure_storage_authority_host"
        | "azure_fabric_token_service_url" => Form::Url,
        "aws_region" | "aws_default_region" | "azure_storage_account_name" => Form::Label,
        _ => Form::Visible,
    }
}

/// The settings that decide which server a bucket is on, for a key of a disk cache: two buckets of one name may have
/// different objects. It has no user or password, and is empty for the usual servers.
pub(super) fn origin_of(scheme: Scheme, config: &Config) -> String {
    let mut origin = BTreeMap::new();
    for (name, value) in config {
        let Some(name) = known_name(scheme, name) else { continue };
        match &*name {
            "aws_endpoint"
            | "aws_endpoint_url_s3"
            | "google_base_url"
            | "azure_storage_endpoint" => {
                origin.insert(name, without_user(value));
            }
            "azure_storage_account_name" | "azure_storage_use_emulator" => {
                origin.insert(name, value.clone());
            }
            _ => {}
        }
    }
    origin.iter().map(|(name, value)| format!(" {name}={value}")).collect()
}

/// The URL without what stands before `@` in its authority.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    format!("{scheme}://{host}{path}")
}

/// Returns `true` for a text that may stand in the name of a host, and in the path of a URL.
pub(super) fn is_label(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(is_part)
}

/// Says what is wrong with the URL of a server.
fn fault_of_url(text: &str) -> Option<&'static str> {
    let Ok(url) = text.parse::<http::Uri>() else { return Some("is not a URL") };
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => None,
        (Some("http" | "https"), _) => Some("names no host"),
        (Some(_), _) => Some("has another scheme than http and https"),
        (None, _) => Some("has no scheme"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &[(&str, &str)]) -> Config {
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_lose_the_space_around_them_and_empty_ones_count_as_none() {
        let found = trimmed(config(&[
            ("aws_region", "eu-west-1"),
            ("aws_session_token", "from the environment"),
            ("aws_access_key_id", " AKID\r\n"),
            ("aws_session_token", "\n"),
            ("aws_region", "us-east-1\n"),
        ]));
        assert_eq!(found, config(&[("aws_access_key_id", "AKID"), ("aws_region", "us-east-1")]));
    }

    #[test]
    fn an_origin_names_server_and_account_and_no_secret() {
        let settings = [
            ("aws_endpoint_url", "http://me:5ecret@host:9000/below/?sig=5ecret"),
            ("aws_secret_access_key", "5ecret"),
            ("aws_region", "us-east-1"),
        ];
        let found = origin_of(Scheme::S3, &config(&settings));
        assert_eq!(found, " aws_endpoint=http://host:9000/below");
        let found = origin_of(Scheme::Azure, &config(&[("account_name", "one")]));
        assert_eq!(found, " azure_storage_account_name=one");
        assert_eq!(origin_of(Scheme::S3, &config(&[("aws_region", "us-east-1")])), "");
    }

    #[test]
    fn names_of_other_programs_and_paths_are_not_checked() {
        for (scheme, name, value) in [
            (Scheme::S3, "aws_profile", "tä\nst"),
            (Scheme::S3, "aws_web_identity_token_file", "/täst"),
            (Scheme::Gcs, "google_service_account_key", "{\n}"),
            (Scheme::S3, "proxy_ca_certificate", "a\nb"),
            (Scheme::S3, "aws_endpoint_url", "http://[::1]:9000/below"),
            (Scheme::Azure, "azure_storage_account_key", "a+/=="),
        ] {
            assert_eq!(check(scheme, &config(&[(name, value)])), Ok(()), "{name}");
        }
    }
}
