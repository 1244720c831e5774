//! Network interface data that only the kernel's network stack provides: ethtool by ioctl, devlink and DCB by netlink.
//! `../../../0001-ethtool-by-ioctl-devlink-by-netlink.md` gives the reasons for these interfaces and against a library.
//!
//! The live kernel reports its own interfaces only, so a captured tree contains the answers in a file.
//! [`EthtoolSource`] selects one of the two. Start at [`query_interfaces`].

mod dcb;
mod devlink;
pub mod devlink_events;
mod ethtool;
mod generic;
mod module;
pub mod netlink;

pub use devlink::DevlinkReport;
pub use ethtool::{Channels, DriverInfo, InterfaceReport, Pause, RingSizes};
pub use generic::{MulticastGroup, multicast_group};
pub use module::{Module, ModuleIdentity};

use crate::kernel::blocking_call::{CallExpired, CallKind};
use crate::source::{Answers, Source};
use lattice_conformance::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Maximum number of interfaces queried; a node with more has virtual ones, which are not hardware.
const MAX_INTERFACES: usize = 256;
/// Deadline for all interfaces of a node together. A healthy answer takes microseconds; a driver that waits for its
/// firmware holds the lock of the whole network stack for up to a minute.
const DEADLINE: Duration = Duration::from_secs(5);

/// Reason for a missing answer if no source is configured.
const QUERIES_DISABLED: &str = "kernel queries about interfaces are disabled";

static CALLS: CallKind = CallKind::new("probe-ethtool");

/// The running kernel, which reports the interfaces of this process's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel;

/// Source of data about network interfaces.
pub type EthtoolSource = Source<Kernel>;

/// The kernel's answers about all interfaces of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EthtoolReport {
    /// Answers by interface name. The name serves only to join with `/sys/class/net`.
    pub interfaces: BTreeMap<String, InterfaceReport>,
    /// Firmware of the devices behind the interfaces.
    pub devlink: Reading<Vec<DevlinkReport>>,
}

impl Answers for EthtoolReport {
    const FILE: &'static str = "ethtool.json";
    const VERSION: u32 = 1;
}

impl EthtoolSource {
    /// The source that fits the tree below `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self::for_root::<EthtoolReport>(root, Kernel)
    }

    /// Maximum duration of [`query_interfaces`].
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.query_deadline(DEADLINE)
    }
}

impl EthtoolReport {
    /// The answers for one interface; failed if the interface is not in the report.
    #[must_use]
    pub fn interface(&self, name: &str) -> InterfaceReport {
        let found = self.interfaces.get(name).cloned();
        found.unwrap_or_else(|| InterfaceReport::with_state(&Reading::failed("not in the report")))
    }

    /// The report without serial numbers, and with interfaces renamed by `rename`.
    #[must_use]
    pub fn masked(mut self, rename: impl Fn(&str) -> String) -> Self {
        self.interfaces = std::mem::take(&mut self.interfaces)
            .into_iter()
            .map(|(name, report)| (rename(&name), report))
            .collect();
        if let Reading::Present(devices) = &mut self.devlink {
            for device in devices {
                device.serial = device.serial.as_ref().map(|_| "MASKED".to_owned());
            }
        }
        self
    }
}

/// Queries `source` for `interfaces`. Blocks for at most five seconds; a missing answer is then [`Reading::Timeout`].
#[must_use]
pub fn query_interfaces(source: &EthtoolSource, interfaces: &[String]) -> Reading<EthtoolReport> {
    source.query(QUERIES_DISABLED, |_| query_kernel(interfaces, settings))
}

/// Queries `source` for the modules in the cages of `interfaces` only. Reading a module takes milliseconds on its slow
/// bus, so this is a separate query. Blocks as [`query_interfaces`] does.
#[must_use]
pub fn query_modules(source: &EthtoolSource, interfaces: &[String]) -> Reading<EthtoolReport> {
    source.query(QUERIES_DISABLED, |_| query_kernel(interfaces, modules))
}

/// Records the answers for [`EthtoolSource::Recorded`] in a capture: queries `source` for `interfaces`, and for their
/// modules if requested.
#[must_use]
pub fn record(
    source: &EthtoolSource,
    interfaces: &[String],
    with_modules: bool,
) -> Reading<EthtoolReport> {
    let report = query_interfaces(source, interfaces);
    if !with_modules {
        return report;
    }
    let modules = query_modules(source, interfaces);
    report.map(|mut report| {
        for (name, interface) in &mut report.interfaces {
            let modules = modules.as_ref();
            interface.module = modules.and_then(|netlink| netlink.interface(name).module);
        }
        report
    })
}

/// One answer, sent by the querying thread.
enum Answer {
    Interface(String, Box<InterfaceReport>),
    Devlink(Reading<Vec<DevlinkReport>>),
}

/// Queries devlink, then the settings of each interface.
fn settings(names: &[String], answers: &Sender<Answer>) {
    let _ = answers.send(Answer::Devlink(devlink::query_devices()));
    let mut bridging = dcb::DcbQuery::open();
    let mut asker = ethtool::EthtoolQuery::open();
    for name in names {
        let mut report = asker.report(name);
        let lossless = bridging.query(name);
        (report.pfc, report.dscp) = (lossless.pfc, lossless.dscp);
        let _ = answers.send(Answer::Interface(name.clone(), Box::new(report)));
    }
}

/// Queries only the module of each interface.
fn modules(names: &[String], answers: &Sender<Answer>) {
    let others = Reading::disabled("only modules were queried");
    let _ = answers.send(Answer::Devlink(Reading::default()));
    let mut asker = ethtool::EthtoolQuery::open();
    for name in names {
        let report = InterfaceReport {
            module: asker.module(name),
            ..InterfaceReport::with_state(&others)
        };
        let _ = answers.send(Answer::Interface(name.clone(), Box::new(report)));
    }
}

fn query_kernel(interfaces: &[String], job: fn(&[String], &Sender<Answer>)) -> EthtoolReport {
    let names: Vec<String> = interfaces.iter().take(MAX_INTERFACES).cloned().collect();
    let mut interfaces = BTreeMap::new();
    let mut devlink = None;
    let to_ask = names.clone();
    let ended = CALLS.run(
        DEADLINE,
        move |answers| job(&to_ask, answers),
        |answer| match answer {
            Answer::Interface(name, report) => {
                interfaces.insert(name, *report);
            }
            Answer::Devlink(answer) => devlink = Some(answer),
        },
    );
    for name in names {
        let missing = || InterfaceReport::with_state(&missing_answer(ended));
        interfaces.entry(name).or_insert_with(missing);
    }
    EthtoolReport {
        interfaces,
        devlink: devlink.unwrap_or_else(|| missing_answer(ended)),
    }
}

fn missing_answer<T>(ended: Result<(), CallExpired>) -> Reading<T> {
    match ended {
        Err(CallExpired::TimedOut) => Reading::timed_out(DEADLINE),
        Err(CallExpired::NoThread) => Reading::failed("cannot start a thread for the kernel query"),
        Ok(()) => Reading::failed("no answer"),
    }
}

#[cfg(test)]
mod tests;
