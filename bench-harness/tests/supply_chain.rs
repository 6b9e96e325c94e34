//! The crates that this project depends on: their licences, their sources, duplicates, and the reasons.
//!
//! `deny.toml` is the only configuration, so `cargo deny check licenses bans sources` gives the same answers.
//! It is not used here: building it takes minutes, and the ready-made packages of it are too old for this
//! workspace. Advisories are not checked, because the database of them has to be fetched.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde::Deserialize;

/// The part of `deny.toml` that is checked.
#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    sources: Sources,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    unknown_registry: String,
    unknown_git: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Bans {
    wildcards: String,
    multiple_versions: String,
    skip: Vec<Skip>,
}

/// A second version of a crate that is accepted: `name@version`.
#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

/// The output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for the crates of the workspace.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    /// The folder of a crate of the workspace.
    path: Option<PathBuf>,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn deny() -> Deny {
    toml::from_str(&std::fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap()
}

/// Returns all packages of all platforms and features.
fn packages() -> &'static [Package] {
    static PACKAGES: OnceLock<Vec<Package>> = OnceLock::new();
    PACKAGES.get_or_init(read_packages)
}

fn read_packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version=1", "--locked", "--all-features"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata fails: {message}");
    serde_json::from_slice::<Metadata>(&output.stdout).unwrap().packages
}

#[test]
fn licences_are_allowed() {
    let (packages, allowed) = (packages(), deny().licenses.allow);
    let refused = |allowed: &[String]| -> Vec<String> {
        let is_refused = |package: &&Package| {
            let licence = package.license.as_deref().unwrap_or_default();
            !Expression::new(licence).met_by(allowed)
        };
        let show = |package: &Package| format!("{} {:?}", package.name, package.license);
        packages.iter().filter(is_refused).map(show).collect()
    };
    assert!(refused(&allowed).is_empty(), "not in the list of deny.toml: {:?}", refused(&allowed));
    // A licence is in the list because a crate needs it.
    for licence in &allowed {
        let others: Vec<_> = allowed.iter().filter(|other| *other != licence).cloned().collect();
        assert!(!refused(&others).is_empty(), "no crate needs {licence}; remove it from deny.toml");
    }
}

#[test]
fn sources_are_the_default_registry() {
    let Sources { unknown_registry, unknown_git } = deny().sources;
    assert_eq!((&*unknown_registry, &*unknown_git), ("deny", "deny"), "this test knows only that");
    let sources: BTreeSet<_> = packages().iter().filter_map(|it| it.source.as_deref()).collect();
    let is_registry = |source: &&str| source.starts_with("registry+");
    assert!(sources.len() == 1 && sources.iter().all(is_registry), "several sources: {sources:?}");
}

#[test]
fn no_crate_has_two_versions_without_a_reason() {
    let Bans { multiple_versions, skip, .. } = deny().bans;
    assert_eq!(multiple_versions, "deny", "this test knows only that");
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for Package { name, version, .. } in packages() {
        versions.entry(name.as_str()).or_default().insert(version.as_str());
    }
    let mut skipped = BTreeSet::new();
    for Skip { name, reason } in &skip {
        let (krate, version) =
            name.split_once('@').unwrap_or_else(|| panic!("{name} has no version"));
        assert!(!reason.is_empty(), "{name} has no reason");
        let has_it = versions.get(krate).is_some_and(|versions| versions.contains(version));
        assert!(has_it, "deny.toml accepts {name}, which is not there");
        skipped.insert((krate, version));
    }
    for (name, versions) in &versions {
        let left = versions.iter().filter(|version| !skipped.contains(&(*name, **version)));
        assert_eq!(left.count(), 1, "{name} has the versions {versions:?}; accept all but one");
    }
}

#[test]
fn versions_are_bounded() {
    assert_eq!(deny().bans.wildcards, "deny", "this test knows only that");
    for package in packages().iter().filter(|package| package.source.is_none()) {
        let is_open = |dependency: &&Dependency| dependency.req == "*" && dependency.path.is_none();
        let open: Vec<_> = package.dependencies.iter().filter(is_open).map(|it| &it.name).collect();
        assert!(open.is_empty(), "{} takes any version of {open:?}", package.name);
    }
}

