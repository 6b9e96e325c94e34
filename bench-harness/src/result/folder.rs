//! The folder of a run. Each cell is written to it as soon as the cell ends, and the whole result
//! at the end of the run.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Cell, Run};
use crate::failure::Failure;

/// The default folder of results.
pub(crate) const RESULTS: &str = "ringmain-results";

/// Where a run keeps its files.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder {
    /// `ringmain-results/<time>`.
    pub path: PathBuf,
}

impl RunFolder {
    /// Returns the path of the result.
    #[must_use]
    pub(crate) fn run_json(&self) -> PathBuf {
        self.path.join("run.json")
    }

    /// Returns the path of the report.
    #[must_use]
    pub(crate) fn report_html(&self) -> PathBuf {
        self.path.join("report.html")
    }
}

/// Makes the folder: the requested one, or `ringmain-results/<time>`. Returns an error if it has a
/// result already.
pub(crate) fn make_folder(asked: Option<&Path>) -> Result<RunFolder, Failure> {
    let failed = |path: &Path, source: io::Error| Failure::Usage {
        message: format!(
            "cannot create the folder {} for the result: {source}; name a folder that can be \
             written to: `--out DIR`",
            path.display()
        ),
    };
    if let Some(path) = asked {
        std::fs::create_dir_all(path).map_err(|source| failed(path, source))?;
        let folder = RunFolder { path: path.to_owned() };
        if folder.run_json().exists() {
            let message = format!(
                "{} exists already; name another folder with --out",
                folder.run_json().display()
            );
            return Err(Failure::Usage { message });
        }
        return Ok(folder);
    }
    let parent = Path::new(RESULTS);
    std::fs::create_dir_all(parent).map_err(|source| failed(parent, source))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = utc(now).replace(':', "-");
    // Another run may have begun in the same second.
    for number in 1..100 {
        let suffix = if number > 1 { format!("-{number}") } else { String::new() };
        let path = parent.join(format!("{name}{suffix}"));
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(RunFolder { path }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed(&path, source)),
        }
    }
    Err(failed(parent, io::ErrorKind::AlreadyExists.into()))
}

/// Removes the folder of a run, and the folders that were made for it, if they are empty.
pub(crate) fn remove_empty(folder: &RunFolder, made: &[PathBuf]) {
    let own = [&folder.path].into_iter().filter(|path| path.starts_with(RESULTS));
    for path in own.chain(made) {
        // This fails for a folder that is not empty, as it should.
        let _ = std::fs::remove_dir(path);
    }
}

/// The log of a run, for a run that is killed: the run without cells, then one cell a line. Every
/// command that reads a result reads this too.
#[derive(Debug)]
pub(crate) struct CellLog {
    path: PathBuf,
    file: File,
}

impl CellLog {
    pub(crate) fn create(folder: &RunFolder, run: &Run) -> Result<Self, Failure> {
        let path = folder.path.join("cells.jsonl");
        let file = File::create(&path)
            .map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
        let mut log = Self { path, file };
        log.line(serde_json::to_vec(run)?)?;
        Ok(log)
    }

    pub(crate) fn append(&mut self, cell: &Cell) -> Result<(), Failure> {
        self.line(serde_json::to_vec(cell)?)
    }

    fn line(&mut self, mut line: Vec<u8>) -> Result<(), Failure> {
        line.push(b'\n');
        let failed = |source| Failure::WriteFile { path: self.path.clone(), source };
        self.file.write_all(&line).map_err(failed)
    }

    /// Removes the log, because `run.json` has everything now.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        std::fs::remove_file(&self.path)
            .map_err(|source| Failure::WriteFile { path: self.path, source })
    }
}

/// Formats the time since 1970 as `2026-11-16T08:00:00Z`, by Howard Hinnant's `civil_from_days`.
pub(crate) fn utc(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, second) = (seconds / 86400, seconds % 86400);
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_794_816_000, "2026-11-16T08:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(utc(Duration::from_secs(seconds)), text);
        }
    }
}
