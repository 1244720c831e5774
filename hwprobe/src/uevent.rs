//! What the kernel tells about devices, and which of it is worth another look at the node.
//!
//! Pure: bytes and times come from outside. [`Uevent::parse`] reads one message of the kernel's
//! netlink group, [`Uevent::cause`] judges it, [`Settling`] makes one read of a storm, and a few
//! lines of the journal.

use crate::history::Cause;
use std::collections::BTreeSet;

/// Longest message the kernel sends (`UEVENT_BUFFER_SIZE` is 2 KiB; the header comes on top).
pub const MOST_MESSAGE_BYTES: usize = 8 << 10;
/// A storm is over when nothing came for this long: a GPU that is reset takes a few seconds to
/// tell of all its parts.
pub const QUIET_MS: u64 = 5_000;
/// While a storm goes on, one read in this time; also while it goes on with pauses.
pub const STORM_MS: u64 = 60_000;

/// Modules, and as many other things, that are named of one storm: half of what an hour has lines
/// for. A thousand functions, or devices that somebody has all told of again, are not worth more.
const MOST_NAMED: usize = 16;

/// Devices whose coming, going and change may change a conformance record. Not `usb`: no class
/// reads it, and a management controller's virtual drives come and go all day.
const SUBSYSTEMS: [&str; 8] = [
    "pci",
    "net",
    "infiniband",
    "drm",
    "nvme",
    "block",
    "module",
    "firmware",
];
/// Where devices live that no hardware stands behind: every container brings a pair of them.
const VIRTUAL: &str = "/devices/virtual/";
/// Longest name that is repeated from a message.
const MOST_NAME_CHARS: usize = 64;

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uevent {
    /// `add`, `remove`, `change`, `bind`, …
    pub action: String,
    /// The device's path below `/sys`.
    pub path: String,
    /// What kind it is.
    pub subsystem: String,
    /// `disk` or `partition`, of block devices.
    pub device_type: Option<String>,
}

/// Bytes that are no message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUevent {
    /// It is longer than the kernel makes them.
    #[error("a message of {0} bytes")]
    TooLong(usize),
    /// It does not begin with `<action>@<path>`.
    #[error("a message without action and path")]
    NoHeader,
    /// What it says first and what it says then are not the same, or the kind is missing.
    #[error("a message without {0}")]
    Missing(&'static str),
}

impl Uevent {
    /// Reads `<action>@<path>\0KEY=VALUE\0…`. What is not UTF-8 is replaced.
    ///
    /// # Errors
    /// Messages of another form, as udev's own in the other group are.
    pub fn parse(message: &[u8]) -> Result<Self, BadUevent> {
        if message.len() > MOST_MESSAGE_BYTES {
            return Err(BadUevent::TooLong(message.len()));
        }
        let mut parts = message
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy);
        let header = parts.next().unwrap_or_default();
        let (action, path) = header.split_once('@').ok_or(BadUevent::NoHeader)?;
        let (mut subsystem, mut device_type) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("ACTION", value)) if value != action => {
                    return Err(BadUevent::Missing("one action"));
                }
                Some(("DEVPATH", value)) if value != path => {
                    return Err(BadUevent::Missing("one path"));
                }
                Some(("SUBSYSTEM", value)) => subsystem = Some(value.to_owned()),
                Some(("DEVTYPE", value)) => device_type = Some(value.to_owned()),
                _ => {}
            }
        }
        if action.is_empty() || !path.starts_with('/') {
            return Err(BadUevent::NoHeader);
        }
        Ok(Self {
            action: action.to_owned(),
            path: path.to_owned(),
            subsystem: subsystem.ok_or(BadUevent::Missing("a subsystem"))?,
            device_type,
        })
    }

    /// The device's own name: the last part of its path, made harmless.
    #[must_use]
    pub fn name(&self) -> String {
        harmless(self.path.rsplit('/').next().unwrap_or_default())
    }

    /// Why the node should be read again, if it should.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        if !SUBSYSTEMS.contains(&self.subsystem.as_str()) || self.path.starts_with(VIRTUAL) {
            return None;
        }
        let name = self.name();
        match self.subsystem.as_str() {
            "module" => return Some(Cause::DriverLoad { module: name }),
            "block" => {
                // Optical and virtual media are polled, and say `change` each time.
                let comes_or_goes = matches!(self.action.as_str(), "add" | "remove");
                let is_disk = self.device_type.as_deref() == Some("disk");
                if !comes_or_goes || !is_disk || name.starts_with("sr") {
                    return None;
                }
            }
            _ => {}
        }
        Some(Cause::DeviceEvent {
            what: format!("{} {} {name}", self.subsystem, self.action),
        })
    }
}

