//! `lattice conformance`: conformance groups, drift, changes, baselines, and the brake on automatic draining.

mod baseline;
mod brake;
mod changes;
mod selection;

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, contrast, digest, or_dash, time},
};
use baseline::BaselineCommand;
use brake::BrakeCommand;
use changes::ChangesArgs;
use clap::{Args, Subcommand};
use lattice_api::conformance::{DriftView, UnknownView};
use lattice_conformance::Scope;
use lattice_quorum_types::{NodeId, hostlist};
use selection::NodeClassArgs;
use std::collections::{BTreeMap, BTreeSet};

/// Conformance subcommands.
#[derive(Subcommand)]
pub enum ConformanceCommand {
    /// Group nodes by fingerprint, by one class, or by several classes together.
    Groups(GroupsArgs),
    /// Show drift: where nodes differ from their baseline or, without one, from the majority of their cohort.
    Drift(NodeClassArgs),
    /// Show changes on all nodes since a time, with equal changes of several nodes together.
    Changes(ChangesArgs),
    /// Baselines: set, list, show, diff, delete.
    #[command(subcommand)]
    Baseline(BaselineCommand),
    /// Brake on automatic draining: show, release.
    #[command(subcommand)]
    Brake(BrakeCommand),
}

#[derive(Args)]
pub struct GroupsArgs {
    /// Class (gpu, nic, bios, bmc, kernel, cpu, memory, storage, software, optics), several separated by commas
    /// (nic,gpu), or all.
    #[arg(long, default_value = "all")]
    class: Scope,
}

/// Runs a conformance command.
pub async fn run(command: ConformanceCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        ConformanceCommand::Groups(args) => groups(&args, connection).await,
        ConformanceCommand::Drift(args) => drift(&args, connection).await,
        ConformanceCommand::Changes(args) => changes::changes(&args, connection).await,
        ConformanceCommand::Baseline(command) => baseline::run(command, connection).await,
        ConformanceCommand::Brake(command) => brake::run(command, connection).await,
    }
}

async fn groups(args: &GroupsArgs, connection: &Connection) -> Result<(), Failure> {
    let class = args.class.to_string();
    let found = connection.client.conformance_groups(Some(&class)).await?;
    let rows = found.groups.iter().map(|group| {
        vec![
            group.class.clone(),
            digest(connection.format, &group.digest),
            group.count.to_string(),
            group.nodes.clone(),
            or_dash(group.first_seen.as_deref().map(time).as_deref()),
        ]
    });
    let columns = Columns::only(&["class", "digest", "count", "nodes", "first_seen"]);
    output::print(connection.format, &found, columns, rows)?;
    if !found.unknown.is_empty() {
        output::message!(
            "digest unknown, not in a group: {} (`lattice node health NODE` shows why)",
            found.unknown
        );
    }
    for not_read in &found.not_read {
        output::message!("not read: {}: {}", not_read.why, not_read.nodes);
    }
    Ok(())
}

async fn drift(args: &NodeClassArgs, connection: &Connection) -> Result<(), Failure> {
    let only = args.read(connection).await?;
    let mut report = connection.client.drift().await?;
    only.retain_drift(&mut report);
    output::print_fitted(
        connection.format,
        &report,
        COLUMNS,
        Fitting::Lines(DROPPED_FIRST),
        rows(&report.drifted, connection.format),
    )?;
    summarise(&report.drifted);
    if let Some(brake) = &report.brake {
        output::message!(
            "automatic draining stopped since {}: {} (`lattice conformance brake release`)",
            time(&brake.since),
            brake.reason
        );
    }
    for none in &report.no_majority {
        let values: Vec<_> = none
            .values
            .iter()
            .map(|held| format!("{} on {}", held.value, held.nodes))
            .collect();
        output::message!(
            "no majority: {} of {}: {}",
            none.key,
            none.cohort,
            values.join("; ")
        );
    }
    for line in causes(&report.unknown)
        .iter()
        .chain(&stale_state_lines(&report.drifted))
    {
        output::message!("{line}");
    }
    if !report.pending.is_empty() {
        output::message!(
            "not checked, required readings are unknown: {}",
            report.pending
        );
    }
    if !report.without_reference.is_empty() {
        output::message!(
            "not checked (no baseline, fewer than 4 similar nodes): {}",
            report.without_reference
        );
    }
    Ok(())
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &[
        "node", "class", "key", "expected", "found", "by", "policy", "since",
    ],
    wide: &["sensitive", "majority_nodes", "cohort_nodes", "as_of"],
};

