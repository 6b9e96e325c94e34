//! `ringmain record` on real programs, and the way from there to `inspect` and `bench --trace`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::faults::can_inject;
use crate::report::names;
use crate::support::{Data, Outcome, Running, python_with, ringmain, run, say};

/// Data, and a folder with nothing else.
fn data() -> Data {
    Data::new(300_000)
}

/// Records a command on the data, in its folder, as `trace`.
fn record(data: &Data, command: &[&str]) -> Outcome {
    let args = ["record", "--only", data.name(), "--out", "trace", "--"];
    run(ringmain(args.iter().chain(command)).current_dir(data.dir()))
}

/// The reads of a recording: the letter of the line, offset and bytes.
fn reads(data: &Data) -> Vec<(char, u64, u64)> {
    let text = fs::read_to_string(data.dir().join("trace")).unwrap();
    assert!(text.starts_with("ringmain recording 2\n"), "{text}");
    let lines = text.lines().filter(|line| line.starts_with(['b', 'm']));
    let read = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words.len(), 7, "{line}");
        (line.chars().next().unwrap(), words[5].parse().unwrap(), words[6].parse().unwrap())
    };
    lines.map(read).collect()
}

fn total(reads: &[(char, u64, u64)]) -> u64 {
    reads.iter().map(|read| read.2).sum()
}

