//! The texts of the report: headline, warnings, invalid cells, machine, plan.

use super::escape::{escape, prose};
use crate::failure::Failure;
use crate::measure::host::Host;
use crate::plan::render_plan;
use crate::result::Run;
use crate::text;
use crate::text::format::{bytes, percent, seconds};

/// Returns the header: what was measured, where and when, and the recommendation.
pub(crate) fn header(run: &Run, recommendation: &[String]) -> String {
    let mut html = format!(
        "<header>\n<p class=\"eyebrow\">ringmain bench</p>\n<h1>{}</h1>\n<p class=\"meta\">{}</p>\n",
        headline(run),
        meta(run)
    );
    if let [verdict, rest @ ..] = recommendation {
        html += &format!(
            "<section class=\"recommendation\" aria-label=\"Recommendation\"><p \
             class=\"first\">{}</p>",
            prose(verdict)
        );
        if let [details, ..] = rest {
            html += &format!("<p class=\"details\">{}</p>", prose(details));
        }
        if let [_, rest @ ..] = rest
            && !rest.is_empty()
        {
            let items = rest.iter().map(|line| format!("<li>{}</li>", prose(line)));
            html += &format!(
                "<details><summary>Each workload, and why</summary><ul>{}</ul></details>",
                items.collect::<String>()
            );
        }
        html += "</section>\n";
    }
    html + "</header>\n"
}

fn headline(run: &Run) -> String {
    let mut backends: Vec<&str> =
        run.cells.iter().filter(|cell| !cell.is_fio()).map(|cell| cell.backend.as_str()).collect();
    backends.sort_unstable();
    backends.dedup();
    let mut workloads: Vec<&str> = run.cells.iter().map(|cell| cell.workload.as_str()).collect();
    workloads.sort_unstable();
    workloads.dedup();
    let storage = &run.host.storage;
    let place = storage.device_model.as_ref().or(storage.device.as_ref());
    let on = match (&storage.filesystem, place) {
        (Some(filesystem), Some(place)) => format!("{filesystem} on {place}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => storage.path.display().to_string(),
    };
    format!(
        "{} and {}, {}",
        counted(backends.len(), "backend"),
        counted(workloads.len(), "workload"),
        escape(&on)
    )
}

/// Formats a number with its noun; a non-breaking space keeps the two on one line.
fn counted(number: usize, noun: &str) -> String {
    text::format::counted(number, noun).replacen(' ', "\u{A0}", 1)
}

fn meta(run: &Run) -> String {
    let host = &run.host;
    let parts = [
        Some(run.started_at.replace('T', " ").replace('Z', " UTC")),
        host.cpu.clone(),
        Some(counted(host.cpus as usize, "CPU")),
        host.memory_bytes.map(|memory| bytes(memory as f64)),
        Some(format!("{} {}", host.os, host.kernel)),
        Some(format!("{} in {}", counted(run.cells.len(), "cell"), seconds(run.elapsed_s))),
    ];
    let spans = parts.into_iter().flatten().map(|part| format!("<span>{}</span>", escape(&part)));
    spans.collect::<Vec<_>>().join(" ")
}

/// Returns the warnings. They come before the numbers, because they say how far to trust them.
pub(crate) fn warnings(run: &Run) -> String {
    let mut items: Vec<String> = Vec::new();
    if !run.complete {
        items.push("The run was interrupted: cells are missing, and not all backends were measured equally often.".into());
    }
    let spoilt = run.cells.iter().filter(|cell| !cell.valid).count();
    if spoilt > 0 {
        items.push(format!(
            "{spoilt} of {} invalid and not counted: <a href=\"#invalid\">which, and why</a>.",
            counted(run.cells.len(), "cell") + if spoilt == 1 { " is" } else { " are" }
        ));
    }
    items.extend(run.warnings.iter().map(|warning| prose(warning)));
    if items.is_empty() {
        return String::new();
    }
    let list: String = items.iter().map(|item| format!("<li>{item}</li>")).collect();
    format!(
        "<section class=\"warnings\"><h2><span aria-hidden=\"true\">⚠</span> Read the numbers \
         with care</h2><ul>{list}</ul></section>\n"
    )
}

/// Returns the invalid cells, and the backends that were not measured.
pub(crate) fn left_out(run: &Run) -> String {
    let mut html = String::new();
    let spoilt: Vec<_> = run.cells.iter().filter(|cell| !cell.valid).collect();
    if !spoilt.is_empty() {
        html += "<section id=\"invalid\"><h2>Invalid cells</h2>\n<div class=\"wide\" \
                 tabindex=\"0\" role=\"region\" aria-label=\"Invalid cells\"><table \
                 class=\"plain text\"><thead><tr><th scope=\"col\">cell</th><th \
                 scope=\"col\">repetition</th><th scope=\"col\">why it does not \
                 count</th></tr></thead><tbody>\n";
        for cell in spoilt {
            let reason = cell.invalid_reason.as_deref().unwrap_or("no reason was recorded");
            html += &format!(
                "<tr><th scope=\"row\">{} · {}</th><td>{}</td><td>{}</td></tr>\n",
                escape(&cell.backend),
                escape(&cell.group().to_string()),
                cell.repetition,
                escape(reason)
            );
        }
        html += "</tbody></table></div></section>\n";
    }
    if !run.skipped.is_empty() {
        let rows =
            run.skipped.iter().map(|skipped| (skipped.backend.as_str(), skipped.reason.clone()));
        html += &format!(
            "<section id=\"skipped\"><h2>Backends not measured</h2>\n{}</section>\n",
            list(rows)
        );
    }
    html
}

/// Returns a list of names and values. Escapes both.
fn list<'a>(rows: impl Iterator<Item = (&'a str, String)>) -> String {
    let row = |(name, text): (&str, String)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(&text))
    };
    format!("<dl>\n{}</dl>\n", rows.map(row).collect::<String>())
}

