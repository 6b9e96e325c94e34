//! The findings, as rows of a table.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use ringmain_backends::BackendKind;

use crate::calls::CALLS;
use crate::child::{Ending, Report};
use crate::supervisor::Fault;

/// Where the tables are written, if this is set: a folder.
const OUT: &str = "RINGMAIN_SYSTEM_CALL_TABLES";

/// One fault and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kind: BackendKind,
    pub(crate) fault: Fault,
    pub(crate) report: Report,
}

impl Row {
    /// The right bytes, or an error that passes with the fault.
    pub(crate) fn is_acceptable(&self) -> bool {
        match &self.report.ending {
            Ending::Right | Ending::RightAfter(_) => true,
            Ending::Failed(_) => !self.fault.passes(),
            Ending::Wrong(_) | Ending::Dead(_) | Ending::Hung => false,
        }
    }

    fn outcome(&self) -> &'static str {
        match &self.report.ending {
            Ending::Right => "right",
            Ending::RightAfter(_) => "error, then right",
            Ending::Failed(_) => "error",
            Ending::Wrong(_) => "WRONG",
            Ending::Dead(_) => "DEAD",
            Ending::Hung => "HUNG",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { number, errno, first, last } = self.fault;
        let errno = errno_name(errno);
        write!(f, "{}, {} fails with {errno}, ", self.kind, call_name(number))?;
        match last {
            u32::MAX => write!(f, "always: ")?,
            _ => write!(f, "call {first}: ")?,
        }
        write!(f, "{:?}", self.report.ending)
    }
}

fn call_name(number: i64) -> &'static str {
    CALLS.iter().find(|call| call.number == number).map_or("unknown", |call| call.name)
}

fn errno_name(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os").next().unwrap_or_default().to_owned()
}

/// Writes the rows of one backend as a table of call, error, and how often each outcome was seen.
pub(crate) fn save(kind: BackendKind, rows: &[Row]) {
    let Some(dir) = std::env::var_os(OUT) else { return };
    let mut counts: BTreeMap<(&str, i32, bool), BTreeMap<&str, u32>> = BTreeMap::new();
    for row in rows {
        let key = (call_name(row.fault.number), row.fault.errno, row.fault.passes());
        *counts.entry(key).or_default().entry(row.outcome()).or_default() += 1;
    }
    let mut text = String::new();
    for ((call, errno, passes), outcomes) in counts {
        let when = if passes { "one call" } else { "every call" };
        let outcomes: Vec<_> =
            outcomes.iter().map(|(what, count)| format!("{what} {count}")).collect();
        let _ = writeln!(
            text,
            "| `{call}` | {} | {when} | `{kind}` | {} |",
            errno_name(errno),
            outcomes.join(", ")
        );
    }
    std::fs::write(std::path::Path::new(&dir).join(format!("{kind}.md")), text).unwrap();
}
