//! `ringmain schema`: the JSON Schema of `run.json`.

use std::fs::File;
use std::io::Write;

use crate::failure::Failure;
use crate::result::Run;

/// Returns the text of `docs/run.schema.json`.
pub(crate) fn render() -> Result<String, Failure> {
    let schema = schemars::schema_for!(Run);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// Prints the schema.
pub(crate) fn run(out: &mut File) -> Result<(), Failure> {
    out.write_all(render()?.as_bytes()).map_err(Failure::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_schema_matches_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/run.schema.json");
        let documented = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            documented.replace("\r\n", "\n") == render().unwrap(),
            "docs/run.schema.json is out of date; write it anew with: cargo run \
             --package ringmain-bench -- schema > docs/run.schema.json"
        );
    }
}
