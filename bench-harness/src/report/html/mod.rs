//! `report.html`: a single file that works with or without scripts, on any screen and on paper.
//!
//! Pictures are SVG with relative positions: they fit a phone, and letters keep their size. All text
//! from the run goes through [`escape::escape`].

pub(crate) mod comparison;
mod cost;
mod epochs;
mod escape;
mod facts;
mod group;
mod latency;
mod load;
mod look;
mod memory;
mod numbers;
mod overview;
mod plot;
mod price;
mod scale;
mod scaling;
mod throughput;
pub(crate) mod trace;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use self::escape::escape;
use self::group::Chapter;
use self::look::Looks;
use super::Exporter;
use super::summary::summarize;
use crate::failure::Failure;
use crate::result::Run;
use crate::trace::Trace;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The report of a run.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// The recommendation in sentences: first a short verdict, then how to follow it and why, then each workload. May be
    /// empty.
    pub(crate) recommendation: &'a [String],
    /// The trace that the run has replayed, if it is still there.
    pub(crate) trace: Option<&'a Trace>,
}

impl Exporter for Report<'_> {
    fn export(&self, run: &Run) -> Result<String, Failure> {
        let summaries = summarize(run)?;
        let chapters = Chapter::numbered(&summaries);
        let looks = Looks::of(run);
        let mut html = head(&format!("ringmain bench, {}", escape(&run.started_at)));
        html += &facts::header(run, self.recommendation);
        html += "<main>\n";
        html += &facts::warnings(run);
        if chapters.is_empty() {
            html += "<p class=\"empty\">No cell was measured.</p>\n";
        } else {
            html += &overview::heat_map(&chapters);
            html += &scaling::section(&chapters, &looks);
            html += &load::section(&chapters, &looks);
        }
        for chapter in &chapters {
            html += &group::section(chapter, &looks);
        }
        if let Some(trace) = self.trace {
            html += &trace::section(trace);
        }
        html += &facts::left_out(run);
        html += &facts::environment(run)?;
        html += "</main>\n";
        html += &facts::footer(run);
        Ok(html + "<script>" + SCRIPT + "</script>\n</body>\n</html>\n")
    }
}

