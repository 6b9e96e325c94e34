//! The files that are scanned.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::Outcome;

const FILES: usize = 8;
/// Half of the columns have numbers that do not compress, the others few different ones.
const COLUMNS: usize = 16;
/// As DataFusion's writer makes them by default, in bytes of a column: about 1 MiB.
const GROUP_ROWS: usize = 128 << 10;
/// The approximate size of a row in a file.
const ROW_BYTES: usize = 8 * COLUMNS / 2 + COLUMNS / 2;

/// Writes files of about this size together.
pub(crate) fn generate(folder: &Path, mib: usize) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let groups = (mib << 20).div_ceil(FILES * GROUP_ROWS * ROW_BYTES).max(1);
    let mut state = 1;
    for file in 0..FILES {
        let schema = schema();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let output = File::create(folder.join(format!("part-{file}.parquet")))?;
        let mut writer = ArrowWriter::try_new(output, Arc::clone(&schema), Some(properties))?;
        for _ in 0..groups {
            let columns = (0..COLUMNS).map(|at| column(at, &mut state)).collect();
            writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
        }
        writer.close()?;
    }
    Ok(())
}

fn schema() -> Arc<Schema> {
    let field = |at| {
        let kind = if is_float(at) { DataType::Float64 } else { DataType::Int64 };
        Field::new(format!("column_{at}"), kind, false)
    };
    Arc::new(Schema::new((0..COLUMNS).map(field).collect::<Vec<_>>()))
}

fn is_float(column: usize) -> bool {
    column.is_multiple_of(2)
}

fn column(at: usize, state: &mut u64) -> ArrayRef {
    let numbers = (0..GROUP_ROWS).map(|_| random(state));
    match is_float(at) {
        true => Arc::new(
            numbers.map(|number| number as f64 / u64::MAX as f64).collect::<Float64Array>(),
        ),
        false => Arc::new(numbers.map(|number| (number % 200) as i64).collect::<Int64Array>()),
    }
}

/// The next number of xorshift64.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The files in the folder, by name.
pub(crate) fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = folder.read_dir()?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "parquet"));
    files.sort();
    Ok(files)
}
