//! Every message of the harness, rendered with sample values and compared with `tests/messages.txt`, so
//! that a change of a message is read in review.
//!
//! Messages of the engine and the backends are not repeated here.

use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::cli::{Cli, MeasuredArgs};
use crate::comparison::Comparison;
use crate::failure::Failure;
use crate::fixture::rated::{cell, run, run_in};
use crate::plan::{BackendChoice, DataPlan, Plan, render_plan};
use crate::recommend::{Question, recommend, recommend_for};
use crate::report::{Exporter, Terminal};
use crate::result::{CacheCheck, CacheCheckMethod, CacheState, Run, trust};
use crate::system::space::{Remedy, Space};
use crate::system::whole_file::already_exists;
use crate::text::size::{Bytes, parse_bytes};
use crate::trace::Trace;
use crate::trace::pattern::Pattern;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");
/// Set to rewrite the file.
const UPDATE: &str = "RINGMAIN_UPDATE_MESSAGES";

#[test]
fn every_message_is_the_reviewed_one() {
    let rendered = render();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(FILE, rendered).unwrap();
        return;
    }
    let reviewed = std::fs::read_to_string(FILE).unwrap_or_default();
    let differing = rendered.lines().zip(reviewed.lines()).find(|(new, old)| new != old);
    assert!(
        rendered == reviewed,
        "tests/messages.txt differs, first in {differing:?}; if the change is intended, rewrite it with \
         {UPDATE}=1 cargo test -p ringmain-bench --lib messages"
    );
}

fn render() -> String {
    let sections: [(&str, Vec<String>); 10] = [
        ("Help", helps()),
        ("Errors", failures().iter().map(ToString::to_string).collect()),
        ("Plans that are refused", refused_plans()),
        ("Names and sizes that are refused", refused_words()),
        ("Results that are refused", refused_results()),
        ("Traces that are refused", refused_traces()),
        ("Recordings", recordings()),
        ("Warnings", trust::warnings(&doubtful_run())),
        ("Recommendations", recommendations()),
        ("Tables and comparisons", tables()),
    ];
    let mut text = String::new();
    for (title, messages) in sections {
        writeln!(text, "=== {title} ===\n").unwrap();
        for message in messages {
            let lines: Vec<&str> = message.lines().map(str::trim_end).collect();
            writeln!(text, "{}\n", lines.join("\n").trim_end()).unwrap();
        }
    }
    text.trim_end().to_owned() + "\n"
}

/// The help of the program and of every command, at a fixed width.
fn helps() -> Vec<String> {
    fn add(command: &mut clap::Command, path: &str, helps: &mut Vec<String>) {
        let name = format!("{path} {}", command.get_name()).trim().to_owned();
        helps.push(format!("$ {name} --help\n{}", command.render_long_help()));
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            add(sub, &name, helps);
        }
    }
    let mut helps = Vec::new();
    add(&mut Cli::command().term_width(100), "", &mut helps);
    helps
}

