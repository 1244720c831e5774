//! Utilisation of the node's GPUs and processors.
//!
//! GPU utilisation comes from the last read; an old value causes a new read. Processor utilisation is the difference of
//! two reads of the kernel's counters, and needs no probe.

use super::NodeHealth;
use lattice_agent_rpc::Part;
use lattice_conformance::{Inventory, Reading, Value};
use lattice_hwprobe::Root;
use parking_lot::Mutex;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

/// Longest age of a GPU value.
const MAX_GPU_SAMPLE_AGE: Duration = Duration::from_secs(45);
/// Longest interval between two reads of the processors' counters: older activity is not relevant.
const MAX_CPU_INTERVAL: Duration = Duration::from_secs(150);
/// Shortest interval between two reads: the kernel counts in hundredths of a second.
const MIN_CPU_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of a read of `/proc/stat`. The file has a few kilobytes; in a captured tree it may be anything.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
const MILLION: u128 = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct UsageSample {
    gpus: Mutex<Option<(Instant, Result<u32, String>)>>,
    processors: tokio::sync::Mutex<Option<(Instant, Ticks)>>,
}

impl UsageSample {
    /// Records the GPU utilisation of a read.
    pub(super) fn observe(&self, seen: &Inventory) {
        let usage = (Instant::now(), gpus(seen));
        *self.gpus.lock() = Some(usage);
    }

    fn gpus(&self) -> Option<(Instant, Result<u32, String>)> {
        let known = self.gpus.lock();
        known.clone()
    }

    async fn processors(&self, root: &Root) -> Result<u32, String> {
        let mut last = self.processors.lock().await;
        let now = Instant::now();
        let fits = |(at, _): &(Instant, Ticks)| {
            (MIN_CPU_INTERVAL..=MAX_CPU_INTERVAL).contains(&now.duration_since(*at))
        };
        let before = match last.filter(fits) {
            Some((_, before)) => before,
            None => {
                let before = read_ticks(root).await?;
                sleep(MIN_CPU_INTERVAL).await;
                before
            }
        };
        let after = read_ticks(root).await?;
        *last = Some((Instant::now(), after));
        after.since(before)
    }
}

impl NodeHealth {
    /// Utilisation of a part of the node, in millionths; or the reason that it is unknown.
    pub(crate) async fn usage(&self, of: Part) -> Result<u32, String> {
        match of {
            Part::Processors => self.0.usage.processors(&self.0.host.root).await,
            Part::Gpus => self.usage_of_gpus().await,
        }
    }

    async fn usage_of_gpus(&self) -> Result<u32, String> {
        let recent = || {
            let known = self.0.usage.gpus();
            known.filter(|(at, _)| at.elapsed() < MAX_GPU_SAMPLE_AGE)
        };
        if let Some((_, usage)) = recent() {
            return usage;
        }
        if !self.0.settings.enabled {
            return Err(
                "GPU utilisation unknown: health checks are disabled on this node \
                 (health.disabled)"
                    .to_owned(),
            );
        }
        self.fresh().await?;
        let (_, usage) = recent().ok_or("the GPUs of this node have not been read")?;
        usage
    }
}

/// Mean utilisation of all GPUs, in millionths. An unknown value of one GPU makes the mean unknown.
fn gpus(seen: &Inventory) -> Result<u32, String> {
    let of_gpu = |key: &&String| key.starts_with("gpu.") && key.ends_with(".utilization.gpu");
    let mut percents = Vec::new();
    for key in seen.vitals.0.keys().filter(of_gpu) {
        match seen.vitals.get(key) {
            Reading::Present(Value::Number(percent @ 0..=100)) => percents.push(percent),
            other => return Err(format!("{key}: {other}")),
        }
    }
    if percents.is_empty() || percents.len() < seen.identity.gpus.len() {
        let (known, all) = (percents.len(), seen.identity.gpus.len());
        return Err(match all {
            0 => "it has no GPUs".to_owned(),
            _ => format!("{known} of its {all} GPUs report their utilisation"),
        });
    }
    let count = u128::try_from(percents.len()).unwrap_or(u128::MAX);
    let sum: u128 = percents.iter().map(|p| u128::from(p.unsigned_abs())).sum();
    ppm(sum, count * 100)
}

fn ppm(part: u128, whole: u128) -> Result<u32, String> {
    let ppm = (part * MILLION).checked_div(whole);
    let ppm = ppm.and_then(|ppm| u32::try_from(ppm).ok());
    ppm.ok_or_else(|| "the processor counters do not advance".to_owned())
}

