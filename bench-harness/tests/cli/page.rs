//! The report in a browser.
//!
//! Chromium opens copies of the page that measure themselves: their shapes, their size and what they
//! loaded. `RINGMAIN_REQUIRE_CHROMIUM` makes a missing Chromium a failure.

use std::fs;
use std::path::Path;
use std::process::Command;

use ringmain_bench::result::Run;
use serde_json::Value;

use crate::fixture;
use crate::report::Folder;
use crate::support::{ringmain, run};

/// A script that is added to a copy of the page and reports to the page around it.
const MEASURE: &str = r#"
const shapes = (root, selector) => [...root.querySelectorAll(selector)];
const empty = (root, selector) => shapes(root, selector)
  .filter((shape) => { const box = shape.getBoundingClientRect(); return !(box.width + box.height > 0); }).length;
const section = (root) => Object.fromEntries(
  ["rect.bar", "line.whisker", "circle.dot", ".lines polyline", ".lines use.mark", "polygon.anon", "polygon.file"]
    .map((selector) => [selector, { drawn: shapes(root, selector).length, empty: empty(root, selector) }]));
const lines = document.querySelector("svg.lines");
if (lines) {
  const box = lines.getBoundingClientRect();
  lines.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 20 }));
}
parent.postMessage({
  title: document.title,
  groups: shapes(document, "section.group").map(section),
  pictures: shapes(document, "svg.lines, svg.curves, .plot > svg, .mini svg[role]").map((svg) => {
    const box = svg.getBoundingClientRect(); return [box.width, box.height]; }),
  unnamed: shapes(document, "svg[role=img]:not([aria-label])").length,
  heat: shapes(document, "table.heat tbody td").length,
  tip: document.querySelector(".tip") ? document.querySelector(".tip").textContent : null,
  width: innerWidth,
  needed: document.documentElement.scrollWidth,
  loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
  foreign: shapes(document, "img, iframe, object, embed, link, base, form").length,
  handlers: shapes(document, "*").filter((e) => [...e.attributes].some((a) => a.name.startsWith("on"))).length,
  scripts: document.scripts.length,
  background: getComputedStyle(document.body).backgroundColor,
}, "*");
"#;

/// The report of a page about itself, and the messages of the browser.
struct Seen {
    page: Value,
    complaints: Vec<String>,
}

/// Returns the browser. Without one, returns `None` and prints a line, or fails if one is required.
fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let found = names.into_iter().find(is_there);
    if found.is_none() {
        let required = std::env::var_os("RINGMAIN_REQUIRE_CHROMIUM").is_some();
        assert!(!required, "no Chromium here, and RINGMAIN_REQUIRE_CHROMIUM is set");
        crate::support::say("SKIPPED: no Chromium here; install the package `chromium`");
    }
    found
}

/// Opens a page without a network, and returns its document and the messages of its console.
fn open(browser: &str, page: &Path, dark: bool) -> (String, Vec<String>) {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-dev-shm-usage", "--disable-extensions"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"])
        .args(["--window-size=1280,900", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()));
    let outcome = run(&mut command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let complaints = outcome.stderr.lines().filter(|line| line.contains("CONSOLE"));
    let complaints = complaints.map(String::from).collect();
    (String::from_utf8(outcome.stdout).unwrap(), complaints)
}

/// Opens the report in a frame of this width, with the measuring script allowed and added.
fn measure(browser: &str, folder: &Folder, width: u32, dark: bool) -> Seen {
    let html = folder.read("report.html");
    let (before, rest) = html.split_once("script-src '").unwrap();
    let (_, after) = rest.split_once("'").unwrap();
    let html = format!("{before}script-src 'unsafe-inline'{after}");
    let html = html.replace("</body>", &format!("<script>{MEASURE}</script></body>"));
    fs::write(folder.path("measured.html"), html).unwrap();
    let around = format!(
        "<!DOCTYPE html><pre id=\"said\"></pre><script>onmessage = (event) => {{ \
         said.textContent = encodeURIComponent(JSON.stringify(event.data)); }};</script>\
         <iframe src=\"measured.html\" style=\"width:{width}px;height:800px;border:0\"></iframe>"
    );
    let page = folder.path("around.html");
    fs::write(&page, around).unwrap();
    let (document, complaints) = open(browser, &page, dark);
    let (_, said) = document.split_once("<pre id=\"said\">").unwrap();
    let (said, _) = said.split_once("</pre>").unwrap();
    assert!(!said.is_empty(), "the page said nothing: {complaints:?}");
    Seen { page: serde_json::from_str(&percent_decoded(said)).unwrap(), complaints }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = after;
            }
            (byte, after) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn report_of(result: &Run) -> Folder {
    let folder = Folder::with(result);
    folder.report(&[]).stdout_of_success();
    folder
}