/// One sample of every variant. A new variant does not compile until it is listed here.
fn failures() -> Vec<Failure> {
    let path = || PathBuf::from("/data/train.bin");
    let denied = || io::Error::from(ErrorKind::PermissionDenied);
    let message = || "MESSAGE".to_owned();
    let all = vec![
        Failure::OffsetPastEnd { path: path(), offset: 4096, file_len: 1000 },
        Failure::NothingToProbe {
            dir: "/data".into(),
            source: denied(),
            temporary: "/tmp".into(),
            temporary_source: denied(),
        },
        Failure::Scratch { dir: "/data".into(), source: denied() },
        Failure::Usage { message: message() },
        Failure::TooSmall { message: message() },
        Failure::Plan { path: "plan.toml".into(), message: message() },
        Failure::Trace { path: "epoch.trace".into(), message: message() },
        Failure::Regression { message: message() },
        Failure::Program { message: message() },
        Failure::Run { path: "run.json".into(), message: message() },
        Failure::ReadFile { path: path(), source: ErrorKind::NotFound.into() },
        Failure::WriteFile { path: path(), source: denied() },
        Failure::Task(ErrorKind::UnexpectedEof.into()),
        Failure::Child { what: "fio".into(), source: denied() },
        Failure::NoProgram { source: ErrorKind::NotFound.into() },
        Failure::Worker { message: message(), is_killed: false },
        Failure::Cell { what: "fio:psync".into(), message: message() },
        Failure::WrongBytes { message: message() },
        Failure::ThreadPanicked,
        Failure::Interrupted,
        Failure::InvalidCells { invalid: 3, all: 40 },
        Failure::InvalidCells { invalid: 40, all: 40 },
        Failure::Thread(denied()),
        Failure::Fork(denied()),
        Failure::Output(ErrorKind::StorageFull.into()),
    ];
    for failure in &all {
        match failure {
            // Messages of libraries.
            Failure::Backend(_) | Failure::NoBackend { .. } | Failure::Engine(_) => {}
            Failure::Histogram(_) | Failure::Latencies(_) | Failure::Json(_) => {}
            Failure::OffsetPastEnd { .. } | Failure::NothingToProbe { .. } => {}
            Failure::Scratch { .. } | Failure::Usage { .. } | Failure::TooSmall { .. } => {}
            Failure::Plan { .. } | Failure::Trace { .. } | Failure::Regression { .. } => {}
            Failure::Run { .. } | Failure::ReadFile { .. } | Failure::WriteFile { .. } => {}
            Failure::Task(_) | Failure::Child { .. } | Failure::NoProgram { .. } => {}
            Failure::Worker { .. } | Failure::Program { .. } => {}
            Failure::Cell { .. } | Failure::WrongBytes { .. } | Failure::ThreadPanicked => {}
            Failure::Interrupted | Failure::InvalidCells { .. } => {}
            Failure::Thread(_) | Failure::Fork(_) | Failure::Output(_) => {}
        }
    }
    all
}

fn refused_plans() -> Vec<String> {
    let plan = Plan::default;
    let workloads = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let data = |data: DataPlan| Plan { data, ..Plan::default() };
    let trace = || Some(PathBuf::from("epoch.trace"));
    let plans = [
        Plan { batches: vec![0], ..plan() },
        Plan { depths: vec![99_999], ..plan() },
        Plan { block_bytes: vec![Bytes(0)], ..plan() },
        Plan { seconds: -1.0, ..plan() },
        Plan { buffer_bytes: Some(Bytes(1)), ..plan() },
        data(DataPlan { bytes: Bytes(1), ..DataPlan::default() }),
        data(DataPlan { sample_bytes: Some(Bytes(1500)), ..DataPlan::default() }),
        data(DataPlan { sample_bytes: Some(Bytes(5 << 20)), ..DataPlan::default() }),
        data(DataPlan { sample_bytes: Some(Bytes(1)), file: trace(), ..DataPlan::default() }),
        Plan { workloads: workloads(&["replay"]), ..plan() },
        Plan {
            workloads: workloads(&["seq"]),
            ..data(DataPlan { trace: trace(), ..DataPlan::default() })
        },
        Plan { rates_per_s: vec![0], ..plan() },
        Plan { memory_limit_bytes: Some(Bytes(0)), ..plan() },
        Plan { memory_limit_bytes: Some(Bytes(1 << 30)), with_fio: true, ..plan() },
        Plan { recorded_times: true, ..plan() },
        Plan {
            recorded_times: true,
            rates_per_s: vec![5],
            ..data(DataPlan { trace: trace(), ..DataPlan::default() })
        },
        data(DataPlan { file: trace(), trace: trace(), ..DataPlan::default() }),
        Plan { caches: Vec::new(), ..plan() },
        Plan { workloads: workloads(&["sequ"]), ..plan() },
        Plan { workloads: workloads(&["rand"]), caches: vec![CacheState::Mixed], ..plan() },
        Plan { workloads: workloads(&["rand"]), window_bytes: vec![Bytes(1)], ..plan() },
        Plan { workloads: workloads(&["weights"]), with_fio: true, ..plan() },
        Plan {
            backends: vec![BackendChoice::plain(ringmain::BackendKind::Pread)],
            depths: vec![8],
            ..plan()
        },
    ];
    let mut messages: Vec<String> =
        plans.iter().map(|plan| plan.check().unwrap_err().to_string()).collect();
    let two = || vec![PathBuf::from("a"), PathBuf::from("b")];
    let twice = [
        MeasuredArgs { file: two(), ..MeasuredArgs::default() },
        MeasuredArgs { dir: two(), ..MeasuredArgs::default() },
        MeasuredArgs { trace: two(), ..MeasuredArgs::default() },
    ];
    messages.extend(twice.iter().map(|args| args.to_plan().unwrap_err().to_string()));
    let existing = [("train.bin", "file"), ("corpus/part-000.shard", "folder")];
    messages
        .extend(existing.map(|(path, other)| already_exists(Path::new(path), other).to_string()));
    let space = |is_read_only| Space { is_read_only, free_bytes: 12 << 20 };
    for remedy in [Remedy::Less("--bytes"), Remedy::Place("--out")] {
        let problem = |space: Space| space.problem(Path::new("/data"), 1 << 30, remedy);
        messages.extend(problem(space(true)).into_iter().chain(problem(space(false))));
    }
    messages
}

