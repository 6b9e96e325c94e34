//! Refuses plans that cannot be carried out, before anything is made or opened.

use super::Plan;
use crate::failure::Failure;
use crate::text::size::Bytes;
use crate::workload::{self, Workload};

/// Smaller values cannot work.
const BUFFER_BYTES_MIN: u64 = 1 << 20;
const MEMORY_LIMIT_BYTES_MIN: u64 = 1 << 20;
const DATA_BYTES_MIN: u64 = 1 << 20;
/// Half of a page of a dataset, so that aligned samples fit too.
const SAMPLE_BYTES_MAX: u64 = 4 << 20;
const SECONDS_MAX: f64 = 86400.0;
/// The workload that reads a trace.
const REPLAY: &str = "replay";

impl Plan {
    /// Returns an error if the plan cannot be carried out. Makes and opens nothing.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_numbers()?;
        self.check_sizes()?;
        self.check_combinations()?;
        self.check_data()?;
        let workloads = workload::planned(self)?;
        self.check_caches(&workloads)?;
        workload::check_depth(self)?;
        workload::check_parameters(self, &workloads).map(drop)
    }

    fn check_numbers(&self) -> Result<(), Failure> {
        let numbers: [(&str, &[u32], u32); 6] = [
            ("batch", &self.batches, 65536),
            ("depth", &self.depths, 32768),
            ("processes", &self.processes, 256),
            ("threads", &self.threads, 1024),
            ("epochs", &[self.epochs], 1000),
            ("repetitions", &[self.repetitions], 1000),
        ];
        for (name, values, max) in numbers {
            if let Some(value) = values.iter().find(|value| !(1..=max).contains(*value)) {
                return usage(format!("{name} {value}: the number must be from 1 to {max}"));
            }
        }
        let seconds = self.seconds;
        if !seconds.is_finite() || seconds <= 0.0 || seconds > SECONDS_MAX {
            return usage(format!(
                "{seconds:?} seconds: the time must be more than 0 and at most {SECONDS_MAX}"
            ));
        }
        if self.rates_per_s.contains(&0) || self.operations == Some(0) {
            return usage("a rate or a count of 0 would measure nothing");
        }
        if self.caches.is_empty() || self.threads.is_empty() || self.processes.is_empty() {
            return usage(
                "a plan needs at least one cache state, one number of processes and one number of threads",
            );
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), Failure> {
        let block = self.block_bytes.iter().find(|Bytes(block)| !(1..=1 << 30).contains(block));
        if let Some(Bytes(block)) = block {
            return usage(format!("block size {block}: the size must be from 1 byte to 1 GiB"));
        }
        if let Some(Bytes(bytes)) = self.data.sample_bytes
            && !(1..=SAMPLE_BYTES_MAX).contains(&bytes)
        {
            return usage(format!("sample size {bytes}: the size must be from 1 byte to 4 MiB"));
        }
        if self.buffer_bytes.is_some_and(|Bytes(bytes)| bytes < BUFFER_BYTES_MIN) {
            return usage("the engine needs at least 1 MiB for its buffers");
        }
        if self.memory_limit_bytes.is_some_and(|Bytes(bytes)| bytes < MEMORY_LIMIT_BYTES_MIN) {
            return usage("the memory limit must be at least 1 MiB");
        }
        if self.data.bytes.0 < DATA_BYTES_MIN {
            return usage("at least 1 MiB of data is needed");
        }
        Ok(())
    }

    /// Returns an error for options that contradict each other.
    fn check_combinations(&self) -> Result<(), Failure> {
        let has_trace = self.data.trace.is_some();
        let replays = self.workloads.iter().any(|name| name == REPLAY);
        if replays && !has_trace {
            return usage(format!("the workload `{REPLAY}` needs a --trace to replay"));
        }
        if has_trace && self.workloads.iter().any(|name| name != REPLAY) {
            return usage(format!("only the workload `{REPLAY}` takes a trace"));
        }
        if self.recorded_times && !has_trace {
            return usage("--recorded-times needs a --trace to take the times from");
        }
        if self.recorded_times && !self.rates_per_s.is_empty() {
            return usage("--recorded-times and --rate cannot be combined");
        }
        if self.memory_limit_bytes.is_some() && self.with_fio {
            return usage(
                "--with-fio and --memory-limit cannot be combined: the limit would not apply to fio",
            );
        }
        Ok(())
    }

    fn check_data(&self) -> Result<(), Failure> {
        let paths = [&self.data.file, &self.data.dir, &self.data.trace, &self.data.scratch];
        if let Some(path) = paths.into_iter().flatten().find(|path| path.to_str().is_none()) {
            let path = path.display();
            return usage(format!("{path}: a result can hold only names that are UTF-8"));
        }
        let sources = [&self.data.file, &self.data.dir, &self.data.trace];
        if sources.iter().filter(|source| source.is_some()).count() > 1 {
            return usage("name only one of a file, a folder and a trace");
        }
        if self.data.sample_bytes.is_some() && sources.iter().any(|source| source.is_some()) {
            return usage(
                "--sample-size is the size of samples that are made; existing data has its own",
            );
        }
        Ok(())
    }

    /// Returns an error unless a workload has one of the cache states.
    fn check_caches(&self, workloads: &[&dyn Workload]) -> Result<(), Failure> {
        if workloads.iter().any(|workload| !workload.caches(self).is_empty()) {
            return Ok(());
        }
        let quoted = |names: Vec<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let names = quoted(workloads.iter().map(|workload| workload.name().to_owned()).collect());
        let states = quoted(self.caches.iter().map(ToString::to_string).collect());
        usage(format!("the workload {names} has no cache state {states}"))
    }
}

fn usage(message: impl Into<String>) -> Result<(), Failure> {
    Err(Failure::Usage { message: message.into() })
}