/// Columns that a narrow terminal leaves out, in this order. Node, key and both values are always shown.
const DROPPED_FIRST: &[&str] = &["since", "policy", "by", "class"];

fn rows(drifted: &[DriftView], format: Format) -> Vec<Vec<String>> {
    let count = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let row = |d: &DriftView| {
        let (expected, found) = contrast(format, &d.expected, &d.found);
        let since = d.since.as_deref().map(|since| match d.since_or_before {
            true => format!("{} or before", time(since)),
            false => time(since),
        });
        vec![
            d.node.clone(),
            d.class.clone(),
            d.key.clone(),
            expected,
            found,
            d.by.clone(),
            d.policy.clone(),
            or_dash(since.as_deref()),
            or_dash(d.sensitive.as_deref()),
            count(d.majority_nodes),
            count(d.cohort_nodes),
            or_dash(d.as_of.as_deref().map(time).as_deref()),
        ]
    };
    drifted.iter().map(row).collect()
}

/// Prints the drift rows alone, for one baseline.
fn print_drift(drifted: &[DriftView], connection: &Connection) -> Result<(), Failure> {
    output::print_fitted(
        connection.format,
        &drifted,
        COLUMNS,
        Fitting::Lines(DROPPED_FIRST),
        rows(drifted, connection.format),
    )?;
    if drifted.is_empty() {
        output::message!("no node differs");
    }
    Ok(())
}

/// Describes unknown classes: `unknown: bios, bmc of gpu[101-105]: ...`. Classes that are unknown on the same nodes for
/// the same reason share a line.
fn causes(unknown: &[UnknownView]) -> Vec<String> {
    let mut by_class: BTreeMap<(&str, &Option<String>, &str), BTreeSet<&str>> = BTreeMap::new();
    for u in unknown {
        let alike = by_class.entry((&u.why, &u.baseline, &u.class));
        alike.or_default().insert(&u.node);
    }
    // Classes that are unknown on the same nodes for the same reason.
    let mut lines: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for ((why, baseline, class), nodes) in by_class {
        lines.entry((why, baseline, nodes)).or_default().push(class);
    }
    let line = |((why, baseline, nodes), classes): ((&str, &Option<String>, _), Vec<&str>)| {
        let baseline = baseline.as_ref();
        let baseline = baseline.map_or_else(String::new, |name| format!(" (baseline {name})"));
        let (classes, nodes) = (classes.join(", "), folded(nodes));
        format!("unknown: {classes} of {nodes}{baseline}: {why}")
    };
    lines.into_iter().map(line).collect()
}

/// Lists the nodes that are shown with an old state, by the time of that state.
fn stale_state_lines(drifted: &[DriftView]) -> Vec<String> {
    let old = drifted
        .iter()
        .filter_map(|d| Some((d.as_of.as_deref()?, &*d.node)));
    let mut by_time: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (at, node) in old {
        by_time.entry(at).or_default().insert(node);
    }
    let line = |(at, nodes): (&str, _)| {
        let nodes = folded(nodes);
        format!("as of {}, the node does not answer: {nodes}", time(at))
    };
    by_time.into_iter().map(line).collect()
}

fn folded(nodes: BTreeSet<&str>) -> String {
    let nodes = nodes.into_iter().filter_map(|node| NodeId::new(node).ok());
    hostlist::fold(&nodes.collect::<Vec<_>>())
}

/// Summarises drift in one sentence per key and cohort: `1 of 64 similar nodes differs in nic.0.firmware`. If nodes of
/// several cohorts differ in one key, each sentence names its cohort.
fn summarise(drifted: &[DriftView]) {
    for line in sentences(drifted) {
        output::message!("{line}");
    }
}