/// Returns a section of the report of a run.
#[cfg(test)]
fn section_of(run: &Run, section: fn(&[Chapter<'_>], &Looks) -> String) -> String {
    section(&Chapter::numbered(&summarize(run).unwrap()), &Looks::of(run))
}

/// Returns the head of a page, with the style of all pages. The title is HTML.
fn head(title: &str) -> String {
    // The page loads nothing and runs only its own script.
    let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{shapes}",
        shapes = shapes(),
    )
}

/// Returns the definitions that the pictures share: marks and hatchings.
fn shapes() -> String {
    let marks = [
        "<circle r=\"3.4\"/>",
        "<rect x=\"-3\" y=\"-3\" width=\"6\" height=\"6\"/>",
        "<path d=\"M0-4.2 4 3H-4z\"/>",
        "<path d=\"M0-4.4 4.4 0 0 4.4-4.4 0z\"/>",
        "<path d=\"M0 4.2 4-3H-4z\"/>",
        "<path d=\"M-1.2-4h2.4v2.8H4v2.4H1.2V4h-2.4V1.2H-4v-2.4h2.8z\"/>",
    ];
    let mut svg =
        String::from("<svg class=\"shapes\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>");
    for (index, shape) in marks.iter().enumerate() {
        svg += &format!("<g id=\"mark{index}\">{shape}</g>");
    }
    for colour in 0..Looks::colours() {
        svg += &format!(
            "<pattern id=\"hatch{colour}\" class=\"c{colour}\" width=\"30\" height=\"60\" \
             patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(35)\"><rect width=\"30\" \
             height=\"60\"/><line x1=\"0\" x2=\"0\" y1=\"0\" y2=\"60\"/></pattern>"
        );
    }
    svg + "</defs></svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn report(run: &Run) -> String {
        let recommendation = ["Use <uring> & be happy.".to_owned(), "Second line.".to_owned()];
        Report { recommendation: &recommendation, trace: None }.export(run).unwrap()
    }

    #[test]
    fn the_report_of_a_replay_shows_the_reads() {
        let text =
            "ringmain recording 1\nf 0 /<b>\nb 0 0 0 0 4096\nb 5 0 0 4096 4096\nb 9 0 0 0 4096\n";
        let trace = Trace::parse(text.as_bytes()).unwrap();
        let run = fixture::small_run();
        let html = Report { recommendation: &[], trace: Some(&trace) }.export(&run).unwrap();
        let titles = ["Where the program read", "Reuse within and between passes", "How soon"];
        for part in
            titles.into_iter().chain(["/&lt;b&gt;", "less than 1.0 MiB", "again in a later pass"])
        {
            assert!(html.contains(part), "{part}");
            assert!(!report(&run).contains(part), "{part}");
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let html = report(&fixture::hostile_run());
        assert_eq!(html.matches("<script").count(), 1);
        assert_eq!(html.matches("</style").count(), 1);
        for part in [
            "<img",
            "<b>\"",
            "<i>\"",
            "onerror=alert(1)>",
            "\" onmouseover=\"",
            "\0",
            "\u{202E}",
            "<!--",
            "<uring>",
        ] {
            assert!(!html.contains(part), "{part:?}");
        }
        assert!(html.contains("&lt;script&gt;document.title"));
    }

    #[test]
    fn nothing_is_fetched() {
        let html = report(&fixture::big_run());
        for part in ["http:", "https:", "src=", "@import", "<link", "<iframe", "fetch("] {
            assert!(!html.contains(part), "{part}");
        }
        let links = html.match_indices("href=\"").map(|(at, found)| &html[at + found.len()..]);
        assert!(links.into_iter().all(|target| target.starts_with('#')));
        assert_eq!(html.matches("url(").count(), html.matches("url(#").count());
    }

    #[test]
    fn the_size_of_the_report_stays_moderate() {
        let run = fixture::big_run();
        assert!((280..=320).contains(&run.cells.len()), "{}", run.cells.len());
        let bytes = report(&run).len();
        assert!(bytes < 1_500_000, "{bytes}");
    }

    #[test]
    fn problems_are_mentioned() {
        let mut run = fixture::small_run();
        run.complete = false;
        let html = report(&run);
        assert!(html.contains("The run was interrupted"));
        assert!(html.contains("other processes used 14 %"));
        assert!(html.contains("cold, but 1024 of 131072 pages were in the cache"));
        assert!(html.contains("it holds the whole file; name it to measure it"));
        assert!(html.contains("Use &lt;uring&gt; &amp; be happy."));
    }

    /// A run that was interrupted at once, and impossible numbers.
    #[test]
    fn odd_runs_have_a_report_too() {
        let mut run = fixture::small_run();
        for cell in &mut run.cells {
            cell.throughput_bytes_per_s = 0.0;
            cell.seconds = 0.0;
            cell.latency_histogram.clear();
            cell.latency_ns = Default::default();
            cell.rss_timeline.truncate(1);
        }
        assert!(!report(&run).contains("NaN"));
        run.cells.iter_mut().for_each(|cell| cell.valid = false);
        assert!(report(&run).contains("no valid cell"));
        run.cells.iter_mut().for_each(|cell| {
            cell.valid = true;
            cell.throughput_bytes_per_s = f64::MAX;
            cell.rss_timeline.iter_mut().for_each(|sample| {
                (sample.anon_bytes, sample.file_bytes) = (u64::MAX, u64::MAX);
            });
        });
        assert!(!report(&run).contains("NaN"));
        run.cells.clear();
        assert!(report(&run).contains("No cell was measured"));
    }
}
