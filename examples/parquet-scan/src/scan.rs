//! The scan: partitions that run side by side, each over some of the files.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::async_reader::{ParquetObjectReader, ParquetRecordBatchStreamBuilder};

use crate::Outcome;

/// Sums the first columns of all files.
pub(crate) async fn scan(
    store: &Arc<dyn ObjectStore>,
    files: &[PathBuf],
    columns: usize,
) -> Outcome<f64> {
    let partitions = std::thread::available_parallelism().map_or(2, usize::from);
    let tasks: Vec<_> = (0..partitions)
        .map(|partition| {
            let mine: Vec<_> = files.iter().skip(partition).step_by(partitions).cloned().collect();
            tokio::spawn(sum_of_files(Arc::clone(store), mine, columns))
        })
        .collect();
    let mut sum = 0.0;
    for task in tasks {
        sum += task.await??;
    }
    Ok(sum)
}

async fn sum_of_files(
    store: Arc<dyn ObjectStore>,
    files: Vec<PathBuf>,
    columns: usize,
) -> Outcome<f64> {
    let mut sum = 0.0;
    for file in files {
        let reader = ParquetObjectReader::new(Arc::clone(&store), Path::from_absolute_path(file)?);
        let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
        let mask = ProjectionMask::leaves(builder.parquet_schema(), 0..columns);
        let mut batches = builder.with_projection(mask).with_batch_size(8192).build()?;
        while let Some(batch) = batches.try_next().await? {
            sum += sum_of_batch(&batch);
        }
    }
    Ok(sum)
}

fn sum_of_batch(batch: &RecordBatch) -> f64 {
    let sum_of_column = |column: &Arc<dyn Array>| match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().values().iter().sum::<f64>(),
        _ => column.as_primitive::<Int64Type>().values().iter().sum::<i64>() as f64,
    };
    batch.columns().iter().map(sum_of_column).sum()
}