fn sentences(drifted: &[DriftView]) -> Vec<String> {
    let mut cohorts: BTreeMap<(&str, Option<&str>), (u32, u32)> = BTreeMap::new();
    for d in drifted {
        if let (Some(of), Some(like)) = (d.cohort_nodes, d.majority_nodes) {
            let cohort = d.cohort.as_deref();
            cohorts.insert((&d.key, cohort), (of, of.saturating_sub(like)));
        }
    }
    let sentence = |((key, cohort), (of, differ)): (&(&str, Option<&str>), &(u32, u32))| {
        let verb = if *differ == 1 { "differs" } else { "differ" };
        let several = cohorts.keys().filter(|(other, _)| other == key).count() > 1;
        let cohort = cohort.filter(|_| several);
        let cohort = cohort.map_or_else(String::new, |name| format!(" ({name})"));
        format!("{differ} of {of} similar nodes{cohort} {verb} in {key}")
    };
    cohorts.iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_cause_once_with_nodes() {
        let unknown = |node: &str, class: &str, why: &str| UnknownView {
            node: node.to_owned(),
            class: class.to_owned(),
            why: why.to_owned(),
            baseline: None,
        };
        let wrong = "the BMC refuses the password";
        let nodes = [
            unknown("gpu101", "bios", wrong),
            unknown("gpu101", "bmc", wrong),
            unknown("gpu102", "bios", wrong),
            unknown("gpu102", "bmc", wrong),
            unknown("gpu103", "nic", "never seen"),
        ];
        assert_eq!(
            causes(&nodes),
            [
                "unknown: nic of gpu103: never seen",
                "unknown: bios, bmc of gpu[101-102]: the BMC refuses the password",
            ]
        );
    }

    #[test]
    fn silent_node_shows_last_contact() {
        let entry = |node: &str, as_of: Option<&str>| DriftView {
            node: node.to_owned(),
            as_of: as_of.map(str::to_owned),
            ..DriftView::default()
        };
        let at = Some("2026-11-22T02:30:00.000Z");
        let nodes = [
            entry("a1", at),
            entry("a1", at),
            entry("a2", at),
            entry("a3", None),
        ];
        assert_eq!(
            stale_state_lines(&nodes),
            ["as of 2026-11-22T02:30:00Z, the node does not answer: a[1-2]"]
        );
    }

    #[test]
    fn drift_fits_80_columns() {
        let entry = |node: &str, key: &str, (expected, found): (&str, &str)| DriftView {
            node: node.to_owned(),
            class: key.split('.').next().unwrap_or_default().to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
            by: "baseline h100-production v12".to_owned(),
            policy: "deprioritise".to_owned(),
            since: Some("2026-11-21T20:49:35.120Z".to_owned()),
            since_or_before: true,
            ..DriftView::default()
        };
        let drifted = [
            entry("gpu005", "nic.0.firmware", ("28.41.1000", "28.39.2048")),
            entry(
                "gpu108",
                "bios.attribute.WorkloadProfile",
                (
                    "HighPerformanceCompute(HPC)",
                    "GeneralPowerEfficientCompute",
                ),
            ),
        ];
        let text = |width| {
            let rows = rows(&drifted, Format::Table);
            let fitting = Fitting::Lines(DROPPED_FIRST);
            output::table_text(Format::Table, COLUMNS, fitting, rows, Some(width))
        };
        assert_eq!(
            text(80).lines().collect::<Vec<_>>(),
            [
                "NODE    CLASS  KEY                    EXPECTED              FOUND",
                "gpu005  nic    nic.0.firmware         28.41.1000            28.39.2048",
                "gpu108  bios   bios.attribute…rofile  HighPerforman…e(HPC)  GeneralPowerE…ompute",
            ]
        );
        assert_eq!(
            text(60).lines().collect::<Vec<_>>(),
            [
                "NODE    KEY               EXPECTED          FOUND",
                "gpu005  nic.0.firmware    28.41.1000        28.39.2048",
                "gpu108  bios.attri…ofile  HighPerfor…(HPC)  GeneralPow…mpute",
            ]
        );
    }

    #[test]
    fn an_outlier_is_a_sentence() {
        let entry = |node: &str, like: u32| DriftView {
            node: node.to_owned(),
            key: "nic.0.firmware".to_owned(),
            expected: "28.41".to_owned(),
            cohort_nodes: Some(64),
            majority_nodes: Some(like),
            ..DriftView::default()
        };
        assert_eq!(
            sentences(&[entry("a", 63)]),
            ["1 of 64 similar nodes differs in nic.0.firmware"]
        );
        assert_eq!(
            sentences(&[entry("a", 62), entry("b", 62)]),
            ["2 of 64 similar nodes differ in nic.0.firmware"]
        );
        let of = |cohort: &str, node: &str| DriftView {
            cohort: Some(cohort.to_owned()),
            ..entry(node, 63)
        };
        assert_eq!(
            sentences(&[of("Dell XE9680", "a"), of("HPE XD670", "b")]),
            [
                "1 of 64 similar nodes (Dell XE9680) differs in nic.0.firmware",
                "1 of 64 similar nodes (HPE XD670) differs in nic.0.firmware",
            ],
            "as many nodes with the same majority are two cohorts still"
        );
        let by_baseline = DriftView {
            cohort_nodes: None,
            ..entry("a", 0)
        };
        assert!(sentences(&[by_baseline]).is_empty());
    }
}
