//! Traces of both formats, valid and damaged.

use std::collections::BTreeMap;
use std::thread;

use ringmain::{BackendKind, ContiguousMemmap, Engine, Kind};

use super::*;
use crate::fixture::dice::Dice;

fn parse(text: &str) -> Result<Trace, String> {
    Trace::parse(text.as_bytes()).map_err(|fault| fault.in_file(Path::new("t")).to_string())
}

const V2: &str = "fio version 2 iolog\n/d/a add\n/d/b add\n/d/a open\n/d/a read 0 4096\n\
                  /d/a wait 500 0\n/d/b read 8192 512\n/d/a write 0 4096\n/d/a sync 0 0\n\
                  /d/a read 4096 4096\n/d/a read 9 0\n/d/a trim 0 1\n/d/a datasync\n/d/a close\n";

const V3: &str = "fio version 3 iolog\r\n0 /d/a add\r\n5 /d/a open\r\n7 /d/a read 0 4096\r\n\
                  1900 /d/a read 4096 100\r\n2000 /d/a close\r\n";

/// As fio 3.33 wrote it, but for the path.
const BY_FIO: &str = "fio version 3 iolog\n31 /data/d.bin add\n1438 /data/d.bin open\n\
    1446 /data/d.bin read 249856 4096\n1473 /data/d.bin read 3104768 4096\n\
    1481 /data/d.bin write 1970176 4096\n1492 /data/d.bin read 1683456 4096\n\
    1519 /data/d.bin close\n";

const OWN: &str = "ringmain recording 1\nf 0 /d/a b\nb 3 0 0 0 10 0 90 20\nf 1 /d/c\\\\\\n\nb 9 1 1 5 6\ne 2 3 36\n";

#[test]
fn iolog_version_2() {
    let trace = parse(V2).unwrap();
    let files: Vec<_> =
        trace.files.iter().map(|f| (f.path.to_str().unwrap(), f.bytes_needed)).collect();
    assert_eq!(files, [("/d/a", 8192), ("/d/b", 8704)]);
    let reads: Vec<_> = trace.batches().map(|batch| batch.reads.to_vec()).collect();
    let read = |offset, bytes, file| vec![TraceRead { offset, bytes, file }];
    assert_eq!(reads, [read(0, 4096, 0), read(8192, 512, 1), read(4096, 4096, 0)]);
    let note = "not replayed, because only reads are: 1 write, 1 sync, 1 datasync, 1 trim, 1 wait";
    assert_eq!(trace.notes, [note]);
    assert_eq!((trace.reads().len(), trace.total_bytes()), (3, 8704));
}

#[test]
fn iolog_version_3_has_times() {
    let trace = parse(V3).unwrap();
    let batches: Vec<_> = trace.batches().map(|b| (b.head.at_us, b.reads[0].offset)).collect();
    assert_eq!(batches, [(7, 0), (1900, 4096)]);
    assert!(trace.notes.is_empty());
}

#[test]
fn a_log_of_fio_is_parsed() {
    let trace = parse(BY_FIO).unwrap();
    let batches: Vec<_> = trace.batches().map(|b| (b.head.at_us, b.reads[0].offset)).collect();
    assert_eq!(batches, [(1446, 249_856), (1473, 3_104_768), (1492, 1_683_456)]);
    assert_eq!(trace.files[0].bytes_needed, 3_104_768 + 4096);
}

#[test]
fn a_recording_keeps_its_batches() {
    let trace = parse(OWN).unwrap();
    let batches: Vec<_> =
        trace.batches().map(|b| (b.head.at_us, b.head.thread, b.reads.len())).collect();
    assert_eq!(batches, [(3, 0, 2), (9, 1, 1)]);
    let files: Vec<_> =
        trace.files.iter().map(|f| (f.path.to_str().unwrap(), f.bytes_needed)).collect();
    assert_eq!(files, [("/d/a b", 110), ("/d/c\\\n", 11)]);
    assert!(trace.notes.is_empty());
}

#[test]
fn a_recording_that_was_cut_off_is_used_as_far_as_it_goes() {
    let whole_lines = "ringmain recording 1\nf 0 /a\nb 3 0 0 0 10\n";
    for tail in ["", "b 4 0 0 1", "e 1 1", "f 1 /b"] {
        let trace = parse(&format!("{whole_lines}{tail}")).unwrap();
        assert_eq!(trace.reads().len(), 1, "{tail}");
        assert!(trace.notes[0].contains("has no end"), "{tail}");
    }
}