/// The manifest of the workspace says of each dependency why it is there, and the crates take it from
/// there, or say so themselves.
#[test]
fn every_dependency_has_a_reason() {
    let own = packages().iter().filter(|package| package.source.is_none());
    let own: BTreeSet<&str> = own.map(|package| package.name.as_str()).collect();
    let members = members();
    assert!(members.len() >= 8, "{members:?}");
    for manifest in members {
        let text = std::fs::read_to_string(&manifest).unwrap();
        let mut before = "";
        let mut is_dependency = false;
        for line in text.lines() {
            if line.starts_with('[') {
                is_dependency = line.ends_with("dependencies]");
            } else if is_dependency && !line.is_empty() && !line.starts_with('#') {
                let name = line.split(['.', ' ', '=']).next().unwrap();
                let is_explained = own.contains(name)
                    || before.starts_with('#')
                    || line.contains("workspace = true");
                assert!(is_explained, "{}: why is `{name}` there?", manifest.display());
            }
            before = line;
        }
    }
}

/// Returns the manifests of the workspace and of its members.
fn members() -> Vec<PathBuf> {
    #[derive(Deserialize)]
    struct Manifest {
        workspace: Workspace,
    }
    #[derive(Deserialize)]
    struct Workspace {
        members: Vec<PathBuf>,
        exclude: Vec<PathBuf>,
    }
    let manifest = root().join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let Manifest { workspace } = toml::from_str(&text).unwrap();
    let folders = workspace.members.into_iter().chain(workspace.exclude);
    let members = folders.map(|folder| root().join(folder).join("Cargo.toml"));
    std::iter::once(manifest).chain(members).collect()
}

/// An SPDX expression: words, and parentheses around them. Old crates write `/` for `OR`.
struct Expression<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Expression<'a> {
    fn new(text: &'a str) -> Self {
        let mut words = Vec::new();
        for word in text.split_inclusive(['(', ')', '/', ' ']) {
            let (word, mark) = match word.char_indices().last() {
                Some((at, '(' | ')' | '/')) => word.split_at(at),
                _ => (word, ""),
            };
            words.extend([word.trim(), mark].into_iter().filter(|word| !word.is_empty()));
        }
        Self { words, at: 0 }
    }

    fn met_by(mut self, allowed: &[String]) -> bool {
        let is_allowed = self.either(allowed);
        is_allowed && self.at == self.words.len()
    }

    fn eat(&mut self, wanted: &[&str]) -> bool {
        let is_there = self.words.get(self.at).is_some_and(|word| wanted.contains(word));
        self.at += usize::from(is_there);
        is_there
    }

    fn either(&mut self, allowed: &[String]) -> bool {
        let mut is_allowed = self.both(allowed);
        while self.eat(&["OR", "/"]) {
            is_allowed |= self.both(allowed);
        }
        is_allowed
    }

    fn both(&mut self, allowed: &[String]) -> bool {
        let mut is_allowed = self.one(allowed);
        while self.eat(&["AND"]) {
            is_allowed &= self.one(allowed);
        }
        is_allowed
    }

    fn one(&mut self, allowed: &[String]) -> bool {
        if self.eat(&["("]) {
            let is_allowed = self.either(allowed);
            return self.eat(&[")"]) && is_allowed;
        }
        let Some(name) = self.words.get(self.at).copied() else { return false };
        self.at += 1;
        if self.eat(&["WITH"]) {
            let exception = self.words.get(self.at).copied().unwrap_or_default();
            self.at += 1;
            return allowed.contains(&format!("{name} WITH {exception}"));
        }
        allowed.iter().any(|allowed| allowed == name)
    }
}

#[test]
fn expressions_are_understood() {
    let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for (text, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("Apache-2.0 / MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0", false),
        ("MIT AND Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH Classpath-exception-2.0", false),
        ("(MIT", false),
        ("MIT MIT", false),
        ("", false),
    ] {
        assert_eq!(Expression::new(text).met_by(&allowed), expected, "{text}");
    }
}
