//! Changes the files while others read them, and writes down what it does.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::board::{Board, Change, Event, State};
use crate::dice::Dice;
use crate::files::{DataFile, FileKind, Files};
use crate::system;

/// The shortest time between two changes of one file is this many ticks of the clock that the filesystem
/// stamps files with. The engine recognises a changed file by its length and its time of writing, and
/// promises nothing about two writes within one tick.
const QUIET_TICKS: u32 = 3;
/// More than two ticks of the slowest kernel clock (10 ms).
const QUIET_MIN: Duration = Duration::from_millis(25);
/// The mean time between two changes of any files.
const PACE: Duration = Duration::from_millis(8);
/// How long some files are left alone, so that whole epochs are read too.
const CALM: Duration = Duration::from_secs(3);
/// Pieces in which files are written in place.
const PIECE_BYTES: usize = 64 << 10;

/// A change of a file.
#[derive(Clone, Copy, Debug)]
enum Action {
    Cut,
    Grow,
    Replace,
    /// Deletes the file, or makes it again.
    Delete,
    MakeEmpty,
    Overwrite,
}

/// See the [module](self).
pub(crate) struct Mutator<'a> {
    board: &'a Board,
    files: &'a Files,
    dice: Dice,
    /// The shortest time between two changes of one file.
    quiet: Duration,
    changed_at: Vec<Instant>,
    calm_until: Instant,
    calm_files: u64,
}

impl<'a> Mutator<'a> {
    /// `tick` is that of the filesystem's clock.
    pub(crate) fn new(board: &'a Board, files: &'a Files, seed: u64, tick: Duration) -> Self {
        let now = Instant::now();
        Self {
            board,
            files,
            dice: Dice::new(&[seed, 0x6D75]),
            quiet: QUIET_MIN.max(tick * QUIET_TICKS),
            changed_at: vec![now; files.list.len()],
            calm_until: now,
            calm_files: 0,
        }
    }

    /// Writes the first version of every file.
    pub(crate) fn write_all(&self) -> io::Result<()> {
        for file in &self.files.list {
            let bytes = self.files.encode(file, 1);
            fs::write(&file.path, &bytes)?;
            let (change, len) = (Change::Made, bytes.len() as u64);
            let state = State { version: 1, len, change, is_whole: true };
            self.board.files[file.number].begin(state);
        }
        Ok(())
    }

    /// Changes files until the run ends.
    pub(crate) fn run(mut self) {
        while !self.board.is_stopped() {
            std::thread::sleep(PACE.mul_f64(self.dice.below(2000) as f64 / 1000.0));
            let files = self.files;
            let file = self.dice.pick(&files.list);
            if file.kind == FileKind::Steady {
                continue;
            }
            let action = self.choose(file);
            if self.is_calm(file) {
                continue;
            }
            if let Err(error) = self.act(file, action) {
                self.board.fail(&format!("{action:?} of {}: {error}", file.path.display()));
            }
            self.changed_at[file.number] = Instant::now();
        }
    }

    /// Whether the file is to be left alone now.
    fn is_calm(&mut self, file: &DataFile) -> bool {
        if Instant::now() > self.calm_until {
            self.calm_until = Instant::now() + CALM;
            // About half of the files.
            self.calm_files = self.dice.next();
        }
        (self.calm_files >> file.number) & 1 == 1
            || self.changed_at[file.number].elapsed() < self.quiet
    }

    fn choose(&mut self, file: &DataFile) -> Action {
        let state = self.board.files[file.number].current();
        let choices: &[(u64, Action)] = match (file.kind, state.change) {
            (FileKind::Plain, Change::Deleted) => &[(50, Action::Replace), (50, Action::MakeEmpty)],
            (_, Change::Deleted) => &[(100, Action::Replace)],
            (FileKind::Mapped, _) => &[(80, Action::Replace), (20, Action::Delete)],
            (_, Change::Cut) => &[(60, Action::Grow), (20, Action::Cut), (20, Action::Replace)],
            (FileKind::Plain, _) => &[
                (50, Action::Cut),
                (25, Action::Replace),
                (15, Action::Grow),
                (10, Action::Delete),
            ],
            (_, _) if !state.is_whole => &[(60, Action::Replace), (40, Action::Cut)],
            _ => &[
                (35, Action::Cut),
                (25, Action::Replace),
                (20, Action::Overwrite),
                (5, Action::Grow),
                (15, Action::Delete),
            ],
        };
        let mut roll = self.dice.below(100);
        let chosen = choices.iter().find(|(share, _)| {
            let is_it = roll < *share;
            roll = roll.saturating_sub(*share);
            is_it
        });
        chosen.map_or(Action::Replace, |(_, action)| *action)
    }

    fn act(&mut self, file: &DataFile, action: Action) -> io::Result<()> {
        let state = self.board.files[file.number].current();
        let (event, done) = match action {
            Action::Cut if state.len == 0 => return Ok(()),
            Action::Cut => (Event::Truncations, self.cut(file, state)),
            Action::Grow => (Event::Appends, self.grow(file, state)),
            Action::Replace => (Event::Replacements, self.replace(file, state)),
            Action::Delete => (Event::Deletions, self.delete(file, state)),
            Action::MakeEmpty => (Event::Replacements, self.make_empty(file, state)),
            Action::Overwrite => (Event::Overwrites, self.overwrite(file, state)),
        };
        done?;
        self.board.tally.count(event);
        Ok(())
    }