#[test]
fn mistakes_are_named_with_line_and_column() {
    let cases = [
        ("", "t: line 1, column 1: expected `ringmain recording 2`"),
        ("fio version 1 iolog\n", "found `fio version 1 iolog`"),
        ("fio version 2 iolog\n", "the trace has no reads"),
        ("fio version 2 iolog\n/a add\n/a raed 0 1\n", "line 3, column 4: expected an action"),
        ("fio version 2 iolog\n/a read 0 1\n", "line 2, column 1: `/a` is used before"),
        (
            "fio version 2 iolog\n/a add\n/a read 0\n",
            "line 3, column 10: the line ends where a length",
        ),
        (
            "fio version 2 iolog\n/a add\n/a read 0 -1\n",
            "column 11: expected a length in bytes, found `-1`",
        ),
        ("fio version 2 iolog\n/a add\n/a read 0 1 2\n", "column 13: expected the end of the line"),
        (
            "fio version 2 iolog\n/a add\n/a read 9223372036854775807 1\n",
            "line 3, column 9: the read ends beyond",
        ),
        ("fio version 3 iolog\n/a add\n", "line 2, column 1: expected the time in microseconds"),
        ("ringmain recording 1\nx\n", "line 2, column 1: expected `f`, `b` or `e`, found `x`"),
        ("ringmain recording 1\nb 0 0 0 0 1\n", "line 2, column 7: no earlier line names file 0"),
        (
            "ringmain recording 1\nf 1 /a\n",
            "line 2, column 3: expected 0, the next file, found `1`",
        ),
        ("ringmain recording 1\nf 0 /a\\q\n", "line 2, column 5: a backslash must"),
        (
            "ringmain recording 1\nf 0 /a\nb 0 0\n",
            "line 3, column 6: the line ends where the number of a file",
        ),
        (
            "ringmain recording 1\nf 0 /a\nb 0 5000000000 0 0 1\n",
            "line 3, column 5: the number of a thread is too large",
        ),
        (
            "ringmain recording 1\nf 0 /a\nb 0 0 0 0 1\ne 1 1 2\n",
            "line 4, column 1: the last line counts [1, 1, 2]",
        ),
        (
            "ringmain recording 1\nf 0 /a\nb 0 0 0 0 1\ne 1 1 1\nf\n",
            "line 5, column 1: there are lines after",
        ),
    ];
    for (text, part) in cases {
        let message = parse(text).unwrap_err();
        assert!(message.contains(part), "{text:?}: {message}");
    }
}

#[test]
fn files_that_are_missing_or_too_short_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (short, missing) = (dir.path().join("short"), dir.path().join("missing"));
    fs::write(&short, [0; 100]).unwrap();
    let (short, missing) = (short.display(), missing.display());
    let log = dir.path().join("log");
    let text = |len: u64| {
        format!("fio version 2 iolog\n{short} add\n{missing} add\n{short} read 90 {len}\n")
    };
    fs::write(&log, text(10)).unwrap();
    assert_eq!(Trace::open(&log).unwrap().files.len(), 1);
    fs::write(&log, text(4006) + &format!("{missing} read 0 1\n")).unwrap();
    let message = Trace::open(&log).unwrap_err().to_string();
    assert!(message.contains("none of its files can be read again"), "{message}");
    assert!(message.contains(&format!("{short} has 100 bytes, and 4 KiB are read")), "{message}");
    assert!(message.contains(&format!("{missing}: No such file")), "{message}");
    fs::write(&log, text(10) + &format!("{missing} read 0 1\n")).unwrap();
    let trace = Trace::open(&log).unwrap();
    assert_eq!((trace.files.len(), trace.reads().len()), (1, 1));
    let part = format!("1 of 2 files are left out: {missing}: No such file");
    assert!(trace.notes[0].starts_with(&part), "{:?}", trace.notes);
    let nothing = Trace::open(&dir.path().join("nothing")).unwrap_err();
    assert!(matches!(nothing, Failure::ReadFile { .. }));
}

/// Valid traces with a few changed bytes are refused or give a consistent trace.
#[test]
fn broken_bytes_never_break_the_reader() {
    let mut dice = Dice(5);
    let pick = |dice: &mut Dice, len: usize| (dice.roll() % len as u64) as usize;
    let alphabet = b" \n\r\t0123456789abefrxw/\\\xFF\0-+";
    let mut understood = 0;
    for trial in 0..20_000 {
        let mut text = [V2, V3, OWN][trial % 3].as_bytes().to_vec();
        for _ in 0..=pick(&mut dice, 4) {
            let at = pick(&mut dice, text.len());
            match pick(&mut dice, 3) {
                0 => text[at] = alphabet[pick(&mut dice, alphabet.len())],
                1 => text.truncate(at.max(1)),
                _ => text.insert(at, alphabet[pick(&mut dice, alphabet.len())]),
            }
        }
        let Ok(trace) = Trace::parse(text.as_slice()) else { continue };
        understood += 1;
        assert_eq!(
            trace.batches().map(|batch| batch.reads.len()).sum::<usize>(),
            trace.reads().len()
        );
        for read in trace.reads() {
            let file = &trace.files[read.file as usize];
            assert!(read.offset + read.bytes <= file.bytes_needed);
        }
    }
    assert!((1000..19_000).contains(&understood), "{understood}");
}

