//! `plan.toml`.

use std::fs;
use std::path::Path;

use super::Plan;
use crate::failure::Failure;

/// Reads a plan; an error names line and column.
pub(crate) fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|source| Failure::ReadFile { path: path.to_owned(), source })?;
    let plan: Plan = toml::from_str(&text)
        .map_err(|error| Failure::Plan { path: path.to_owned(), message: error.to_string() })?;
    Ok(plan)
}

/// Returns the text of a plan for [`read_plan`], with every default.
pub(crate) fn render_plan(plan: &Plan) -> Result<String, Failure> {
    let toml = toml::to_string_pretty(plan)
        .map_err(|error| Failure::Usage { message: format!("cannot write the plan: {error}") })?;
    Ok(format!(
        "# A plan for `ringmain bench --plan FILE`. An empty list stands for the default.\n{toml}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_plan_survives_a_round_trip() {
        let text = render_plan(&Plan::default()).unwrap();
        assert_eq!(toml::from_str::<Plan>(&text).unwrap(), Plan::default(), "{text}");
    }

    #[test]
    fn an_error_names_line_and_column() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.toml");
        fs::write(&path, "seconds = 1.0\nbackends = [\"pread\", \"urnig\"]\n").unwrap();
        let message = read_plan(&path).unwrap_err().to_string();
        assert!(message.contains("line 2, column"), "{message}");
        assert!(message.contains("did you mean `uring`"), "{message}");
    }
}
