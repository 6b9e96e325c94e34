//! The cost of the throughput: processor time, memory, device reads.

use super::escape;
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::result::Cell;
use crate::result::percentile::growth;
use crate::text::format::{bytes, count, percent};

/// Returns a table of costs, since a fast backend may be an expensive one.
pub(crate) fn figure(group: &GroupSummary<'_>) -> String {
    let mut html = String::from(
        "<figure class=\"cost\"><figcaption>Cost <span>medians; device reads as a share of the \
         bytes delivered</span></figcaption>\n<table class=\"key\"><thead><tr><th \
         scope=\"col\">backend</th><th scope=\"col\">CPU s/GB</th><th scope=\"col\">RSS \
         growth</th><th scope=\"col\">major faults</th><th scope=\"col\">device \
         reads</th></tr></thead><tbody>\n",
    );
    for backend in group.backends.iter().filter(|backend| !backend.is_fio()) {
        html += &row(backend);
    }
    html + "</tbody></table></figure>\n"
}

fn row(backend: &BackendSummary<'_>) -> String {
    let shown = |value: Option<f64>, text: fn(f64) -> String| value.map_or("–".into(), text);
    let grown = |cell: &Cell| {
        growth(&cell.rss_anon_bytes).saturating_add(growth(&cell.rss_file_bytes)) as f64
    };
    let fields = [
        shown(backend.median(|cell| cell.cpu_s_per_gb), |seconds| format!("{seconds:.2}")),
        shown(backend.median(grown), bytes),
        shown(backend.median(|cell| cell.faults.major as f64), |n| count(n.round() as u64)),
        shown(device_share(backend), percent),
    ];
    let fields = fields.map(|field| format!("<td class=\"num\">{field}</td>")).concat();
    format!("<tr><th scope=\"row\">{}</th>{fields}</tr>\n", escape::name(&backend.name))
}

/// Returns the bytes from the device as a share of the requested bytes; above 1 the kernel read more.
fn device_share(backend: &BackendSummary<'_>) -> Option<f64> {
    let device = backend.median_of_known(|cell| cell.device_bytes)?;
    let delivered = backend.median(|cell| cell.bytes as f64)?;
    (delivered > 0.0).then_some(device / delivered)
}
