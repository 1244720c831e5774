//! Verification of records of the product on a simulated machine: unchanged records, and modified ones.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    cluster::Cluster,
    generate::{GeneratorSettings as Made, generate},
    lines::Lines,
    live::{self, Options, ProposalCheck},
    policy,
    schedule::{JobStart, ReplayObserver},
};
use lattice_placement::{
    ClusterView, Delta, Plan, Policy,
    record::{ChangedAllocation, RECORD_FORMAT},
};
use lattice_quorum_types::{AllocationState, Revision, event::AllocationChange};
use std::{io::Cursor, path::Path};

mod admission;
mod events;
mod scene;

/// Writes a record as a control does.
#[derive(Default)]
struct Recorder {
    lines: Vec<Line>,
    pending_deltas: BTreeMap<VclusterName, Delta>,
}

fn merge<K: Ord, V>(into: &mut BTreeMap<K, V>, more: BTreeMap<K, V>) {
    into.extend(more);
}

impl ReplayObserver for Recorder {
    fn started(&mut self, _: u32, _: JobStart) {}

    fn began(&mut self, vcluster: &VclusterName, view: &ClusterView) {
        self.lines.push(Line::View {
            vcluster: vcluster.clone(),
            at: UnixMillis(1),
            view: Box::new(view.clone()),
        });
    }

    fn changed(&mut self, vcluster: &VclusterName, delta: &Delta) {
        let known = self.pending_deltas.entry(vcluster.clone()).or_default();
        let delta = delta.clone();
        merge(&mut known.nodes, delta.nodes);
        merge(&mut known.pending, delta.pending);
        merge(&mut known.running, delta.running);
        merge(&mut known.levels, delta.levels);
        merge(&mut known.power, delta.power);
    }

    fn planned(&mut self, vcluster: &VclusterName, policy: &Policy, plan: &Plan) {
        let (placed, reserved) = Cycle::decided(plan);
        self.lines.push(Line::Cycle(Box::new(Cycle {
            vcluster: vcluster.clone(),
            at: plan.made_at,
            epoch: 1,
            policy: *policy,
            delta: Some(Box::new(
                self.pending_deltas.remove(vcluster).unwrap_or_default(),
            )),
            promised: BTreeMap::new(),
            placed,
            reserved,
        })));
    }

    fn proposed(
        &mut self,
        vcluster: &VclusterName,
        at: UnixMillis,
        id: AllocationId,
        is_taken: bool,
    ) {
        let outcome = match is_taken {
            true => Outcome::Assigned {
                revision: Revision(1),
            },
            false => Outcome::Refused {
                refusal: "no".to_owned(),
            },
        };
        self.lines.push(Line::Outcome {
            vcluster: vcluster.clone(),
            planned_at: at,
            id,
            outcome,
        });
    }

    fn ended(&mut self, vcluster: &VclusterName, at: UnixMillis, id: AllocationId) {
        self.lines
            .push(Line::Allocation(Box::new(ChangedAllocation {
                id,
                change: AllocationChange::Ended,
                at,
                revision: Revision(1),
                state: AllocationState::Completed,
                attempt: 1,
                vcluster: vcluster.clone(),
                asks: None,
                nodes: Vec::new(),
                started_at: Some(at),
                ended_at: Some(at),
            })));
    }
}

const BEGIN: Line = Line::Begin {
    format: RECORD_FORMAT,
    cluster: String::new(),
    control: String::new(),
    version: String::new(),
    at: UnixMillis(1),
};

fn recorded(seed: u64, weights: &str) -> Vec<Line> {
    let workload = generate(Made {
        seed,
        jobs: 150,
        nodes: 32,
        load: 1.1,
        largest: 16,
        tenants: 3,
    });
    let cluster = Cluster::dragonfly(4, 8).unwrap();
    let options = Options {
        policy: Some(policy::named(weights).unwrap()),
        judge: ProposalCheck::Quorum,
        ..Options::default()
    };
    let mut recorder = Recorder::default();
    recorder.lines.push(BEGIN);
    live::run(
        &cluster,
        &workload,
        &options,
        &mut recorder,
        &mut Default::default(),
    )
    .unwrap();
    recorder.lines
}

fn of(lines: &[Line]) -> VerificationResult {
    decided_again(text(lines)).unwrap()
}

