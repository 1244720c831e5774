//! `lattice host`: compares captured hosts without a cluster. `lattice-agent probe` shows one host, and `lattice-agent
//! capture` captures it.

use crate::output::{self, Columns, Fitting, Format, contrast, digest};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use lattice_conformance::{
    ClassRecord, Digest, DriftReport, Group, Groups, Inventory, NodeView, Scope, diff_by_parts,
    drift, groups,
};
use lattice_hwprobe::{
    Host, NvmlSource,
    capture::{GPU_REPORT, archive, host_of},
    probe_all,
};
use lattice_quorum_types::name_order::compare_names;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
};

/// Host subcommands.
#[derive(Subcommand)]
pub enum HostCommand {
    /// Show, key by key, the differences between two captured hosts.
    Diff(DiffArgs),
    /// Group captured hosts by fingerprint, or by one class.
    Groups(GroupsArgs),
    /// Show where captured hosts differ from the majority of their cohort.
    Drift(DriftArgs),
}

#[derive(Args)]
pub struct DiffArgs {
    /// Captured tree, archive made by `lattice-agent capture`, or `/` for this machine.
    left: PathBuf,
    /// Captured tree or archive to compare with.
    right: PathBuf,
}

#[derive(Args)]
pub struct GroupsArgs {
    /// Captured trees or archives.
    #[arg(required = true)]
    roots: Vec<PathBuf>,
    /// Class, several classes separated by commas, or all.
    #[arg(long, default_value = "all")]
    class: Scope,
}

#[derive(Args)]
pub struct DriftArgs {
    /// Captured trees or archives; a cohort needs four.
    #[arg(required = true)]
    roots: Vec<PathBuf>,
}

/// Runs a host command.
pub fn run(command: HostCommand, format: Format) -> anyhow::Result<()> {
    match command {
        HostCommand::Diff(args) => diff_hosts(&args, format),
        HostCommand::Groups(args) => group_hosts(&args, format),
        HostCommand::Drift(args) => drift_hosts(&args, format),
    }
}

/// Returns the host below `root`. A captured tree has either all recorded command output, or a driver description
/// (`nvml.json`) from which the fake driver library answers.
pub fn host(root: &Path) -> anyhow::Result<Host> {
    anyhow::ensure!(
        root.is_dir(),
        "{} is neither a folder nor an archive",
        root.display()
    );
    let program = std::env::current_exe().context("cannot find the running program")?;
    if root == Path::new("/") {
        return Ok(Host::new(root, NvmlSource::child(program, None)));
    }
    let description = root.join("nvml.json");
    if !description.is_file() || root.join(GPU_REPORT).is_file() {
        return host_of(root).with_context(|| format!("{} cannot be probed", root.display()));
    }
    let library = lattice_fake_nvml::library_path()?;
    let nvml = NvmlSource::child(program, Some(&library))
        .with_env(lattice_fake_nvml::DESCRIPTION_ENV, &description);
    Ok(Host::new(root, nvml))
}

/// Returns the name of a host in the results: that of its folder or archive, without the suffix `.tar.zst`.
fn name(root: &Path) -> String {
    let name = root.file_name().unwrap_or(root.as_os_str());
    let name = name.to_string_lossy();
    name.strip_suffix(".tar.zst").unwrap_or(&name).to_owned()
}

fn probe(root: &Path) -> anyhow::Result<Inventory> {
    if !root.is_file() {
        return Ok(probe_all(&host(root)?));
    }
    let shown = root.display();
    let archive = File::open(root).with_context(|| format!("{shown} cannot be read"))?;
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    archive::unpack(archive, folder.path())
        .with_context(|| format!("{shown} cannot be unpacked"))?;
    let host = host_of(folder.path()).with_context(|| format!("{shown} cannot be probed"))?;
    Ok(probe_all(&host))
}

/// Returns class, key and value of every conformance key.
pub fn inventory_rows(inventory: &Inventory) -> impl Iterator<Item = Vec<String>> {
    inventory.records.values().flat_map(|record| {
        record.entries.iter().map(|(key, reading)| {
            vec![
                record.class.to_string(),
                key.to_string(),
                reading.to_string(),
            ]
        })
    })
}

fn diff_hosts(args: &DiffArgs, format: Format) -> anyhow::Result<()> {
    let (left, right) = (probe(&args.left)?, probe(&args.right)?);
    let differences: Vec<_> = left
        .records
        .iter()
        .filter_map(|(class, record)| Some(diff_by_parts(record, right.records.get(class)?)))
        .flatten()
        .collect();
    let (off, shown): (Vec<_>, Vec<_>) = differences
        .iter()
        .partition(|d| d.key == "class" && d.left == d.right);
    let rows = shown.iter().map(|d| {
        let verdict = format!("{:?}", d.verdict).to_lowercase();
        let (left, right) = contrast(format, &d.left.to_string(), &d.right.to_string());
        vec![verdict, d.class.to_string(), d.key.clone(), left, right]
    });
    let (left, right) = (name(&args.left), name(&args.right));
    output::print_difference(format, &differences, (left.as_str(), right.as_str()), rows)?;
    if !off.is_empty() {
        let classes: Vec<_> = off.iter().map(|d| d.class.to_string()).collect();
        output::message!(
            "not compared, probed on neither host: {}",
            classes.join(", ")
        );
    }
    Ok(())
}

