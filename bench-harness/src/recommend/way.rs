//! A way to read: a backend with its settings, and the code that sets it.

use std::fmt;

use ringmain::{Access, BackendKind, BackendOptions, CachePolicy, PageSize, Residency};
use serde::Serialize;

use crate::plan::BackendChoice;
use crate::result::Cell;
use crate::text::format::counted;

/// The backends, the simplest first. Of two ways within noise the simpler one is chosen, because it
/// depends on less: kernel, limits, privileges. `auto` comes first because it works everywhere and
/// adapts when the data, the cache or the machine changes.
const SIMPLICITY: [BackendKind; 7] = [
    BackendKind::Auto,
    BackendKind::Pread,
    BackendKind::Mmap,
    BackendKind::Uncached,
    BackendKind::Direct,
    BackendKind::Uring,
    BackendKind::TokioUring,
];

/// A backend with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Way {
    /// With its policy, as in the result: `uring+buffered`.
    pub(crate) backend: String,
    /// The largest number of device requests in flight, if the run has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) depth: Option<u32>,
}

impl Way {
    /// Returns the way of a cell. The depth is part of it only if it changes how the backend reads.
    pub(crate) fn of(cell: &Cell) -> Self {
        let mut way = Self { backend: cell.backend.clone(), depth: cell.setting.depth };
        if let Some(choice) = way.choice() {
            way.depth = way.depth.filter(|_| choice.takes_depth());
            way.depth = way.depth.map(|depth| choice.threads_at(depth).unwrap_or(depth));
        }
        way
    }

    pub(crate) fn is_auto(&self) -> bool {
        self.choice().is_some_and(|choice| choice.kind == BackendKind::Auto)
    }

    /// Returns whether the depth is the number of threads.
    fn has_threads(&self) -> bool {
        self.choice().is_some_and(|choice| choice.kind == BackendKind::Direct)
    }

    /// Returns a sort key; simpler choices sort first: by backend, then without a policy, then by depth.
    pub(crate) fn simplicity(&self) -> (usize, bool, Option<u32>, &str) {
        let kind = self.choice().map(|choice| choice.kind);
        let place = SIMPLICITY.iter().position(|known| Some(*known) == kind);
        let has_policy = self.backend.contains('+');
        (place.unwrap_or(SIMPLICITY.len()), has_policy, self.depth, &self.backend)
    }

    /// Returns the backend; `None` if this version does not know it.
    pub(crate) fn choice(&self) -> Option<BackendChoice> {
        self.backend.parse().ok()
    }

    /// Returns the Rust code that sets it: `Engine::builder().backend(…)`.
    pub(crate) fn builder(&self) -> Option<String> {
        let choice = self.choice()?;
        let mut options = BackendOptions::default();
        choice.apply(&mut options);
        let policy = match options.cache_policy {
            CachePolicy::Direct => "",
            CachePolicy::Buffered => ".cache_policy(CachePolicy::Buffered)",
            CachePolicy::Uncached => ".cache_policy(CachePolicy::Uncached)",
        };
        let residency = match options.residency {
            Residency::Keep => "",
            Residency::Release => ".residency(Residency::Release)",
        };
        let page_size = match options.page_size {
            PageSize::Base => "",
            PageSize::Huge => ".page_size(PageSize::Huge)",
        };
        let access = match options.access {
            Access::AsItComes => "",
            Access::Random => ".access(Access::Random)",
            Access::Sequential => ".access(Access::Sequential)",
        };
        let depth = match self.depth {
            Some(threads) if self.has_threads() => format!(".threads_max({threads})"),
            Some(depth) => format!(".depth_max({depth})"),
            None => String::new(),
        };
        let backend = match choice.kind {
            // `auto` is the default.
            BackendKind::Auto => String::new(),
            kind => format!(".backend(\"{kind}\".parse()?)"),
        };
        Some(format!("Engine::builder(){backend}{policy}{residency}{page_size}{access}{depth}"))
    }

