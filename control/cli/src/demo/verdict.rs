//! Results of the scenario, and their comparison with the expected ones.

use super::{
    change::ChangeResult,
    fixtures::{DemoNode, PLANTED},
    groups::GroupLine,
    job_submission::JobResults,
};
use crate::output::{self, Format};
use lattice_api::conformance::DriftView;
use lattice_client::{Client, ClientError};
use lattice_conformance::Class;
use lattice_quorum_types::AllocationState;
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// Classes with conformance groups in the result.
const GROUPED_CLASSES: [Class; 7] = [
    Class::Gpu,
    Class::Nic,
    Class::Bios,
    Class::Bmc,
    Class::Kernel,
    Class::Cpu,
    Class::Memory,
];

/// Result of the scenario, as `demo --exit -o json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Number of nodes in lifecycle `ready` after the workload.
    pub nodes: usize,
    /// Number of gossip cells.
    pub cells: usize,
    /// Conformance groups.
    pub conformance_groups: Vec<GroupLine>,
    /// Drift of the nodes.
    pub drifted: Vec<DriftView>,
    /// Number of recorded jobs by state.
    pub allocations: BTreeMap<String, usize>,
    /// Refusal texts of the server.
    pub refusals: Vec<String>,
    /// Firmware change of a BMC, made after everything else.
    pub changed: Option<ChangeResult>,
    /// URL of the cluster.
    pub url: String,
    /// Time since the start of the program, seconds.
    pub elapsed_s: f64,
}

/// Recorded job with its expected and its actual end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// Job name.
    pub name: String,
    /// Expected end, from the trace.
    pub expected: AllocationState,
    /// Actual end.
    pub actual: AllocationState,
}

/// Deviation from the expected results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A planted difference was not found.
    NotFound { node: String, key: String },
    /// A difference was found that was not planted.
    UnexpectedDrift(Box<DriftView>),
    /// A job did not end as in the trace.
    Ending(JobEnd),
    /// The submit over two limits was not refused as expected.
    Refusal {
        wanted: &'static str,
        texts: Vec<String>,
    },
    /// A recorded job was refused.
    UnexpectedRefusal(String),
    /// The number of nodes that joined is not the number of agents that were started.
    Missing { started: usize, joined: usize },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotFound { node, key } => write!(
                f,
                "the planted difference of {node} in {key} was not detected"
            ),
            Fault::UnexpectedDrift(d) => write!(
                f,
                "{} differs in {}: expected {}, found {}",
                d.node, d.key, d.expected, d.found
            ),
            Fault::Ending(e) => {
                write!(
                    f,
                    "{} ended as {}, the log has state {}",
                    e.name, e.actual, e.expected
                )
            }
            Fault::Refusal { wanted, texts } => {
                write!(f, "the refusal lacks {wanted:?}: {texts:?}")
            }
            Fault::UnexpectedRefusal(text) => write!(f, "a recorded job was refused: {text}"),
            Fault::Missing { started, joined } => {
                write!(f, "{started} agents were started, {joined} joined")
            }
        }
    }
}

/// Expected refusal of a submit of 21 nodes to `atlas/physics/simulation`: two blocks, leaf first. The present usage is
/// 0, since nothing else runs there.
pub const REFUSAL: &str = "allocation rejected: project \"atlas/physics/simulation\" would exceed \
    max_nodes quota (current: 0, requested: 21, limit: 10)\nallocation rejected: project \
    \"atlas/physics\" would exceed max_nodes quota (current: 0, requested: 21, limit: 20)";

/// Returns the conformance groups: of the whole fingerprint, then of each class.
pub async fn groups(client: &Client) -> Result<Vec<GroupLine>, ClientError> {
    let mut lines = Vec::new();
    let classes = GROUPED_CLASSES.iter().map(ToString::to_string);
    for class in std::iter::once("all".to_owned()).chain(classes) {
        let found = client.conformance_groups(Some(&class)).await?;
        lines.extend(found.groups.into_iter().map(GroupLine::from));
    }
    Ok(lines)
}

/// Counts the recorded jobs by final state.
pub fn count(played: &JobResults) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for state in played.states.values() {
        *counts.entry(state.to_string()).or_insert(0) += 1;
    }
    counts
}

