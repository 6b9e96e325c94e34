//! What is made of a run besides `run.json`: the report, tables, histograms.

mod columns;
mod csv;
mod hgrm;
mod histogram_log;
mod html;
mod markdown;
pub(crate) mod summary;
mod terminal;

pub(crate) use csv::Csv;
pub(crate) use hgrm::distributions;
pub(crate) use histogram_log::HistogramLog;
pub(crate) use html::Report;
pub(crate) use markdown::Markdown;
pub(crate) use terminal::Terminal;

use crate::failure::Failure;
use crate::result::Run;

/// A way to write a run down.
pub(crate) trait Exporter {
    /// The whole text. Nothing has been written when this fails.
    fn export(&self, run: &Run) -> Result<String, Failure>;
}
