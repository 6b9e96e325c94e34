use super::line::stamp;
use super::*;
use crate::trace::Trace;

/// A program with a child and a thread, as strace 6.1 logged it.
const PROGRAM: &str = r#"87 40.741638 openat(AT_FDCWD</tmp>, "/d/x.bin", O_RDONLY|O_CLOEXEC) = 3</d/x.bin> <0.000015>
87 40.741708 read(3</d/x.bin>, ""..., 1000) = 1000 <0.000019>
87 40.741766 read(3</d/x.bin>, ""..., 1000) = 1000 <0.000011>
87 40.741809 lseek(3</d/x.bin>, 4096, SEEK_SET) = 4096 <0.000010>
87 40.741847 read(3</d/x.bin>, ""..., 10) = 10 <0.000011>
87 40.741890 pread64(3</d/x.bin>, ""..., 100, 5000) = 100 <0.000011>
87 40.741935 fcntl(3</d/x.bin>, F_DUPFD_CLOEXEC, 0) = 4</d/x.bin> <0.000011>
87 40.741981 read(4</d/x.bin>, ""..., 7) = 7 <0.000011>
87 40.742000 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD <unfinished ...>
52 40.747790 read(3</d/x.bin>, ""..., 11) = 11 <0.000026>
87 40.747900 <... clone resumed>, child_tidptr=0x7f) = 52 <0.005>
52 40.748000 +++ exited with 0 +++
87 40.748694 read(3</d/x.bin>, ""..., 12) = 12 <0.000013>
87 40.748784 preadv2(3</d/x.bin>, [...], 2, 100, 0) = 11 <0.000013>
87 40.748837 readv(3</d/x.bin>, [...], 2) = 11 <0.000011>
87 40.750000 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD} => {parent_tid=[53]}, 88) = 53
53 40.754884 pread64(3</d/x.bin>,  <unfinished ...>
87 40.754890 read(0<pipe:[1]>, ""..., 5) = 5 <0.000001>
53 40.754900 <... pread64 resumed>""..., 33, 1) = 33 <0.000048>
87 40.754950 read(3</d/x.bin>, ""..., 9) = 0 <0.000001>
87 40.755000 read(5</proc/self/maps>, ""..., 9) = 9 <0.000001>
87 40.755100 pread64(3</d/x.bin>, 0x1, 9, 4) = -1 EIO (Input/output error) <0.000001>
"#;

fn parse(text: &str) -> Trace {
    Trace::parse(text.as_bytes()).unwrap()
}

/// Offset, bytes, thread and process of each read.
fn reads(trace: &Trace) -> Vec<(u64, u64, u32, Option<u32>)> {
    let batches = trace.batches();
    let one = |batch: crate::trace::Batch<'_>| {
        let thread = batch.head.thread;
        (batch.reads[0].offset, batch.reads[0].bytes, thread, trace.process_of(thread))
    };
    batches.map(one).collect()
}

#[test]
fn positions_follow_forks_threads_and_duplicates() {
    let trace = parse(PROGRAM);
    let (parent, child) = (Some(87), Some(52));
    assert_eq!(
        reads(&trace),
        [
            (0, 1000, 0, parent),
            (1000, 1000, 0, parent),
            (4096, 10, 0, parent),
            (5000, 100, 0, parent),
            (4106, 7, 0, parent),
            (4113, 11, 1, child),
            (4124, 12, 0, parent),
            (100, 11, 0, parent),
            (4136, 11, 0, parent),
            (1, 33, 2, parent),
        ]
    );
    let first = trace.batches().next().unwrap().head;
    assert_eq!((first.at_us, first.took_us), (0, 19));
    assert_eq!(trace.batches().last().unwrap().head.took_us, 48);
}

#[test]
fn a_copy_in_the_kernel_reads_its_source() {
    let log = "7 1.0 openat(AT_FDCWD</>, \"/d/a\", O_RDONLY) = 3</d/a>\n\
               7 1.1 copy_file_range(3</d/a>, NULL, 4</d/b>, NULL, 900, 0) = 500\n\
               7 1.2 copy_file_range(3</d/a>, NULL, 4</d/b>, NULL, 900, 0) = 400\n\
               7 1.3 sendfile(4</d/b>, 3</d/a>, [64] => [84], 20) = 20\n\
               7 1.4 splice(3</d/a>, NULL, 5<pipe:[1]>, NULL, 10, 0) = 10\n";
    let found: Vec<_> = reads(&parse(log)).iter().map(|read| (read.0, read.1)).collect();
    assert_eq!(found, [(0, 500), (500, 400), (64, 20), (900, 10)]);
}

