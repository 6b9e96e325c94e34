//! `ringmain cache`: what a folder of cached blocks contains, and emptying it.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ringmain_backends::Error;
use ringmain_object_store::disk_cache::{CacheFolder, CacheSummary};
use serde_json::json;

use crate::cli::{CacheArgs, CacheCommand};
use crate::failure::Failure;
use crate::text::size::exact_bytes;

pub(super) fn run(args: &CacheArgs, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        CacheCommand::Stat(args) => stat(&args.folder, args.json, out),
        CacheCommand::Clear(args) => clear(&args.folder, out),
    }
}

fn open(folder: &Path) -> Result<CacheFolder, Failure> {
    CacheFolder::open(folder).map_err(|error| match error {
        Error::InvalidOption { value, reason, .. } => {
            Failure::Usage { message: format!("{value} is not a disk cache: {reason}") }
        }
        error => error.into(),
    })
}

fn stat(folder: &Path, is_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let folder = open(folder)?;
    let summary = folder.summary()?;
    let text = match is_json {
        true => serde_json::to_string_pretty(&as_json(&folder, &summary))?,
        false => as_text(&folder, &summary, SystemTime::now()),
    };
    writeln!(out, "{text}").map_err(Failure::Output)
}

fn clear(folder: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let folder = open(folder)?;
    let removed = folder.clear()?;
    let what = amount(removed.blocks, "block", removed.bytes);
    let path = folder.path().display();
    writeln!(out, "removed {what} from {path}{}", unfinished(&removed, "left by killed programs"))
        .map_err(Failure::Output)
}

fn as_text(folder: &CacheFolder, summary: &CacheSummary, now: SystemTime) -> String {
    let mut text = format!(
        "{}: {}{}",
        folder.path().display(),
        amount(summary.blocks, "block", summary.bytes),
        unfinished(summary, "being written, or left by killed programs")
    );
    if let (Some(oldest), Some(newest)) = (summary.oldest_use, summary.newest_use) {
        let [oldest, newest] = [oldest, newest].map(|used| ago(now, used));
        text += &format!("\nlast used: {newest} ago; unused for longest: {oldest}");
    }
    text
}

fn as_json(folder: &CacheFolder, summary: &CacheSummary) -> serde_json::Value {
    let seconds = |used: Option<SystemTime>| {
        Some(used?.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
    };
    json!({
        "folder": folder.path(),
        "blocks": summary.blocks,
        "bytes": summary.bytes,
        "unfinished": summary.unfinished,
        "unfinished_bytes": summary.unfinished_bytes,
        "oldest_use_unix_seconds": seconds(summary.oldest_use),
        "newest_use_unix_seconds": seconds(summary.newest_use),
    })
}

fn amount(count: u64, noun: &str, bytes: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}, {}", exact_bytes(bytes))
}

/// The files without a name, if there are any.
fn unfinished(summary: &CacheSummary, what: &str) -> String {
    match summary.unfinished {
        0 => String::new(),
        count => format!("; {} {what}", amount(count, "file", summary.unfinished_bytes)),
    }
}

fn ago(now: SystemTime, used: SystemTime) -> String {
    let seconds = now.duration_since(used).unwrap_or(Duration::ZERO).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000_000);
        for (seconds, text) in
            [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")]
        {
            assert_eq!(ago(now, now - Duration::from_secs(seconds)), text);
        }
        assert_eq!(ago(now, now + Duration::from_secs(9)), "0 s", "a clock that was set back");
    }
}
