//! The page of a trace: the places that a program read over time, the sizes of its reads, and the share of
//! them that caches would have held.

use std::path::Path;

use super::escape::escape;
use super::memory::{HEIGHT_PX, axes};
use super::scale::Linear;
use crate::text::format::{bytes, count, percent};
use crate::trace::Trace;
use crate::trace::pattern::{FilePattern, Pattern};

/// Files with a picture: those with the most bytes.
const PICTURES_MAX: usize = 12;

/// Files in the table.
const ROWS_MAX: usize = 100;

/// The columns and rows of a picture. Finer ones would not be visible.
const COLUMNS: usize = 90;
/// So few pictures get the whole width.
const FEW: usize = 2;
const ROWS: usize = 42;

const BAR_PX: u32 = 20;

/// Returns the page of a trace. It is complete without a script.
pub(crate) fn page(path: &Path, trace: &Trace) -> String {
    let pattern = Pattern::of(trace);
    let name = escape(&path.display().to_string());
    let mut html = super::head(&format!("ringmain inspect, {name}"));
    html += &format!("<header><p class=\"eyebrow\">ringmain inspect</p><h1>{name}</h1>\n");
    html += &summary(&pattern);
    html += "</header>\n<main>\n";
    html += &notes(trace);
    html += &figures(trace, &pattern);
    html += &files(&pattern);
    html + "</main>\n</body>\n</html>\n"
}

/// The pictures of a trace in the report of its replay, with a heading.
pub(super) fn section(trace: &Trace) -> String {
    let pattern = Pattern::of(trace);
    let heading = "<section><h2>The reads of the trace</h2></section>\n";
    format!("{heading}{}{}", notes(trace), figures(trace, &pattern))
}

/// All pictures.
fn figures(trace: &Trace, pattern: &Pattern) -> String {
    let mut html = pictures(trace, pattern);
    for pair in [[sizes(trace), caches(pattern)], [reuse(pattern), distances(pattern)]] {
        html += &format!("<section class=\"pair\">\n{}</section>\n", pair.concat());
    }
    html
}

fn summary(pattern: &Pattern) -> String {
    let sentences = pattern.sentences();
    let (first, others) = sentences.split_first().map_or(("", &[][..]), |(f, o)| (f.as_str(), o));
    let items: String = others.iter().map(|it| format!("<li>{}</li>", escape(it))).collect();
    let first = escape(first);
    format!("<div class=\"recommendation\"><p class=\"first\">{first}</p><ul>{items}</ul></div>\n")
}

fn notes(trace: &Trace) -> String {
    if trace.notes.is_empty() {
        return String::new();
    }
    let items: String = trace.notes.iter().map(|it| format!("<li>{}</li>", escape(it))).collect();
    format!("<div class=\"warnings\"><h2>Not in this trace</h2><ul>{items}</ul></div>\n")
}

/// The cells of a picture in which something was read.
struct Cells(Vec<[bool; ROWS]>);

/// A picture of time and offset for each of the largest files.
fn pictures(trace: &Trace, pattern: &Pattern) -> String {
    let end_us = trace.batches().map(|batch| batch.head.at_us).max().unwrap_or(0).max(1) as f64;
    let time = Linear::decimal(end_us, 2);
    let shown = &pattern.by_file[..pattern.by_file.len().min(PICTURES_MAX)];
    let left_out = pattern.by_file.len() - shown.len();
    let which = match left_out {
        0 => String::new(),
        _ => format!(", of the {PICTURES_MAX} files with the most bytes"),
    };
    let mut html = format!(
        "<section><figure class=\"reads\"><figcaption>Where the program read <span>offset in the file over \
         time{which}</span></figcaption>\n<div class=\"minis{few}\">\n",
        few = if shown.len() <= FEW { " few" } else { "" },
    );
    for file in shown {
        let offsets = Linear::binary(trace.files[file.index].bytes_needed as f64, 2);
        html += &picture(file, &cells(trace, file.index, &time, &offsets), &time, &offsets);
    }
    html + "</div></figure></section>\n"
}