/// Time of all processors since boot, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    /// Parses the first line of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal guest guest_nice`
    /// (proc_stat(5)). `user` and `nice` include the guest times.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.split_ascii_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        let ticks: Vec<u64> = words
            .take(8)
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let [_, _, _, idle, rest @ ..] = &ticks[..] else {
            return None;
        };
        let idle = idle.saturating_add(rest.first().copied().unwrap_or(0));
        let all = ticks
            .iter()
            .fold(0_u64, |sum, one| sum.saturating_add(*one));
        Some(Self {
            busy: all.saturating_sub(idle),
            all,
        })
    }

    fn since(self, before: Self) -> Result<u32, String> {
        let all = self.all.saturating_sub(before.all);
        // `iowait` may decrease (proc_stat(5)).
        let busy = self.busy.saturating_sub(before.busy).min(all);
        ppm(busy.into(), all.into())
    }
}

/// Reads the counters on a separate thread, which is abandoned if it blocks.
async fn read_ticks(root: &Root) -> Result<Ticks, String> {
    let (answer, answers) = oneshot::channel();
    let root = root.clone();
    let read = move || answer.send(root.text("proc/stat"));
    let started = thread::Builder::new().name("usage".to_owned()).spawn(read);
    started.map_err(|error| format!("no thread for /proc/stat: {error}"))?;
    match timeout(READ_TIMEOUT, answers).await {
        Ok(Ok(Reading::Present(text))) => Ticks::parse(&text)
            .ok_or_else(|| "/proc/stat has no summary line for all processors".to_owned()),
        Ok(Ok(other)) => Err(format!("/proc/stat: {}", other.map(|_| ""))),
        Ok(Err(_)) => Err("the thread that reads /proc/stat ended".to_owned()),
        Err(_) => Err("timeout reading /proc/stat".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::GpuIdentity;
    use std::fs;

    const STAT: &str = "cpu  100 0 50 800 50 0 0 0 20 0\ncpu0 100 0 50 800 50 0 0 0 20 0\nintr 1\n";

    #[test]
    fn processors_worked_in_the_part_in_which_they_were_not_idle() {
        let before = Ticks::parse(STAT).unwrap();
        assert_eq!((before.busy, before.all), (150, 1000));
        let after = Ticks::parse("cpu 160 5 60 815 60 0 0 0 30 0\n").unwrap();
        assert_eq!(after.since(before), Ok(750_000));
        let stands = before.since(before).unwrap_err();
        assert!(stands.contains("do not advance"), "{stands}");
        let all_busy = Ticks::parse("cpu 300 0 50 800 40 0 0 0 0 0").unwrap();
        assert_eq!(all_busy.since(before), Ok(1_000_000));
        for text in ["", "cpu", "cpu0 1 2 3 4", "cpu 1 2 three 4", "cpu 1 2 3"] {
            assert_eq!(Ticks::parse(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn hung_tree_blocks_no_caller() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let file = folder.path().join("proc/stat");
        let root = Root::new(folder.path());
        let seen = UsageSample::default();
        assert!(seen.processors(&root).await.is_err());
        fs::write(&file, STAT).unwrap();
        let still = seen.processors(&root).await.unwrap_err();
        assert!(still.contains("do not advance"), "{still}");
        // The last read was a moment ago. Its time is moved back, so that the next call compares with it.
        let (at, _) = seen.processors.lock().await.unwrap();
        *seen.processors.lock().await = Some((at - MIN_CPU_INTERVAL, Ticks::parse(STAT).unwrap()));
        fs::write(&file, "cpu 125 0 50 875 50 0 0 0 20 0\n").unwrap();
        assert_eq!(seen.processors(&root).await, Ok(250_000));
    }

    fn read(percents: &[Option<i64>]) -> Inventory {
        let mut seen = Inventory::default();
        for (slot, percent) in (0u32..).zip(percents) {
            seen.identity.gpus.push(GpuIdentity {
                slot,
                ..GpuIdentity::default()
            });
            let reading = match percent {
                Some(percent) => Reading::Present(Value::Number(*percent)),
                None => Reading::failed("GPU is lost"),
            };
            seen.vitals
                .put(format!("gpu.{slot}.utilization.gpu"), reading);
        }
        seen
    }

    #[test]
    fn gpus_worked_as_much_as_their_mean_or_it_is_not_known() {
        assert_eq!(gpus(&read(&[Some(100), Some(45)])), Ok(725_000));
        let none = gpus(&read(&[])).unwrap_err();
        assert_eq!(none, "it has no GPUs");
        let lost = gpus(&read(&[Some(100), None])).unwrap_err();
        assert!(lost.contains("gpu.1.utilization.gpu"), "{lost}");
        let mut silent = read(&[Some(100), Some(0)]);
        silent.vitals.0.remove("gpu.1.utilization.gpu");
        let fault = gpus(&silent).unwrap_err();
        assert_eq!(fault, "1 of its 2 GPUs report their utilisation");
        assert!(gpus(&read(&[Some(101)])).is_err());
    }
}
