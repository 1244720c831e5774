//! In-band queries of this system's BMC: device identity and power draw.
//!
//! Start at [`query_bmc`]; [`DeviceId`] and [`PowerReading`] decode the answers.

mod decode;
mod device;

pub use decode::{Completion, DeviceId, PowerReading};

use crate::kernel::blocking_call::{CallExpired, CallKind};
use crate::source::{Answers, Source};
use data_encoding::HEXLOWER_PERMISSIVE;
use lattice_conformance::Reading;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Deadline for all queries of one BMC. A healthy BMC responds within 10 to 50 ms, a restarting one not at all.
const DEADLINE: Duration = Duration::from_secs(5);

static CALLS: CallKind = CallKind::new("probe-ipmi");

/// Source of in-band BMC data: a device, normally [`IpmiSource::DEVICE`].
pub type IpmiSource = Source<PathBuf>;

/// Answers of a BMC, each starting with the completion code, in hexadecimal with two digits per byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpmiReport {
    /// Get Device ID (IPMI 2.0, 20.1).
    pub device_id: Reading<String>,
    /// Get Power Reading (DCMI 1.5, 6.6.1), system power statistics.
    pub power_reading: Reading<String>,
}

impl Answers for IpmiReport {
    const FILE: &'static str = "ipmi.json";
    const VERSION: u32 = 1;
}

impl IpmiSource {
    /// The device of the first system interface.
    pub const DEVICE: &'static str = "/dev/ipmi0";

    /// The source that fits the tree below `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self::for_root::<IpmiReport>(root, Self::DEVICE.into())
    }

    /// Maximum duration of [`query_bmc`].
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.query_deadline(DEADLINE)
    }
}

impl IpmiReport {
    fn with_state(state: &Reading<String>) -> Self {
        Self {
            device_id: state.clone(),
            power_reading: state.clone(),
        }
    }
}

/// Queries `source`. Blocks for at most five seconds.
#[must_use]
pub fn query_bmc(source: &IpmiSource) -> Reading<IpmiReport> {
    source.query("in-band BMC queries are disabled", |path| {
        query_device(path.clone())
    })
}

fn query_device(path: PathBuf) -> IpmiReport {
    let mut report = None;
    let ended = CALLS.run(
        DEADLINE,
        move |answers| {
            let _ = answers.send(device::report(&path, DEADLINE));
        },
        |answer| report = Some(answer),
    );
    match (report, ended) {
        (Some(report), _) => report,
        (None, Err(CallExpired::TimedOut)) => IpmiReport::with_state(&Reading::timed_out(DEADLINE)),
        (None, _) => {
            IpmiReport::with_state(&Reading::failed("cannot start a thread for the BMC query"))
        }
    }
}

/// Decodes an answer in an [`IpmiReport`]; `None` if the text is not hexadecimal.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use data_encoding::HEXLOWER;

    #[test]
    fn a_machine_without_the_device_has_no_bmc_in_band() {
        let folder = tempfile::tempdir().unwrap();
        let source = IpmiSource::Live(folder.path().join("ipmi0"));
        let report = query_bmc(&source).present().cloned().unwrap();
        assert_eq!(report, IpmiReport::with_state(&Reading::Absent));
    }

    #[test]
    fn a_device_that_is_something_else_is_no_bmc_either() {
        // Every ioctl on this device fails with ENOTTY.
        let report = query_bmc(&IpmiSource::Live("/dev/null".into()));
        let report = report.present().cloned().unwrap();
        assert!(
            matches!(report.device_id, Reading::Failed { .. }),
            "{report:?}"
        );
    }

    #[test]
    fn recorded_answers_are_what_was_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(IpmiReport::FILE);
        assert_eq!(IpmiSource::of(folder.path()), IpmiSource::Disabled);
        let report = IpmiReport {
            device_id: Reading::Present(HEXLOWER.encode(&[0, 0x20, 0x81])),
            power_reading: Reading::denied("no"),
        };
        std::fs::write(&path, report.clone().encode().unwrap()).unwrap();
        let source = IpmiSource::of(folder.path());
        assert_eq!(query_bmc(&source), Reading::Present(report));
        assert_eq!(from_hex("002081"), Some(vec![0, 0x20, 0x81]));
        for broken in ["0", "0g", "+1", "äb"] {
            assert_eq!(from_hex(broken), None, "{broken}");
        }
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(query_bmc(&source), Reading::Failed { .. }));
    }
}