    fn change<T>(&self, file: &DataFile, state: State, change: impl FnOnce() -> T) -> T {
        self.board.files[file.number].change(state, change)
    }

    /// Inside the last page, to the border of a page, anywhere, or to nothing.
    fn cut(&mut self, file: &DataFile, state: State) -> io::Result<()> {
        let len = match self.dice.below(8) {
            0 | 1 => state.len.saturating_sub(self.dice.between(1, 4095)),
            2 | 3 => self.dice.below(state.len) & !4095,
            4 => 0,
            _ => self.dice.below(state.len),
        };
        let disk = File::options().write(true).open(&file.path)?;
        let state =
            State { len, change: Change::Cut, is_whole: file.kind == FileKind::Plain, ..state };
        self.change(file, state, || disk.set_len(len))
    }

    /// Adds bytes of the same version. A file of a format gets back what it lost, or a part of it; one that
    /// is whole gets more than its format has.
    fn grow(&mut self, file: &DataFile, state: State) -> io::Result<()> {
        let mut bytes = self.files.encode(file, state.version);
        let whole_len = bytes.len() as u64;
        let len = match file.kind {
            FileKind::Plain => {
                let len_max = self.files.grown_len_max(file).max(state.len);
                self.dice.between(state.len, len_max)
            }
            _ if state.len >= whole_len => state.len + self.dice.between(1, 5000),
            _ if self.dice.chance(80) => whole_len,
            _ => self.dice.between(state.len, whole_len),
        };
        if len > whole_len {
            bytes.resize(len as usize, 0);
            let contents = self.files.contents(file, state.version);
            contents.fill(whole_len, &mut bytes[whole_len as usize..]);
        }
        let disk = File::options().write(true).open(&file.path)?;
        let is_whole = file.kind == FileKind::Plain || len == whole_len;
        let change = Change::Grown;
        let added = &bytes[state.len as usize..len as usize];
        let state_after = State { len, change, is_whole, ..state };
        self.change(file, state_after, || write_pieces(&disk, added, state.len))
    }

    /// Puts the next version under the path.
    fn replace(&mut self, file: &DataFile, state: State) -> io::Result<()> {
        let version = state.version + 1;
        let bytes = self.files.encode(file, version);
        let other = self.beside(file);
        fs::write(&other, &bytes)?;
        let (len, change) = (bytes.len() as u64, Change::Made);
        let state = State { version, len, change, is_whole: true };
        self.change(file, state, || fs::rename(&other, &file.path))
    }

    fn delete(&mut self, file: &DataFile, state: State) -> io::Result<()> {
        let state = State { change: Change::Deleted, is_whole: false, ..state };
        self.change(file, state, || fs::remove_file(&file.path))
    }

    /// Makes the next version of a deleted file, without bytes. It grows later.
    fn make_empty(&mut self, file: &DataFile, state: State) -> io::Result<()> {
        let (version, change) = (state.version + 1, Change::Made);
        let state = State { version, len: 0, change, is_whole: true };
        self.change(file, state, || File::create_new(&file.path)).map(drop)
    }

    /// Writes the next version over the bytes of this one.
    fn overwrite(&mut self, file: &DataFile, state: State) -> io::Result<()> {
        let version = state.version + 1;
        let bytes = self.files.encode(file, version);
        let disk = File::options().write(true).open(&file.path)?;
        let (len, change) = (bytes.len() as u64, Change::Overwritten);
        let state = State { version, len, change, is_whole: true };
        self.change(file, state, || write_pieces(&disk, &bytes, 0))
    }

    fn beside(&self, file: &DataFile) -> PathBuf {
        file.path.with_extension("next")
    }
}

/// Drops files from the page cache until the run ends, so that reads meet cold data.
pub(crate) fn drop_caches(board: &Board, files: &Files, seed: u64) {
    let mut dice = Dice::new(&[seed, 0x6472]);
    while !board.is_stopped() {
        std::thread::sleep(Duration::from_millis(dice.below(400)));
        // It may have been deleted.
        let dropped = File::open(&dice.pick(&files.list).path)
            .and_then(|file| system::drop_from_cache(&file));
        if dropped.is_ok() {
            board.tally.count(Event::CacheDrops);
        }
    }
}

/// The tick of the clock that stamps files in a folder: the smallest difference that was seen between the times
/// of two writes.
pub(crate) fn clock_tick(dir: &Path) -> io::Result<Duration> {
    let path = dir.join("tick");
    let stamp = || {
        fs::write(&path, "tick")?;
        path.metadata()?.modified()
    };
    let mut ticks = Vec::new();
    for _ in 0..5 {
        let (begin, first) = (Instant::now(), stamp()?);
        while begin.elapsed() < Duration::from_secs(5) {
            if let Ok(tick) = stamp()?.duration_since(first)
                && !tick.is_zero()
            {
                ticks.push(tick);
                break;
            }
        }
    }
    ticks.into_iter().min().ok_or_else(|| {
        io::Error::other(format!("{}: files have no times of writing", dir.display()))
    })
}

fn write_pieces(disk: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        disk.write_all_at(piece, offset + (number * PIECE_BYTES) as u64)?;
    }
    Ok(())
}