/// Prints the result on standard output, and the deviations on standard error.
pub fn print(outcome: &Outcome, faults: &[Fault], format: Format) -> anyhow::Result<()> {
    let counts: Vec<_> = outcome
        .allocations
        .iter()
        .map(|(s, n)| format!("{n} {s}"))
        .collect();
    let alike = outcome
        .conformance_groups
        .iter()
        .filter(|group| group.class == "all");
    let mut rows = vec![
        vec!["nodes".to_owned(), outcome.nodes.to_string()],
        vec!["cells".to_owned(), outcome.cells.to_string()],
        vec!["allocations".to_owned(), counts.join(", ")],
        vec!["refusals".to_owned(), outcome.refusals.len().to_string()],
    ];
    rows.extend(alike.map(|group| {
        vec![
            "alike".to_owned(),
            format!("{}  {}", output::short(&group.digest), group.nodes),
        ]
    }));
    rows.extend(outcome.drifted.iter().map(|d| {
        let (expected, found) = output::contrast(format, &d.expected, &d.found);
        let text = format!("{} {}: {found} (expected {expected})", d.node, d.key);
        vec!["differs".to_owned(), text]
    }));
    rows.extend(outcome.changed.iter().flat_map(changed));
    rows.push(vec![
        "elapsed".to_owned(),
        format!("{:.1} s", outcome.elapsed_s),
    ]);
    output::print_details(format, outcome, ["what", "result"], rows)?;
    for fault in faults {
        output::message_lines(&format!("unexpected result: {fault}"));
    }
    Ok(())
}

/// Returns the lines about the firmware change.
fn changed(changed: &ChangeResult) -> Vec<Vec<String>> {
    let ChangeResult {
        node,
        key,
        from,
        to,
        ..
    } = changed;
    let mut rows = vec![vec![
        "changed".to_owned(),
        format!(
            "{node} {key}: {to} (was {from}), trigger: {}, {:.1} s after the flash",
            changed.cause, changed.known_after_s
        ),
    ]];
    let groups = changed.groups.iter();
    rows.extend(groups.map(|group| {
        let text = format!(
            "{} {}  {}",
            group.class,
            output::short(&group.digest),
            group.nodes
        );
        vec!["identical since".to_owned(), text]
    }));
    if let (Some(drift), Some(after)) = (&changed.drift, changed.drifted_after_s) {
        let since = drift.since.as_deref().map_or("-".to_owned(), output::time);
        let text = format!(
            "{} {}: {} (expected {}), since {since}, detected {after:.1} s after the flash",
            drift.node, drift.key, drift.found, drift.expected
        );
        rows.push(vec!["differs since".to_owned(), text]);
    }
    rows
}

fn is_found(drifted: &[DriftView], node: &str, key: &str) -> bool {
    drifted.iter().any(|d| d.node == node && d.key == key)
}

/// Returns the planted differences that were not found, each as node and key.
pub fn missing_planted(drifted: &[DriftView], nodes: &[DemoNode]) -> Vec<String> {
    let planted = planted_in(nodes).into_iter();
    let missing = planted.filter(|(node, key)| !is_found(drifted, node, key));
    missing.map(|(node, key)| format!("{node} {key}")).collect()
}

/// Returns all deviations from the expected results.
pub fn find_faults(outcome: &Outcome, endings: &[JobEnd], nodes: &[DemoNode]) -> Vec<Fault> {
    let mut faults = Vec::new();
    if outcome.nodes != nodes.len() {
        faults.push(Fault::Missing {
            started: nodes.len(),
            joined: outcome.nodes,
        });
    }
    let planted = planted_in(nodes);
    for (node, key) in &planted {
        if !is_found(&outcome.drifted, node, key) {
            faults.push(Fault::NotFound {
                node: node.clone(),
                key: (*key).to_owned(),
            });
        }
    }
    let unplanned = |d: &&DriftView| !planted.iter().any(|(n, k)| *n == d.node && *k == d.key);
    faults.extend(
        outcome
            .drifted
            .iter()
            .filter(unplanned)
            .cloned()
            .map(|drift| Fault::UnexpectedDrift(Box::new(drift))),
    );
    faults.extend(
        endings
            .iter()
            .filter(|e| e.actual != e.expected)
            .cloned()
            .map(Fault::Ending),
    );
    let unplanned = outcome.refusals.iter().filter(|text| *text != REFUSAL);
    faults.extend(unplanned.cloned().map(Fault::UnexpectedRefusal));
    if !outcome.refusals.iter().any(|text| text == REFUSAL) {
        faults.push(Fault::Refusal {
            wanted: REFUSAL,
            texts: outcome.refusals.clone(),
        });
    }
    faults
}

