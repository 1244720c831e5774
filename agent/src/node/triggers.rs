//! Read triggers: the usual interval, and the kernel's device events. Each device event is also recorded in the node's
//! history, whatever the read finds.

mod multicast;

use super::events::NodeEvents;
use lattice_conformance::history::{Cause, EventKind};
use lattice_hwprobe::kernel::{
    net::{
        devlink_events::{self, DevlinkEvent},
        multicast_group,
    },
    uevent::{self, StormState, Uevent},
};
use multicast::{Multicast, MulticastReceived};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::net::netlink::{GENERIC, KOBJECT_UEVENT};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Multicast group of the kernel's own messages. Group 2 carries udev's, which any privileged process can send.
const KERNEL_GROUP: u32 = 1;
/// Name that replaces further names in an event storm: one line with a count.
const OTHERS: &str = "others";
/// Spread of the reads, as a fraction of the interval: nodes that start together must not run their probe processes
/// together for ever.
const SPREAD: f64 = 0.1;
/// First retry delay after a read with an incomplete class. Each further delay is twice as long, up to the interval. A
/// driver that returns must not stay unknown for hours, and a value that the agent may not read never becomes known.
const RETRY: Duration = Duration::from_secs(60);

/// Sequence of intervals between reads.
#[derive(Debug)]
pub(super) struct ReadIntervals {
    interval: Duration,
    random: StdRng,
    retry: Duration,
}

impl ReadIntervals {
    /// Creates a sequence with a random spread from `seed`.
    pub(super) fn new(interval: Duration, seed: u64) -> Self {
        Self {
            interval,
            random: StdRng::seed_from_u64(seed),
            retry: RETRY,
        }
    }

    /// Wait before the next read; `is_incomplete`: whether the last read left a class unknown.
    pub(super) fn next(&mut self, is_incomplete: bool) -> Duration {
        let share = self.random.random_range(1.0 - SPREAD..1.0 + SPREAD);
        let usual = self.interval.mul_f64(share);
        if !is_incomplete {
            self.retry = RETRY;
            return usual;
        }
        let retry = self.retry.mul_f64(share);
        self.retry = self.retry.saturating_mul(2).min(self.interval);
        retry.min(usual)
    }
}

/// Message of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum KernelNotice {
    /// Event of a device or a module.
    Event(Uevent),
    /// Event of a device's firmware or parameters.
    Devlink(DevlinkEvent),
    /// The socket buffer overflowed: an unknown number of events is lost.
    Lost,
}

/// Listener for the kernel's device messages. Any user may listen, unless a container or a sandbox forbids it. In a
/// separate network namespace, the kernel reports only the network devices of that namespace.
#[derive(Debug)]
pub struct DeviceEvents {
    devices: Multicast,
    /// Devlink socket with its family number; `None` if the kernel has no devlink.
    devlink: Option<(Multicast, u16)>,
}

impl DeviceEvents {
    /// Starts to listen. Requires a runtime. Blocks for at most two seconds if a driver holds the lock that the kernel
    /// needs to resolve the devlink group.
    ///
    /// # Errors
    /// The device socket could not be opened. An unavailable devlink is not an error.
    pub fn open() -> io::Result<Self> {
        let devices = Multicast::open(KOBJECT_UEVENT, KERNEL_GROUP)?;
        let quiet = |error: &io::Error| {
            tracing::info!(%error, "devlink unavailable; only kernel device events are watched");
        };
        Ok(Self {
            devices,
            devlink: devlink().inspect_err(quiet).ok(),
        })
    }

    /// Returns the next message of the kernel.
    ///
    /// # Errors
    /// A socket is no longer usable.
    pub async fn next(&self) -> io::Result<KernelNotice> {
        tokio::select! {
            received = self.next_device() => received,
            received = self.next_devlink() => received,
        }
    }

    async fn next_device(&self) -> io::Result<KernelNotice> {
        let mut buffer = [0; uevent::MAX_MESSAGE_BYTES];
        loop {
            let MulticastReceived::Datagram(length) = self.devices.receive(&mut buffer).await?
            else {
                return Ok(KernelNotice::Lost);
            };
            match Uevent::parse(buffer.get(..length).unwrap_or_default()) {
                Ok(event) => return Ok(KernelNotice::Event(event)),
                Err(error) => tracing::debug!(%error, "unknown kernel device event"),
            }
        }
    }