/// Without `-f`, `-y` and times.
#[test]
fn the_plainest_log_has_the_names_of_open() {
    let log = "execve(\"/bin/cat\", [\"cat\"], 0x7ff /* 20 vars */) = 0\n\
               openat(AT_FDCWD, \"/d/with space, and (more)\", O_RDONLY) = 3\n\
               read(3, \"a\\\"b), = 7\", 4096) = 10\n\
               read(3, \"\", 4096) = 0\n";
    let trace = parse(log);
    assert_eq!(trace.files[0].path, Path::new("/d/with space, and (more)"));
    assert_eq!(reads(&trace), [(0, 10, 0, Some(0))]);
}

/// Two processes fork at the same time, and both children call before the forks return.
#[test]
fn children_get_the_files_of_their_own_parent() {
    let log = "1 1.0 lseek(3</d/a>, 1000, SEEK_SET) = 1000\n\
               2 1.1 lseek(3</d/a>, 2000, SEEK_SET) = 2000\n\
               1 1.2 fork( <unfinished ...>\n\
               2 1.3 fork( <unfinished ...>\n\
               22 1.4 read(3</d/a>, \"\"..., 5) = 5\n\
               11 1.5 read(3</d/a>, \"\"..., 5) = 5\n\
               11 1.6 +++ exited with 0 +++\n\
               1 1.7 <... fork resumed>) = 11\n\
               2 1.8 <... fork resumed>) = 22\n\
               1 1.9 read(3</d/a>, \"\"..., 5) = 5\n";
    let found: Vec<_> = reads(&parse(log)).iter().map(|read| (read.0, read.3)).collect();
    assert_eq!(found, [(2000, Some(22)), (1000, Some(11)), (1005, Some(1))]);
    // The call that makes the child never returns.
    let cut = "1 1.2 fork( <unfinished ...>\n22 1.4 read(3</d/a>, \"\"..., 5) = 5\n";
    assert_eq!(reads(&parse(cut)), [(0, 5, 1, Some(22))]);
}

/// Each process forks the next one, and every fork returns late: this overflowed the stack.
#[test]
fn a_long_chain_of_children_is_followed() {
    let last = 50_000;
    let mut log = "1 1.0 lseek(3</d/a>, 77, SEEK_SET) = 77\n".to_owned();
    (1..last).for_each(|id| log += &format!("{id} 1.1 fork( <unfinished ...>\n"));
    log += &format!("{last} 1.2 read(3</d/a>, \"\"..., 5) = 5\n");
    (1..last).rev().for_each(|id| log += &format!("{id} 1.3 <... fork resumed>) = {}\n", id + 1));
    assert_eq!(reads(&parse(&log)), [(77, 5, last - 1, Some(last))]);
}

#[test]
fn relative_times_are_added_up() {
    for log in [
        "0.000000 pread64(3</d/a>, \"\", 1, 0) = 1\n0.5 pread64(3</d/a>, \"\", 1, 1) = 1\n\
         0.25 pread64(3</d/a>, \"\", 1, 2) = 1\n",
        "7 9.0 (+ 0.0) pread64(3</d/a>, \"\", 1, 0) = 1\n7 9.5 (+ 0.5) pread64(3</d/a>, \"\", 1, 1) = 1\n\
         7 9.75 (+ 0.25) pread64(3</d/a>, \"\", 1, 2) = 1\n",
    ] {
        let times: Vec<_> = parse(log).batches().map(|batch| batch.head.at_us).collect();
        assert_eq!(times, [0, 500_000, 750_000], "{log}");
    }
}

/// The line was cut off in the number of bytes.
#[test]
fn the_last_line_of_a_log_that_was_cut_off_is_not_used() {
    let log =
        "7 1.0 pread64(3</d/a>, \"\", 1, 0) = 1\n7 1.1 pread64(3</d/a>, \"\", 1000, 5000) = 10";
    assert_eq!(parse(log).reads().len(), 1);
}

#[test]
fn impossible_times_are_no_times() {
    for head in [
        "1 0:0:18446744073709.5 read(3</a>, \"\", 1) = 1",
        "1 255:255:18446744073709.5 read(3) = 1",
    ] {
        assert!(stamp(head.split(' ').nth(1).unwrap().as_bytes()).is_none(), "{head}");
        let _ = Trace::parse(format!("{head}\n").as_bytes());
    }
}