#[test]
fn a_copy_is_recorded_inspected_and_replayed() {
    if !can_inject() {
        return;
    }
    let data = data();
    // A copy that shares the blocks of its source would read nothing.
    let outcome = record(&data, &["cp", "--reflink=never", data.name(), "copy"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for part in ["of 1 file", "ringmain bench --trace trace"] {
        assert!(outcome.stderr.contains(part), "{}", outcome.stderr);
    }
    assert_eq!(fs::read(data.dir().join("copy")).unwrap(), data.bytes);
    // `cp` may ask once more at the end, which returns nothing.
    assert_eq!(total(&reads(&data)), data.bytes.len() as u64);
    assert_eq!(names(data.dir()), ["copy", "data.bin", "trace"]);

    inspect_and_replay(&data, data.name(), data.bytes.len() as u64);
}

/// The trace has these bytes of this file, and every backend reads them again.
fn inspect_and_replay(data: &Data, file: &str, bytes: u64) -> Value {
    let args = ["inspect", "trace", "--json"];
    let inspected = run(ringmain(args).current_dir(data.dir())).stdout_of_success();
    let inspected: Value = serde_json::from_slice(&inspected).unwrap();
    assert_eq!(inspected["read_bytes"], bytes, "{inspected:#}");
    let named = inspected["by_file"][0]["name"].as_str().unwrap();
    assert!(named.ends_with(file), "{inspected:#}");

    let args = ["bench", "--trace", "trace", "--backends", "pread,mmap", "--repetitions", "1"];
    let more = ["--json", "--cache", "cold", "--seconds", "60", "--out", "replayed"];
    let result = run(ringmain(args.iter().chain(&more)).current_dir(data.dir()));
    let result: Value = serde_json::from_slice(&result.stdout_of_success()).unwrap();
    let cells = result["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "{result:#}");
    assert!(cells.iter().all(|cell| cell["bytes"] == bytes), "{result:#}");
    let report = fs::read_to_string(data.dir().join("replayed/report.html")).unwrap();
    assert!(report.contains("Where the program read") && report.contains(named), "no pictures");
    inspected
}

/// Libraries and locales, which other programs map too, are never cold: half of the cells of a replay were invalid.
#[test]
fn without_a_filter_the_files_of_the_system_are_left_out() {
    if !can_inject() {
        return;
    }
    let data = data();
    let args = ["record", "--out", "trace", "--", "cp", "--reflink=never", data.name(), "copy"];
    let outcome = run(ringmain(args).current_dir(data.dir()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("of the system are left out"), "{}", outcome.stderr);
    let text = fs::read_to_string(data.dir().join("trace")).unwrap();
    let files: Vec<&str> = text.lines().filter(|line| line.starts_with("f ")).collect();
    assert_eq!(files.len(), 1, "{text}");
    assert!(files[0].ends_with(data.name()), "{text}");
}

#[test]
fn positions_are_followed_through_seeks_and_children() {
    if !can_inject() {
        return;
    }
    let skipped = data();
    let of = format!("if={}", skipped.name());
    let command = ["dd", &of, "of=/dev/null", "bs=4096", "skip=5", "count=3"];
    assert_eq!(record(&skipped, &command).code, Some(0));
    let expected = [('b', 20_480, 4096), ('b', 24_576, 4096), ('b', 28_672, 4096)];
    assert_eq!(reads(&skipped), expected);

    // Both programs read from the descriptor that the shell opened.
    let shared = data();
    let script = format!("(head -c 1000; head -c 500) <{} >/dev/null", shared.name());
    assert_eq!(record(&shared, &["sh", "-c", &script]).code, Some(0));
    assert_eq!(reads(&shared), [('b', 0, 1000), ('b', 1000, 500)]);
}

fn has_python() -> bool {
    let import = ["-c", "import mmap, sqlite3"];
    let has = Command::new("python3").args(import).output().is_ok_and(|out| out.status.success());
    if !has {
        assert!(std::env::var_os("RINGMAIN_REQUIRE_PYTHON").is_none(), "there is no python3");
        say("SKIPPED: there is no python3 with its standard modules");
    }
    has
}

#[test]
fn page_faults_of_mappings_are_recorded() {
    if !can_inject() || !has_python() {
        return;
    }
    let data = data();
    let program = "import mmap, sys\n\
                   file = open(sys.argv[1], 'rb')\n\
                   pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n\
                   print(sum(pages[at] for at in range(0, len(pages), 4096)))\n";
    let outcome = record(&data, &["python3", "-c", program, data.name()]);
    if outcome.stderr.contains("page faults of mappings are not recorded") {
        say(&format!("SKIPPED: {}", outcome.stderr));
        return;
    }
    let sum: u64 = data.bytes.iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
    assert_eq!(String::from_utf8(outcome.stdout).unwrap(), format!("{sum}\n"));
    let reads = reads(&data);
    // The kernel maps several pages at a fault, but no more than two megabytes.
    assert!(!reads.is_empty());
    for (kind, offset, bytes) in reads {
        assert_eq!((kind, offset % 4096), ('m', 0));
        assert!(bytes > 0 && offset + bytes <= data.bytes.len() as u64, "{offset} {bytes}");
    }
}

#[test]
fn a_database_is_recorded() {
    if !can_inject() || !has_python() {
        return;
    }
    let data = data();
    let make = "import sqlite3, sys\n\
                base = sqlite3.connect(sys.argv[1])\n\
                base.execute('create table t (a integer primary key, b text)')\n\
                base.executemany('insert into t values (?, ?)', [(n, 'x' * 100) for n in range(5000)])\n\
                base.commit()\n";
    let query = "import sqlite3, sys\n\
                 base = sqlite3.connect(sys.argv[1])\n\
                 print(base.execute('select b from t where a = 4321').fetchone()[0])\n";
    let base = data.dir().join("base");
    let made = run(Command::new("python3").args(["-c", make]).arg(&base));
    assert_eq!(made.code, Some(0), "{made:?}");
    let args = ["record", "--only", "base", "--out", "trace", "--", "python3", "-c", query, "base"];
    let outcome = run(ringmain(args).current_dir(data.dir()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let reads = reads(&data);
    let base_bytes = fs::metadata(base).unwrap().len();
    // The header, a page or two of the tree, and the page with the row, but by far not all.
    assert!(reads.len() >= 3 && total(&reads) < base_bytes / 4, "{base_bytes}: {reads:?}");
    inspect_and_replay(&data, "base", total(&reads));
}

/// Two epochs of a loop that reads rows with `np.fromfile` in two orders: both are recognised, and so is what they share.
#[test]
fn epochs_of_a_loop_with_numpy_are_recognised() {
    let Some(python) = python_with("numpy").filter(|_| can_inject()) else { return };
    let data = data();
    let program = "import sys, numpy as np\n\
                   with open(sys.argv[1], 'rb', buffering=0) as file:\n\
                   \x20   for seed in 1, 2:\n\
                   \x20       for row in np.random.default_rng(seed).permutation(64):\n\
                   \x20           file.seek(int(row) * 4096)\n\
                   \x20           memory = np.empty(4096, np.uint8)\n\
                   \x20           assert file.readinto(memory) == 4096\n";
    let outcome = record(&data, &[python.to_str().unwrap(), "-c", program, data.name()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let inspected = inspect_and_replay(&data, "data.bin", 2 * 64 * 4096);
    let file = &inspected["by_file"][0];
    assert_eq!((&file["passes"], &file["times_read"]), (&2.into(), &2.0.into()), "{inspected:#}");
    assert_eq!(inspected["between_passes_share"], 0.5, "{inspected:#}");
    assert_eq!(inspected["within_passes_share"], 0.0, "{inspected:#}");
}

/// Every row of a `np.memmap`, in order: the trace has page faults, which are whole pages of the file.
#[test]
fn a_memmap_of_numpy_is_recorded_inspected_and_replayed() {
    let Some(python) = python_with("numpy").filter(|_| can_inject()) else { return };
    let data = data();
    let program = "import sys, numpy as np\n\
                   rows = np.memmap(sys.argv[1], np.uint8, 'r', shape=(64, 4096))\n\
                   print(sum(int(row.sum()) for row in rows))\n";
    let outcome = record(&data, &[python.to_str().unwrap(), "-c", program, data.name()]);
    if outcome.stderr.contains("page faults of mappings are not recorded") {
        say(&format!("SKIPPED: {}", outcome.stderr));
        return;
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let sum: u64 = data.bytes[..64 * 4096].iter().map(|byte| u64::from(*byte)).sum();
    assert_eq!(String::from_utf8(outcome.stdout).unwrap(), format!("{sum}\n"));
    let reads = reads(&data);
    assert!(!reads.is_empty() && reads.iter().all(|read| read.0 == 'm'), "{reads:?}");
    let inspected = inspect_and_replay(&data, "data.bin", total(&reads));
    assert_eq!(inspected["page_faults"], reads.len(), "{inspected:#}");
}

/// A log of strace, and an iolog of fio, made by these programs themselves: the way from there to `inspect` and `bench`.
#[test]
fn logs_of_strace_and_fio_are_imported() {
    let data = data();
    let has = |program: &str| {
        let required = std::env::var_os("RINGMAIN_REQUIRE_PYTHON").is_some();
        let found = Command::new(program).arg("--version").output().is_ok();
        assert!(found || !required, "there is no {program}");
        found
    };
    if has("strace") {
        let log = ["-f", "-y", "-ttt", "-T", "-o", "trace", "head", "-c", "100000", data.name()];
        assert_eq!(run(Command::new("strace").args(log).current_dir(data.dir())).code, Some(0));
        let log = fs::read_to_string(data.dir().join("trace")).unwrap();
        let log: String =
            log.split_inclusive('\n').filter(|line| line.contains("data.bin")).collect();
        fs::write(data.dir().join("trace"), log).unwrap();
        inspect_and_replay(&data, "data.bin", 100_000);
        fs::remove_dir_all(data.dir().join("replayed")).unwrap();
    }
    if has("fio") {
        let name = format!("--filename={}", data.name());
        let job = ["--name=a", "--rw=randread", "--bs=4k", "--size=256k", "--readonly", &name];
        let more = ["--write_iolog=trace", "--number_ios=40", "--ioengine=psync"];
        fs::remove_file(data.dir().join("trace")).ok();
        let made = run(Command::new("fio").args(job).args(more).current_dir(data.dir()));
        assert_eq!(made.code, Some(0), "{made:?}");
        inspect_and_replay(&data, "data.bin", 40 * 4096);
    }
}

#[test]
fn a_running_process_is_recorded_until_an_interrupt() {
    if !can_inject() {
        return;
    }
    let data = data();
    let script = format!("while sleep 0.02; do head -c 100 {} >/dev/null; done", data.name());
    let mut reader =
        Command::new("sh").args(["-c", &script]).current_dir(data.dir()).spawn().unwrap();
    let pid = reader.id().to_string();
    let args = ["record", "--only", data.name(), "--out", "trace", "--pid", &pid];
    let mut recorder = Running::start(ringmain(args).current_dir(data.dir()));
    let started = Instant::now();
    let has_read = || {
        let logs = fs::read_dir(data.dir()).unwrap().flatten();
        logs.filter(|log| log.file_name().to_string_lossy().starts_with(".ringmain-strace-"))
            .any(|log| fs::read_to_string(log.path()).is_ok_and(|log| log.contains(") = 100 <")))
    };
    // strace may not be allowed to attach.
    let has_ended = |recorder: &mut Running| recorder.child.try_wait().unwrap().is_some();
    while !has_read() && !has_ended(&mut recorder) && started.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = kill(Pid::from_raw(recorder.child.id().try_into().unwrap()), Signal::SIGINT);
    let outcome = recorder.finish();
    let is_alive = reader.try_wait().unwrap().is_none();
    reader.kill().unwrap();
    reader.wait().unwrap();
    if outcome.stderr.contains("PTRACE_SEIZE") {
        say(&format!("SKIPPED: {}", outcome.stderr));
        return;
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(is_alive, "the recorded process goes on");
    let reads = reads(&data);
    assert!(!reads.is_empty() && reads.iter().all(|read| *read == ('b', 0, 100)), "{reads:?}");
}

#[test]
fn a_program_that_fails_leaves_its_recording() {
    if !can_inject() {
        return;
    }
    let data = data();
    let script = format!("head -c 10 {} >/dev/null; exit 3", data.name());
    let outcome = record(&data, &["sh", "-c", &script]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let message =
        "error: the program ended with exit code 3; the recording has what it read until then\n";
    assert!(outcome.stderr.ends_with(message), "{}", outcome.stderr);
    assert_eq!(reads(&data), [('b', 0, 10)]);
}

/// Starts to record a shell that reads and then waits for hours, and returns when it has read.
fn record_a_long_program(data: &Data, before: &str) -> Running {
    let script =
        format!("{before} head -c 100 {} >/dev/null; touch ready; sleep 10000", data.name());
    let args = ["record", "--only", data.name(), "--out", "trace", "--", "sh", "-c", &script];
    let mut recorder = Running::start(ringmain(args).current_dir(data.dir()));
    while !data.dir().join("ready").exists() {
        assert!(recorder.child.try_wait().unwrap().is_none(), "the recording has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    recorder
}

fn signal(recorder: &Running, signal: Signal) {
    kill(Pid::from_raw(recorder.child.id().try_into().unwrap()), signal).unwrap();
}

/// A signal that only this program gets was ignored, and a second one left strace and its log behind.
#[test]
fn a_signal_ends_the_program_and_keeps_the_recording() {
    if !can_inject() {
        return;
    }
    let data = data();
    let recorder = record_a_long_program(&data, "");
    signal(&recorder, Signal::SIGTERM);
    let outcome = recorder.finish();
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(outcome.stderr.contains("signal 15 ended the program"), "{outcome:?}");
    assert_eq!(reads(&data), [('b', 0, 100)]);
    assert_eq!(hidden_files(&data), [""; 0]);
}

#[test]
fn a_second_signal_kills_a_program_that_ignores_the_first() {
    if !can_inject() {
        return;
    }
    let data = data();
    let recorder = record_a_long_program(&data, "trap '' TERM INT HUP;");
    signal(&recorder, Signal::SIGTERM);
    // Signals within a second count as one.
    std::thread::sleep(Duration::from_millis(1500));
    signal(&recorder, Signal::SIGTERM);
    let outcome = recorder.finish();
    assert!(outcome.stderr.contains("signal 9 ended the program"), "{outcome:?}");
    assert_eq!(reads(&data), [('b', 0, 100)]);
    assert_eq!(hidden_files(&data), [""; 0]);
}

/// Puts a program named strace into a new folder of the data, which is the first one on the PATH of `ringmain`.
fn with_strace_of(data: &Data, script: &str, args: &[&str]) -> Command {
    let folder = data.dir().join("programs");
    fs::create_dir(&folder).unwrap();
    let strace = folder.join("strace");
    fs::write(&strace, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&strace, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = ringmain(["record", "--no-mappings", "--out", "trace"].iter().chain(args));
    command.current_dir(data.dir()).env("PATH", path);
    command
}

/// The second signal left the log and strace, which may still have held the process.
#[test]
fn a_second_signal_leaves_neither_the_log_nor_strace() {
    let data = data();
    let script = "trap '' TERM INT; echo $$ >started; mv started strace-id; exec sleep 10000 >/dev/null 2>&1";
    let pid = std::process::id().to_string();
    let recorder = Running::start(&mut with_strace_of(&data, script, &["--pid", &pid]));
    let strace = wait_until("strace", || fs::read_to_string(data.dir().join("strace-id")).ok());
    signal(&recorder, Signal::SIGINT);
    // Signals within a second count as one, and strace gets three seconds.
    std::thread::sleep(Duration::from_millis(1500));
    signal(&recorder, Signal::SIGINT);
    recorder.finish();
    assert_eq!(hidden_files(&data), [""; 0]);
    wait_until("the end of strace", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", strace.trim()));
        stat.map_or(Some(()), |stat| stat.contains(") Z ").then_some(()))
    });
}

/// Every signal was ignored once the program had ended. The pipe stands for a log that takes long to read.
#[test]
fn a_signal_ends_the_reading_of_the_log() {
    let data = data();
    let script =
        "while [ \"$1\" != -o ]; do shift; done; rm \"$2\"; mkfifo \"$2\"; echo >strace-ended";
    let mut recorder = Running::start(&mut with_strace_of(&data, script, &["--", "true"]));
    wait_until("strace", || data.dir().join("strace-ended").exists().then_some(()));
    // The first signals may belong to the end of the program.
    let deadline = Instant::now() + Duration::from_secs(120);
    while recorder.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        signal(&recorder, Signal::SIGTERM);
        std::thread::sleep(Duration::from_millis(100));
    }
    let has_ended = recorder.child.try_wait().unwrap().is_some();
    recorder.child.kill().unwrap();
    assert_eq!((has_ended, recorder.finish().code), (true, Some(130)));
    assert_eq!(hidden_files(&data), [""; 0]);
}

/// Returns what `look` finds as soon as it finds something.
fn wait_until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "there is no sign of {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The log of strace is a hidden file beside the recording.
fn hidden_files(data: &Data) -> Vec<String> {
    let names = fs::read_dir(data.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

/// The recording says which program it is of, and what is missing. Files that were deleted later do not keep the others
/// from being replayed.
#[test]
fn a_recording_outlives_some_of_its_files() {
    if !can_inject() {
        return;
    }
    let data = data();
    fs::write(data.dir().join("second"), [7; 5000]).unwrap();
    let script = format!("cat {} second >/dev/null", data.name());
    let args = ["record", "--only", ".", "--out", "trace", "--", "sh", "-c", &script];
    let outcome = run(ringmain(args).current_dir(data.dir()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = fs::read_to_string(data.dir().join("trace")).unwrap();
    assert!(text.contains(&format!("\np sh -c {script}\n")), "{text}");
    let inspect = || run(ringmain(["inspect", "trace"]).current_dir(data.dir()));
    let shown = String::from_utf8(inspect().stdout).unwrap();
    assert!(shown.contains("sh -c cat"), "{shown}");
    fs::remove_file(data.dir().join("second")).unwrap();
    let bench = ["bench", "--trace", "trace", "--backends", "pread", "--repetitions", "1"];
    let outcome = run(ringmain(bench).args(["--cache", "warm", "--json"]).current_dir(data.dir()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let result = String::from_utf8(outcome.stdout).unwrap();
    let note = format!("1 of 2 files are left out: {}", data.dir().join("second").display());
    assert!(result.contains(&note), "{result}");
}

#[test]
fn bad_input_is_refused_before_anything_runs() {
    if !can_inject() {
        return;
    }
    let data = data();
    fs::write(data.dir().join("old"), "mine").unwrap();
    let mark = |name: &str| vec!["--".to_owned(), "touch".into(), name.into()];
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let cases: [(Vec<String>, i32, &[&str]); 8] = [
        (vec![], 2, &["COMMAND"]),
        (words("-- no-such-program-here"), 2, &["no-such-program-here", "not found"]),
        ([words("--out old"), mark("ran")].concat(), 2, &["old already exists", "--out"]),
        ([words("--out missing/x"), mark("ran")].concat(), 1, &["missing/x"]),
        ([words("--only missing"), mark("ran")].concat(), 2, &["missing"]),
        (words("--pid 4194305"), 2, &["4194305"]),
        (words("--pid 0"), 2, &["--pid"]),
        (words("--pid 1 -- true"), 2, &["--pid"]),
    ];
    for (args, code, parts) in cases {
        let args = ["record".to_owned()].into_iter().chain(args);
        let outcome = run(ringmain(args).current_dir(data.dir()));
        outcome.expect_failure(code, parts);
    }
    let mut without = ringmain(["record", "--", "/bin/sh", "-c", "exit 0"]);
    let outcome = run(without.current_dir(data.dir()).env("PATH", data.dir()));
    outcome.expect_failure(2, &["strace", "apt-get install"]);
    // A program that reads nothing of interest.
    record(&data, &["true"]).expect_failure(2, &["nothing was recorded", "--only"]);
    assert_eq!(names(data.dir()), ["data.bin", "old"]);
    assert_eq!(fs::read_to_string(data.dir().join("old")).unwrap(), "mine");
}
