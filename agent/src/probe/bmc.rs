//! Redfish readings of the node's own BMC, where the site permits the node to query it.

use super::source::Source;
use anyhow::{Context as _, bail};
use clap::Args;
use lattice_conformance::{Class, Inventory, ProbeResult};
use lattice_host::{private_file, terminal::message_line};
use lattice_redfish::http::{Bmc, Endpoint, Environment, Pin, ReadOnly, Settings, Trust};
use lattice_redfish::{
    Breadth, NoSystemReason, NodeReport, Scope, Selector, contradictions, unread_records,
};
use secrecy::SecretString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Environment variable of the password, used when no file is given.
const PASSWORD: &str = "LATTICE_BMC_PASSWORD";
/// File name of a BMC's recorded answer in a captured tree.
pub(super) const REPORT: &str = "redfish.json";
/// Name of this probe.
const NAME: &str = "redfish";
/// Longest recorded answer, bytes.
const MAX_REPORT_BYTES: u64 = 16 << 20;

/// Access to the node's BMC.
#[derive(Debug, Args)]
pub struct BmcArgs {
    /// Redfish URL of the node's BMC; the BMC is queried as well.
    #[arg(long, value_name = "URL", requires = "bmc_user")]
    bmc: Option<String>,
    /// BMC account.
    #[arg(long, value_name = "USER", requires = "bmc")]
    bmc_user: Option<String>,
    /// File with the BMC password, mode 0600; otherwise LATTICE_BMC_PASSWORD.
    #[arg(long, value_name = "FILE", requires = "bmc")]
    bmc_password_file: Option<PathBuf>,
    /// Redfish ID of this node's system; otherwise the system with the node's UUID or serial number, or the only one.
    #[arg(long, value_name = "ID", requires = "bmc")]
    bmc_system: Option<String>,
    /// SHA-256 of the BMC's certificate: the usual choice, because BMCs sign their own certificates.
    #[arg(long, value_name = "SHA256", requires = "bmc")]
    bmc_pin: Option<Pin>,
    /// File with the CA certificates that the BMC's certificate must chain to.
    #[arg(
        long,
        value_name = "FILE",
        requires = "bmc",
        conflicts_with = "bmc_pin"
    )]
    bmc_ca: Option<PathBuf>,
    /// Accept any certificate. An attacker on the path can then read the password.
    #[arg(long, requires = "bmc", conflicts_with_all = ["bmc_pin", "bmc_ca"])]
    bmc_insecure: bool,
}

impl BmcArgs {
    /// Adds the readings of the BMC, or its recorded readings in a captured tree. If the BMC cannot be read, its
    /// classes stay incomplete.
    pub(super) fn add_to(
        &self,
        inventory: &mut Inventory,
        source: &Source,
    ) -> anyhow::Result<Option<NodeReport>> {
        let started_at = Instant::now();
        let said = match (&self.bmc, &source.tree) {
            (Some(url), _) => self.query(url, inventory)?,
            (None, Some(tree)) => match recorded(tree)? {
                Some(report) => Ok(report),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let took = started_at.elapsed();
        match said {
            Ok(report) => {
                merge(inventory, source, took, &report);
                Ok(Some(report))
            }
            Err(why) => {
                mark_unknown(inventory, source, took, &why);
                Ok(None)
            }
        }
    }

    fn query(
        &self,
        url: &str,
        inventory: &Inventory,
    ) -> anyhow::Result<Result<NodeReport, NoSystemReason>> {
        let user = self.bmc_user.clone().unwrap_or_default();
        let endpoint = Endpoint::new(url, user, self.password()?, self.trust())?;
        let scope = Scope {
            systems: self.selector(inventory),
            breadth: Breadth::Everything,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let look = runtime.block_on(async {
            let environment = Environment::system();
            let bmc = Bmc::new(ReadOnly(endpoint), None, Settings::default(), environment)?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            let look = tokio::select! {
                look = bmc.read(&scope) => Some(look),
                _ = interrupt.recv() => None,
                _ = terminate.recv() => None,
            };
            // An interrupted command closes its session as well: BMCs support only few sessions.
            bmc.close().await;
            anyhow::Ok(look)
        })?;
        match look {
            Some(look) => Ok(look.interpretation.report.node().cloned()),
            None => bail!("interrupted while the BMC was read"),
        }
    }

    fn selector(&self, inventory: &Inventory) -> Selector {
        let identity = &inventory.identity;
        match &self.bmc_system {
            Some(id) => Selector::Id(id.clone()),
            None => Selector::Like {
                uuid: identity.product_uuid.present().cloned(),
                serial: identity.product_serial.present().cloned(),
            },
        }
    }

    fn trust(&self) -> Trust {
        match (&self.bmc_pin, &self.bmc_ca, self.bmc_insecure) {
            (Some(pin), ..) => Trust::Pinned(*pin),
            (None, Some(file), _) => Trust::CaFile(file.clone()),
            (None, None, true) => Trust::Insecure,
            (None, None, false) => Trust::System,
        }
    }

    fn password(&self) -> anyhow::Result<SecretString> {
        if let Some(path) = &self.bmc_password_file {
            let (secret, exposed) =
                private_file::read_exposed_secret(path).context("--bmc-password-file")?;
            if let Some(exposed) = exposed {
                message_line(&format!("warning: --bmc-password-file: {exposed}"));
            }
            return Ok(secret);
        }
        match std::env::var(PASSWORD) {
            Ok(text) => Ok(SecretString::from(text.trim_end_matches(['\r', '\n']))),
            Err(_) => bail!("the BMC's password is needed: --bmc-password-file or {PASSWORD}"),
        }
    }
}

/// Recorded BMC report of a captured tree, if there is one.
pub(super) fn recorded(tree: &Path) -> anyhow::Result<Option<NodeReport>> {
    let path = tree.join(REPORT);
    match std::fs::symlink_metadata(&path) {
        Err(_) => return Ok(None),
        Ok(found) if !found.is_file() || found.len() > MAX_REPORT_BYTES => {
            bail!("{} is not a valid BMC record", path.display())
        }
        Ok(_) => {}
    }
    let shown = path.display();
    let json = std::fs::read(&path).with_context(|| format!("{shown} cannot be read"))?;
    let report = serde_json::from_slice(&json);
    report.with_context(|| format!("{shown} is not a valid BMC record"))
}

/// Merges the BMC's readings; a contradiction with the host's readings becomes a finding.
fn merge(inventory: &mut Inventory, source: &Source, took: Duration, report: &NodeReport) {
    let probed = report.to_probe_results().into_iter();
    for (mut probed, took) in probed.zip([took, Duration::ZERO]) {
        let class = probed.record.class;
        if source.is_left_out(class) {
            continue;
        }
        if class == Class::Bmc && inventory.power.is_none() {
            // Power draw, or the reason that it is unknown, if no other source measures it.
            probed.power = Some(report.power.clone());
        }
        inventory.add_result(NAME, took, probed);
    }
    let record = |class| inventory.records.get(&class);
    let found = contradictions(record(Class::Bios), record(Class::Bmc));
    inventory.findings.extend(found);
}

/// Marks both classes with readings of the BMC as unknown.
fn mark_unknown(inventory: &mut Inventory, source: &Source, took: Duration, why: &NoSystemReason) {
    for (record, took) in unread_records(&why.reading())
        .into_iter()
        .zip([took, Duration::ZERO])
    {
        let class = record.class;
        if !source.is_left_out(class) {
            let probed = ProbeResult {
                record,
                ..ProbeResult::new(class)
            };
            inventory.add_result(NAME, took, probed);
        }
    }
}
