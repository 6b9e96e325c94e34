//! The command for a user who may only read: read-only folders, and files of other users.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Outcome, ringmain, run, say};

/// A file of root that all users may read.
const OF_ROOT: &str = "/etc/passwd";
/// A user and a group without files.
const NOBODY: u32 = 65534;

/// Runs the command as a user without rights: as user 65534 if the tests run as root, else as the user who
/// runs the tests.
pub(crate) struct Reader {
    dir: TempDir,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let reader = Self { dir };
        reader.take_in(Path::new(env!("CARGO_BIN_EXE_ringmain")), "ringmain");
        let tmp = reader.path("tmp");
        fs::create_dir(&tmp).unwrap();
        fs::set_permissions(&tmp, Permissions::from_mode(0o777)).unwrap();
        reader
    }

    /// Copies a program: that user may not be allowed to enter the build folder. `cp` does it, because a
    /// child that another test forks meanwhile could inherit a file that this process has open for writing,
    /// and such a file cannot be run.
    pub(crate) fn take_in(&self, program: &Path, name: &str) {
        let copied = Command::new("cp").arg(program).arg(self.path(name)).status().unwrap();
        assert!(copied.success());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a folder in which this user cannot create files.
    fn closed_folder(&self, files: &[(&str, u32)]) -> PathBuf {
        let folder = self.path("closed");
        fs::create_dir(&folder).unwrap();
        for (name, mode) in files {
            fs::write(folder.join(name), [7; 10_000]).unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(*mode)).unwrap();
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o555)).unwrap();
        folder
    }

    /// Returns a copied program in a folder that this user may write to, with the environment of the other
    /// tests.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(program));
        let like = ringmain([""; 0]);
        command.envs(like.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.env("TMPDIR", self.path("tmp")).current_dir(self.path("tmp"));
        command
    }

    fn run(&self, args: &[&str], tmp: &Path) -> Outcome {
        let mut command = self.command("ringmain");
        command.args(args).env("TMPDIR", tmp);
        if self.is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        run(&mut command)
    }

    pub(crate) fn is_root(&self) -> bool {
        self.dir.path().metadata().unwrap().uid() == 0
    }

    fn probe(&self, path: &Path) -> Value {
        let args = ["probe", "--json", path.to_str().unwrap()];
        let stdout = self.run(&args, &self.path("tmp")).stdout_of_success();
        serde_json::from_slice(&stdout).unwrap()
    }
}

impl Drop for Reader {
    /// A user cannot remove files from a closed folder.
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.path("closed"), Permissions::from_mode(0o755));
    }
}

/// This used to fail with "cannot make a small file in …".
#[test]
fn a_read_only_folder_is_probed_with_one_of_its_files() {
    let reader = Reader::new();
    let folder = reader.closed_folder(&[("a-secret", 0), ("data", 0o444)]);
    let probe = reader.probe(&folder);
    let note = probe["note"].as_str().unwrap();
    let data = folder.join("data");
    assert!(note.contains(data.to_str().unwrap()), "{note}");
    assert!(note.contains("Permission denied"), "{note}");
    assert_eq!(probe["path"], folder.to_str().unwrap());
    assert_eq!(probe["backends"][0]["available"], true);

    let args = ["probe", folder.to_str().unwrap()];
    let text = String::from_utf8(reader.run(&args, &folder).stdout_of_success()).unwrap();
    assert!(text.contains("note") && text.contains("data"), "{text}");
}

#[test]
fn a_folder_without_a_readable_file_is_probed_in_the_temporary_one() {
    let reader = Reader::new();
    let folder = reader.closed_folder(&[("a-secret", 0)]);
    let probe = reader.probe(&folder);
    let note = probe["note"].as_str().unwrap();
    for part in [folder.as_path(), &reader.path("tmp")] {
        assert!(note.contains(part.to_str().unwrap()), "{note}");
    }
    assert_eq!(reader.path("tmp").read_dir().unwrap().count(), 0, "it left its file");

    let outcome = reader.run(&["probe", folder.to_str().unwrap()], &folder);
    outcome.expect_failure(1, &["Permission denied", "`ringmain probe FILE`"]);
}

/// Returns whether the kernel counts cached pages for every reader. Kernels 6.5 to 6.12 do, and there is
/// nothing to explain.
fn is_told_to_all(probe: &Value) -> bool {
    probe["features"]["cachestat"] == true
}

#[test]
fn probe_explains_why_cached_pages_are_unknown() {
    let reader = Reader::new();
    let probe = reader.probe(Path::new(OF_ROOT));
    if is_told_to_all(&probe) {
        return;
    }
    let reason = probe["features"]["cachestat_reason"].as_str().unwrap();
    assert!(reason.contains("owner"), "{reason}");
    assert_eq!(reader.probe(&reader.path("tmp"))["features"]["cachestat_reason"], Value::Null);
}

/// Files of other users used to be refused with "cannot verify what the page cache holds".
#[test]
fn bench_samples_the_page_cache_of_a_file_of_another_user_and_says_so() {
    let reader = Reader::new();
    if !reader.is_root() {
        return say("only root can make a file that another user owns: not tested");
    }
    let file = reader.path("data");
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    let file = file.to_str().unwrap();
    if is_told_to_all(&reader.probe(Path::new(file))) {
        return;
    }
    let args = ["bench", "--file", file, "--workloads", "seq,rand,mixed", "--out", "out"];
    let few = ["--backends", "pread,uring,auto", "--block-size", "4k", "--batch", "16"];
    let short = ["--seconds", "0.02", "--repetitions", "2", "--json"];
    let outcome = reader.run(&[&args[..], &few, &short].concat(), &reader.path("tmp"));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let run: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    let cells = run["cells"].as_array().unwrap();
    assert_eq!(cells.len(), (2 + 2 + 1) * 3 * 2);
    for cell in cells {
        assert_eq!(cell["valid"], true, "{cell}");
        assert_eq!(cell["cached_pages"]["before"], Value::Null, "{cell}");
        let check = &cell["cache_check"];
        assert_eq!((&check["method"], &check["pages_checked"]), (&"sampled".into(), &128.into()));
    }
    let warnings = run["warnings"].to_string();
    for part in ["sampled, 128 of", "with 95 % confidence at most"] {
        assert!(warnings.contains(part), "`{part}` is missing in {warnings}");
    }
}

/// The exit code was 1, and `overhead` named no way out.
#[test]
fn bench_and_overhead_say_where_else_data_can_be_made() {
    let reader = Reader::new();
    let folder = reader.closed_folder(&[]);
    let scratch = folder.to_str().unwrap();
    for args in [&["bench", "--out", "out"][..], &["overhead"]] {
        let args = [args, &["--scratch", scratch]].concat();
        let outcome = reader.run(&args, &reader.path("tmp"));
        outcome.expect_failure(2, &[scratch, "Permission denied", "`--scratch DIR`"]);
        assert!(!outcome.stderr.contains("at path"), "{}", outcome.stderr);
    }
}