/// Checks that every group has every picture and every shape has a size.
fn expect_pictures(seen: &Seen, result: &Run) {
    let groups = result.grouped();
    let drawn = seen.page["groups"].as_array().unwrap();
    assert_eq!(drawn.len(), groups.len());
    for (shapes, (group, backends)) in drawn.iter().zip(&groups) {
        let valid =
            |cells: &[&ringmain_bench::result::Cell]| cells.iter().filter(|c| c.valid).count();
        let all: usize = backends.iter().map(|(_, cells)| valid(cells)).sum();
        let sampled = backends.iter().filter(|(_, cells)| !cells[0].is_fio()).count();
        let expected = [
            ("rect.bar", backends.len()),
            ("line.whisker", 3 * backends.len()),
            ("circle.dot", all),
            (".lines polyline", backends.len()),
            ("polygon.anon", sampled),
            ("polygon.file", sampled),
        ];
        for (selector, count) in expected {
            assert_eq!(shapes[selector]["drawn"], count, "{selector} of {group}");
            assert_eq!(shapes[selector]["empty"], 0, "{selector} of {group}");
        }
        assert!(shapes[".lines use.mark"]["drawn"].as_u64() > Some(3 * backends.len() as u64));
    }
    for size in seen.page["pictures"].as_array().unwrap() {
        let is_seen = size[0].as_f64() > Some(40.0) && size[1].as_f64() > Some(14.0);
        assert!(is_seen, "a picture of {size}");
    }
    assert_eq!(seen.page["unnamed"], 0, "pictures without a text");
}

/// Checks that the page has this many scripts besides the measuring one, loads nothing and fits its width.
fn expect_manners(seen: &Seen, own_scripts: u32) {
    assert_eq!(seen.page["scripts"], own_scripts + 1);
    assert!(seen.complaints.is_empty(), "{:#?}", seen.complaints);
    assert_eq!(seen.page["loaded"], serde_json::json!([]));
    assert_eq!((&seen.page["foreign"], &seen.page["handlers"]), (&0.into(), &0.into()));
    let (needed, width) = (seen.page["needed"].as_u64(), seen.page["width"].as_u64());
    assert!(needed <= width, "{needed:?} pixels on a screen of {width:?}");
}

#[test]
fn charts_are_drawn_on_a_desktop_and_on_a_phone() {
    let Some(browser) = chromium() else { return };
    let result = fixture::big_run();
    let folder = report_of(&result);
    let desk = measure(browser, &folder, 1200, false);
    let phone = measure(browser, &folder, 360, true);
    assert_eq!(phone.page["width"], 360);
    for seen in [&desk, &phone] {
        expect_pictures(seen, &result);
        expect_manners(seen, 1);
        let tip = seen.page["tip"].as_str().unwrap();
        assert!(tip.contains(" %") && tip.contains("uring+buffered"), "{tip}");
        assert_eq!(seen.page["heat"], 8 * 9, "eight groups, eight backends and fio");
    }
    assert_ne!(desk.page["background"], phone.page["background"], "light and dark");
}

#[test]
fn hostile_names_are_shown_and_do_nothing() {
    let Some(browser) = chromium() else { return };
    let result = fixture::hostile_run();
    let folder = report_of(&result);
    for width in [360, 1200] {
        let seen = measure(browser, &folder, width, false);
        expect_pictures(&seen, &result);
        expect_manners(&seen, 1);
        assert_eq!(seen.page["title"], "ringmain bench, 2026-11-16T08:00:00Z");
    }
}

