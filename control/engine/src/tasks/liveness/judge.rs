//! Liveness judgement of a node, from the duration of its silence and the results of other agents.

use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};
use tokio::time::Instant;

/// Ping results of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answers {
    /// Time of the last answer, or of the first ping of a node that never answered.
    pub(super) answered_at: Instant,
    pub(super) ever_answered: bool,
    /// Gossip cell in which the node was last seen.
    pub(super) cell: String,
    /// Results of other agents, from the last time they were queried.
    pub(super) peer_reports: Option<PeerReports>,
}

/// Results of other agents that pinged a node silent to this control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PeerReports {
    pub(super) at: Instant,
    /// An agent that reached the node.
    pub(super) reached_by: Option<NodeId>,
    /// Agents that did not reach the node, each with its cell. Agents that could not be queried are not listed.
    pub(super) missed_by: Vec<(NodeId, String)>,
}

/// Silence thresholds, and how long results of other agents remain valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    pub(super) suspect_after: Duration,
    pub(super) unreachable_after: Duration,
    pub(super) report_validity: Duration,
}

/// Reason for the liveness of a silent node. Its text stays the same while nothing changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LivenessReason {
    /// There are no recent results of other agents.
    Silent,
    /// No other agent is alive, or none of the queried agents answered.
    NoPeer,
    /// Another agent reaches the node; only this control does not.
    ReachedBy(NodeId),
    /// Other agents do not reach the node either, but its silence is shorter than `unreachable_after`.
    NotYet(Vec<NodeId>),
    /// So many nodes are silent that this control may itself be cut off.
    Isolated,
    /// Other agents do not reach the node either.
    MissedBy(Vec<NodeId>),
}

impl fmt::Display for LivenessReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |all: &[NodeId]| lattice_quorum_types::hostlist::fold(all);
        match self {
            LivenessReason::Silent => f.write_str("does not answer control"),
            LivenessReason::NoPeer => {
                f.write_str("does not answer control; no other agent is available to check it")
            }
            LivenessReason::ReachedBy(other) => {
                write!(f, "does not answer control, but {other} reaches it")
            }
            LivenessReason::NotYet(others) => {
                let names = names(others);
                write!(
                    f,
                    "does not answer control or {names}; below the unreachable timeout"
                )
            }
            LivenessReason::Isolated => f.write_str(
                "does not answer control; many nodes are silent at once, so control itself may be \
                 isolated",
            ),
            LivenessReason::MissedBy(others) => {
                write!(f, "answers neither control nor {}", names(others))
            }
        }
    }
}

/// Silent nodes and all nodes, of one cell or of the cluster.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    silent: usize,
    all: usize,
}

impl Count {
    fn add(&mut self, is_silent: bool) {
        self.silent += usize::from(is_silent);
        self.all += 1;
    }

    /// Whether this control is probably cut off: at least two nodes, and at least half of all, are silent at once.
    fn suggests_isolation(self) -> bool {
        self.silent >= 2 && self.silent * 2 >= self.all
    }
}

/// Returns the liveness of every node, with the reason if the node is silent.
pub(super) fn judge_all<'a>(
    answers: impl Iterator<Item = (&'a NodeId, &'a Answers)> + Clone,
    thresholds: Thresholds,
    now: Instant,
) -> BTreeMap<NodeId, (Liveness, Option<LivenessReason>)> {
    let silence = |answers: &Answers| now.saturating_duration_since(answers.answered_at);
    let mut cells: HashMap<&str, Count> = HashMap::new();
    let mut cluster = Count::default();
    for (_, known) in answers.clone() {
        let is_silent = silence(known) >= thresholds.suspect_after;
        cells.entry(known.cell.as_str()).or_default().add(is_silent);
        cluster.add(is_silent);
    }
    let judged = answers.map(|(id, known)| {
        let cell = cells.get(known.cell.as_str()).copied().unwrap_or_default();
        let isolated = IsolationSuspicion {
            from_all: cluster.suggests_isolation(),
            from_cell: cell.suggests_isolation(),
        };
        (id.clone(), judge(known, isolated, thresholds, now))
    });
    judged.collect()
}

/// Whether this control may be cut off.
#[derive(Debug, Clone, Copy)]
struct IsolationSuspicion {
    from_all: bool,
    /// Like `from_all`, for the nodes of one cell. It does not count for a node that an agent in another cell does not
    /// reach either.
    from_cell: bool,
}