/// Returns the planted differences of these nodes. A cohort too small for a majority shows no drift, so a demo of few
/// nodes expects none from it.
fn planted_in(nodes: &[DemoNode]) -> Vec<(String, &'static str)> {
    let tree = |node: &DemoNode| {
        let name = node.root.as_ref()?.file_name()?.to_str()?;
        Some((name.to_owned(), name.chars().take(4).collect::<String>()))
    };
    let cohort_size = |model: &str| {
        nodes
            .iter()
            .filter_map(tree)
            .filter(|(_, m)| m == model)
            .count()
    };
    let mut found = Vec::new();
    for node in nodes {
        let Some((name, model)) = tree(node) else {
            continue;
        };
        let enough = cohort_size(&model) >= lattice_conformance::COHORT_MIN;
        for planted in PLANTED.iter().filter(|p| enough && p.tree == name) {
            found.push((node.name.to_string(), planted.key));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::demo::fixtures::Fixtures;
    use lattice_quorum_types::NodeId;

    fn nodes(count: usize) -> Vec<DemoNode> {
        Fixtures::of_checkout()
            .nodes(count, NodeId::new("here").unwrap())
            .unwrap()
    }

    fn drift(node: &str, key: &str) -> DriftView {
        let text = |t: &str| t.to_owned();
        DriftView {
            node: text(node),
            class: text("nic"),
            key: text(key),
            expected: text("a"),
            found: text("b"),
            ..DriftView::default()
        }
    }

    fn good() -> Outcome {
        Outcome {
            nodes: 24,
            cells: 2,
            conformance_groups: vec![],
            drifted: vec![
                drift("gpu005", "nic.0.firmware"),
                drift("gpu108", "kernel.cmdline"),
            ],
            allocations: BTreeMap::new(),
            refusals: vec![REFUSAL.to_owned()],
            changed: None,
            url: String::new(),
            elapsed_s: 0.0,
        }
    }

    #[test]
    fn what_must_come_out_is_no_fault() {
        assert_eq!(find_faults(&good(), &[], &nodes(24)), []);
    }

    #[test]
    fn refused_recorded_job_is_a_fault() {
        let mut outcome = good();
        outcome.refusals.push("requested: 80, limit: 50".to_owned());
        let faults = find_faults(&outcome, &[], &nodes(24));
        let expected = Fault::UnexpectedRefusal("requested: 80, limit: 50".to_owned());
        assert_eq!(faults, [expected]);
    }

    #[test]
    fn each_deviation_is_named() {
        let mut outcome = good();
        outcome.drifted.push(drift("gpu002", "nic.3.firmware"));
        outcome.drifted.remove(0);
        outcome.refusals.clear();
        outcome.nodes = 23;
        let ending = JobEnd {
            name: "kth-001".to_owned(),
            expected: AllocationState::Completed,
            actual: AllocationState::Failed,
        };
        let texts: Vec<_> = find_faults(&outcome, &[ending], &nodes(24))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(texts.len(), 5, "{texts:#?}");
        assert!(texts[0].contains("24 agents were started, 23 joined"));
        assert!(
            texts[1]
                .contains("the planted difference of gpu005 in nic.0.firmware was not detected")
        );
        assert!(texts[2].contains("gpu002 differs in nic.3.firmware"));
        assert!(texts[3].contains("kth-001 ended as failed, the log has state completed"));
        assert!(texts[4].contains("the refusal lacks"));
    }

    #[test]
    fn missing_differences_are_named() {
        let mut outcome = good();
        let missing = |outcome: &Outcome| missing_planted(&outcome.drifted, &nodes(24));
        assert_eq!(missing(&outcome), [""; 0]);
        outcome.drifted.remove(1);
        assert_eq!(missing(&outcome), ["gpu108 kernel.cmdline"]);
    }

    #[test]
    fn a_cohort_without_majority_is_expected_to_say_nothing() {
        let mut outcome = good();
        outcome.nodes = 4;
        outcome.drifted.clear();
        assert_eq!(find_faults(&outcome, &[], &nodes(4)), []);
    }

    #[test]
    fn trees_used_again_bring_their_differences_again() {
        let more = nodes(47);
        assert_eq!(more.len(), 47);
        let mut planted = planted_in(&more);
        planted.sort();
        let names: Vec<_> = planted.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(names, ["gpu005", "gpu108", "r1-gpu005", "r1-gpu108"]);
    }
}
