//! The percentile files of the HdrHistogram plotter, one for each backend and group.

use std::collections::HashSet;

use hdrhistogram::Histogram;

use super::summary::summarize;
use crate::failure::Failure;
use crate::result::Run;

/// Lines for each halving of the distance to 100 %, as in other implementations.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Values are in milliseconds, the unit of the plotter, exact to the nanosecond.
const NS_PER_MS: f64 = 1e6;

/// Returns file names and texts; all valid repetitions of a backend and group are in one file.
pub(crate) fn distributions(run: &Run) -> Result<Vec<(String, String)>, Failure> {
    let mut names = HashSet::new();
    let mut files = Vec::new();
    for group in summarize(run)? {
        for backend in &group.backends {
            let Some(histogram) = &backend.histogram else { continue };
            let plain = file_name(&format!("{} {}", group.group, backend.name));
            let mut name = format!("{plain}.hgrm");
            let mut number = 2;
            while !names.insert(name.to_lowercase()) {
                name = format!("{plain}-{number}.hgrm");
                number += 1;
            }
            files.push((name, percentile_text(histogram)));
        }
    }
    Ok(files)
}

/// Returns a name of letters, digits and little else, which every filesystem accepts.
fn file_name(text: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "+=.".contains(c);
    let text = text.replace('×', "x");
    let words: String = text.chars().map(|c| if is_kept(c) { c } else { ' ' }).collect();
    let name = words.split_whitespace().collect::<Vec<_>>().join("-");
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "latency".into() } else { name.chars().take(120).collect() }
}

fn percentile_text(histogram: &Histogram<u64>) -> String {
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut total = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += step.count_since_last_iteration();
        // The iterator rounds a value up to the end of its bucket, which may exceed the largest value.
        let value = step.value_iterated_to().min(histogram.max()) as f64 / NS_PER_MS;
        let quantile = step.quantile_iterated_to();
        text += &format!("{value:12.6} {quantile:14.12} {total:10}");
        if quantile < 1.0 {
            text += &format!(" {:14.2}", 1.0 / (1.0 - quantile));
        }
        text += "\n";
    }
    let sub_buckets =
        1_u64 << (64 - (2 * 10_u64.pow(histogram.sigfig().into()) - 1).leading_zeros());
    text + &format!(
        "#[Mean    = {mean:12.6}, StdDeviation   = {deviation:12.6}]\n\
         #[Max     = {max:12.6}, Total count    = {count:12}]\n\
         #[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]\n",
        mean = histogram.mean() / NS_PER_MS,
        deviation = histogram.stdev() / NS_PER_MS,
        max = histogram.max() as f64 / NS_PER_MS,
        count = histogram.len(),
        buckets = histogram.buckets(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn percentiles_rise_to_the_maximum() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        (1..=100_000).for_each(|value| histogram.record(value * 1000).unwrap());
        let text = percentile_text(&histogram);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().count(), 4);
        let rows: Vec<Vec<f64>> = lines[2..]
            .iter()
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|field| field.parse().unwrap()).collect())
            .collect();
        assert!(rows.windows(2).all(|w| w[0][0] <= w[1][0] && w[0][1] <= w[1][1]));
        let half = rows.iter().find(|row| row[1] == 0.5).unwrap();
        assert!((half[0] - 50.0).abs() < 0.1 && half[3] == 2.0, "{half:?}");
        assert_eq!(rows.last().unwrap()[1..], [1.0, 100_000.0]);
        assert!(lines[lines.len() - 1].ends_with("SubBuckets     =         2048]"), "{text}");
    }

    #[test]
    fn every_backend_and_group_has_a_file_of_its_own() {
        let run = fixture::hostile_run();
        let files = distributions(&run).unwrap();
        let names: HashSet<_> = files.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), files.len());
        assert!(names.iter().all(|name| !name.contains(['/', '\\', '<', ' '])), "{names:?}");
        assert_eq!(
            file_name("rand (4 KiB × 32) cold uring+buffered"),
            "rand-4-KiB-x-32-cold-uring+buffered"
        );
        assert_eq!(file_name("../../etc"), "etc");
        assert_eq!(file_name("…"), "latency");
    }
}