fn cells(trace: &Trace, file: usize, time: &Linear, offsets: &Linear) -> Cells {
    let mut cells = Cells(vec![[false; ROWS]; COLUMNS]);
    let at = |share: f64, count: usize| ((share * count as f64) as usize).min(count - 1);
    for batch in trace.batches() {
        let column = at(time.share(batch.head.at_us as f64), COLUMNS);
        for read in batch.reads.iter().filter(|read| read.file as usize == file) {
            let last = read.offset + read.bytes.saturating_sub(1);
            let first = at(offsets.share(read.offset as f64), ROWS);
            let last = at(offsets.share(last as f64), ROWS);
            cells.0[column][first..=last].fill(true);
        }
    }
    cells
}

/// A column of cells that touch is one shape.
fn shape(cells: &Cells) -> String {
    let mut path = String::new();
    let (width, height) = (1000.0 / COLUMNS as f64, 1000.0 / ROWS as f64);
    for (at, column) in cells.0.iter().enumerate() {
        let mut row = 0;
        while row < ROWS {
            let len = column[row..].iter().take_while(|is_read| **is_read).count();
            if len > 0 {
                let (x, y) = (at as f64 * width, 1000.0 - (row + len) as f64 * height);
                let tall = len as f64 * height;
                path += &format!("M{x:.0} {y:.0}h{width:.0}v{tall:.0}h-{width:.0}z");
            }
            row += len + 1;
        }
    }
    path
}

fn picture(file: &FilePattern, cells: &Cells, time: &Linear, offsets: &Linear) -> String {
    let name = escape(&file.name);
    format!(
        "<div class=\"mini c0\"><div class=\"name\">{name}</div><div class=\"frame\"><svg height=\"{HEIGHT_PX}\" \
         role=\"img\" aria-label=\"Offsets over time of {reads} reads of {name}\">{axes}<svg class=\"plot\" \
         width=\"100%\" height=\"100%\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\"><path class=\"read\" \
         d=\"{shape}\"/></svg></svg></div><div class=\"peaks\">{reads} reads, {share} in order</div></div>\n",
        reads = file.reads,
        axes = axes(time, offsets),
        shape = shape(cells),
        share = percent(file.sequential_share),
    )
}

/// How many reads have which size, in powers of two.
fn sizes(trace: &Trace) -> String {
    let mut counts = std::collections::BTreeMap::<u32, u64>::new();
    for read in trace.reads() {
        *counts.entry(read.bytes.max(1).ilog2()).or_default() += 1;
    }
    let reads = trace.reads().len().max(1) as f64;
    let rows = counts.iter().map(|(power, number)| {
        let from = bytes((1_u64 << power) as f64);
        (format!("from {from}"), *number as f64 / reads, count(*number))
    });
    bars(
        "Sizes of the reads",
        "share of the reads, by powers of two",
        ["size", "reads"],
        rows.collect(),
    )
}

fn caches(pattern: &Pattern) -> String {
    let rows = pattern
        .cache
        .iter()
        .map(|it| (bytes(it.cache_bytes as f64), it.found_share, percent(it.found_share)));
    let about = "the share of the blocks that a cache of this size has, if it drops the one that was not used for longest";
    bars("What a cache saves", about, ["size", "saved"], rows.collect())
}

/// The shares of the blocks that are read for the first time, and again within and between the passes over a file.
fn reuse(pattern: &Pattern) -> String {
    let reuse = &pattern.reuse;
    let rows = [
        ("for the first time", reuse.first_share),
        ("again in the same pass", reuse.within_passes_share),
        ("again in a later pass", reuse.between_passes_share),
    ];
    let rows = rows.map(|(name, share)| (name.to_owned(), share, percent(share)));
    let passes = pattern.by_file.iter().map(|file| file.passes).max().unwrap_or(1);
    let about = format!(
        "the share of the blocks; the program makes up to {} over a file, such as epochs",
        match passes {
            1 => "1 pass".to_owned(),
            passes => format!("{passes} passes"),
        }
    );
    bars("Reuse within and between passes", &about, ["read", "blocks"], rows.to_vec())
}

/// How much other data comes between two reads of a block.
fn distances(pattern: &Pattern) -> String {
    let rows = pattern.reuse.distances.iter().map(|it| {
        let below = bytes(it.below_bytes as f64);
        (format!("less than {below}"), it.share, percent(it.share))
    });
    let about = "the share of the blocks that are read again, by the number of other bytes that were read in between; each row from a quarter of \
                 its size";
    bars("How soon blocks are read again", about, ["after", "blocks"], rows.collect())
}