fn text(lines: &[Line]) -> Vec<u8> {
    let line = |line: &Line| serde_json::to_string(line).unwrap() + "\n";
    lines.iter().map(line).collect::<String>().into_bytes()
}

fn decided_again(bytes: Vec<u8>) -> Result<VerificationResult, RecordError> {
    let lines = || Lines::read(Cursor::new(bytes.clone())).unwrap();
    verify(|| Ok(Record::new(lines(), Path::new("log"))))
}

fn cycles(lines: &mut [Line]) -> impl Iterator<Item = &mut Cycle> {
    lines.iter_mut().filter_map(|line| match line {
        Line::Cycle(cycle) => Some(&mut **cycle),
        _ => None,
    })
}

#[test]
fn what_was_recorded_is_decided_again() {
    for (seed, weights) in (1..).zip(["hpc-batch", "none", "ml-training", "interactive"]) {
        let verdict = of(&recorded(seed, weights));
        assert!(verdict.is_same(), "{weights}: {verdict:?}");
        assert_eq!((verdict.allocations, verdict.same_nodes), (150, 150));
        assert_eq!(verdict.makespan_recorded_s, verdict.makespan_replayed_s);
        assert!(verdict.makespan_recorded_s > 3600.0);
        assert_eq!(
            (verdict.wait_distance, verdict.cycles),
            (0.0, verdict.cycles_equal)
        );
    }
}

/// Plans with other weights than the record has: the first difference is reported, and single plans differ as little as
/// possible. All plans in a row take another course with the same jobs.
#[test]
fn other_weights_are_found_with_their_consequences() {
    let mut lines = recorded(1, "hpc-batch");
    for cycle in cycles(&mut lines) {
        cycle.policy = policy::named("none").unwrap();
    }
    let verdict = of(&lines);
    let first = verdict.first_divergence.as_ref().unwrap();
    assert!(
        first
            .what
            .starts_with(&format!("allocation {} was ", first.id.unwrap())),
        "{first:?}"
    );
    assert!(
        first.cause.contains("the control had version "),
        "{first:?}"
    );
    assert!(verdict.cycles_equal < verdict.cycles && verdict.cycles_equal > 0);
    assert!(
        verdict.same_start < 150 && verdict.mean_start_difference_s > 0.0,
        "{verdict:?}"
    );
    assert!(verdict.wait_distance > 0.0 && verdict.wait_distance < 1.0);
    assert_eq!(verdict.allocations, 150);
    // The same jobs take about as long.
    let ratio = verdict.makespan_replayed_s / verdict.makespan_recorded_s;
    assert!((0.8..1.2).contains(&ratio), "{verdict:?}");
    assert!(!verdict.is_same());
}

/// A placement that was refused in the record does not start in the replay, in the same plan.
#[test]
fn a_placement_that_the_quorum_refused_is_none() {
    let mut lines = recorded(2, "none");
    let place = lines
        .iter()
        .position(|line| matches!(line, Line::Outcome { .. }))
        .unwrap();
    let Line::Outcome { outcome, id, .. } = &mut lines[place] else {
        unreachable!()
    };
    let refused = *id;
    *outcome = Outcome::Refused {
        refusal: "stale".to_owned(),
    };
    let verdict = of(&lines);
    // Each plan by itself is as recorded; in a row the refused placement never starts, as in the record.
    assert_eq!((verdict.cycles_equal, verdict.refused), (verdict.cycles, 1));
    assert!(verdict.allocations >= 149, "{refused}: {verdict:?}");
}

/// The scheduler plans again at the same time after a placement was held back.
#[test]
fn plans_of_one_instant_have_outcomes_of_their_own() {
    let mut lines = recorded(2, "none");
    let outcome = lines
        .iter()
        .position(|line| matches!(line, Line::Outcome { .. }))
        .unwrap();
    let cycle = lines[..outcome]
        .iter()
        .rposition(|line| matches!(line, Line::Cycle(_)))
        .unwrap();
    let mut again = lines[cycle].clone();
    if let Line::Cycle(again) = &mut again {
        again.delta = None;
    }
    let mut held_back = lines[cycle + 1..]
        .iter()
        .take_while(|line| matches!(line, Line::Outcome { .. }))
        .cloned()
        .collect::<Vec<_>>();
    for line in &mut held_back {
        if let Line::Outcome { outcome, .. } = line {
            let reason = "a node is asked first".to_owned();
            *outcome = Outcome::HeldBack { reason };
        }
    }
    let count = held_back.len() as u64;
    held_back.push(again);
    lines.splice(cycle + 1..cycle + 1, held_back);
    let verdict = of(&lines);
    assert_eq!(verdict.held_back, count);
    assert!(verdict.is_same(), "{verdict:?}");
}

