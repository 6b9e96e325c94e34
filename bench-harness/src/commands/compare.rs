//! `ringmain compare`: what changed from one run to another.

use std::io::Write;

use crate::cli::CompareArgs;
use crate::comparison::Comparison;
use crate::failure::Failure;
use crate::result::load::load_run;

/// Compares two results.
pub(crate) fn run(args: &CompareArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (a, b) = (load_run(&args.a)?, load_run(&args.b)?);
    let mut comparison = Comparison::of(&a, &b);
    if let Some(percent) = args.fail_on_regression {
        comparison.find_regressions(percent);
    }
    let text = if args.json {
        serde_json::to_string_pretty(&comparison)? + "\n"
    } else {
        comparison.to_text(&args.a, &args.b)
    };
    out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    comparison.verdict()
}