    /// Returns the Python code that sets it: `ringmain.Engine("uring", depth=32)`. `None` for policies
    /// that Python does not offer.
    pub(crate) fn python(&self) -> Option<String> {
        let choice = self.choice()?;
        let mut options = BackendOptions::default();
        choice.apply(&mut options);
        let is_offered = options.cache_policy == CachePolicy::default()
            && options.page_size == PageSize::default();
        let residency = match options.residency {
            Residency::Keep => "",
            Residency::Release => ", residency=\"release\"",
        };
        let access = match options.access {
            Access::AsItComes => "",
            Access::Random => ", access=\"random\"",
            Access::Sequential => ", access=\"sequential\"",
        };
        let depth = match self.depth {
            Some(threads) if self.has_threads() => format!(", threads={threads}"),
            Some(depth) => format!(", depth={depth}"),
            None => String::new(),
        };
        let kind = choice.kind;
        is_offered.then(|| format!("ringmain.Engine(\"{kind}\"{residency}{access}{depth})"))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.depth {
            Some(threads) if self.has_threads() => {
                write!(f, "{} with {}", self.backend, counted(threads as usize, "thread"))
            }
            Some(depth) => write!(f, "{} with depth {depth}", self.backend),
            None => f.write_str(&self.backend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(backend: &str, depth: Option<u32>) -> Way {
        Way { backend: backend.into(), depth }
    }

    #[test]
    fn the_order_of_simplicity() {
        let mut names = [
            "tokio-uring",
            "uring+buffered",
            "from the future",
            "mmap+release",
            "direct",
            "uring",
            "uncached",
            "mmap",
            "pread",
            "auto",
        ];
        names.sort_by_key(|name| {
            way(name, None).simplicity().0 * 2 + usize::from(name.contains('+'))
        });
        let expected = [
            "auto",
            "pread",
            "mmap",
            "mmap+release",
            "uncached",
            "direct",
            "uring",
            "uring+buffered",
            "tokio-uring",
            "from the future",
        ];
        assert_eq!(names, expected);
        let deep = way("uring", Some(128));
        let shallow = way("uring", Some(8));
        assert!(shallow.simplicity() < deep.simplicity());
    }

    /// `direct` has as many requests in flight as threads, so its depths are different ways.
    #[test]
    fn direct_is_ranked_by_its_threads() {
        let cell = |depth| {
            let mut cell =
                crate::fixture::rated::cell("direct", crate::result::CacheState::Cold, 0, 1e9);
            cell.setting.depth = Some(depth);
            cell
        };
        let ways = [1, 32, 128].map(|depth| Way::of(&cell(depth)));
        assert_ne!(ways[0], ways[1]);
        assert_eq!(ways[1], ways[2], "both read with all threads");
        assert_eq!(ways[0].to_string(), "direct with 1 thread");
        assert!(ways[0].builder().unwrap().ends_with(".threads_max(1)"));
        assert!(ways[0].python().unwrap().ends_with("threads=1)"));
    }

    #[test]
    fn settings_are_printed_as_code() {
        let buffered = way("uring+buffered", Some(32));
        let code = buffered.builder().unwrap();
        assert!(code.contains("\"uring\".parse()?"), "{code}");
        assert!(code.ends_with(".cache_policy(CachePolicy::Buffered).depth_max(32)"), "{code}");
        let auto = way("auto", None);
        assert_eq!(auto.builder().as_deref(), Some("Engine::builder()"));
        assert_eq!(auto.python().as_deref(), Some("ringmain.Engine(\"auto\")"));
        assert_eq!(buffered.python(), None, "Python has no cache policy");
        let mapped = way("mmap+release", None);
        let code = "ringmain.Engine(\"mmap\", residency=\"release\")";
        assert_eq!(mapped.python().as_deref(), Some(code));
    }
}
