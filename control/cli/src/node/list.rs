//! `lattice node list`.

use super::{
    gibibytes, gpu_model,
    node_args::{NodeSelection, expand},
    number, reasons, status, vcluster,
};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, counted, digest, or_dash},
};
use clap::Args;
use lattice_api::{
    allocation::name_text, claim::ClaimView, node::NodeView, node_status::NodeStatus,
};

#[derive(Args)]
pub struct ListArgs {
    /// Show these nodes only: gpu007, gpu[001-004].
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    /// Show nodes with this combined status only, several values separated by commas: unreachable, faulty, ready. The
    /// status is the worst of liveness, health, state, claim and use.
    #[arg(long, value_delimiter = ',', value_name = "STATUS")]
    status: Vec<NodeStatus>,
    /// Show these states only, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = [
        "unregistered", "joining", "ready", "draining", "drained", "quarantined", "retired",
    ])]
    state: Vec<String>,
    /// Show this health only, several values separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = ["healthy", "degraded", "faulty", "unknown"])]
    health: Vec<String>,
    /// Show only nodes that drift from their baseline or their cohort.
    #[arg(long)]
    drifted: bool,
}

impl ListArgs {
    /// Whether a node matches the filters for status, state, health and drift.
    fn matches(&self, node: &NodeView) -> bool {
        let one_of = |asked: &[String], is: &String| asked.is_empty() || asked.contains(is);
        let has_status = |wanted: &NodeStatus| wanted.as_str() == status(node);
        (self.status.is_empty() || self.status.iter().any(has_status))
            && one_of(&self.state, &node.lifecycle)
            && one_of(&self.health, &node.health.verdict)
            && (!self.drifted || node.drifted_keys.is_some_and(|keys| keys > 0))
    }
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &[
        "name",
        "status",
        "liveness",
        "health",
        "holder",
        "claim",
        "gpu_count",
        "gpu_model",
        "drifted_keys",
        "fingerprint",
    ],
    wide: &[
        "lifecycle",
        "group",
        "drain",
        "reasons",
        "vcluster",
        "cell",
        "vendor",
        "product",
        "cores",
        "memory_bytes",
        "features",
        "agent_version",
    ],
};

/// Columns that a narrow terminal leaves out, in this order. Name, status and drift are always shown. The status is at
/// least as bad as liveness and health, which are therefore left out first.
const DROPPED_FIRST: &[&str] = &[
    "liveness",
    "health",
    "fingerprint",
    "gpu_model",
    "gpu_count",
    "claim",
    "holder",
];

fn drained_by(node: &NodeView) -> Option<String> {
    let drains = node
        .drain
        .iter()
        .map(|d| format!("{}: {}", d.owner, d.reason));
    let drains: Vec<_> = drains.collect();
    (!drains.is_empty()).then(|| drains.join("; "))
}

/// Returns the claimant. A released node that is not wiped yet is shown with its state, since no user can use it.
fn claimant(claim: &ClaimView) -> String {
    match claim.state.as_str() {
        "claimed" => claim.user.clone(),
        state => format!("{} ({state})", claim.user),
    }
}

fn row(node: &NodeView, format: Format) -> Vec<String> {
    let holder = node.holder.as_ref();
    let holder = holder.map(|h| name_text(h.allocation, h.element.as_ref()));
    let fingerprint = node.fingerprint.as_deref();
    let fingerprint = fingerprint.map(|whole| digest(format, whole));
    let memory = match format {
        Format::Csv => node.resources.memory_bytes.map(|bytes| bytes.to_string()),
        _ => Some(gibibytes(node.resources.memory_bytes)),
    };
    vec![
        node.name.clone(),
        status(node),
        node.liveness.clone(),
        node.health.verdict.clone(),
        or_dash(holder.as_deref()),
        or_dash(node.claim.as_ref().map(claimant).as_deref()),
        number(node.resources.gpu_count),
        gpu_model(node),
        number(node.drifted_keys),
        fingerprint.unwrap_or_else(|| "unknown".to_owned()),
        node.lifecycle.clone(),
        or_dash(node.group.as_deref()),
        or_dash(drained_by(node).as_deref()),
        or_dash(reasons(node).as_deref()),
        vcluster(node),
        or_dash(node.cell.as_deref()),
        or_dash(node.resources.vendor.as_deref()),
        or_dash(node.resources.product.as_deref()),
        number(node.resources.cores),
        memory.unwrap_or_else(|| "unknown".to_owned()),
        or_dash(Some(&node.resources.features.join(","))),
        or_dash(node.agent_version.as_deref()),
    ]
}