const ROWS: usize = 64;
const ROW_BYTES: usize = 1000;

/// Two files of rows, one of them with an odd name.
fn data(dir: &Path) -> [PathBuf; 2] {
    ["rows one.bin", "rows\\two\n.bin"].map(|name| {
        let path = dir.join(name);
        fs::write(&path, vec![3; ROWS * ROW_BYTES]).unwrap();
        path
    })
}

fn open_rows(engine: &Engine, path: &Path) -> ContiguousMemmap {
    engine.open_raw(path, Kind::U8, &[ROWS, ROW_BYTES], 0).unwrap()
}

/// Batches of rows of both files, and the bytes they make, in the order of the seed.
fn epoch(engine: &Engine, paths: &[PathBuf], seed: u64) -> Vec<Vec<(usize, usize)>> {
    let views: Vec<_> = paths.iter().map(|path| open_rows(engine, path)).collect();
    let mut dice = Dice(seed);
    (0..10)
        .map(|_| {
            let picks: Vec<(usize, usize)> = (0..=dice.roll() % 7)
                .map(|_| (dice.roll() as usize % views.len(), dice.roll() as usize % ROWS))
                .collect();
            let rows: Vec<_> =
                picks.iter().map(|(file, row)| views[*file].at(*row as i64).unwrap()).collect();
            let mut bytes = vec![0; rows.len() * ROW_BYTES];
            engine.read_many_bytes(&rows, &mut bytes).unwrap();
            picks
        })
        .collect()
}

/// The recording has every requested byte and no other. (Adjacent reads may have been merged.)
#[test]
fn what_engines_record_is_what_they_read() {
    // Beside the test program and not in `/tmp`, which may be in memory, where `O_DIRECT` fails.
    let program = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let paths = data(dir.path());
    let mut tried = 0;
    for kind in BackendKind::ALL {
        let log = dir.path().join(format!("{kind}.rec"));
        let built = Engine::builder().backend(kind).ignore_profile().record(&log).build();
        let Ok(engine) = built else { continue };
        if engine.backend().open(&paths[0]).is_err() {
            continue;
        }
        let asked = epoch(&engine, &paths, 77);
        let status = engine.recording().unwrap().finish();
        assert_eq!((status.stopped, status.batches), (None, 10), "{kind}");
        let trace = Trace::open(&log).unwrap();
        assert!(trace.notes.is_empty(), "{kind}: {:?}", trace.notes);
        for (batch, picks) in trace.batches().zip(&asked) {
            let places = |reads: &[TraceRead]| -> Vec<usize> {
                let of_read = |read: &TraceRead| {
                    let path = &trace.files[read.file as usize].path;
                    let file = paths.iter().position(|known| known == path).unwrap();
                    let start = file * ROWS * ROW_BYTES + read.offset as usize;
                    start..start + read.bytes as usize
                };
                let mut places: Vec<usize> = reads.iter().flat_map(of_read).collect();
                places.sort_unstable();
                places
            };
            let row_of = |(file, row): &(usize, usize)| {
                let start = (file * ROWS + row) * ROW_BYTES;
                start..start + ROW_BYTES
            };
            let mut expected: Vec<usize> = picks.iter().flat_map(row_of).collect();
            expected.sort_unstable();
            assert_eq!(places(batch.reads), expected, "{kind}");
        }
        tried += 1;
    }
    assert!(tried >= 3, "{tried} backends");
}

#[test]
fn threads_are_distinct_and_batches_stay_whole() {
    let dir = tempfile::tempdir().unwrap();
    let paths = data(dir.path());
    let log = dir.path().join("epoch.rec");
    let plain = Engine::builder().ignore_profile().build().unwrap();
    let engine = plain.record(&log).unwrap();
    epoch(&plain, &paths, 1);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (engine, paths) = (&engine, &paths);
            scope.spawn(move || epoch(engine, paths, seed));
        }
    });
    assert!(engine.describe().to_string().contains("recording to"), "{}", engine.describe());
    drop(engine);
    let trace = Trace::open(&log).unwrap();
    assert!(trace.notes.is_empty(), "{:?}", trace.notes);
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    trace.batches().for_each(|batch| *counts.entry(batch.head.thread).or_default() += 1);
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [10; 4]);
    assert_eq!(trace.files.len(), 2);
}