/// Returns the machine, the storage, the command and the plan.
pub(crate) fn environment(run: &Run) -> Result<String, Failure> {
    let known = |rows: Vec<(&'static str, Option<String>)>| {
        list(rows.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))))
    };
    Ok(format!(
        "<section id=\"environment\"><h2>Environment</h2>\n<div class=\"pair\"><div><h3>Machine</h3>\n\
         {}</div>\n<div><h3>Storage</h3>\n{}</div></div></section>\n\
         <section id=\"plan\"><h2>To repeat the run</h2>\n<pre><code>{}</code></pre>\n<details><summary>The \
         plan, with every default</summary><pre><code>{}</code></pre></details></section>\n",
        known(machine(&run.host, run)),
        known(storage(&run.host)),
        escape(&command_line(&to_repeat(&run.command))),
        escape(&render_plan(&run.plan)?),
    ))
}

fn machine(host: &Host, run: &Run) -> Vec<(&'static str, Option<String>)> {
    vec![
        ("Processor", host.cpu.clone()),
        (
            "Architecture",
            Some(format!("{}, {} usable", host.arch, counted(host.cpus as usize, "CPU"))),
        ),
        ("Governor", host.governor.clone()),
        ("Memory", host.memory_bytes.map(|memory| bytes(memory as f64))),
        ("Available at the start", host.memory_available_bytes.map(|memory| bytes(memory as f64))),
        ("Huge pages", host.transparent_huge_pages.clone()),
        ("Kernel", Some(format!("{} {}", host.os, host.kernel))),
        ("Load before", host.load.load_1m_before.map(|load| format!("{load:.2}"))),
        ("Used by others", host.load.busy_share.map(percent)),
        ("Taken by the hypervisor", host.load.steal_share.map(percent)),
        (
            "ringmain",
            Some(match &host.commit {
                Some(commit) => format!("{}, commit {commit}", run.ringmain_version),
                None => run.ringmain_version.clone(),
            }),
        ),
    ]
}

fn storage(host: &Host) -> Vec<(&'static str, Option<String>)> {
    let storage = &host.storage;
    let is_spinning = |rotational: bool| if rotational { "yes" } else { "no" }.to_owned();
    vec![
        ("Data", Some(storage.path.display().to_string())),
        ("Filesystem", storage.filesystem.clone()),
        ("Mounted at", storage.mount_point.as_ref().map(|path| path.display().to_string())),
        ("Mount options", storage.mount_options.clone()),
        ("Device", storage.device.clone()),
        ("Model", storage.device_model.clone()),
        ("Spinning", storage.rotational.map(is_spinning)),
        ("Scheduler", storage.scheduler.clone()),
        ("Read-ahead", storage.read_ahead_kb.map(|kb| format!("{kb} KiB"))),
        ("Queue", storage.queue_requests.map(|requests| format!("{requests} requests"))),
    ]
}

/// Returns the command without `--out`, because that folder already has a result.
fn to_repeat(command: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = command.iter();
    while let Some(word) = rest.next() {
        if word == "--out" {
            rest.next();
        } else if !word.starts_with("--out=") {
            words.push(word.clone());
        }
    }
    words
}

/// Quotes words for a shell.
fn command_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the footer, which explains the units.
pub(crate) fn footer(run: &Run) -> String {
    format!(
        "<footer><p>GB/s and CPU s/GB count 10⁹ bytes; KiB, MiB and GiB are powers of 1024. \
         Throughput is the median of the valid repetitions. Latency is that of one operation: a \
         batch, or a single read where the batch is 1.</p><p>Made by ringmain {}; every number \
         is in run.json, and <code>ringmain report run.json --csv FILE</code> makes a table of \
         it.</p></footer>\n",
        escape(&run.ringmain_version)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        let words = ["ringmain", "bench", "--file=/my data/it's", ""].map(String::from);
        let out = ["ringmain", "bench", "--out", "a", "--json", "--out=b"].map(String::from);
        assert_eq!(to_repeat(&out), ["ringmain", "bench", "--json"]);
        assert_eq!(command_line(&words), "ringmain bench '--file=/my data/it'\\''s' ''");
    }
}