    /// Next devlink event; pending for ever without devlink.
    async fn next_devlink(&self) -> io::Result<KernelNotice> {
        let Some((devlink, family)) = &self.devlink else {
            return std::future::pending().await;
        };
        let mut buffer = [0; devlink_events::MAX_MESSAGE_BYTES];
        loop {
            let MulticastReceived::Datagram(length) = devlink.receive(&mut buffer).await? else {
                return Ok(KernelNotice::Lost);
            };
            match DevlinkEvent::parse(buffer.get(..length).unwrap_or_default(), *family) {
                Ok(Some(event)) => return Ok(KernelNotice::Devlink(event)),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "unknown devlink event"),
            }
        }
    }

    /// Records each message in `events`, and sends `to` a cause whenever the node should be read, for as long as the
    /// sockets work.
    pub async fn run(self, to: mpsc::Sender<Cause>, events: NodeEvents) {
        let begun = Instant::now();
        let now = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut hearing = NoticeRecorder::new(events);
        loop {
            let due = hearing
                .storm
                .due()
                .map(|due| begun + Duration::from_millis(due));
            tokio::select! {
                received = self.next() => match received {
                    Ok(received) => hearing.record_notice(received, now()),
                    Err(error) => {
                        tracing::error!(
                            %error,
                            "kernel device event socket failed; device events are no longer received"
                        );
                        return;
                    }
                },
                () = wait_until(due) => {}
            }
            if let Some(cause) = hearing.storm.take_due_read(now())
                && to.send(cause).await.is_err()
            {
                return;
            }
        }
    }
}

/// Processing of received messages.
pub(super) struct NoticeRecorder {
    storm: StormState,
    events: NodeEvents,
}

impl NoticeRecorder {
    pub(super) fn new(events: NodeEvents) -> Self {
        let settling = StormState::default();
        Self {
            storm: settling,
            events,
        }
    }

    /// Records a message. `now`: milliseconds of a monotonic clock.
    pub(super) fn record_notice(&mut self, notice: KernelNotice, now: u64) {
        // A loss of unknown events is always recorded by name.
        let is_lost = notice == KernelNotice::Lost;
        let Some(cause) = notice.cause() else {
            return;
        };
        let is_named = self.storm.add_event(cause.clone(), now) || is_lost;
        let name = |name: String| match is_named {
            true => name,
            false => OTHERS.to_owned(),
        };
        self.events.record_now(match cause {
            Cause::DriverLoad { module } => EventKind::Driver {
                module: name(module),
            },
            Cause::DeviceEvent { what } => EventKind::Device { what: name(what) },
            Cause::First
            | Cause::Boot
            | Cause::Operator { .. }
            | Cause::AgentStart
            | Cause::Periodic => return,
        });
    }
}

impl KernelNotice {
    fn cause(self) -> Option<Cause> {
        match self {
            Self::Event(event) => event.cause(),
            Self::Devlink(event) => Some(event.cause()),
            Self::Lost => Some(Cause::DeviceEvent {
                what: "too many events to receive".to_owned(),
            }),
        }
    }
}

/// Opens the devlink multicast group, which carries all change events.
fn devlink() -> io::Result<(Multicast, u16)> {
    let config = multicast_group(devlink_events::FAMILY, devlink_events::GROUP)?;
    let socket = Multicast::open(GENERIC, 0)?;
    socket.join(config.group)?;
    Ok((socket, config.family))
}

/// Waits until `due`; for ever if `None`.
async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_spread_and_two_nodes_are_not_aligned() {
        let interval = Duration::from_secs(6 * 3600);
        let (mut a, mut b) = (
            ReadIntervals::new(interval, 1),
            ReadIntervals::new(interval, 2),
        );
        let mut together = 0;
        for _ in 0..100 {
            let (a, b) = (a.next(false), b.next(false));
            for pause in [a, b] {
                let share = pause.as_secs_f64() / interval.as_secs_f64();
                assert!((0.9..=1.1).contains(&share), "{share}");
            }
            together += u32::from(a.abs_diff(b) < Duration::from_secs(10));
        }
        assert!(together < 10, "{together}");
    }

    #[test]
    fn what_is_unknown_is_read_again_soon_and_ever_later() {
        let interval = Duration::from_secs(3600);
        let mut pace = ReadIntervals::new(interval, 7);
        let pauses: Vec<u64> = (0..9).map(|_| pace.next(true).as_secs()).collect();
        assert!((54..=66).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses.windows(2).take(5).all(|w| w[1] > w[0]), "{pauses:?}");
        assert!(pauses[8] <= 3960, "{pauses:?}");
        assert!(pace.next(false) > Duration::from_secs(3000));
        assert!(pace.next(true) < Duration::from_secs(70));
    }
}