/// Prints one node as a row of the list.
pub(super) fn print_row(node: &NodeView, format: Format) -> Result<(), Failure> {
    Ok(output::print_record(
        format,
        node,
        COLUMNS,
        row(node, format),
    )?)
}

/// Lists the selected nodes.
pub async fn list(args: &ListArgs, connection: &Connection) -> Result<(), Failure> {
    let mut nodes = connection.client.nodes().await?;
    let meant = NodeSelection::checked(expand(&args.nodes)?, &nodes)?;
    nodes.retain(|node| meant.has(&node.name));
    let all = nodes.len();
    let not_judged = nodes.iter().filter(|node| node.drifted_keys.is_none());
    let not_judged = not_judged.count();
    nodes.retain(|node| args.matches(node));
    let format = connection.format;
    let rows = nodes.iter().map(|node| row(node, format));
    output::print_fitted(format, &nodes, COLUMNS, Fitting::Lines(DROPPED_FIRST), rows)?;
    if nodes.is_empty() && all > 0 {
        output::message!("none of {} matches", counted(all, "node"));
    }
    if args.drifted && not_judged > 0 {
        output::message!("drift of {} is unknown", counted(not_judged, "node"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ListArgs,
    }

    fn asked(line: &[&str]) -> ListArgs {
        let words = std::iter::once("list").chain(line.iter().copied());
        Line::try_parse_from(words).unwrap().args
    }

    fn node(lifecycle: &str, verdict: &str, drifted: u32) -> NodeView {
        serde_json::from_value(json!({
            "name": "gpu001", "lifecycle": lifecycle, "vcluster": "default", "liveness": "alive",
            "drain": [{"owner": "op", "reason": "fan is loud", "since": "2026-11-22T02:12:01Z"}],
            "health": {"verdict": verdict, "reasons": []}, "resources": {"features": []},
            "classes": {}, "drifted_keys": drifted, "revision": 1,
        }))
        .unwrap()
    }

    #[test]
    fn nodes_are_chosen_by_state_health_and_drift_together() {
        let chosen = |line: &[&str], node: NodeView| asked(line).matches(&node);
        assert!(chosen(&[], node("ready", "healthy", 0)));
        assert!(chosen(
            &["--state", "drained,ready"],
            node("ready", "healthy", 0)
        ));
        assert!(!chosen(
            &["--state", "drained"],
            node("ready", "healthy", 0)
        ));
        assert!(chosen(&["--drifted"], node("ready", "healthy", 2)));
        assert!(!chosen(&["--drifted"], node("ready", "healthy", 0)));
        let both = ["--health", "faulty", "--drifted"];
        assert!(!chosen(&both, node("ready", "healthy", 1)));
        assert!(chosen(&both, node("ready", "faulty", 1)));
        assert!(Line::try_parse_from(["list", "--state", "drian"]).is_err());
    }

    #[test]
    fn holder_of_node_is_named_as_in_the_queue() {
        let mut held = node("ready", "healthy", 0);
        held.holder = serde_json::from_value(json!({
            "allocation": 235, "attempt": 1, "element": {"array": 232, "index": 2},
        }))
        .unwrap();
        assert_eq!(row(&held, Format::Table)[4], "232_2");
        held.holder = serde_json::from_value(json!({"allocation": 235, "attempt": 1})).unwrap();
        assert_eq!(row(&held, Format::Table)[4], "235");
    }

    #[test]
    fn a_state_is_a_word_and_its_reason_is_in_the_wide_table() {
        let cells = row(&node("drained", "healthy", 0), Format::Wide);
        assert_eq!(cells.len(), COLUMNS.narrow.len() + COLUMNS.wide.len());
        assert_eq!(cells[1], "drained");
        let wide = &cells[COLUMNS.narrow.len()..];
        let of = |name: &str| {
            let place = COLUMNS.wide.iter().position(|column| *column == name);
            wide[place.unwrap()].as_str()
        };
        assert_eq!(
            [of("lifecycle"), of("drain")],
            ["drained", "op: fan is loud"]
        );
    }

    /// Scripts read the state of a node by position, from a pipe: name, status, liveness, health.
    #[test]
    fn rows_in_a_pipe_begin_with_name_status_liveness_and_health() {
        let rows = [row(&node("ready", "faulty", 0), Format::Table)];
        let fitting = Fitting::Lines(DROPPED_FIRST);
        let text = output::table_text(Format::Table, COLUMNS, fitting, rows, None);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().take(4).collect())
            .collect();
        assert_eq!(
            words,
            [
                ["NAME", "STATUS", "LIVENESS", "HEALTH"],
                ["gpu001", "faulty", "alive", "faulty"],
            ]
        );
    }

    /// Node of a large cluster with the longest values, or with those of a usual node.
    fn of_large_cluster(name: &str, has_longest: bool) -> NodeView {
        let mut shown = node("ready", "healthy", 0);
        shown.name = name.to_owned();
        shown.fingerprint = Some("7160864edc97".repeat(5));
        shown.resources.gpu_count = Some(8);
        shown.resources.gpu_model = Some("NVIDIA H100 80GB HBM3".to_owned());
        if has_longest {
            shown.liveness = "unreachable".to_owned();
            shown.health.verdict = "unknown".to_owned();
            shown.drifted_keys = None;
            shown.claim = serde_json::from_value(json!({
                "user": "maria-magdalena", "project": "atlas", "purpose": "genomes", "state": "claimed",
                "since": "2026-11-22T02:12:01Z",
            }))
            .unwrap();
            shown.holder = serde_json::from_value(json!({
                "allocation": 1_000_000_900, "attempt": 1,
                "element": {"array": 1_000_000_232, "index": 1023},
            }))
            .unwrap();
        }
        shown
    }

    #[test]
    fn list_fits_80_columns() {
        let text = |width| {
            let nodes = [
                of_large_cluster("gpu001", false),
                of_large_cluster("gpu128", true),
            ];
            let rows = nodes.iter().map(|node| row(node, Format::Table));
            let fitting = Fitting::Lines(DROPPED_FIRST);
            output::table_text(Format::Table, COLUMNS, fitting, rows, Some(width))
        };
        let lines = |width| {
            let text = text(width);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(80),
            [
                "NAME    STATUS       HOLDER           CLAIM            GPU_COUNT  DRIFTED_KEYS",
                "gpu001  ready        -                -                8          0",
                "gpu128  unreachable  1000000232_1023  maria-magdalena  8          unknown",
            ]
        );
        assert_eq!(
            lines(40),
            [
                "NAME    STATUS       DRIFTED_KEYS",
                "gpu001  ready        0",
                "gpu128  unreachable  unknown",
            ]
        );
        assert!(lines(160)[0].starts_with("NAME    STATUS       LIVENESS     HEALTH   HOLDER"));
    }

    /// A ready node that does not answer is not shown as ready. The status of the server counts; without one, as from
    /// an earlier version, it is combined from the parts.
    #[test]
    fn status_is_the_worst_part() {
        let mut silent = node("ready", "unknown", 0);
        silent.liveness = "unreachable".to_owned();
        assert_eq!(row(&silent, Format::Table)[1], "unreachable");
        silent.status = Some("suspect".to_owned());
        assert_eq!(row(&silent, Format::Table)[1], "suspect");
        assert_eq!(row(&node("ready", "faulty", 0), Format::Table)[1], "faulty");
        assert_eq!(row(&node("ready", "healthy", 0), Format::Table)[1], "ready");
        assert!(asked(&["--status", "suspect,unreachable"]).matches(&silent));
        assert!(!asked(&["--status", "ready"]).matches(&silent));
        assert!(Line::try_parse_from(["list", "--status", "drian"]).is_err());
    }
}
