//! The name of a backend with its policy.

use std::fmt;
use std::str::FromStr;

use ringmain::{Access, BackendKind, BackendOptions, CachePolicy, PageSize, Residency};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `uring`, or with a policy `uring+buffered`, `uring+uncached`, `tokio-uring+buffered`,
/// `mmap+release`, `mmap+huge`, `mmap+random`, `pread+sequential`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendChoice {
    /// The backend.
    pub kind: BackendKind,
    policy: Policy,
}

/// How a backend uses the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// Its reads go past the page cache.
    Past,
    /// Its reads go through the page cache.
    Through,
    /// `auto` decides for each read: scattered reads of cold data go past it, streams go through it,
    /// and data that is read again may stay in it.
    Routed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Default,
    Cache(CachePolicy),
    Release,
    Huge,
    Access(Access),
}

impl BackendChoice {
    /// The backend with its default policy.
    #[must_use]
    pub fn plain(kind: BackendKind) -> Self {
        Self { kind, policy: Policy::Default }
    }

    /// Sets the policy in the options of the backend.
    pub fn apply(self, options: &mut BackendOptions) {
        match self.policy {
            Policy::Default => {}
            Policy::Cache(policy) => options.cache_policy = policy,
            Policy::Release => options.residency = Residency::Release,
            Policy::Huge => options.page_size = PageSize::Huge,
            Policy::Access(access) => options.access = access,
        }
    }

    /// Returns how the backend uses the page cache. `uncached` goes through it and leaves little.
    #[must_use]
    pub fn cache_use(self) -> CacheUse {
        match self.kind {
            BackendKind::Direct => CacheUse::Past,
            BackendKind::Uring | BackendKind::TokioUring if self.suffix().is_empty() => {
                CacheUse::Past
            }
            BackendKind::Auto => CacheUse::Routed,
            _ => CacheUse::Through,
        }
    }

    /// Returns whether the depth changes how the backend reads. The others have one request in flight.
    #[must_use]
    pub fn takes_depth(self) -> bool {
        use BackendKind::{Memory, Mmap, Pread, Uncached};
        !matches!(self.kind, Pread | Mmap | Uncached | Memory)
    }

    /// Returns the number of threads with which `direct` reads at a depth: each has one request in flight. The threads of
    /// other backends copy.
    pub(crate) fn threads_at(self, depth: u32) -> Option<u32> {
        let threads_max = BackendOptions::default().threads_max;
        let threads = depth.min(u32::try_from(threads_max).unwrap_or(u32::MAX));
        (self.kind == BackendKind::Direct).then_some(threads)
    }

    fn suffix(self) -> &'static str {
        match self.policy {
            Policy::Default | Policy::Cache(CachePolicy::Direct) => "",
            Policy::Cache(CachePolicy::Buffered) => "+buffered",
            Policy::Cache(CachePolicy::Uncached) => "+uncached",
            Policy::Release => "+release",
            Policy::Huge => "+huge",
            Policy::Access(Access::AsItComes) => "",
            Policy::Access(Access::Random) => "+random",
            Policy::Access(Access::Sequential) => "+sequential",
        }
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", self.kind, self.suffix()))
    }
}

impl FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, policy) = match text.split_once('+') {
            Some((name, policy)) => (name, Some(policy)),
            None => (text, None),
        };
        let kind: BackendKind = name.parse().map_err(|error| format!("{error}"))?;
        let policy = match (kind, policy) {
            (_, None) => Policy::Default,
            (BackendKind::Mmap, Some("release")) => Policy::Release,
            (BackendKind::Mmap, Some("huge")) => Policy::Huge,
            (BackendKind::Mmap | BackendKind::Pread, Some("random")) => {
                Policy::Access(Access::Random)
            }
            (BackendKind::Mmap | BackendKind::Pread, Some("sequential")) => {
                Policy::Access(Access::Sequential)
            }
            (BackendKind::Uring | BackendKind::TokioUring, Some("buffered")) => {
                Policy::Cache(CachePolicy::Buffered)
            }
            (BackendKind::Uring | BackendKind::TokioUring, Some("uncached")) => {
                Policy::Cache(CachePolicy::Uncached)
            }
            (kind, Some(policy)) => {
                return Err(format!(
                    "`{kind}` has no policy `{policy}`; the policies are mmap+release, mmap+huge, \
                     mmap+random, mmap+sequential, pread+random, pread+sequential, \
                     uring+buffered, uring+uncached, tokio-uring+buffered, tokio-uring+uncached"
                ));
            }
        };
        Ok(Self { kind, policy })
    }
}

impl Serialize for BackendChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BackendChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for BackendChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BackendChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A backend, with a policy where it is not the default: `uring`, \
                            `uring+buffered`, `mmap+release`.",
            "type": "string",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for name in [
            "auto",
            "pread",
            "pread+random",
            "mmap+release",
            "mmap+huge",
            "mmap+sequential",
            "uring+buffered",
            "tokio-uring+uncached",
        ] {
            assert_eq!(name.parse::<BackendChoice>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn unknown_policies_are_refused() {
        for (name, part) in [
            ("pread+release", "no policy"),
            ("pread+huge", "mmap+huge"),
            ("auto+huge", "no policy"),
            ("urnig", "did you mean `uring`"),
        ] {
            let error = name.parse::<BackendChoice>().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_policy_reaches_the_options() {
        let mut options = BackendOptions::default();
        "mmap+release".parse::<BackendChoice>().unwrap().apply(&mut options);
        assert_eq!(options.residency, Residency::Release);
        "mmap+huge".parse::<BackendChoice>().unwrap().apply(&mut options);
        assert_eq!(options.page_size, PageSize::Huge);
        "uring+buffered".parse::<BackendChoice>().unwrap().apply(&mut options);
        assert_eq!(options.cache_policy, CachePolicy::Buffered);
    }
}
