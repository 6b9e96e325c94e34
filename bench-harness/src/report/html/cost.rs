//! The cost of the throughput: processor time, memory, device reads.

use super::look::Looks;
use super::{escape, plot, price};
use crate::report::summary::{BackendSummary, GroupSummary};
use crate::result::Cell;
use crate::result::percentile::growth;
use crate::text::format::{bytes, count, percent};

/// Returns a table of costs, since a fast backend may be an expensive one.
pub(crate) fn figure(group: &GroupSummary<'_>, looks: &Looks) -> String {
    let has_pss = group.has_pss();
    let (pss, note) = match has_pss {
        true => (
            "<th scope=\"col\">PSS growth</th>",
            "; memory of all processes together, shared pages once in the PSS",
        ),
        false => ("", ""),
    };
    let mut html = format!(
        "<figure class=\"cost\"><figcaption>Cost <span>medians; device reads as a share of the \
         bytes delivered{note}</span></figcaption>\n{picture}<table class=\"key\"><thead><tr><th \
         scope=\"col\">backend</th><th scope=\"col\">CPU s/GB</th><th scope=\"col\">RSS \
         growth</th>{pss}<th scope=\"col\">major faults</th><th scope=\"col\">device \
         reads</th></tr></thead><tbody>\n",
        picture = price::picture(group, looks),
    );
    for backend in group.backends.iter().filter(|backend| !backend.is_fio()) {
        html += &row(backend, looks, has_pss);
    }
    html + "</tbody></table></figure>\n"
}

fn row(backend: &BackendSummary<'_>, looks: &Looks, has_pss: bool) -> String {
    let shown = |value: Option<f64>, text: fn(f64) -> String| value.map_or("–".into(), text);
    let grown = |cell: &Cell| {
        growth(&cell.rss_anon_bytes).saturating_add(growth(&cell.rss_file_bytes)) as f64
    };
    let mut fields = vec![
        shown(backend.median(|cell| cell.cpu_s_per_gb), |seconds| format!("{seconds:.2}")),
        shown(backend.median(grown), bytes),
    ];
    fields.extend(has_pss.then(|| shown(backend.pss_growth(), bytes)));
    fields.extend([
        shown(backend.median(|cell| cell.faults.major as f64), |n| count(n.round() as u64)),
        shown(device_share(backend), percent),
    ]);
    let fields: String =
        fields.iter().map(|field| format!("<td class=\"num\">{field}</td>")).collect();
    let look = looks.get(&backend.name);
    format!(
        "<tr class=\"{}\"><th scope=\"row\">{}{}</th>{fields}</tr>\n",
        look.class(),
        plot::swatch(look),
        escape::name(&backend.name)
    )
}

/// Returns the bytes from the device as a share of the requested bytes; above 1 the kernel read more.
fn device_share(backend: &BackendSummary<'_>) -> Option<f64> {
    let device = backend.median_of_known(|cell| cell.device_bytes)?;
    let delivered = backend.median(|cell| cell.bytes as f64)?;
    (delivered > 0.0).then_some(device / delivered)
}
