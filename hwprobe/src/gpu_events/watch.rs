//! Event watch: two source threads, one channel, one log.

use super::{line, record};
use crate::gpu_driver::{ChildMessage, Line, NvmlSource, supervise_listener};
use lattice_conformance::Reading;
use lattice_conformance::driver_events::{
    EventCode, EventReport, GpuEvent, GpuEventLog, GpuEventSource, RecordOutcome,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// Interval at which a thread checks whether it should stop, and rereads a plain file.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum size of a kernel record, in bytes: about 1 KiB, with continuation lines 8 KiB.
const MAX_RECORD_BYTES: usize = 8 << 10;
/// Maximum line length, in bytes; longer input is discarded.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Sources of events.
#[derive(Clone, Debug)]
pub struct GpuEventSources {
    /// Source of the driver's events: the program of [`NvmlSource::Child`], with
    /// [`crate::gpu_driver::WATCH_SUBCOMMAND`] in place of its first argument. Other sources have no events.
    pub nvml: NvmlSource,
    /// Source of the kernel log.
    pub kernel_log: KernelLog,
    /// Maximum number of events that the log keeps.
    pub max_events: usize,
}

/// Location of the kernel log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelLog {
    /// `/dev/kmsg`, or a file with the same format. It is read from the start, so earlier events of this boot are
    /// reported with their time.
    Device(PathBuf),
    /// The kernel log is not read.
    Disabled,
}

/// State of a source. Any state other than present means that its events are missing, with the reason.
pub type SourceState = Reading<Vec<String>>;

enum WatchMessage {
    Sighting(EventReport),
    Nvml(SourceState),
    Kernel(SourceState),
}

/// A running event watch. Dropping it stops its threads and the child with the driver's events.
#[derive(Debug)]
pub struct GpuEventWatch {
    messages: Receiver<WatchMessage>,
    log: GpuEventLog,
    /// Sequence numbers of events that the kernel log reported after the driver, and that were not returned since.
    confirmed: BTreeSet<u64>,
    nvml: SourceState,
    kernel_log: SourceState,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl GpuEventWatch {
    /// Starts the watch. This call does not block; an unavailable source is reported as its state.
    #[must_use]
    pub fn start(sources: GpuEventSources) -> Self {
        let (tell, message_receiver) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut watch = Self {
            messages: message_receiver,
            log: GpuEventLog::new(sources.max_events),
            confirmed: BTreeSet::new(),
            nvml: Reading::disabled("no child process receives the GPU driver's events"),
            kernel_log: Reading::disabled("the kernel's log is not read"),
            stop,
            threads: Vec::new(),
        };
        if matches!(sources.nvml, NvmlSource::Child { .. }) {
            watch.nvml = Reading::disabled("event source has not started yet");
            let tell = tell.clone();
            watch.spawn("gpu-evt-nvml", move |stop| {
                supervise_listener(&sources.nvml, stop, &mut |news| {
                    forward_child_message(news, &tell)
                });
            });
        }
        if let KernelLog::Device(path) = sources.kernel_log {
            watch.kernel_log = Reading::disabled("event source has not started yet");
            watch.spawn("gpu-evt-kernel", move |stop| {
                follow_kernel_log(&path, stop, &tell)
            });
        }
        watch
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&AtomicBool) + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        let spawned = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&stop));
        // Without a thread the source stays "not started yet".
        self.threads.extend(spawned);
    }

    /// Waits up to `wait` and returns new events. An event that the other source only confirms is updated in the log.
    pub fn poll(&mut self, wait: Duration) -> Vec<GpuEvent> {
        let ends_at = Instant::now() + wait;
        let mut new = Vec::new();
        loop {
            let left = ends_at.saturating_duration_since(Instant::now());
            let left = if new.is_empty() { left } else { Duration::ZERO };
            let message = match self.messages.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    // Without any source, only waiting remains.
                    thread::sleep(left);
                    break;
                }
            };
            match message {
                WatchMessage::Nvml(state) => self.nvml = state,
                WatchMessage::Kernel(state) => self.kernel_log = state,
                WatchMessage::Sighting(sighting) => {
                    let is_kernels = sighting.kernel_seq.is_some();
                    match self.log.record(sighting) {
                        RecordOutcome::New(seq) => new.push(seq),
                        RecordOutcome::Confirms(seq) if is_kernels => {
                            self.confirmed.insert(seq);
                            // Entries older than the first kept event are dropped.
                            let first = self.log.since(0).next().map_or(seq, |event| event.seq);
                            self.confirmed = self.confirmed.split_off(&first);
                        }
                        RecordOutcome::Confirms(_) => {}
                    }
                }
            }
        }
        // Read after the loop, because the other source may have confirmed an event meanwhile.
        let events = new.into_iter().filter_map(|seq| self.log.get(seq).cloned());
        events.collect()
    }

    /// Events that the driver reported first and that the kernel log has reported since the last call, in their current
    /// state with the kernel record number.
    pub fn confirmed(&mut self) -> Vec<GpuEvent> {
        let confirmed = std::mem::take(&mut self.confirmed).into_iter();
        let events = confirmed.filter_map(|seq| self.log.get(seq).cloned());
        events.collect()
    }

    /// The log with every kept event.
    #[must_use]
    pub const fn log(&self) -> &GpuEventLog {
        &self.log
    }

    /// GPUs with monitored driver events, by PCI address, or the reason why there are none.
    #[must_use]
    pub const fn nvml(&self) -> &SourceState {
        &self.nvml
    }

    /// State of the kernel log: present with its path, or the reason why it is not read.
    #[must_use]
    pub const fn kernel_log(&self) -> &SourceState {
        &self.kernel_log
    }
}

