//! Resident memory over time.
//!
//! The figures are `RssAnon` and `RssFile` of the measured processes, and for several processes also their PSS, which
//! counts a page that is mapped by two of them as a half in each. `ru_maxrss` is not used: it does not tell anonymous
//! memory and files apart, and a child may inherit its parent's peak.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::result::{Resident, RssSample};

/// The largest number of samples. When it is reached, every other sample is removed and the interval
/// doubles.
const SAMPLES_MAX: usize = 128;
/// The first interval. A sample takes about 20 µs for each process.
const INTERVAL: Duration = Duration::from_millis(5);
/// Every 16th sample also has the PSS. For that the kernel looks at every page of a process, which takes about 1 ms for
/// each 512 MiB that the process maps.
const SAMPLES_PER_PSS: usize = 16;

/// Samples the memory of processes on a thread of its own.
#[derive(Debug)]
pub(crate) struct MemorySampler {
    stop: Sender<()>,
    thread: JoinHandle<Timeline>,
}

/// The samples of a measurement. All figures are sums over the processes.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) samples: Vec<RssSample>,
    pub(crate) anon: Resident,
    pub(crate) file: Resident,
    /// The PSS of several processes; `None` for a single one, and if the kernel does not tell.
    pub(crate) pss: Option<Resident>,
}

impl MemorySampler {
    /// Takes the first sample before it returns.
    pub(crate) fn start(processes: &[u32]) -> Result<Self, Failure> {
        let family = Family::open(processes)?;
        let started = Instant::now();
        let mut timeline = Timeline::default();
        timeline.take(&family, Duration::ZERO)?;
        timeline.take_pss(&family);
        let (stop, stopped) = channel();
        let sample = move || {
            // So that many processes do not keep a processor busy with this.
            let mut interval = INTERVAL * (family.statuses.len() as u32).div_ceil(8);
            let mut since_pss = 0;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                // A sample that fails is left out.
                let _ = timeline.take(&family, started.elapsed());
                since_pss += 1;
                if since_pss == SAMPLES_PER_PSS {
                    timeline.take_pss(&family);
                    since_pss = 0;
                }
                if timeline.samples.len() >= SAMPLES_MAX {
                    timeline.thin_out();
                    interval *= 2;
                }
            }
            let _ = timeline.take(&family, started.elapsed());
            timeline.take_pss(&family);
            timeline
        };
        let thread = std::thread::Builder::new()
            .name("memory".into())
            .spawn(sample)
            .map_err(Failure::Thread)?;
        Ok(Self { stop, thread })
    }

    /// Takes the last sample and ends.
    pub(crate) fn finish(self) -> Timeline {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

impl Timeline {
    fn take(&mut self, family: &Family, at: Duration) -> Result<(), Failure> {
        let (anon_bytes, file_bytes) = family.rss_bytes()?;
        let is_first = self.samples.is_empty();
        self.anon.add_sample(anon_bytes, is_first);
        self.file.add_sample(file_bytes, is_first);
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        self.samples.push(RssSample { at_us, anon_bytes, file_bytes });
        Ok(())
    }

    fn take_pss(&mut self, family: &Family) {
        let Some(bytes) = family.pss_bytes() else {
            return;
        };
        let is_first = self.pss.is_none();
        self.pss.get_or_insert_default().add_sample(bytes, is_first);
    }

    fn thin_out(&mut self) {
        let mut index = 0;
        self.samples.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}

impl Resident {
    fn add_sample(&mut self, bytes: u64, is_first: bool) {
        if is_first {
            self.start = bytes;
        }
        self.peak = self.peak.max(bytes);
        self.end = bytes;
    }
}

/// The files of `/proc` that tell the memory of some processes. They stay open.
#[derive(Debug)]
struct Family {
    statuses: Vec<ProcFile>,
    /// Only of several processes, and empty if one of them cannot be read.
    rollups: Vec<ProcFile>,
}

impl Family {
    fn open(processes: &[u32]) -> Result<Self, Failure> {
        let open = |name: &'static str| processes.iter().map(move |id| ProcFile::open(*id, name));
        let statuses = open("status").collect::<Result<_, _>>()?;
        let rollups = open("smaps_rollup").collect::<Result<_, _>>();
        let rollups = rollups.ok().filter(|_| processes.len() > 1).unwrap_or_default();
        Ok(Self { statuses, rollups })
    }

    /// Returns the sums of `RssAnon` and of `RssFile`.
    fn rss_bytes(&self) -> Result<(u64, u64), Failure> {
        let (mut anon_bytes, mut file_bytes) = (0, 0);
        for status in &self.statuses {
            let text = status.read()?;
            anon_bytes += text.field_bytes("RssAnon:").unwrap_or(0);
            file_bytes += text.field_bytes("RssFile:").unwrap_or(0);
        }
        Ok((anon_bytes, file_bytes))
    }

    /// Returns the sum of the PSS; `None` if it is not known for each of several processes.
    fn pss_bytes(&self) -> Option<u64> {
        let of = |rollup: &ProcFile| rollup.read().ok()?.field_bytes("Pss:");
        let sum = self.rollups.iter().map(of).sum::<Option<u64>>();
        sum.filter(|_| !self.rollups.is_empty())
    }
}

/// A file of a process in `/proc`.
#[derive(Debug)]
struct ProcFile {
    path: PathBuf,
    file: File,
}

impl ProcFile {
    fn open(process: u32, name: &str) -> Result<Self, Failure> {
        let path = PathBuf::from(format!("/proc/{process}/{name}"));
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(Failure::ReadFile { path, source }),
        }
    }

    fn read(&self) -> Result<ProcText, Failure> {
        let mut bytes = [0; 4096];
        let failed = |source| Failure::ReadFile { path: self.path.clone(), source };
        let len = self.file.read_at(&mut bytes, 0).map_err(failed)?;
        Ok(ProcText { bytes, len })
    }
}

/// The start of such a file.
struct ProcText {
    bytes: [u8; 4096],
    len: usize,
}

impl ProcText {
    /// Returns the bytes of a line such as `RssAnon:     1234 kB`.
    fn field_bytes(&self, name: &str) -> Option<u64> {
        let text = str::from_utf8(&self.bytes[..self.len]).ok()?;
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib.saturating_mul(1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: the memory of other tests comes and goes.
    #[test]
    fn touched_memory_is_in_the_samples() {
        const ALONE: &str = "RINGMAIN_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "measure::memory::tests::touched_memory_is_in_the_samples";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args([name, "--exact"]).env(ALONE, "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let sampler = MemorySampler::start(&[std::process::id()]).unwrap();
        let memory = vec![1u8; 64 << 20];
        // The sampler takes its last sample while the memory is still allocated.
        let timeline = sampler.finish();
        assert_eq!(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
        drop(memory);
        assert!(timeline.anon.peak >= timeline.anon.start + (60 << 20), "{:?}", timeline.anon);
        assert!(timeline.samples.len() >= 2);
        assert_eq!(timeline.pss, None, "one process shares nothing that is measured");
    }

    #[test]
    fn a_long_timeline_is_thinned_out() {
        let mut timeline = Timeline::default();
        let family = Family::open(&[std::process::id()]).unwrap();
        for at in 0..SAMPLES_MAX as u64 {
            timeline.take(&family, Duration::from_micros(at)).unwrap();
        }
        timeline.thin_out();
        assert_eq!(timeline.samples.len(), SAMPLES_MAX / 2);
        assert_eq!((timeline.samples[0].at_us, timeline.samples[1].at_us), (0, 2));
    }
}
