//! Resident memory over time.
//!
//! The figures are `RssAnon` and `RssFile` of the child, sampled on a thread of its own.
//! `ru_maxrss` is not used: it does not tell the two apart, and a child may inherit its parent's
//! peak.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::result::{Resident, RssSample};

/// The largest number of samples. When it is reached, every other sample is removed and the interval
/// doubles.
const SAMPLES_MAX: usize = 128;
/// The first interval. A sample takes about 20 µs.
const INTERVAL: Duration = Duration::from_millis(5);

/// Samples `RssAnon` and `RssFile` of this process on a thread of its own.
///
/// `ru_maxrss` does not distinguish the two, and a child may inherit the peak of its parent.
#[derive(Debug)]
pub(crate) struct RssSampler {
    stop: Sender<()>,
    thread: JoinHandle<Timeline>,
}

/// The samples of a measurement.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) samples: Vec<RssSample>,
    pub(crate) anon: Resident,
    pub(crate) file: Resident,
}

impl RssSampler {
    /// Takes the first sample before it returns.
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut status = Status::open()?;
        let started = Instant::now();
        let mut timeline = Timeline::default();
        timeline.take(&mut status, Duration::ZERO)?;
        let (stop, stopped) = channel();
        let sample = move || {
            let mut interval = INTERVAL;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                // A sample that fails is left out.
                let _ = timeline.take(&mut status, started.elapsed());
                if timeline.samples.len() >= SAMPLES_MAX {
                    timeline.thin_out();
                    interval *= 2;
                }
            }
            let _ = timeline.take(&mut status, started.elapsed());
            timeline
        };
        let thread = std::thread::Builder::new()
            .name("rss".into())
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
    fn take(&mut self, status: &mut Status, at: Duration) -> Result<(), Failure> {
        let (anon_bytes, file_bytes) = status.read()?;
        if self.samples.is_empty() {
            self.anon.start = anon_bytes;
            self.file.start = file_bytes;
        }
        self.anon.end = anon_bytes;
        self.file.end = file_bytes;
        self.anon.peak = self.anon.peak.max(anon_bytes);
        self.file.peak = self.file.peak.max(file_bytes);
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        self.samples.push(RssSample { at_us, anon_bytes, file_bytes });
        Ok(())
    }

    fn thin_out(&mut self) {
        let mut index = 0;
        self.samples.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}

/// `/proc/self/status`, which stays open.
#[derive(Debug)]
struct Status {
    file: File,
    text: [u8; 4096],
}

impl Status {
    fn open() -> Result<Self, Failure> {
        let file = File::open("/proc/self/status").map_err(unreadable)?;
        Ok(Self { file, text: [0; 4096] })
    }

    /// Returns `RssAnon` and `RssFile` in bytes.
    fn read(&mut self) -> Result<(u64, u64), Failure> {
        let len = self.file.read_at(&mut self.text, 0).map_err(unreadable)?;
        let text = str::from_utf8(&self.text[..len]).unwrap_or_default();
        Ok((field_bytes(text, "RssAnon:"), field_bytes(text, "RssFile:")))
    }
}

fn unreadable(source: std::io::Error) -> Failure {
    Failure::ReadFile { path: "/proc/self/status".into(), source }
}

/// Returns the bytes of a line such as `RssAnon:     1234 kB`.
fn field_bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or(0u64).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: the memory of other tests comes and goes.
    #[test]
    fn touched_memory_is_in_the_samples() {
        const ALONE: &str = "RINGMAIN_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "measure::rss::tests::touched_memory_is_in_the_samples";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args([name, "--exact"]).env(ALONE, "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let sampler = RssSampler::start().unwrap();
        let memory = vec![1u8; 64 << 20];
        // The sampler takes its last sample while the memory is still allocated.
        let timeline = sampler.finish();
        assert_eq!(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
        drop(memory);
        assert!(timeline.anon.peak >= timeline.anon.start + (60 << 20), "{:?}", timeline.anon);
        assert!(timeline.samples.len() >= 2);
    }

    #[test]
    fn a_long_timeline_is_thinned_out() {
        let mut timeline = Timeline::default();
        let mut status = Status::open().unwrap();
        for at in 0..SAMPLES_MAX as u64 {
            timeline.take(&mut status, Duration::from_micros(at)).unwrap();
        }
        timeline.thin_out();
        assert_eq!(timeline.samples.len(), SAMPLES_MAX / 2);
        assert_eq!((timeline.samples[0].at_us, timeline.samples[1].at_us), (0, 2));
    }
}