impl Drop for GpuEventWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn forward_child_message(news: ChildMessage, tell: &Sender<WatchMessage>) {
    let message = match news {
        ChildMessage::Line(Line::Xid {
            at_ms,
            address,
            xid,
        }) => WatchMessage::Sighting(EventReport {
            at_ms,
            address,
            code: EventCode::Xid(xid),
            source: GpuEventSource::Nvml,
            detail: String::new(),
            kernel_seq: None,
        }),
        ChildMessage::Line(Line::Ready { watched, .. }) => {
            WatchMessage::Nvml(Reading::Present(watched))
        }
        ChildMessage::Line(Line::Alive) => return,
        ChildMessage::Line(Line::Failed { why }) | ChildMessage::Ended { why } => {
            WatchMessage::Nvml(Reading::Failed { why })
        }
        ChildMessage::Hung { after_ms } => WatchMessage::Nvml(Reading::Timeout { after_ms }),
    };
    let _ = tell.send(message);
}

/// Follows the kernel log until `stop`.
fn follow_kernel_log(path: &Path, stop: &AtomicBool, tell: &Sender<WatchMessage>) {
    // Non-blocking: neither opening a pipe nor reading the next record may wait.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) => {
            let state = Reading::from_io(&path.to_string_lossy(), &error);
            let _ = tell.send(WatchMessage::Kernel(state));
            return;
        }
    };
    let here = vec![path.display().to_string()];
    let _ = tell.send(WatchMessage::Kernel(Reading::Present(here)));
    let mut pending = Vec::new();
    let mut piece = vec![0; MAX_RECORD_BYTES];
    let mut is_live = false;
    while !stop.load(Ordering::Acquire) {
        match file.read(&mut piece) {
            Ok(0) => {
                is_live = true;
                wait_for_input(&file, true);
            }
            Ok(read) => pending.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                is_live = true;
                wait_for_input(&file, false);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Records were overwritten before they were read; the next read continues after them.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(error) => {
                let state = Reading::from_io(&path.to_string_lossy(), &error);
                let _ = tell.send(WatchMessage::Kernel(state));
                return;
            }
        }
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = pending.drain(..=end).collect();
            let text = String::from_utf8_lossy(&text);
            if let Some(sighting) = sighting(&text, is_live, &ClockReadings::read()) {
                let _ = tell.send(WatchMessage::Sighting(sighting));
            }
        }
        if pending.len() > MAX_LINE_BYTES {
            pending.clear();
        }
    }
}

/// Waits until more input may be available. At the end of a plain file, and of a pipe without a writer, `poll` returns
/// at once, so this function sleeps instead.
fn wait_for_input(file: &File, at_end: bool) {
    if at_end {
        thread::sleep(POLL_INTERVAL);
        return;
    }
    let timeout = Timespec::try_from(POLL_INTERVAL).ok();
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    let _ = poll(&mut fds, timeout.as_ref());
}

/// Clock readings, in microseconds.
struct ClockReadings {
    /// Time since the Unix epoch.
    wall_us: u64,
    /// Time since the boot, by the clock closest to that of the kernel log. NTP adjusts neither of the two, so they do
    /// not drift apart as an adjusted clock would (20 ppm are 10 s in 6 days).
    up_us: u64,
}

impl ClockReadings {
    fn read() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let up = clock_gettime(ClockId::MonotonicRaw);
        Self {
            wall_us: now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX)),
            up_us: u64::try_from(up.tv_sec).unwrap_or(0) * 1_000_000
                + u64::try_from(up.tv_nsec).unwrap_or(0) / 1_000,
        }
    }
}

/// Converts a kernel record to an event report; `None` if the record is no event. A record that was read after the end
/// of the log was reached gets the current time, whatever its stamp. An older record gets the time of its stamp.
fn sighting(text: &str, is_live: bool, now: &ClockReadings) -> Option<EventReport> {
    let record = record(text.trim_end_matches('\n'))?;
    let event = line(record.message)?;
    let age_us = match is_live {
        true => 0,
        false => now.up_us.saturating_sub(record.stamp_us),
    };
    Some(EventReport {
        at_ms: now.wall_us.saturating_sub(age_us) / 1_000,
        address: event.address,
        code: event.code,
        source: GpuEventSource::KernelLog,
        detail: event.detail,
        kernel_seq: Some(record.seq),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn record_time_is_independent_of_clock() {
        let day_us = 86_400_000_000;
        let now = ClockReadings {
            wall_us: 20_000 * day_us,
            up_us: 6 * day_us,
        };
        // The log's clock has run 20 ppm slow since the boot.
        let stamp = now.up_us - 10_368_000;
        let text = format!("4,77,{stamp},-;NVRM: Xid (PCI:0000:5d:00): 79, off the bus\n");
        let live = sighting(&text, true, &now).unwrap();
        assert_eq!(
            (live.at_ms, live.kernel_seq),
            (now.wall_us / 1000, Some(77))
        );
        let by_driver = EventReport {
            at_ms: now.wall_us / 1000 + 40,
            source: GpuEventSource::Nvml,
            detail: String::new(),
            kernel_seq: None,
            ..live.clone()
        };
        let mut log = GpuEventLog::new(9);
        assert_eq!(log.record(live), RecordOutcome::New(1));
        assert_eq!(log.record(by_driver), RecordOutcome::Confirms(1));
        let text = text.replace(&stamp.to_string(), &(now.up_us - day_us).to_string());
        let old = sighting(&text, false, &now).unwrap();
        assert_eq!(old.at_ms, (now.wall_us - day_us) / 1000);
    }
}
