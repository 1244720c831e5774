//! What only the kernel's network stack can tell of an interface: ethtool by ioctl, devlink and
//! DCB by netlink. Why these and no library: `../../0001-ethtool-by-ioctl-devlink-by-netlink.md`.
//!
//! The live kernel knows its own interfaces only, so a captured tree brings the answers along in a
//! file; [`EthtoolSource`] says which of the two is asked. Begin at [`ask`].

mod dcb;
mod devlink;
pub mod devlink_events;
mod ethtool;
mod generic;
mod module;
pub mod netlink;

pub use devlink::DevlinkReport;
pub use ethtool::{Channels, DriverInfo, InterfaceReport, Pause, Rings};
pub use generic::{MulticastGroup, multicast_group};
pub use module::{Module, ModuleIdentity};

use crate::aside::{Aside, Expired};
use crate::source::{Answers, Source};
use crate::{Reading, Root};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Interfaces asked at most; a node with more has virtual ones, which are no hardware.
const MOST_INTERFACES: usize = 256;
/// For all interfaces of a node together. One healthy answer takes microseconds; a driver that
/// waits for its firmware holds the lock of the whole network stack for up to a minute.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why there is no answer where nobody is asked.
const NOBODY: &str = "the kernel is not asked about interfaces";

static CALLS: Aside = Aside::new("probe-ethtool");

/// The running kernel, which knows the interfaces of this process's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel;

/// Who is asked about network interfaces.
pub type EthtoolSource = Source<Kernel>;

/// Everything the kernel said of a node's interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EthtoolReport {
    /// By the interface's name, which is good for joining with `/sys/class/net` and for nothing
    /// else.
    pub interfaces: BTreeMap<String, InterfaceReport>,
    /// Firmware of the devices behind them.
    pub devlink: Reading<Vec<DevlinkReport>>,
}

impl Answers for EthtoolReport {
    const FILE: &'static str = "ethtool.json";
    const VERSION: u32 = 1;
}

impl EthtoolSource {
    /// What fits the tree below `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self::beside::<EthtoolReport>(root, Kernel)
    }

    /// The longest that [`ask`] may take.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.within(DEADLINE)
    }
}

impl EthtoolReport {
    /// What was said of one interface; one that nobody was asked about is not known.
    #[must_use]
    pub fn interface(&self, name: &str) -> InterfaceReport {
        let found = self.interfaces.get(name).cloned();
        found.unwrap_or_else(|| InterfaceReport::every(&Reading::failed("not in the report")))
    }

    /// The same without serial numbers, and with interfaces named as `rename` says.
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

/// Asks `source` about `interfaces`. Blocks for at most five seconds; what was not answered by
/// then is [`Reading::Timeout`].
#[must_use]
pub fn ask(source: &EthtoolSource, interfaces: &[String]) -> Reading<EthtoolReport> {
    source.ask(NOBODY, |_| ask_kernel(interfaces, settings))
}

/// Asks `source` about the modules in the cages of `interfaces` and nothing else. Reading one takes
/// milliseconds on the module's own slow bus, so only who wants them asks; blocks as [`ask`] does.
#[must_use]
pub fn ask_modules(source: &EthtoolSource, interfaces: &[String]) -> Reading<EthtoolReport> {
    source.ask(NOBODY, |_| ask_kernel(interfaces, modules))
}

/// What [`EthtoolSource::Recorded`] needs of this machine, for a capture: asks `source` about
/// the interfaces of `root` that belong to NICs, and about their modules where those are wanted.
#[must_use]
pub fn record(source: &EthtoolSource, root: &Root, with_modules: bool) -> Reading<EthtoolReport> {
    let interfaces = crate::probe::nic::interfaces(root);
    let report = ask(source, &interfaces);
    if !with_modules {
        return report;
    }
    let modules = ask_modules(source, &interfaces);
    report.map(|mut report| {
        for (name, interface) in &mut report.interfaces {
            let modules = modules.as_ref();
            interface.module = modules.and_then(|told| told.interface(name).module);
        }
        report
    })
}

/// One answer on its way from the thread that asks.
enum Answer {
    Interface(String, Box<InterfaceReport>),
    Devlink(Reading<Vec<DevlinkReport>>),
}

/// What is asked, interface by interface.
fn settings(names: &[String], answers: &Sender<Answer>) {
    let _ = answers.send(Answer::Devlink(devlink::ask()));
    let mut bridging = dcb::Asker::open();
    let mut asker = ethtool::Asker::open();
    for name in names {
        let mut report = asker.report(name);
        let lossless = bridging.ask(name);
        (report.pfc, report.dscp) = (lossless.pfc, lossless.dscp);
        let _ = answers.send(Answer::Interface(name.clone(), Box::new(report)));
    }
}

/// The same of the modules alone.
fn modules(names: &[String], answers: &Sender<Answer>) {
    let others = Reading::disabled("modules alone were asked about");
    let _ = answers.send(Answer::Devlink(Reading::default()));
    let mut asker = ethtool::Asker::open();
    for name in names {
        let report = InterfaceReport {
            module: asker.module(name),
            ..InterfaceReport::every(&others)
        };
        let _ = answers.send(Answer::Interface(name.clone(), Box::new(report)));
    }
}

fn ask_kernel(interfaces: &[String], job: fn(&[String], &Sender<Answer>)) -> EthtoolReport {
    let names: Vec<String> = interfaces.iter().take(MOST_INTERFACES).cloned().collect();
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
        let missing = || InterfaceReport::every(&unanswered(ended));
        interfaces.entry(name).or_insert_with(missing);
    }
    EthtoolReport {
        interfaces,
        devlink: devlink.unwrap_or_else(|| unanswered(ended)),
    }
}

fn unanswered<T>(ended: Result<(), Expired>) -> Reading<T> {
    match ended {
        Err(Expired::TimedOut) => Reading::timed_out(DEADLINE),
        Err(Expired::NoThread) => Reading::failed("no thread to ask the kernel with"),
        Ok(()) => Reading::failed("no answer"),
    }
}

#[cfg(test)]
mod tests;