/// The record may end, or the control may have crashed, before the quorum's answer to a placement.
#[test]
fn a_placement_without_an_outcome_has_started_nothing() {
    let mut lines = recorded(2, "none");
    let last = lines
        .iter()
        .rposition(|line| matches!(line, Line::Outcome { .. }))
        .unwrap();
    lines.remove(last);
    let verdict = of(&lines);
    assert!(verdict.is_same(), "{verdict:?}");
    assert_eq!(verdict.allocations, 149);
}

/// The control may get no answer to a placement that the quorum has committed. The assignment is in the record.
#[test]
fn lost_answer_of_a_committed_placement_is_a_start() {
    let mut lines = recorded(2, "none");
    let lost = lines
        .iter()
        .position(|line| matches!(line, Line::Outcome { .. }))
        .unwrap();
    let Line::Outcome {
        vcluster,
        planned_at,
        id,
        ..
    } = lines[lost].clone()
    else {
        unreachable!()
    };
    let nodes = cycles(&mut lines)
        .filter(|cycle| cycle.at == planned_at)
        .find_map(|cycle| cycle.placed.iter().find(|placed| placed.id == id))
        .map(|placed| placed.nodes.clone())
        .unwrap();
    lines[lost] = Line::Allocation(Box::new(ChangedAllocation {
        id,
        change: AllocationChange::Assigned,
        at: planned_at,
        revision: Revision(1),
        state: AllocationState::Starting,
        attempt: 1,
        vcluster,
        asks: None,
        nodes,
        started_at: None,
        ended_at: None,
    }));
    let verdict = of(&lines);
    assert!(verdict.is_same(), "{verdict:?}");
    assert_eq!((verdict.allocations, verdict.same_nodes), (150, 150));
}

#[test]
fn a_changed_placement_is_named() {
    let mut lines = recorded(3, "balanced");
    let cycle = cycles(&mut lines)
        .find(|cycle| cycle.placed.len() == 1)
        .unwrap();
    let id = cycle.placed[0].id;
    cycle.placed.clear();
    let verdict = of(&lines);
    let first = verdict.first_divergence.unwrap();
    assert_eq!(first.id, Some(id));
    assert!(
        first.what.starts_with(&format!(
            "allocation {id} was not placed in the record and is on n"
        )),
        "{}",
        first.what
    );
}

#[test]
fn what_is_no_record_is_refused() {
    let error_of = |lines: &[Line]| decided_again(text(lines)).unwrap_err().to_string();
    assert!(error_of(&[]).contains("not a record of decisions"));
    let lines = recorded(4, "none");
    assert!(
        error_of(&lines[1..3]).contains("not a record of decisions"),
        "without its first line"
    );
    let mut other = lines[..2].to_vec();
    let Line::Begin { format, .. } = &mut other[0] else {
        unreachable!()
    };
    *format = RECORD_FORMAT + 1;
    assert!(error_of(&other).contains("has format 2; this version of Lattice reads format 1"));
    // A plan of a scheduler without a recorded view.
    assert_eq!(
        error_of(&[lines[0].clone(), lines[2].clone()]),
        "line 2: vCluster default plans, but the record has no inputs for it"
    );
}

#[test]
fn what_was_written_before_a_crash_is_a_record() {
    let lines = recorded(5, "none");
    let plain = text(&lines);
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    // A plain record ends inside its last line.
    for cut in [
        packed[..packed.len() * 3 / 4].to_vec(),
        plain[..plain.len() - 5].to_vec(),
    ] {
        let verdict = decided_again(cut).unwrap();
        assert!(
            verdict.cut_off.as_ref().unwrap().contains("truncated"),
            "{:?}",
            verdict.cut_off
        );
        assert_eq!(
            (verdict.cycles_equal, &verdict.first_divergence),
            (verdict.cycles, &None)
        );
        assert!(verdict.cycles > 0 && !verdict.is_same());
    }
}