fn refused_words() -> Vec<String> {
    let sizes = ["-1", "x", "5x", "99999999999999999999"];
    let choices = ["tape", "pread+release"];
    let sizes = sizes.iter().map(|text| parse_bytes(text).unwrap_err());
    sizes.chain(choices.iter().map(|name| name.parse::<BackendChoice>().unwrap_err())).collect()
}

fn refused_results() -> Vec<String> {
    let texts = [
        "",
        "<html>",
        "[1]",
        "{}",
        "{\"schema_version\": \"1\"}",
        "{\"schema_version\": 0}",
        "{\"schema_version\": 2}",
        "{\"schema_version\": 1",
    ];
    let version = env!("CARGO_PKG_VERSION");
    let message = |text: &&str| {
        let message = crate::result::load::parse_run(text.as_bytes()).unwrap_err();
        message.replace(version, "VERSION")
    };
    texts.iter().map(message).collect()
}

/// Returns the messages about the reads of a program, and about those that were not seen.
fn recordings() -> Vec<String> {
    let log = "7 1.0 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3</d/a>, 0) = 0x10000\n\
               7 1.1 io_uring_enter(5, 1, 1, 0, NULL, 8) = 1\n\
               7 1.2 pread64(3</d/a>, \"\"..., 4096, 8192) = 4096 <0.25>\n\
               8 1.5 pread64(3</d/b>, \"\"..., 512, 0) = 512 <0.5>\n";
    let program = Trace::parse(log.as_bytes()).unwrap();
    let faults = "ringmain recording 2\nf 0 /d/a\nm 5 0 0 0 0 4096\nm 9 0 0 0 4096 4096\n";
    let mapped = Trace::parse(faults.as_bytes()).unwrap();
    let gone = program.clone().without_files_that_are_gone().unwrap_err().message();
    let mut messages = vec![
        Pattern::of(&program).sentences().join("\n"),
        Pattern::of(&mapped).sentences().join("\n"),
        gone,
    ];
    messages.extend(program.notes);
    messages.extend(mapped.notes);
    messages.extend(crate::record::sample_notes());
    messages
}

fn refused_traces() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let texts = [
        "hello",
        "fio version 2 iolog\n",
        "fio version 2 iolog\n/a add\n/a raed 0 1\n",
        "fio version 2 iolog\n/a read 0 1\n",
        "fio version 2 iolog\n/a add\n/a read 0\n",
        "fio version 2 iolog\n/a add\n/a read 0 -1\n",
        "fio version 2 iolog\n/a add\n/a read 0 1 2\n",
        "fio version 2 iolog\n/a add\n/a read 9223372036854775807 1\n",
        "fio version 2 iolog\n/missing/a add\n/missing/a read 0 1\n",
        "ringmain recording 1\nx\n",
        "ringmain recording 1\nb 0 0 0 0 1\n",
        "ringmain recording 1\nf 1 /a\n",
        "ringmain recording 1\nf 0 /a\\q\n",
        "ringmain recording 1\nf 0 /a\nb 0 5000000000 0 0 1\n",
        "ringmain recording 1\nf 0 /a\nb 0 0 0 0 1\ne 1 1 2\n",
        "ringmain recording 1\nf 0 /a\nb 0 0 0 0 1\ne 1 1 1\nf\n",
        "ringmain recording 2\nx\n",
        "ringmain recording 2\nt 0 5000000000\n",
        "ringmain recording 2\nf 0 /a\nb 0 x 0 0 0 1\n",
        "7 1.0 close(3</d/a>) = 0\n",
    ];
    let message = |text: &&str| {
        let path = dir.path().join("trace");
        std::fs::write(&path, text).unwrap();
        let message = Trace::open(&path).unwrap_err().to_string();
        message.replace(path.to_str().unwrap(), "trace")
    };
    texts.iter().map(message).collect()
}