/// A name from a message, as it may be repeated: short, and without control characters.
pub(crate) fn harmless(name: &str) -> String {
    let name = name.chars().take(MOST_NAME_CHARS);
    name.map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A storm of events, the one read it is worth, and what of it is named. Times are milliseconds of
/// any clock that does not go back.
#[derive(Clone, Debug, Default)]
pub struct Settling {
    storm: Option<Storm>,
    settled: Option<u64>,
}

#[derive(Clone, Debug)]
struct Storm {
    cause: Cause,
    more: u32,
    first: u64,
    last: u64,
    modules: BTreeSet<String>,
    devices: BTreeSet<String>,
}

impl Settling {
    /// Takes an event. Whether it is to be told by its name, as the first ones of a storm are and
    /// what is the same as one of these; the rest is to be counted. Modules have their own
    /// number: their devices come with them.
    pub fn take(&mut self, cause: Cause, now: u64) -> bool {
        let storm = match self.storm.take() {
            None => Storm {
                cause: cause.clone(),
                more: 0,
                first: now,
                last: now,
                modules: BTreeSet::new(),
                devices: BTreeSet::new(),
            },
            Some(storm) => Storm {
                cause: storm.cause.or_stronger(cause.clone()),
                more: storm.more.saturating_add(1),
                last: now,
                ..storm
            },
        };
        let storm = self.storm.insert(storm);
        let (named, name) = match cause {
            Cause::DriverLoad { module } => (&mut storm.modules, module),
            Cause::DeviceEvent { what } => (&mut storm.devices, what),
            Cause::First
            | Cause::Boot
            | Cause::Operator { .. }
            | Cause::AgentStart
            | Cause::Periodic => return false,
        };
        if named.len() < MOST_NAMED {
            named.insert(name);
            return true;
        }
        named.contains(&name)
    }

    /// When the node should be read: after some quiet, or in the midst of a storm that does not
    /// end. `None` while nothing happened.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let storm = self.storm.as_ref()?;
        let due = (storm.last + QUIET_MS).min(storm.first + STORM_MS);
        // A device that comes and goes every ten seconds is a storm as well.
        let earliest = self.settled.map_or(0, |settled| settled + STORM_MS);
        Some(due.max(earliest))
    }

    /// The cause of the read that is due at `now`, which begins anew from there.
    pub fn settle(&mut self, now: u64) -> Option<Cause> {
        if self.due()? > now {
            return None;
        }
        let storm = self.storm.take()?;
        self.settled = Some(now);
        Some(match (storm.cause, storm.more) {
            (Cause::DeviceEvent { what }, more @ 1..) => Cause::DeviceEvent {
                what: format!("{what} and {more} more"),
            },
            (cause, _) => cause,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn message(subsystem: &str, action: &str, path: &str, more: &str) -> Uevent {
        let text = format!(
            "{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM={subsystem}\0{more}SEQNUM=1\0"
        );
        Uevent::parse(text.as_bytes()).unwrap()
    }

    fn device(what: &str) -> Option<Cause> {
        let what = what.to_owned();
        Some(Cause::DeviceEvent { what })
    }

    #[test]
    fn a_message_as_the_kernel_sends_it_is_read() {
        // As received from a Linux 6.18.
        let bytes = b"add@/devices/virtual/net/vtest1\0ACTION=add\0DEVPATH=/devices/virtual/net/vtest1\0SUBSYSTEM=net\0INTERFACE=vtest1\0IFINDEX=1228\0SEQNUM=15462\0";
        let event = Uevent::parse(bytes).unwrap();
        assert_eq!(
            (event.action.as_str(), event.subsystem.as_str()),
            ("add", "net")
        );
        assert_eq!(event.name(), "vtest1");
        assert_eq!(event.cause(), None, "no hardware stands behind it");
        let bytes = b"change@/devices/pci0000:00/0000:00:01.0\0ACTION=change\0DEVPATH=/devices/pci0000:00/0000:00:01.0\0SUBSYSTEM=pci\0SYNTH_UUID=0\0DRIVER=virtio-pci\0PCI_SLOT_NAME=0000:00:01.0\0SEQNUM=15482";
        let event = Uevent::parse(bytes).unwrap();
        assert_eq!(event.cause(), device("pci change 0000:00:01.0"));
    }

    #[test]
    fn modules_are_drivers_and_what_cannot_change_a_record_is_left_alone() {
        let module = message("module", "add", "/module/nvidia", "").cause();
        let nvidia = "nvidia".to_owned();
        assert_eq!(module, Some(Cause::DriverLoad { module: nvidia }));
        let disk = "/devices/pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1";
        let added = message("block", "add", disk, "DEVTYPE=disk\0").cause();
        assert_eq!(added, device("block add nvme0n1"));
        let quiet = [
            message("block", "change", disk, "DEVTYPE=disk\0"),
            message("block", "add", disk, "DEVTYPE=partition\0"),
            message("block", "add", "/devices/pci0/usb1/sr0", "DEVTYPE=disk\0"),
            message(
                "block",
                "add",
                "/devices/virtual/block/loop7",
                "DEVTYPE=disk\0",
            ),
            message("usb", "add", "/devices/pci0/usb1/1-1", ""),
            message("cpu", "change", "/devices/system/cpu/cpu1", ""),
        ];
        for event in quiet {
            assert_eq!(event.cause(), None, "{event:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (bytes, wanted) in [
            (&b""[..], BadUevent::NoHeader),
            (b"libudev\0\xfe\xed\xca\xfe", BadUevent::NoHeader),
            (b"@/devices/x\0SUBSYSTEM=net\0", BadUevent::NoHeader),
            (b"add@x\0SUBSYSTEM=net\0", BadUevent::NoHeader),
            (b"add@/devices/x\0", BadUevent::Missing("a subsystem")),
            (
                b"add@/devices/x\0ACTION=remove\0SUBSYSTEM=net\0",
                BadUevent::Missing("one action"),
            ),
            (&[b'a'; 9000], BadUevent::TooLong(9000)),
        ] {
            assert_eq!(Uevent::parse(bytes), Err(wanted));
        }
        let odd = Uevent::parse(b"add@/devices/a\xff\x01b\0SUBSYSTEM=net\0").unwrap();
        assert_eq!(odd.name(), "a\u{fffd}?b");
        let long = Uevent {
            path: format!("/{}", "x".repeat(5000)),
            ..odd
        };
        assert_eq!(long.name().len(), MOST_NAME_CHARS);
    }

    #[test]
    fn a_storm_is_worth_one_read_after_some_quiet() {
        let mut settling = Settling::default();
        assert_eq!(settling.due(), None);
        settling.take(device("pci remove a").unwrap(), 1000);
        settling.take(device("net remove b").unwrap(), 3000);
        assert_eq!(settling.due(), Some(8000));
        assert_eq!(settling.settle(7999), None);
        assert_eq!(settling.settle(8000), device("pci remove a and 1 more"));
        assert_eq!(settling.settle(9000), None);
        settling.take(device("pci add a").unwrap(), 100_000);
        let module = "mlx5_core".to_owned();
        settling.take(Cause::DriverLoad { module }, 100_100);
        let cause = settling.settle(105_100).unwrap();
        assert_eq!(cause.to_string(), "driver load (mlx5_core)");
    }

    #[test]
    fn of_a_storm_the_first_modules_and_devices_are_named_and_what_is_the_same() {
        let mut settling = Settling::default();
        for n in 0..MOST_NAMED {
            let vf = device(&format!("pci add 0000:17:00.{n}"));
            assert!(settling.take(vf.unwrap(), 1000), "{n}");
        }
        assert!(!settling.take(device("pci add 0000:18:00.0").unwrap(), 1500));
        assert!(settling.take(device("pci add 0000:17:00.3").unwrap(), 1500));
        for module in ["nvidia", "nvidia_uvm"] {
            let module = module.to_owned();
            assert!(settling.take(Cause::DriverLoad { module }, 2000));
        }
        let cause = settling.settle(7000).unwrap();
        assert_eq!(cause.to_string(), "driver load (nvidia)");
        let next = device("pci remove 0000:18:00.0").unwrap();
        assert!(settling.take(next, 100_000), "another storm");
    }

    #[test]
    fn a_storm_that_does_not_end_is_read_once_a_minute() {
        let mut settling = Settling::default();
        let mut reads = 0;
        for second in 0..300 {
            let now = second * 1000;
            settling.take(device("net change b").unwrap(), now);
            reads += u32::from(settling.settle(now).is_some());
        }
        assert_eq!(reads, 4);
    }

    #[test]
    fn a_device_that_comes_and_goes_is_read_once_a_minute() {
        let mut settling = Settling::default();
        let mut reads = Vec::new();
        for second in 0..300 {
            let now = second * 1000;
            if second % 10 == 0 {
                settling.take(device("pci add a").unwrap(), now);
            }
            reads.extend(settling.settle(now).map(|_| second));
        }
        assert_eq!(reads, [5, 65, 125, 185, 245]);
    }
}
