//! The arguments of `ringmain bench`, and the plan they make.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::plan::{BackendChoice, Plan, read_plan};
use crate::result::CacheState;
use crate::text::size::Bytes;
use crate::workload;

/// Compares the backends: throughput, latency and memory, cold and warm, each in a fresh process.
///
/// Without arguments it makes its own data in the current folder, measures `auto` and every fixed
/// backend on every workload in about two minutes, and says which one to use: `auto`, unless a fixed
/// backend is better by more than noise.
#[derive(Debug, Args)]
#[command(after_help = examples(), args_override_self = true)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) measured: MeasuredArgs,

    /// Where to put the result [default: ringmain-results/<time>]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,

    /// Print the whole result as JSON in place of the tables
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the plan as a file for --plan, and measure nothing
    #[arg(long)]
    pub(crate) print_plan: bool,

    /// For tests of the harness: this backend returns one wrong byte
    #[arg(long, value_name = "BACKEND", hide = true)]
    pub(crate) corrupt: Option<BackendChoice>,
}

/// The arguments that say what to measure; `recommend` takes the same.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MeasuredArgs {
    /// A plan to start from; the other arguments override it
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,

    /// Backends, some with a policy: pread, pread+random, pread+sequential, mmap, mmap+release, mmap+huge, mmap+random,
    /// mmap+sequential, direct, uring, uring+buffered, uring+uncached, uncached, tokio-uring, auto [default: auto
    /// and all that work here, without policies]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) backends: Option<Vec<BackendChoice>>,

    /// Workloads; `ringmain help bench` lists them [default: seq, rand, views, shards and mixed; also
    /// samples and weights with --file or --dir; only replay with --trace]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) workloads: Option<Vec<String>>,

    /// Forms of the workloads, such as blocks,shuffled-f32; `ringmain help bench` lists them [default: the usual ones of each
    /// workload]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) variants: Option<Vec<String>>,

    /// Cache states: cold and warm for every workload, mixed for `mixed` [default: all]
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    pub(crate) cache: Option<Vec<CacheState>>,

    /// Bytes of a read: 4k, 64k, 1MiB [default: depends on the workload]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub(crate) block_size: Option<Vec<Bytes>>,

    /// Reads that are handed to the backend at once [default: depends on the workload]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) batch: Option<Vec<u32>>,

    /// The largest number of device requests in flight [default: 128]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) depth: Option<Vec<u32>>,

    /// Forked processes that read at the same time, like the workers of a data loader. The memory of a cell is then the
    /// sum over all of them, and PSS counts pages that they share once [default: 1]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) processes: Option<Vec<u32>>,

    /// Threads of a process that read at the same time [default: 1]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) threads: Option<Vec<u32>>,

    /// How much `weights` reads ahead: 0, 32M, 1GiB [default: 128 MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub(crate) window: Option<Vec<Bytes>>,

    /// Read all of the data this often in a cell, in another random order each time, and report every epoch by itself:
    /// time, page faults, bytes from the device. The cache state is that before the first. --seconds has no effect
    /// then [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) epochs: Option<u32>,

    /// The longest time that a cell reads, in seconds; `weights` always loads the whole model [default:
    /// 0.2]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) seconds: Option<f64>,

    /// The largest number of operations (batches) in a cell [default: no limit]
    #[arg(long, value_name = "COUNT")]
    pub(crate) operations: Option<u64>,

    /// How often each cell is measured [default: 5]
    #[arg(long, value_name = "COUNT")]
    pub(crate) repetitions: Option<u32>,

    /// Open loop: start this many operations a second, and measure latency from the moment each was
    /// meant to start. Several rates make a curve of latency over load
    #[arg(long, value_name = "PER_SECOND", value_delimiter = ',')]
    pub(crate) rate: Option<Vec<u64>>,

    /// Open loop: start each read of the --trace when it was recorded, counted from the first
    #[arg(long)]
    pub(crate) recorded_times: bool,

    /// Let the measured process use no more memory than this
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Option<Bytes>,

    /// Memory for the buffers of the engine [default: 64 MiB a thread]
    #[arg(long, value_name = "BYTES")]
    pub(crate) buffer_bytes: Option<Bytes>,

    /// The seed of the data, the order and the offsets [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Read this file; name a folder with --dir to read several
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "trace", "bytes"])]
    pub(crate) file: Vec<PathBuf>,

    /// Read the files of this folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["trace", "bytes"])]
    pub(crate) dir: Vec<PathBuf>,

    /// Replay these reads: a recording of `ringmain record` or `Engine::record`, an iolog of fio (version 2 or 3), or a
    /// log of `strace -f -y -ttt -T`
    #[arg(long, value_name = "FILE", conflicts_with = "bytes")]
    pub(crate) trace: Vec<PathBuf>,

    /// How much data to make for each kind of data and cache state [default: 512 MiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) bytes: Option<Bytes>,

    /// Bytes of the samples that are made for `samples`: 1500, 64k. Such samples are one field of bytes [default: 48 KiB,
    /// with an array and a text]
    #[arg(long, value_name = "BYTES")]
    pub(crate) sample_size: Option<Bytes>,

    /// Where to make the data [default: the current folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,

    /// Measure fio too, on the same file with the same block size and depth
    #[arg(long)]
    pub(crate) with_fio: bool,
}