/// Returns the views of several hosts, and the records of their digests.
fn probe_many(roots: &[PathBuf]) -> anyhow::Result<(Vec<NodeView>, BTreeMap<Digest, ClassRecord>)> {
    let mut views = Vec::new();
    let mut records = BTreeMap::new();
    for root in roots {
        let inventory = probe(root)?;
        let view = inventory.view(name(root));
        for (class, record) in inventory.records {
            if let Some(digest) = view.classes.get(&class).and_then(|mark| mark.digest()) {
                records.insert(digest, record);
            }
        }
        views.push(view);
    }
    Ok((views, records))
}

/// Sorts the hosts of groups in numerical order.
fn sort_groups(found: &mut Groups) {
    let members = found.groups.iter_mut().map(|group| &mut group.nodes);
    for hosts in members.chain([&mut found.unknown]) {
        hosts.sort_by(|a, b| compare_names(a, b));
    }
}

/// Sorts the hosts of a report in numerical order.
fn sort_drift(report: &mut DriftReport) {
    // The sorts are stable: classes and keys of a host stay in order.
    report
        .drifts
        .sort_by(|a, b| compare_names(&a.node, &b.node));
    report
        .unknown
        .sort_by(|a, b| compare_names(&a.node, &b.node));
    report.alone.sort_by(|a, b| compare_names(a, b));
}

/// Groups of hosts, as a document.
#[derive(Serialize)]
struct HostGroups<'a> {
    groups: Vec<HostGroup<'a>>,
    unknown: &'a [String],
}

#[derive(Serialize)]
struct HostGroup<'a> {
    #[serde(flatten)]
    group: &'a Group,
    /// Number of hosts.
    count: usize,
}

impl<'a> From<&'a Groups> for HostGroups<'a> {
    fn from(found: &'a Groups) -> Self {
        let with_count = |group: &'a Group| HostGroup {
            group,
            count: group.nodes.len(),
        };
        Self {
            groups: found.groups.iter().map(with_count).collect(),
            unknown: &found.unknown,
        }
    }
}

fn group_hosts(args: &GroupsArgs, format: Format) -> anyhow::Result<()> {
    let (views, _) = probe_many(&args.roots)?;
    let mut found = groups(&views, &args.class);
    sort_groups(&mut found);
    let rows = found.groups.iter().map(|group| {
        vec![
            digest(format, &group.digest.to_string()),
            group.nodes.len().to_string(),
            group.nodes.join(","),
        ]
    });
    output::print(
        format,
        &HostGroups::from(&found),
        Columns::only(&["digest", "count", "nodes"]),
        rows,
    )?;
    if !found.unknown.is_empty() {
        output::message!(
            "digest unknown, not in a group: {}",
            found.unknown.join(",")
        );
    }
    Ok(())
}

fn drift_hosts(args: &DriftArgs, format: Format) -> anyhow::Result<()> {
    let (views, records) = probe_many(&args.roots)?;
    let mut report = drift(&views, &|digest: &Digest| records.get(digest).cloned());
    sort_drift(&mut report);
    let rows = report.drifts.iter().map(|d| {
        let (expected, found) = contrast(format, &d.expected, &d.found);
        vec![d.node.clone(), d.key.clone(), expected, found]
    });
    let columns = Columns::only(&["node", "key", "expected", "found"]);
    output::print_fitted(format, &report, columns, Fitting::Lines(&["key"]), rows)?;
    if !report.alone.is_empty() {
        output::message!(
            "not compared (fewer than 4 similar nodes): {}",
            report.alone.join(",")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_conformance::Group;

    #[test]
    fn hosts_are_in_numerical_order() {
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut found = Groups {
            groups: vec![Group {
                class: None,
                digest: Digest([1; 32]),
                nodes: hosts(&["n10", "n11", "n8", "n9"]),
            }],
            unknown: hosts(&["rack10n1", "rack9n1"]),
        };
        sort_groups(&mut found);
        assert_eq!(found.groups[0].nodes, ["n8", "n9", "n10", "n11"]);
        assert_eq!(found.unknown, ["rack9n1", "rack10n1"]);
        let mut report = DriftReport {
            alone: hosts(&["n10", "n9"]),
            ..DriftReport::default()
        };
        sort_drift(&mut report);
        assert_eq!(report.alone, ["n9", "n10"]);
    }
}