/// The console has no message about the page itself. A broken page shows that the console is read.
#[test]
fn the_page_causes_no_message_in_the_console() {
    let Some(browser) = chromium() else { return };
    let folder = report_of(&fixture::small_run());
    let (document, complaints) = open(browser, &folder.path("report.html"), false);
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert!(document.contains("class=\"tip\""), "its own script did not run");
    let spoilt = folder.read("report.html").replace(
        "</main>",
        "<img src=\"http://127.0.0.1:9/x.png\"><script>document.title='no'</script></main>",
    );
    fs::write(folder.path("spoilt.html"), spoilt).unwrap();
    let (document, complaints) = open(browser, &folder.path("spoilt.html"), false);
    assert!(complaints.len() >= 2, "{complaints:#?}");
    assert!(!document.contains("<title>no</title>"), "a foreign script ran");
}

#[test]
fn a_trace_has_pictures_on_a_desktop_and_on_a_phone() {
    let Some(browser) = chromium() else { return };
    let folder = Folder::with(&fixture::small_run());
    let data = folder.path("a rather long name for data that was read.bin");
    fs::write(&data, vec![7; 1 << 20]).unwrap();
    let mut trace = format!("ringmain recording 2\nf 0 {}\n", data.display());
    for at in 0..200 {
        let (offset, len) = (at * 5003 % 1_000_000, 1 << (at % 14));
        trace +=
            &format!("{} {} 5 0 0 {offset} {len}\n", if at % 2 == 0 { 'b' } else { 'm' }, at * 100);
    }
    fs::write(folder.path("epoch.trace"), trace).unwrap();
    let args = ["inspect", "epoch.trace", "--html", "report.html"];
    run(ringmain(args).current_dir(folder.path(""))).stdout_of_success();
    for (width, dark) in [(1200, false), (360, true)] {
        let seen = measure(browser, &folder, width, dark);
        expect_manners(&seen, 0);
        assert_eq!(seen.page["unnamed"], 0, "pictures without a text");
        let pictures = seen.page["pictures"].as_array().unwrap();
        assert_eq!(pictures.len(), 1 + 14 + 1 + 3 + 1, "a file, sizes, a cache, and reuse");
        for size in pictures {
            let is_seen = size[0].as_f64() > Some(40.0) && size[1].as_f64() > Some(14.0);
            assert!(is_seen, "a picture of {size}");
        }
    }
    let again = run(ringmain(args).current_dir(folder.path("")));
    again.expect_failure(2, &["report.html already exists; remove it or name another file"]);
    let args = ["inspect", "run.json", "--html", "other.html"];
    let refused = run(ringmain(args).current_dir(folder.path("")));
    refused.expect_failure(2, &["run.json is not a trace", "--html"]);
    assert!(!folder.path("other.html").exists());
}

/// Curves, epochs and two runs side by side also fit a phone, and no picture is empty.
#[test]
fn other_pages_fit_a_desktop_and_a_phone() {
    let Some(browser) = chromium() else { return };
    let expect = |folder: &Folder, own_scripts, pictures: usize| {
        for (width, dark) in [(1200, false), (360, true)] {
            let seen = measure(browser, folder, width, dark);
            expect_manners(&seen, own_scripts);
            assert_eq!(seen.page["unnamed"], 0, "pictures without a text");
            let found = seen.page["pictures"].as_array().unwrap();
            assert_eq!(found.len(), pictures, "at {width} pixels");
            for size in found {
                let is_seen = size[0].as_f64() > Some(40.0) && size[1].as_f64() > Some(14.0);
                assert!(is_seen, "a picture of {size}");
            }
        }
    };
    // Of two backends: bars with their axis, epochs and memory, and the latencies of both.
    expect(&report_of(&fixture::epochs_run()), 1, 3 + 2 + 2 + 1);
    // The same without epochs in four groups, and two curves.
    expect(&report_of(&fixture::scaling_run()), 1, 4 * (3 + 2 + 1) + 2);
    // Three rates: two curves of p50 and p99.
    expect(&report_of(&fixture::load_run()), 1, 3 * (3 + 2 + 1) + 2);
    let folder = Folder::with(&fixture::small_run());
    fs::copy(folder.path("run.json"), folder.path("second.json")).unwrap();
    folder.report(&["second.json", "-o", "report.html"]).stdout_of_success();
    // Three backends and fio in four groups.
    expect(&folder, 0, 4 * 4);
}
