//! When the node is read, beside being asked: at its usual time, and when the kernel tells of a
//! device. What it tells is an event of the node's history as well, whatever the read finds.

mod multicast;

use super::events::NodeEvents;
use lattice_hwprobe::history::{Cause, Happening};
use lattice_hwprobe::net::devlink_events::{self, DevlinkEvent};
use lattice_hwprobe::net::multicast_group;
use lattice_hwprobe::uevent::{self, Settling, Uevent};
use multicast::{Multicast, Received};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::net::netlink::{GENERIC, KOBJECT_UEVENT};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Where the kernel's own messages are; udev's, which any privileged process can send, are in 2.
const KERNEL_GROUP: u32 = 1;
/// In place of a name: the rest of a storm is one line with their number.
const OTHERS: &str = "others";
/// How far reads are spread, in hundredths of the interval: nodes that were started together
/// must not start their drivers' children together for ever.
const SPREAD: f64 = 0.1;
/// After a read that left a class unknown the node is read again this soon, then after twice as
/// long, and so on up to the interval: a driver that is back must not be unknown for hours, and
/// what may not be read never comes back.
const RETRY: Duration = Duration::from_secs(60);

/// The times between usual reads.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    random: StdRng,
    retry: Duration,
}

impl Pace {
    /// Spread by `seed`.
    pub(super) fn new(interval: Duration, seed: u64) -> Self {
        Self {
            interval,
            random: StdRng::seed_from_u64(seed),
            retry: RETRY,
        }
    }

    /// How long to wait after a read, by whether it left a class unknown.
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

/// What the kernel told.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Of a device or a module.
    Event(Uevent),
    /// Of a device's firmware or parameters.
    Devlink(DevlinkEvent),
    /// More came than there was room for: nobody knows what.
    Lost,
}

/// The kernel's messages about devices. Everybody may listen, except where a container or a
/// sandbox forbids it; in a network namespace of its own only its own network devices are heard.
#[derive(Debug)]
pub struct DeviceEvents {
    devices: Multicast,
    /// With the number of its family; nobody, where the kernel has no devlink.
    devlink: Option<(Multicast, u16)>,
}

impl DeviceEvents {
    /// Begins to listen. Within a runtime. Blocks for at most two seconds, where a driver holds
    /// the lock that the kernel needs to say where devlink is heard.
    ///
    /// # Errors
    /// What the system said. That devlink cannot be heard is none.
    pub fn open() -> io::Result<Self> {
        let devices = Multicast::open(KOBJECT_UEVENT, KERNEL_GROUP)?;
        let quiet = |error: &io::Error| {
            tracing::info!(%error, "devlink is not listened to; device events are");
        };
        Ok(Self {
            devices,
            devlink: devlink().inspect_err(quiet).ok(),
        })
    }

    /// The next message of the kernel.
    ///
    /// # Errors
    /// A socket is of no more use.
    pub async fn next(&self) -> io::Result<Heard> {
        tokio::select! {
            heard = self.next_device() => heard,
            heard = self.next_devlink() => heard,
        }
    }

    async fn next_device(&self) -> io::Result<Heard> {
        let mut buffer = [0; uevent::MOST_MESSAGE_BYTES];
        loop {
            let Received::Datagram(length) = self.devices.receive(&mut buffer).await? else {
                return Ok(Heard::Lost);
            };
            match Uevent::parse(buffer.get(..length).unwrap_or_default()) {
                Ok(event) => return Ok(Heard::Event(event)),
                Err(error) => tracing::debug!(%error, "the kernel told something unheard of"),
            }
        }
    }

    /// Never, where it is not listened to.
    async fn next_devlink(&self) -> io::Result<Heard> {
        let Some((devlink, family)) = &self.devlink else {
            return std::future::pending().await;
        };
        let mut buffer = [0; devlink_events::MOST_MESSAGE_BYTES];
        loop {
            let Received::Datagram(length) = devlink.receive(&mut buffer).await? else {
                return Ok(Heard::Lost);
            };
            match DevlinkEvent::parse(buffer.get(..length).unwrap_or_default(), *family) {
                Ok(Some(event)) => return Ok(Heard::Devlink(event)),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "devlink told something unheard of"),
            }
        }
    }

    /// Enters into `events` what is heard, and tells `to` whenever the node should be read for it,
    /// for as long as it listens.
    pub async fn tell(self, to: mpsc::Sender<Cause>, events: NodeEvents) {
        let begun = Instant::now();
        let now = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut hearing = Hearing::new(events);
        loop {
            let due = hearing
                .settling
                .due()
                .map(|due| begun + Duration::from_millis(due));
            tokio::select! {
                heard = self.next() => match heard {
                    Ok(heard) => hearing.take(heard, now()),
                    Err(error) => {
                        tracing::error!(%error, "the kernel's device events are not heard any more");
                        return;
                    }
                },
                () = at(due) => {}
            }
            if let Some(cause) = hearing.settling.settle(now())
                && to.send(cause).await.is_err()
            {
                return;
            }
        }
    }
}

/// What is made of what is heard.
pub(super) struct Hearing {
    settling: Settling,
    events: NodeEvents,
}

impl Hearing {
    pub(super) fn new(events: NodeEvents) -> Self {
        let settling = Settling::default();
        Self { settling, events }
    }

    /// `now`: milliseconds of a clock that does not go back.
    pub(super) fn take(&mut self, heard: Heard, now: u64) {
        // That nobody knows what else happened is never one of the others.
        let is_lost = heard == Heard::Lost;
        let Some(cause) = heard.cause() else {
            return;
        };
        let is_named = self.settling.take(cause.clone(), now) || is_lost;
        let name = |name: String| match is_named {
            true => name,
            false => OTHERS.to_owned(),
        };
        self.events.tell(match cause {
            Cause::DriverLoad { module } => Happening::Driver {
                module: name(module),
            },
            Cause::DeviceEvent { what } => Happening::Device { what: name(what) },
            Cause::First
            | Cause::Boot
            | Cause::Operator { .. }
            | Cause::AgentStart
            | Cause::Periodic => return,
        });
    }
}

impl Heard {
    fn cause(self) -> Option<Cause> {
        match self {
            Self::Event(event) => event.cause(),
            Self::Devlink(event) => Some(event.cause()),
            Self::Lost => Some(Cause::DeviceEvent {
                what: "too many to be heard".to_owned(),
            }),
        }
    }
}

/// Where devlink tells of changes. Everything that it has to say comes in this one group.
fn devlink() -> io::Result<(Multicast, u16)> {
    let config = multicast_group(devlink_events::FAMILY, devlink_events::GROUP)?;
    let socket = Multicast::open(GENERIC, 0)?;
    socket.join(config.group)?;
    Ok((socket, config.family))
}

/// Never, where there is no time.
async fn at(due: Option<Instant>) {
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
        let (mut a, mut b) = (Pace::new(interval, 1), Pace::new(interval, 2));
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
        let mut pace = Pace::new(interval, 7);
        let pauses: Vec<u64> = (0..9).map(|_| pace.next(true).as_secs()).collect();
        assert!((54..=66).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses.windows(2).take(5).all(|w| w[1] > w[0]), "{pauses:?}");
        assert!(pauses[8] <= 3960, "{pauses:?}");
        assert!(pace.next(false) > Duration::from_secs(3000));
        assert!(pace.next(true) < Duration::from_secs(70));
    }
}
