//! Kernel device events (uevents), and the selection of those that require a new read of the node.
//!
//! Pure: the caller provides bytes and times. [`Uevent::parse`] decodes one message of the kernel's netlink group, and
//! [`Uevent::cause`] converts it to a cause. [`StormState`] reduces a storm to one read and a few journal lines.

use lattice_conformance::history::Cause;
use std::collections::BTreeSet;

/// Maximum message size of the kernel, in bytes (`UEVENT_BUFFER_SIZE` is 2 KiB, without the header).
pub const MAX_MESSAGE_BYTES: usize = 8 << 10;
/// Quiet time after which a storm has ended, in milliseconds. A GPU reset takes a few seconds to report all parts of
/// the GPU.
pub const STORM_QUIET_MS: u64 = 5_000;
/// Minimum interval between reads during a storm, in milliseconds, including a storm with pauses.
pub const STORM_READ_INTERVAL_MS: u64 = 60_000;

/// Maximum number of modules, and of other devices, reported by name per storm: about half of the journal lines per
/// hour. A storm of a thousand functions, or one that `udevadm trigger` causes, needs no more.
const MAX_NAMED_EVENTS: usize = 16;

/// Subsystems with devices that may affect a conformance record. `usb` is omitted: no class reads it, and a BMC's
/// virtual drives are attached and detached all the time.
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
/// Path of devices without hardware: every container creates a pair of them.
const VIRTUAL_DEVICES: &str = "/devices/virtual/";
/// Maximum length of a name copied from a message, in characters.
const MAX_NAME_CHARS: usize = 64;

/// One uevent message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uevent {
    /// `add`, `remove`, `change`, `bind`, …
    pub action: String,
    /// Path of the device below `/sys`.
    pub path: String,
    /// Subsystem of the device.
    pub subsystem: String,
    /// `disk` or `partition`, for block devices.
    pub device_type: Option<String>,
}

/// The bytes are not a uevent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUevent {
    /// The message is longer than any that the kernel sends.
    #[error("uevent message of {0} bytes exceeds {MAX_MESSAGE_BYTES} bytes")]
    TooLong(usize),
    /// The message does not begin with `<action>@<path>`.
    #[error("uevent message does not start with <action>@<path>")]
    NoHeader,
    /// Header and fields of the message differ, or the subsystem is missing.
    #[error("uevent message: {0}")]
    Missing(&'static str),
}

