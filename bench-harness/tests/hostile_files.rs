//! A file cannot make the command allocate more than a multiple of the file's own size. The worst files
//! that could be found, as in `engine/tests/hostile_files.rs`, but for plans, results and traces.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../../engine/tests/support/peak.rs"]
mod peak;

use std::fmt::Write as _;

use ringmain_bench::fuzzing::READERS;

use peak::check_peak;

/// The largest multiple of the file's size. It is larger than that of the engine's formats: the reads of
/// a trace are a list that grows, and takes three times its items for a moment.
const MULTIPLE_MAX: u64 = 16;
/// Memory that does not depend on the file, such as that of the longest plan.
const CONSTANT_BYTES: u64 = 8 << 20;
/// The size of most files, so large that the constant does not hide a wrong multiple.
const TEXT_BYTES: usize = 4 << 20;

/// Reads each file, and fails if one takes too much memory. Whether it is understood does not matter.
fn check(reader: &str, cases: Vec<(&str, String)>) {
    let (_, read) = READERS.iter().find(|(name, _)| *name == reader).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut failures = Vec::new();
    for (what, text) in cases {
        std::fs::write(&path, &text).unwrap();
        let file_bytes = text.len() as u64;
        let bytes_max = MULTIPLE_MAX * file_bytes + CONSTANT_BYTES;
        failures.extend(check_peak(what, file_bytes, bytes_max, || read(&path)).err());
    }
    assert!(failures.is_empty(), "too much memory:\n{}", failures.join("\n"));
}

/// Repeats a text until it fills a file. `item` gets the number of the text.
fn repeated(bytes: usize, mut item: impl FnMut(&mut String, usize)) -> String {
    let (mut text, mut number) = (String::new(), 0);
    while text.len() < bytes {
        item(&mut text, number);
        number += 1;
    }
    text
}

#[test]
fn plans() {
    let longest = (64 << 10) - 64;
    check(
        "plan",
        vec![
            ("nested lists", format!("depths = {}", "[".repeat(longest))),
            ("nested tables", format!("a = {}", "{a=".repeat(longest / 3))),
            ("a deep key", format!("{}a = 1", "a.".repeat(longest / 2))),
            ("deep sections", repeated(longest, |text, _| text.push_str("[[a.a]]\n"))),
            ("numbers", format!("depths = [{}]", "1,".repeat(longest / 2))),
            ("texts", format!("workloads = [{}]", "'',".repeat(longest / 3))),
            ("keys", repeated(longest, |text, number| writeln!(text, "a{number:x}=1").unwrap())),
            ("lines", "\n".repeat(longest)),
            ("a file that is no plan", "#".repeat(TEXT_BYTES)),
        ],
    );
}

#[test]
fn results() {
    let run = include_str!("../../fuzz/seeds/run_json/run.json");
    let with = |field: &str, value: String| {
        let (before, after) = run.split_once(field).unwrap();
        let end = after.find(']').unwrap();
        format!("{before}{field}{}{value}{}", &after[..end], &after[end..])
    };
    let many = |item: &str| {
        let mut text = format!(",{item}").repeat(TEXT_BYTES / (item.len() + 1));
        text.shrink_to_fit();
        text
    };
    let cell_at = run.find("\"cells\": [").unwrap() + "\"cells\": [".len();
    let cell = &run[cell_at..run.rfind(']').unwrap()];
    let cells = format!("{}{}", &run[..cell_at], cell) + &many(cell) + "]}";
    check(
        "run_json",
        vec![
            ("nested lists", "[".repeat(TEXT_BYTES)),
            ("nested objects", "{\"a\":".repeat(TEXT_BYTES / 5)),
            (
                "nested lists in a run",
                format!("{{\"schema_version\": 1, \"a\": {}", "[".repeat(TEXT_BYTES)),
            ),
            (
                "keys",
                format!(
                    "{{{}",
                    repeated(TEXT_BYTES, |text, n| write!(text, "\"{n:x}\":1,").unwrap())
                ),
            ),
            ("warnings", with("\"warnings\": [", many("\"\""))),
            ("arguments", with("\"command\": [", many("\"\""))),
            ("numbers", with("\"batches\": [", many("1"))),
            ("workloads", with("\"workloads\": [", many("\"\""))),
            ("cells", cells),
            (
                "a log of cells",
                format!(
                    "{}\n{}",
                    run.replace('\n', " "),
                    format!("{cell}\n").repeat(TEXT_BYTES / cell.len())
                ),
            ),
            (
                "a long text",
                run.replacen("\"Linux\"", &format!("\"{}\"", "\\n".repeat(TEXT_BYTES / 2)), 1),
            ),
        ],
    );
}

#[test]
fn traces() {
    let own = "ringmain recording 1\n";
    let files = repeated(TEXT_BYTES, |text, n| writeln!(text, "f {n} {n:x}").unwrap());
    let read_files =
        repeated(TEXT_BYTES, |text, n| write!(text, "f {n} {n:x}\nb 0 0 {n} 0 1\n").unwrap());
    let added = repeated(TEXT_BYTES, |text, n| writeln!(text, "{n:x} add").unwrap());
    let read_added =
        repeated(TEXT_BYTES, |text, n| write!(text, "{n:x} add\n{n:x} read 0 1\n").unwrap());
    let one = format!("{own}f 0 a\n");
    let read = "1 1.0 pread64(3</a>, 0, 1, 0)=1\n";
    let log = |line: fn(&mut String, usize)| read.to_owned() + &repeated(TEXT_BYTES, line);
    let threads = log(|text, n| writeln!(text, "{n} 1.0 dup(3)=4").unwrap());
    let children = log(|text, n| writeln!(text, "1 1.0 fork()={}", n + 2).unwrap());
    let opened = log(|text, n| writeln!(text, "1 1.0 open(\"/{n:x}\")={n}").unwrap());
    let mapped = log(|text, n| writeln!(text, "1 1.0 mmap(0,1,0,0,3</a>,0)={}", 2 * n).unwrap());
    let copies = opened[..TEXT_BYTES / 2].to_owned() + "\n" + &children;
    let unfinished = log(|text, n| writeln!(text, "{n} 1.0 fork(<unfinished ...>").unwrap());
    check(
        "trace",
        vec![
            // The list has just grown: this is its worst length.
            ("one batch", format!("{one}b 0 0{}\n", " 0 0 1".repeat((1 << 19) + 1))),
            ("batches", format!("{one}{}", "b 0 0 0 0 1\n".repeat(TEXT_BYTES / 12))),
            ("files", format!("{own}{files}")),
            ("files that are read", format!("{own}{read_files}")),
            ("a long path", format!("{own}f 0 {}\nb 0 0 0 0 1\n", "x".repeat(TEXT_BYTES))),
            ("a long line", "x".repeat(TEXT_BYTES)),
            (
                "reads of an iolog",
                format!("fio version 2 iolog\na add\n{}", "a read 0 1\n".repeat(TEXT_BYTES / 11)),
            ),
            ("threads of a program", threads),
            ("children with many files", copies),
            ("children of a program", children),
            ("open files of a program", opened),
            ("mappings of a program", mapped),
            ("calls that never return", unfinished),
            ("files of an iolog", format!("fio version 2 iolog\n{added}")),
            ("files of an iolog that are read", format!("fio version 2 iolog\n{read_added}")),
        ],
    );
}
