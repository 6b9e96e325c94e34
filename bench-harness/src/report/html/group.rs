//! One group: its pictures and its numbers.

use super::escape::escape;
use super::look::Looks;
use super::{cost, epochs, latency, memory, numbers, throughput};
use crate::report::summary::GroupSummary;
use crate::result::Group;

/// A group with its anchor in the page.
#[derive(Debug)]
pub(crate) struct Chapter<'a> {
    pub(crate) id: String,
    pub(crate) summary: &'a GroupSummary<'a>,
}

impl<'a> Chapter<'a> {
    /// Makes a chapter of each group, with the anchors `g1`, `g2` and so on.
    pub(crate) fn numbered(groups: &'a [GroupSummary<'a>]) -> Vec<Self> {
        let numbered = groups.iter().zip(1..);
        numbered.map(|(summary, n)| Chapter { id: format!("g{n}"), summary }).collect()
    }
}

/// Returns a heading such as `rand cold 4 KiB × 32, depth 128`, with markup.
pub(crate) fn heading_text(group: &Group) -> String {
    let setting = group.setting.to_string();
    format!(
        "<span class=\"workload\">{}</span> <span class=\"cache {cache}\">{cache}</span> \
         <span class=\"setting\">{}</span>",
        escape(&group.workload),
        escape(&setting),
        cache = group.cache
    )
}

/// Returns the section of a group.
pub(crate) fn section(chapter: &Chapter<'_>, looks: &Looks) -> String {
    let summary = chapter.summary;
    format!(
        "<section class=\"group\" id=\"{id}\"><h2>{heading}</h2>\n<div class=\"pair\">\n\
         <div>{throughput}{cost}</div>{latency}</div>\n{epochs}{memory}{numbers}</section>\n",
        id = chapter.id,
        heading = heading_text(&summary.group),
        throughput = throughput::figure(summary, looks),
        cost = cost::figure(summary, looks),
        latency = latency::figure(summary, looks),
        epochs = epochs::figure(summary, looks),
        memory = memory::figure(summary, looks),
        numbers = numbers::tables(summary),
    )
}