impl Uevent {
    /// Parses `<action>@<path>\0KEY=VALUE\0…`. Invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// The message has another form, as udev's own messages in the other multicast group have.
    pub fn parse(message: &[u8]) -> Result<Self, BadUevent> {
        if message.len() > MAX_MESSAGE_BYTES {
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
                    return Err(BadUevent::Missing("header and field ACTION differ"));
                }
                Some(("DEVPATH", value)) if value != path => {
                    return Err(BadUevent::Missing("header and field DEVPATH differ"));
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
            subsystem: subsystem.ok_or(BadUevent::Missing("field SUBSYSTEM is missing"))?,
            device_type,
        })
    }

    /// Name of the device: the last component of its path, sanitised.
    #[must_use]
    pub fn name(&self) -> String {
        sanitized_name(self.path.rsplit('/').next().unwrap_or_default())
    }

    /// The cause for a new read of the node; `None` if the event requires none.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        if !SUBSYSTEMS.contains(&self.subsystem.as_str()) || self.path.starts_with(VIRTUAL_DEVICES)
        {
            return None;
        }
        let name = self.name();
        match self.subsystem.as_str() {
            "module" => return Some(Cause::DriverLoad { module: name }),
            "block" => {
                // Optical and virtual media are polled and send `change` each time.
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

/// Sanitises a name from a message for further use: short, and without control characters.
pub(crate) fn sanitized_name(name: &str) -> String {
    let name = name.chars().take(MAX_NAME_CHARS);
    name.map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// State of an event storm: the single read it causes, and the names reported. Times are milliseconds of a monotonic
/// clock.
#[derive(Clone, Debug, Default)]
pub struct StormState {
    storm: Option<Storm>,
    last_read_ms: Option<u64>,
}

#[derive(Clone, Debug)]
struct Storm {
    cause: Cause,
    further_events: u32,
    first: u64,
    last: u64,
    modules: BTreeSet<String>,
    devices: BTreeSet<String>,
}

impl StormState {
    /// Adds an event. Returns true if the event is to be reported by name: the first names of a storm, and repeats of
    /// these. Other events are only counted. Modules have a separate limit, because their devices arrive with them.
    pub fn add_event(&mut self, cause: Cause, now: u64) -> bool {
        let storm = match self.storm.take() {
            None => Storm {
                cause: cause.clone(),
                further_events: 0,
                first: now,
                last: now,
                modules: BTreeSet::new(),
                devices: BTreeSet::new(),
            },
            Some(storm) => Storm {
                cause: storm.cause.or_stronger(cause.clone()),
                further_events: storm.further_events.saturating_add(1),
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
        if named.len() < MAX_NAMED_EVENTS {
            named.insert(name);
            return true;
        }
        named.contains(&name)
    }

    /// Time of the next read: after a quiet time, or during a storm that does not end. `None` without an event.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let storm = self.storm.as_ref()?;
        let due = (storm.last + STORM_QUIET_MS).min(storm.first + STORM_READ_INTERVAL_MS);
        // A device that appears and disappears every ten seconds is a storm too.
        let earliest = self
            .last_read_ms
            .map_or(0, |settled| settled + STORM_READ_INTERVAL_MS);
        Some(due.max(earliest))
    }

    /// Returns the cause of the read if it is due at `now`, and ends the storm.
    pub fn take_due_read(&mut self, now: u64) -> Option<Cause> {
        if self.due()? > now {
            return None;
        }
        let storm = self.storm.take()?;
        self.last_read_ms = Some(now);
        Some(match (storm.cause, storm.further_events) {
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
        // As received from Linux 6.18.
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
            (
                b"add@/devices/x\0",
                BadUevent::Missing("field SUBSYSTEM is missing"),
            ),
            (
                b"add@/devices/x\0ACTION=remove\0SUBSYSTEM=net\0",
                BadUevent::Missing("header and field ACTION differ"),
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
        assert_eq!(long.name().len(), MAX_NAME_CHARS);
    }

    #[test]
    fn a_storm_is_worth_one_read_after_some_quiet() {
        let mut settling = StormState::default();
        assert_eq!(settling.due(), None);
        settling.add_event(device("pci remove a").unwrap(), 1000);
        settling.add_event(device("net remove b").unwrap(), 3000);
        assert_eq!(settling.due(), Some(8000));
        assert_eq!(settling.take_due_read(7999), None);
        assert_eq!(
            settling.take_due_read(8000),
            device("pci remove a and 1 more")
        );
        assert_eq!(settling.take_due_read(9000), None);
        settling.add_event(device("pci add a").unwrap(), 100_000);
        let module = "mlx5_core".to_owned();
        settling.add_event(Cause::DriverLoad { module }, 100_100);
        let cause = settling.take_due_read(105_100).unwrap();
        assert_eq!(cause.to_string(), "driver load (mlx5_core)");
    }

    #[test]
    fn storm_names_first_modules_and_devices() {
        let mut settling = StormState::default();
        for n in 0..MAX_NAMED_EVENTS {
            let vf = device(&format!("pci add 0000:17:00.{n}"));
            assert!(settling.add_event(vf.unwrap(), 1000), "{n}");
        }
        assert!(!settling.add_event(device("pci add 0000:18:00.0").unwrap(), 1500));
        assert!(settling.add_event(device("pci add 0000:17:00.3").unwrap(), 1500));
        for module in ["nvidia", "nvidia_uvm"] {
            let module = module.to_owned();
            assert!(settling.add_event(Cause::DriverLoad { module }, 2000));
        }
        let cause = settling.take_due_read(7000).unwrap();
        assert_eq!(cause.to_string(), "driver load (nvidia)");
        let next = device("pci remove 0000:18:00.0").unwrap();
        assert!(settling.add_event(next, 100_000), "another storm");
    }

    #[test]
    fn a_storm_that_does_not_end_is_read_once_a_minute() {
        let mut settling = StormState::default();
        let mut reads = 0;
        for second in 0..300 {
            let now = second * 1000;
            settling.add_event(device("net change b").unwrap(), now);
            reads += u32::from(settling.take_due_read(now).is_some());
        }
        assert_eq!(reads, 4);
    }

    #[test]
    fn a_device_that_comes_and_goes_is_read_once_a_minute() {
        let mut settling = StormState::default();
        let mut reads = Vec::new();
        for second in 0..300 {
            let now = second * 1000;
            if second % 10 == 0 {
                settling.add_event(device("pci add a").unwrap(), now);
            }
            reads.extend(settling.take_due_read(now).map(|_| second));
        }
        assert_eq!(reads, [5, 65, 125, 185, 245]);
    }
}
