//! `lattice-agent capture`: an archive that represents this machine.

use super::bmc::{BmcArgs, REPORT, recorded};
use super::source::{PROGRAM, Source, SourceArgs};
use anyhow::{Context as _, bail};
use clap::Args;
use lattice_conformance::{Class, Inventory};
use lattice_host::terminal::message_line;
use lattice_hwprobe::capture::{Privacy, archive, capture_isolated, host_of, secrets_with};
use lattice_hwprobe::probe_isolated;
use lattice_redfish::{NodeReport, SystemName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum number of unreadable paths that are listed by name.
const MAX_LISTED_PATHS: usize = 8;

/// Arguments of `lattice-agent capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    bmc: BmcArgs,
    /// Archive to write; the file must not exist. Usual name: NAME.tar.zst.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Keep serial numbers, UUIDs, addresses and host names, and the values of masked kernel arguments. Do not share
    /// such an archive.
    #[arg(long)]
    keep_identity: bool,
}

pub(super) fn run(args: &CaptureArgs) -> anyhow::Result<ExitCode> {
    let shown = args.output.display();
    if args.output.exists() {
        bail!("{shown} already exists");
    }
    let source = args.source.open()?;
    let privacy = match args.keep_identity {
        true => Privacy::Keep,
        false => Privacy::Mask,
    };
    let folder = tempfile::Builder::new()
        .prefix("lattice-capture-")
        .tempdir()
        .context("cannot create a temporary folder")?;
    let tree = folder.path().join("host");
    let (captured, inventory) = capture_isolated(&source.host, Path::new(PROGRAM), &tree, privacy)?;
    check(&source, &tree, &inventory)?;
    let mut whole = inventory.clone();
    if let Some(report) = args.bmc.add_to(&mut whole, &source)? {
        record(&tree, report, &inventory, privacy)?;
    }
    archive::pack(&tree, &args.output).with_context(|| format!("{shown} cannot be written"))?;
    let masked = match privacy {
        Privacy::Keep => "with identities",
        Privacy::Mask => "identities masked",
    };
    message_line(&format!(
        "{shown}: {} files, {} links, {masked}",
        captured.files, captured.links
    ));
    for line in unreadable_lines(&captured.unreadable) {
        message_line(&line);
    }
    for (probe, loss) in &captured.lost {
        message_line(&loss.why(probe));
    }
    Ok(ExitCode::SUCCESS)
}

/// Number of the unreadable places, and the first of them with their reasons.
fn unreadable_lines(unreadable: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let count = match unreadable.len() {
        0 => return Vec::new(),
        1 => "1 place could not be read and is marked in the archive".to_owned(),
        count => format!("{count} places could not be read and are marked in the archive"),
    };
    let listed = unreadable.iter().take(MAX_LISTED_PATHS);
    let listed = listed.map(|(place, why)| format!("  {}: {why}", place.display()));
    std::iter::once(count).chain(listed).collect()
}

/// Checks that the archive reads like its machine: an archive with other readings is worse than none.
fn check(source: &Source, tree: &Path, inventory: &Inventory) -> anyhow::Result<()> {
    let again = probe_isolated(&host_of(tree)?, Path::new(PROGRAM));
    let (here, there) = (inventory.marks(), again.marks());
    let other: Vec<&str> = Class::ALL
        .into_iter()
        .filter(|class| here.get(class) != there.get(class) && !source.is_left_out(*class))
        .map(Class::name)
        .collect();
    if other.is_empty() {
        return Ok(());
    }
    bail!(
        "the capture differs from the machine in {}: the machine changed meanwhile, or masking \
         changed a value (then use --keep-identity)",
        other.join(", ")
    )
}

/// Writes the BMC's report into the tree.
fn record(
    tree: &Path,
    mut report: NodeReport,
    inventory: &Inventory,
    privacy: Privacy,
) -> anyhow::Result<()> {
    let mut json = serde_json::to_value(&report)?;
    if privacy == Privacy::Mask {
        let secrets = secrets_with(inventory, &report.system);
        report.system = SystemName {
            id: report.system.id.clone(),
            ..SystemName::default()
        };
        json = serde_json::to_value(&report)?;
        secrets.mask_json(&mut json);
    }
    let json = serde_json::to_vec_pretty(&json)?;
    std::fs::write(tree.join(REPORT), json).context("cannot write the BMC report")?;
    // Checks that the report can be read back: an unreadable report is worse than none.
    recorded(tree)?
        .context("the recorded BMC report is missing")
        .map(drop)
}
