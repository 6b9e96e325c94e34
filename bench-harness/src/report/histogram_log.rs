//! The compressed interval log of HdrHistogram, version 1.3: a line for each cell.

use super::Exporter;
use crate::failure::Failure;
use crate::result::histogram::decode;
use crate::result::{Cell, Run};

/// Cells are in the order in which they were measured. Each starts where the one before ended, because
/// the pauses between them are not in the result. The largest value is in milliseconds.
#[derive(Debug)]
pub(crate) struct HistogramLog;

impl Exporter for HistogramLog {
    fn export(&self, run: &Run) -> Result<String, Failure> {
        let mut text = String::from("#[Histogram log format version 1.3]\n");
        text += "#[Latencies in nanoseconds; tag: backend/workload/setting/cache]\n";
        if let Some(epoch_s) = epoch_seconds(&run.started_at) {
            text += &format!(
                "#[StartTime: {epoch_s}.000 (seconds since epoch), {}]\n",
                one_line(&run.started_at)
            );
        }
        text += "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
                 \"Interval_Compressed_Histogram\"\n";
        let mut start_s = 0.0;
        for cell in &run.cells {
            if let Some(histogram) = decode(&cell.latency_histogram)? {
                text += &format!(
                    "Tag={},{start_s:.3},{:.3},{:.3},{}\n",
                    tag(cell),
                    cell.seconds,
                    histogram.max() as f64 / 1e6,
                    cell.latency_histogram
                );
            }
            start_s += cell.seconds;
        }
        Ok(text)
    }
}

/// Returns the tag of a cell. Repetitions share a tag, so that tools merge them; an invalid cell has a tag
/// of its own, so that it is not merged with the valid ones.
fn tag(cell: &Cell) -> String {
    let setting = cell.setting.to_string().replace(", ", ";").replace(" × ", "x").replace(' ', "");
    let cache = cell.cache.to_string();
    let invalid = if cell.valid { "" } else { "invalid" };
    let parts = [cell.backend.as_str(), &cell.workload, &setting, &cache, invalid];
    let named = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    // A comma or a space would end the tag.
    named
        .chars()
        .map(|c| if c == ',' || c.is_whitespace() || c.is_control() { '_' } else { c })
        .collect()
}

fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Parses `2026-11-16T08:00:00Z` and returns the seconds since 1970.
fn epoch_seconds(utc: &str) -> Option<i64> {
    let (date, time) = utc.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator: char| -> Option<[i64; 3]> {
        let parts: Vec<i64> =
            text.split(separator).map(|part| part.parse().ok()).collect::<Option<_>>()?;
        parts.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    if !is_date || !(1..=31).contains(&day) {
        return None;
    }
    // Counted from March, so that a leap day is the last day of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // The days from 1 March of year 0 to 1 January 1970.
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::fixture;

    #[test]
    fn every_cell_with_latencies_is_a_line_that_reads_back() {
        for run in [fixture::small_run(), fixture::hostile_run()] {
            let text = HistogramLog.export(&run).unwrap();
            let recorded: Vec<&Cell> =
                run.cells.iter().filter(|cell| !cell.latency_histogram.is_empty()).collect();
            let entries: Vec<_> =
                IntervalLogIterator::new(text.as_bytes()).map(Result::unwrap).collect();
            let lines: Vec<_> = entries
                .iter()
                .filter_map(|entry| match entry {
                    LogEntry::Interval(interval) => Some(interval),
                    _ => None,
                })
                .collect();
            assert_eq!(lines.len(), recorded.len());
            for (line, cell) in lines.iter().zip(recorded) {
                assert_eq!(line.encoded_histogram(), cell.latency_histogram);
                assert_eq!(line.tag().unwrap().as_str(), tag(cell));
            }
        }
    }

    #[test]
    fn cells_have_distinct_tags() {
        let mut cell = fixture::full_cell();
        assert_eq!(
            tag(&cell),
            "uring+buffered/rand/shuffled;4KiBx32;depth128;3processes;2threads;1000/s;4epochs/cold/invalid"
        );
        cell.valid = true;
        cell.workload = "a, b\n".into();
        assert!(tag(&cell).contains("/a__b_/"), "{}", tag(&cell));
    }

    #[test]
    fn moments_are_counted_from_1970() {
        assert_eq!(epoch_seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(epoch_seconds("2000-02-29T12:00:00Z"), Some(951_825_600));
        assert_eq!(epoch_seconds("2026-11-16T08:00:00Z"), Some(1_794_816_000));
        assert_eq!(epoch_seconds("2026-11-16T08:00:00.25Z"), Some(1_794_816_000));
        for wrong in ["", "today", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00Z"] {
            assert_eq!(epoch_seconds(wrong), None, "{wrong}");
        }
    }
}