/// A table with a bar in each row: its name, a share and a number.
fn bars(
    title: &str,
    about: &str,
    [first, last]: [&str; 2],
    rows: Vec<(String, f64, String)>,
) -> String {
    let rows: String = rows
        .iter()
        .map(|(name, share, number)| {
            let width = share.clamp(0.0, 1.0) * 100.0;
            format!(
                "<tr role=\"row\" class=\"c0\"><th scope=\"row\" role=\"rowheader\">{name}</th><td role=\"cell\" \
                 class=\"plot\"><svg height=\"{BAR_PX}\" role=\"img\" aria-label=\"{}\"><rect class=\"bar\" y=\"4\" \
                 height=\"12\" width=\"{width:.2}%\"/></svg></td><td role=\"cell\" class=\"num median\">{number}</td>\
                 </tr>\n",
                percent(*share)
            )
        })
        .collect();
    format!(
        "<figure><figcaption>{title} <span>{about}</span></figcaption>\n<table class=\"bars\" role=\"table\"><thead \
         role=\"rowgroup\"><tr role=\"row\"><th scope=\"col\" role=\"columnheader\">{first}</th><td role=\"cell\"></td><th \
         scope=\"col\" role=\"columnheader\">{last}</th></tr></thead>\n<tbody role=\"rowgroup\">\n{rows}</tbody></table>\
         </figure>\n"
    )
}

fn files(pattern: &Pattern) -> String {
    let shown = &pattern.by_file[..pattern.by_file.len().min(ROWS_MAX)];
    let mut rows = String::new();
    for file in shown {
        rows += &format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{:.1}</td><td>{}</td><td>{}</td></tr>\n",
            escape(&file.name),
            count(file.reads as u64),
            bytes(file.bytes as f64),
            file.times_read,
            file.passes,
            percent(file.sequential_share),
        );
    }
    let more = match pattern.by_file.len() - shown.len() {
        0 => String::new(),
        more => {
            format!("<p class=\"empty\">{more} more files: ringmain inspect --all shows them.</p>")
        }
    };
    format!(
        "<section><h2>Files</h2>\n<div class=\"wide\"><table class=\"plain\"><thead><tr><th scope=\"col\">file</th><th \
         scope=\"col\">reads</th><th scope=\"col\">bytes</th><th scope=\"col\">times read</th><th scope=\"col\">passes</th><th \
         scope=\"col\">in order</th></tr></thead><tbody>\n{rows}</tbody></table></div>{more}</section>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(text: &str) -> String {
        page(Path::new("<b>.trace"), &Trace::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn names_stay_text_and_nothing_is_fetched() {
        let html = page_of("ringmain recording 1\nf 0 /<script>\nb 0 0 0 0 9223372036854775807\n");
        assert!(html.contains("/&lt;script&gt;") && html.contains("&lt;b&gt;.trace"));
        for part in ["<script", "<b>", "http:", "https:", "src=", "NaN", "inf"] {
            assert!(!html.contains(part), "{part}");
        }
    }

    /// Two reads: the first block at the start, the last one at the end.
    #[test]
    fn reads_are_drawn_at_their_time_and_offset() {
        let text = "ringmain recording 1\nf 0 /a\nb 0 0 0 0 1\nb 1000 0 0 1048575 1\n";
        let html = page_of(text);
        let path = html.split("class=\"read\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path, "M0 976h11v24h-11zM989 0h11v24h-11z");
    }

    #[test]
    fn a_page_of_many_reads_stays_moderate() {
        let mut text = "ringmain recording 1\n".to_owned();
        (0..200).for_each(|file| text += &format!("f {file} /data/{file}\n"));
        for at in 0..100_000_u64 {
            let (file, offset) = (at % 200, at.wrapping_mul(2_654_435_761) % (1 << 30));
            text += &format!("b {at} 0 {file} {offset} 4096\n");
        }
        let html = page_of(&text);
        assert!(html.len() < 1_000_000, "{}", html.len());
        assert!(html.contains("100 more files"));
    }
}