fn judge(
    known: &Answers,
    isolated: IsolationSuspicion,
    thresholds: Thresholds,
    now: Instant,
) -> (Liveness, Option<LivenessReason>) {
    let silence = now.saturating_duration_since(known.answered_at);
    if silence < thresholds.suspect_after {
        let word = match known.ever_answered {
            true => Liveness::Alive,
            false => Liveness::Unknown,
        };
        return (word, None);
    }
    let holds =
        |said: &&PeerReports| now.saturating_duration_since(said.at) <= thresholds.report_validity;
    let why = match known.peer_reports.as_ref().filter(holds) {
        None => LivenessReason::Silent,
        Some(PeerReports {
            reached_by: Some(other),
            ..
        }) => LivenessReason::ReachedBy(other.clone()),
        Some(said) if said.missed_by.is_empty() => LivenessReason::NoPeer,
        Some(said) => {
            let elsewhere = said.missed_by.iter().any(|(_, cell)| *cell != known.cell);
            let others = said.missed_by.iter().map(|(node, _)| node.clone());
            let others: Vec<NodeId> = others.collect();
            if isolated.from_all || (isolated.from_cell && !elsewhere) {
                LivenessReason::Isolated
            } else if silence < thresholds.unreachable_after {
                LivenessReason::NotYet(others)
            } else {
                LivenessReason::MissedBy(others)
            }
        }
    };
    let word = match why {
        LivenessReason::MissedBy(_) => Liveness::Unreachable,
        _ => Liveness::Suspect,
    };
    (word, Some(why))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use Liveness::{Alive, Suspect, Unknown, Unreachable};

    const THRESHOLDS: Thresholds = Thresholds {
        suspect_after: Duration::from_millis(2500),
        unreachable_after: Duration::from_secs(30),
        report_validity: Duration::from_secs(20),
    };

    fn id(n: usize) -> NodeId {
        NodeId::new(format!("n{n}")).unwrap()
    }

    /// A node silent for `silence` seconds, with results of other agents.
    fn node(cell: &str, silence: u64, said: Option<PeerReports>) -> Answers {
        Answers {
            answered_at: now() - Duration::from_secs(silence),
            ever_answered: true,
            cell: cell.to_owned(),
            peer_reports: said,
        }
    }

    /// The same instant for the whole test, far enough from the start of the clock.
    fn now() -> Instant {
        static NOW: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *NOW.get_or_init(|| Instant::now() + Duration::from_secs(10_000))
    }

    fn missed_by(cell: &str) -> Option<PeerReports> {
        Some(PeerReports {
            at: now(),
            reached_by: None,
            missed_by: vec![(id(9), cell.to_owned())],
        })
    }

    fn reached() -> Option<PeerReports> {
        Some(PeerReports {
            reached_by: Some(id(8)),
            ..missed_by("c0").unwrap()
        })
    }

    fn words(nodes: &[Answers]) -> Vec<(Liveness, Option<String>)> {
        let ids: Vec<NodeId> = (0..nodes.len()).map(id).collect();
        let judged = judge_all(ids.iter().zip(nodes), THRESHOLDS, now());
        let text = |(word, why): (Liveness, Option<LivenessReason>)| {
            (word, why.map(|why| why.to_string()))
        };
        judged.into_values().map(text).collect()
    }

    /// Liveness of the first of five nodes of a cell, while the other four answer.
    fn among_others(silence: u64, said: Option<PeerReports>) -> (Liveness, String) {
        let mut nodes = vec![node("c0", 0, None); 5];
        nodes[0] = node("c0", silence, said);
        let (word, why) = words(&nodes).swap_remove(0);
        (word, why.unwrap_or_default())
    }

    #[test]
    fn silence_makes_suspect_and_only_others_make_unreachable() {
        assert_eq!(among_others(0, None), (Alive, String::new()));
        assert_eq!(among_others(2, missed_by("c0")), (Alive, String::new()));
        assert_eq!(
            among_others(3, None),
            (Suspect, "does not answer control".to_owned())
        );
        assert_eq!(
            among_others(29, missed_by("c0")),
            (
                Suspect,
                "does not answer control or n9; below the unreachable timeout".to_owned()
            )
        );
        assert_eq!(
            among_others(31, missed_by("c0")),
            (Unreachable, "answers neither control nor n9".to_owned())
        );
        assert_eq!(among_others(3_600, None).0, Suspect);
    }

    #[test]
    fn one_agent_that_reaches_it_outweighs_those_that_do_not() {
        let (word, why) = among_others(3_600, reached());
        assert_eq!(
            (word, why.as_str()),
            (Suspect, "does not answer control, but n8 reaches it")
        );
    }

    #[test]
    fn without_another_agent_nothing_is_unreachable() {
        let nobody = PeerReports {
            missed_by: Vec::new(),
            ..missed_by("c0").unwrap()
        };
        let (word, why) = among_others(3_600, Some(nobody.clone()));
        assert_eq!(word, Suspect);
        assert!(why.contains("no other agent is available"), "{why}");
        let alone = words(&[node("c0", 3_600, Some(nobody))]);
        assert_eq!(alone[0].0, Suspect);
    }

    #[test]
    fn old_reports_are_no_evidence() {
        let old = PeerReports {
            at: now() - Duration::from_secs(21),
            ..missed_by("c0").unwrap()
        };
        assert_eq!(among_others(3_600, Some(old)).0, Suspect);
    }

    #[test]
    fn a_node_that_was_just_asked_for_the_first_time_is_unknown() {
        let new = Answers {
            ever_answered: false,
            ..node("c0", 0, None)
        };
        assert_eq!(words(&[new]), [(Unknown, None)]);
    }

    #[test]
    fn of_two_nodes_one_can_be_unreachable() {
        let two = [node("c0", 40, missed_by("c0")), node("c0", 0, None)];
        assert_eq!(words(&two)[0].0, Unreachable);
    }

    #[test]
    fn when_half_is_silent_we_take_ourselves_for_cut_off() {
        let gone = node("c0", 40, missed_by("c0"));
        let there = node("c0", 0, None);
        let cell = [gone.clone(), gone, there.clone(), there];
        let (word, why) = words(&cell).swap_remove(0);
        assert_eq!(word, Suspect);
        assert!(why.unwrap().contains("itself may be isolated"));
    }

    #[test]
    fn a_cell_that_is_gone_is_missed_by_another_cell() {
        let mut nodes = vec![node("c1", 0, None); 5];
        nodes[0] = node("c0", 40, missed_by("c0"));
        nodes[1] = node("c0", 40, missed_by("c1"));
        let found = words(&nodes);
        assert_eq!((found[0].0, found[1].0), (Suspect, Unreachable));
        nodes[2] = node("c1", 40, missed_by("c1"));
        // Now half of all nodes are silent.
        assert_eq!(words(&nodes)[1].0, Suspect);
    }
}