#[test]
fn times_of_day_go_on_after_midnight() {
    let log = "[pid  7] 23:59:59.5 pread64(3</d/a>, \"\"..., 1, 0) = 1\n\
               [pid  8] 00:00:00.25 pread64(3</d/a>, \"\"..., 1, 1) = 1\n\
               [pid  7] 00:00:01 pread64(3</d/a>, \"\"..., 1, 2) = 1\n";
    let times: Vec<_> = parse(log).batches().map(|batch| batch.head.at_us).collect();
    assert_eq!(times, [0, 750_000, 1_500_000]);
}

#[test]
fn a_fault_reads_a_page_of_the_mapped_file() {
    let log = "7 1.0 openat(AT_FDCWD</>, \"/d/a\", O_RDONLY) = 3</d/a>\n\
               7 1.1 mmap(NULL, 65536, PROT_READ, MAP_SHARED, 3</d/a>, 0x1000) = 0x10000 <0.00001>\n\
               7 1.2 mmap(NULL, 65536, PROT_READ|PROT_EXEC, MAP_PRIVATE, 4</d/lib.so>, 0) = 0x40000\n\
               7 1.3 pread64(3</d/a>, \"\"..., 5, 9) = 5\n\
               7 1.5 munmap(0x10000, 65536) = 0\n\
               7 1.6 close(3</d/a>) = 0\n";
    let fault = |at_us, thread, address| PageFault { at_us, thread, address };
    let faults = [
        fault(1_050_000, 7, 0x12345), // not mapped yet
        fault(1_250_000, 7, 0x12345),
        fault(1_260_000, 7, 0x41000),  // a library
        fault(1_270_000, 99, 0x12345), // another program
        fault(1_400_000, 7, 0x1F000),
        fault(1_550_000, 7, 0x12345), // not mapped any more
    ];
    let page_bytes = page_bytes();
    let trace = Trace::of_program(log.as_bytes(), &faults, None).unwrap();
    let found: Vec<_> =
        trace.batches().map(|b| (b.head.by, b.reads[0].offset, b.reads[0].bytes)).collect();
    let page = |offset: u64| (ReadBy::Fault, offset - offset % page_bytes, page_bytes);
    assert_eq!(found, [page(0x3345), (ReadBy::Call, 9, 5), page(0x10000)]);
    assert!(trace.notes.is_empty(), "{:?}", trace.notes);
}

#[test]
fn what_the_log_cannot_show_is_noted() {
    let log = "7 1.0 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3</d/a>, 0) = 0x10000\n\
               7 1.1 io_uring_enter(5, 1, 1, 0, NULL, 8) = 1\n\
               7 1.2 pread64(3</d/a>, \"\"..., 5, 9) = 5\n";
    let notes = parse(log).notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[0].contains("1 call of io_uring or libaio") && notes[1].contains("1 mapped file;"),
        "{notes:?}"
    );
}

#[test]
fn a_process_that_ran_before_continues_where_it_was() {
    let known = KnownProcess {
        process: 7,
        threads: vec![7, 8],
        open: vec![(3, "/d/a".into(), 500)],
        mappings: vec![KnownMapping {
            addresses: 0x10000..0x20000,
            path: "/d/m".into(),
            offset: 0,
            is_code: false,
        }],
    };
    let faults = [PageFault { at_us: 1_050_000, thread: 8, address: 0x10000 }];
    let log = "8 1.0 read(3</d/a>, \"\"..., 5) = 5\n7 1.1 read(3</d/a>, \"\"..., 5) = 5\n";
    let trace = Trace::of_program(log.as_bytes(), &faults, Some(known)).unwrap();
    let found: Vec<_> = reads(&trace).iter().map(|read| (read.0, read.3)).collect();
    assert_eq!(found, [(500, Some(7)), (0, Some(7)), (505, Some(7))]);
}

#[test]
fn other_files_are_not_taken_for_logs() {
    for head in [
        "",
        "hello",
        "hello (world) = 5x",
        "# a(b)",
        "12",
        "12 13.5",
        "12 13.5 hello",
        "{\"a\": (1) = 2}",
    ] {
        assert!(!is_log(head.as_bytes()), "{head}");
    }
    for head in [
        "execve(\"/bin/cat\", [\"cat\"], 0x7ff /* 20 vars */) = 0",
        "87 40.741708 read(3</d/x.bin>, \"\"..., 1000) = 1000 <0.000019>",
        "[pid 7] read(3,  <unfinished ...>",
        "7 12:00:01 execve(\"/a/very/long/li",
        "7 +++ exited with 0 +++",
    ] {
        assert!(is_log(head.as_bytes()), "{head}");
    }
}
