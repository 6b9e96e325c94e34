//! The reports of a run: HTML, tables, CSV, histograms. A new format is a file here.

mod columns;
mod csv;
mod hgrm;
mod histogram_log;
pub(crate) mod html;
mod markdown;
pub(crate) mod summary;
mod terminal;

pub(crate) use csv::Csv;
pub(crate) use hgrm::distributions;
pub(crate) use histogram_log::HistogramLog;
pub(crate) use html::Report;
pub(crate) use html::comparison::page as comparison_page;
pub(crate) use markdown::Markdown;
pub(crate) use terminal::Terminal;

use crate::failure::Failure;
use crate::result::Run;

/// A format in which a run is written.
pub(crate) trait Exporter {
    /// Returns the whole text. Writes nothing.
    fn export(&self, run: &Run) -> Result<String, Failure>;
}
