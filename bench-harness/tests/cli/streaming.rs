//! `ringmain cat` over time: a reader that leaves, a file that shrinks, memory that stays flat. These tests
//! need Linux: pipes of 64 KiB, `/dev/full` and `/proc`.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::process::Command;

use crate::support::{Data, Running, backends_for, cat, ringmain, run};

/// The backends that read the file bit by bit. `memory` reads all of it at the start.
fn streaming_backends(data: &Data) -> Vec<String> {
    let mut names = backends_for(&data.path);
    names.retain(|name| name != "memory");
    names
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let data = Data::new(20 << 20);
    for backend in backends_for(&data.path) {
        let mut running = Running::start(&mut cat(&data.path, &["--backend", &backend]));
        let mut head = [0; 10];
        running.child.stdout.take().unwrap().read_exact(&mut head).unwrap();
        assert_eq!(head, data.bytes[..10]);
        assert_eq!(running.finish().stdout_of_success(), b"", "{backend}");
    }
}

#[test]
fn probe_too_may_be_cut_short() {
    let mut running = Running::start(&mut ringmain(["probe", "--json", "/tmp"]));
    drop(running.child.stdout.take());
    running.finish().stdout_of_success();
}

#[test]
fn a_full_disk_is_an_error() {
    let data = Data::new(100);
    // `Running` takes the output, so the shell redirects it.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" cat \"$1\" > /dev/full"]);
    shell.arg(env!("CARGO_BIN_EXE_ringmain")).arg(&data.path);
    run(&mut shell).expect_failure(1, &["standard output", "No space left"]);
}

#[test]
fn a_file_truncated_meanwhile_is_an_error() {
    // When the first byte is written, two windows may have been read and a third started.
    let len = 64 << 20;
    for backend in streaming_backends(&Data::sparse(len)) {
        let data = Data::sparse(len);
        let mut running = Running::start(&mut cat(&data.path, &["--backend", &backend]));
        let mut stdout = running.child.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        OpenOptions::new().write(true).open(&data.path).unwrap().set_len(1000).unwrap();
        let rest = io::copy(&mut stdout, &mut io::sink()).unwrap();
        let outcome = running.finish();
        assert_eq!(outcome.code, Some(1), "{backend}: {}", outcome.stderr);
        outcome.expect_message(&[data.name(), "past its end", "has 1000 bytes"]);
        assert!(rest < len - 1, "{backend} made up {rest} bytes");
    }
}

/// The peak of resident memory does not depend on the length of the file.
#[test]
fn memory_stays_flat() {
    let len = 256 << 20;
    let data = Data::sparse(len);
    for backend in streaming_backends(&data) {
        let mut running = Running::start(&mut cat(&data.path, &["--backend", &backend]));
        let mut stdout = running.child.stdout.take().unwrap();
        // The rest fills the pipe many times, so the program is still running.
        let seen = io::copy(&mut Read::by_ref(&mut stdout).take(len - (1 << 20)), &mut io::sink());
        assert_eq!(seen.unwrap(), len - (1 << 20));
        let status = fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        // Two windows of 8 MiB, the backend's own buffers, and the program.
        assert!(peak_kib < 64 << 10, "{backend}: {peak_kib} KiB");
        io::copy(&mut stdout, &mut io::sink()).unwrap();
        drop(stdout);
        running.finish().stdout_of_success();
    }
}
