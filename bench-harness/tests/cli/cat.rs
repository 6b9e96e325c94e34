//! `ringmain cat`: the bytes, and requests for bytes that do not exist.

use crate::fixture::dice::Dice;
use crate::support::{Data, backends_for, cat, ringmain, run};

#[test]
fn every_backend_returns_the_same_bytes_at_random_ranges() {
    // Two windows and a tail without any alignment.
    let data = Data::new((20 << 20) + 4321);
    for backend in backends_for(&data.path) {
        let mut dice = Dice(0x0001_2345);
        for round in 0..30 {
            let offset = dice.below(data.bytes.len() as u64) as usize;
            // A few bytes, some pages and megabytes in turn.
            let len_max = [100, 70_000, data.bytes.len()][round % 3];
            let length = (dice.below(len_max as u64) as usize).min(data.bytes.len() - offset);
            let range = [offset.to_string(), length.to_string()];
            let args = ["--offset", &range[0], "--length", &range[1], "--backend", &backend];
            let bytes = run(&mut cat(&data.path, &args)).stdout_of_success();
            assert!(bytes == data.bytes[offset..offset + length], "{args:?}");
        }
    }
}

#[test]
fn every_backend_returns_the_whole_file_and_any_end_of_it() {
    let data = Data::new((9 << 20) + 511);
    let whole = run(&mut cat(&data.path, &[])).stdout_of_success();
    assert!(whole == data.bytes, "by default");
    for backend in backends_for(&data.path) {
        for offset in [0, 1, 4096, 8 << 20, (8 << 20) + 513, data.bytes.len() - 1] {
            let args = ["--backend", &backend, "--offset", &offset.to_string()];
            let bytes = run(&mut cat(&data.path, &args)).stdout_of_success();
            assert!(bytes == data.bytes[offset..], "{args:?}");
        }
    }
}

#[test]
fn sizes_may_have_units() {
    let data = Data::new(3 << 20);
    let args = ["--offset", "1MiB", "--length", "64k"];
    let bytes = run(&mut cat(&data.path, &args)).stdout_of_success();
    assert!(bytes == data.bytes[1 << 20..(1 << 20) + (64 << 10)]);
}

#[test]
fn empty_ranges_are_no_error() {
    let (data, empty) = (Data::new(1000), Data::new(0));
    for backend in backends_for(&data.path) {
        let run = |data: &Data, args: &[&str]| {
            let args = [args, &["--backend", &backend]].concat();
            assert_eq!(run(&mut cat(&data.path, &args)).stdout_of_success(), b"", "{args:?}");
        };
        run(&empty, &[]);
        run(&empty, &["--length", "0"]);
        run(&data, &["--offset", "1000"]);
        run(&data, &["--length", "0"]);
        run(&data, &["--offset", "18446744073709551615", "--length", "0"]);
    }
}

#[test]
fn bytes_past_the_end_are_an_error_before_any_output() {
    let (data, empty, large) = (Data::new(1000), Data::new(0), Data::new(9 << 20));
    let expect = |data: &Data, args: &[&str], parts: &[&str]| {
        let outcome = run(&mut cat(&data.path, args));
        outcome.expect_failure(1, &[parts, &[data.name()]].concat());
    };
    expect(&data, &["--offset", "1001"], &["offset 1001", "1000 bytes"]);
    expect(&data, &["--length", "1001"], &["1001 bytes at offset 0", "past its end", "has 1000"]);
    expect(&data, &["--offset", "999", "--length", "2"], &["2 bytes at offset 999", "has 1000"]);
    expect(&data, &["--offset", "1000", "--length", "1"], &["offset 1000"]);
    expect(&empty, &["--length", "1"], &["1 byte at offset 0", "has 0 bytes"]);
    // The first window exists, but must not be written.
    expect(&large, &["--length", "9437185"], &["9437185 bytes at offset 0", "has 9437184"]);
    let max = u64::MAX.to_string();
    expect(&data, &["--offset", &max], &[&max, "1000 bytes"]);
    expect(&data, &["--offset", &max, "--length", &max], &[&max, "has 1000"]);
    expect(&data, &["--offset", "1", "--length", &max], &[&max, "has 1000"]);
}

#[test]
fn missing_files_and_directories_are_errors() {
    let data = Data::new(10);
    for backend in backends_for(&data.path) {
        let args = ["--backend", &backend];
        let missing = data.dir().join("missing.bin");
        let parts = ["cannot open", missing.to_str().unwrap(), "(os error 2)"];
        run(&mut cat(&missing, &args)).expect_failure(2, &parts);
        let dir = data.dir().to_str().unwrap();
        run(&mut cat(data.dir(), &args)).expect_failure(1, &[dir, "is a directory"]);
    }
}

/// `cat` and `probe` used to return 1, the other commands 2.
#[test]
fn a_missing_file_is_exit_code_2_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 10] = [
        &["cat", "missing"],
        &["probe", "missing"],
        &["inspect", "missing"],
        &["bench", "--file", "missing"],
        &["bench", "--dir", "missing"],
        &["bench", "--trace", "missing"],
        &["bench", "--plan", "missing"],
        &["recommend", "--from", "missing"],
        &["compare", "missing", "missing"],
        &["report", "missing"],
    ];
    for command in commands {
        let outcome = run(ringmain(command).current_dir(dir.path()));
        outcome.expect_failure(2, &["missing", "o such file"]);
    }
}

#[test]
fn bad_arguments_have_exit_code_2() {
    let data = Data::new(10);
    let cases: [(&[&str], &str); 9] = [
        (&["--backend", "urnig"], "did you mean `uring`?"),
        (&["--backend", "tape"], "there are pread, mmap, direct, uring"),
        (&["--offset", "-1"], "cannot be negative"),
        (&["--offset=-1"], "cannot be negative"),
        (&["--length", "-64k"], "cannot be negative"),
        (&["--length", "18446744073709551616"], "more than"),
        (&["--length", "5x"], "not a unit"),
        (&["--offset", ""], "digit"),
        (&["--lenght", "5"], "--length"),
    ];
    for (args, part) in cases {
        run(&mut cat(&data.path, args)).expect_failure(2, &[part]);
    }
    run(&mut ringmain(["cat"])).expect_failure(2, &["FILE"]);
    run(&mut ringmain(["catch"])).expect_failure(2, &["cat"]);
}

#[test]
fn help_has_examples_and_goes_to_stdout() {
    for command in ["cat", "probe"] {
        let help = run(&mut ringmain([command, "--help"])).stdout_of_success();
        let help = String::from_utf8(help).unwrap();
        assert!(help.contains(&format!("Examples:\n  ringmain {command}")), "{help}");
    }
    let version = run(&mut ringmain(["--version"])).stdout_of_success();
    assert_eq!(version, format!("ringmain {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
}