impl MeasuredArgs {
    /// Returns the plan of the file, or the default plan, with the arguments applied to it.
    pub(crate) fn to_plan(&self) -> Result<Plan, Failure> {
        let mut plan = match &self.plan {
            Some(path) => read_plan(path)?,
            None => Plan::default(),
        };
        let set = self.clone();
        put(&mut plan.backends, set.backends);
        put(&mut plan.workloads, set.workloads);
        put(&mut plan.variants, set.variants);
        put(&mut plan.caches, set.cache);
        put(&mut plan.block_bytes, set.block_size);
        put(&mut plan.batches, set.batch);
        put(&mut plan.depths, set.depth);
        put(&mut plan.processes, set.processes);
        put(&mut plan.threads, set.threads);
        put(&mut plan.epochs, set.epochs);
        put(&mut plan.window_bytes, set.window);
        put(&mut plan.seconds, set.seconds);
        put(&mut plan.repetitions, set.repetitions);
        plan.buffer_bytes = set.buffer_bytes.or(plan.buffer_bytes);
        put(&mut plan.seed, set.seed);
        put(&mut plan.data.bytes, set.bytes);
        plan.data.sample_bytes = set.sample_size.or(plan.data.sample_bytes);
        plan.operations = set.operations.or(plan.operations);
        put(&mut plan.rates_per_s, set.rate);
        plan.recorded_times |= set.recorded_times;
        plan.memory_limit_bytes = set.memory_limit.or(plan.memory_limit_bytes);
        plan.data.scratch = set.scratch.or(plan.data.scratch);
        plan.with_fio |= set.with_fio;
        let in_folder = "put the files, or links to them, into a folder and name it with --dir";
        let file = only_one("--file", set.file, in_folder)?;
        let dir = only_one("--dir", set.dir, "put all files, or links to them, into one folder")?;
        let trace = only_one("--trace", set.trace, "replay each trace in a run of its own")?;
        if file.is_some() || dir.is_some() || trace.is_some() {
            (plan.data.file, plan.data.dir, plan.data.trace) = (file, dir, trace);
        }
        plan.backends.dedup();
        match (plan.check(), &self.plan) {
            (Ok(()), _) => Ok(plan),
            (Err(Failure::Usage { message }), Some(path)) => {
                Err(Failure::Plan { path: path.clone(), message })
            }
            (Err(failure), _) => Err(failure),
        }
    }
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// Returns the only value of an option that names data. Of other options the last value counts, but someone who names two
/// files wants both to be read.
fn only_one(option: &str, paths: Vec<PathBuf>, way_out: &str) -> Result<Option<PathBuf>, Failure> {
    if paths.len() <= 1 {
        return Ok(paths.into_iter().next());
    }
    let message =
        format!("{option} is given {} times, but a run takes it once; {way_out}", paths.len());
    Err(Failure::Usage { message })
}

/// Lists the workloads, then the examples.
fn examples() -> String {
    let mut text = String::from("Workloads:\n");
    for workload in workload::ALL {
        text += &format!("  {:<15} {}\n", workload.name(), workload.about());
    }
    text += "\nVariants (* measured if none is named):\n";
    let all: Vec<_> = workload::ALL.iter().filter(|it| !it.variants().is_empty()).collect();
    for alike in all.chunk_by(|a, b| a.variants() == b.variants()) {
        let names: Vec<&str> = alike.iter().map(|workload| workload.name()).collect();
        text += &format!("  {}\n", names.join(", "));
        for variant in alike[0].variants() {
            let star = if variant.is_default { '*' } else { ' ' };
            text += &format!("   {star} {:<19} {}\n", variant.name, variant.about);
        }
    }
    text + EXAMPLES
}

const EXAMPLES: &str = "
Examples:
  ringmain bench                                   everything, in about two minutes
  ringmain bench --file train.bin --workloads rand --block-size 4k,64k --depth 1,8,128
  ringmain bench --backends uring,pread --cache cold --seconds 2 --with-fio
  ringmain bench --backends auto,pread,uring --workloads rand,seq --batch 1,32,128
                                                   does auto choose as well as a fixed backend?
  ringmain bench --workloads rand --batch 1 --rate 2000,5000,10000
                                                   latency over load, in operations a second
  ringmain bench --workloads views --backends mmap,mmap+release,pread --processes 1,2,4
                                                   what do forked workers share, what do they accumulate?
  ringmain bench --workloads shards --variants shuffled,blocks
                                                   what does it gain to shuffle blocks instead of rows?
  ringmain bench --workloads shards --cache cold --epochs 3 --memory-limit 256M --bytes 512M
                                                   does the second epoch come from memory?
  ringmain bench --workloads shards --variants sequential,sequential-f32
                                                   what does the conversion to f64 cost?
  ringmain bench --workloads samples,samples-sectors,samples-aligned --sample-size 1500 --batch 1
                                                   what do samples gain that begin at whole blocks?
  ringmain bench --workloads samples --variants random,random-os-cache,quasi-random-pages
                                                   which memory manager of a dataset is best?
  ringmain bench --backends mmap,mmap+sequential,mmap+random,mmap+huge --workloads seq,rand
                                                   what does a policy gain?
  ringmain bench --memory-limit 256M --bytes 128M --workloads views
  ringmain bench --file model.safetensors --workloads weights --window 32M,256M
  ringmain bench --trace epoch.trace --backends pread,uring,auto
                                                   the reads of my own program (ringmain record) on other backends
  ringmain bench --trace epoch.trace --recorded-times
                                                   the same reads at the recorded times
  ringmain bench --print-plan > plan.toml; ringmain bench --plan plan.toml

An operation is a batch of reads, or a single read if the batch is 1; latency is per operation.

Ctrl-C ends the run and keeps the finished cells. Exit codes: 0 every cell was measured, 1 some cells are \
invalid or two backends returned different bytes, 2 the request makes no sense, 130 interrupted.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_override_the_plan() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.toml");
        std::fs::write(&path, "repetitions = 9\nseed = 5\n[data]\nbytes = \"2M\"\n").unwrap();
        let args = MeasuredArgs { plan: Some(path), seed: Some(7), ..MeasuredArgs::default() };
        let plan = args.to_plan().unwrap();
        assert_eq!((plan.repetitions, plan.seed, plan.data.bytes), (9, 7, Bytes(2 << 20)));
    }
}