/// A run for which every warning is printed.
fn doubtful_run() -> Run {
    let mut cells = run_in(Path::new("/data"), &[("pread", 1e9), ("uring", 3e9)]).cells;
    cells[0].throughput_bytes_per_s = 0.1e9;
    cells[1].valid = false;
    cells[1].invalid_reason = Some("12 pages of /data/a stay in the page cache".into());
    cells[2].cache_check = Some(CacheCheck {
        method: CacheCheckMethod::Sampled,
        pages: 131_072,
        pages_checked: 128,
        pages_off: 0,
    });
    let mut late = cell("mmap", CacheState::Warm, 0, 1e9);
    late.setting.rate_per_s = Some(100_000);
    cells.push(late);
    let mut run = run(cells);
    run.host.cpus = 2;
    run.host.load.load_1m_before = Some(2.5);
    run.host.load.busy_share = Some(0.3);
    run.host.load.steal_share = Some(0.1);
    run
}

fn recommendations() -> Vec<String> {
    let dir = Path::new("/data");
    let text = |run: &Run| {
        let found = recommend(run);
        format!("{}\n{}", found.lines().join("\n"), found.headlines()[0])
    };
    let clear = run_in(dir, &[("pread", 1e9), ("uring", 3e9), ("auto", 1.5e9)]);
    let noise = run_in(dir, &[("pread", 1e9), ("uring", 1.001e9), ("auto", 1e9)]);
    let mut few = clear.clone();
    few.cells.retain(|cell| cell.repetition == 0);
    let alone = run_in(dir, &[("uring", 3e9)]);
    let mut interrupted = clear.clone();
    interrupted.complete = false;
    let mut lacking = clear.clone();
    for cell in clear.cells.iter().filter(|cell| cell.backend != "pread") {
        let mut cell = cell.clone();
        cell.workload = "seq".into();
        cell.setting.threads = Some(2);
        lacking.cells.push(cell.clone());
        cell.setting.threads = Some(1);
        cell.throughput_bytes_per_s /= 2.0;
        lacking.cells.push(cell);
    }
    let mut growing = run_in(dir, &[("pread", 1e9), ("mmap", 3e9)]);
    for cell in growing.cells.iter_mut().filter(|cell| cell.backend == "mmap") {
        cell.rss_file_bytes.peak = 1 << 30;
    }
    let mut paced = clear.clone();
    paced.cells.iter_mut().for_each(|cell| cell.setting.rate_per_s = Some(500));
    let mut late = paced.clone();
    late.cells.iter_mut().for_each(|cell| cell.operations = 1);
    let limited = Question { memory_limit_bytes: Some(1), ..Question::default() };
    let mut texts: Vec<String> = [
        clear,
        noise,
        few,
        alone,
        interrupted,
        lacking,
        growing.clone(),
        paced,
        late,
        run(Vec::new()),
    ]
    .iter()
    .map(text)
    .collect();
    texts.push(recommend_for(&growing, &limited).sentence);
    texts
}

fn tables() -> Vec<String> {
    let dir = Path::new("/data");
    let a = run_in(dir, &[("pread", 1e9), ("uring", 3e9), ("direct", 2e9)]);
    let mut b = run_in(dir, &[("pread", 1e9), ("uring", 2.1e9), ("mmap", 2e9)]);
    b.host.kernel = "6.18.5".into();
    b.plan.seconds = 2.0;
    b.complete = false;
    let mut comparison = Comparison::of(&a, &b);
    comparison.find_regressions(5.0);
    vec![
        Terminal.export(&a).unwrap(),
        comparison.to_text(Path::new("a.json"), Path::new("b.json")),
        render_plan(&Plan::default()).unwrap(),
    ]
}
