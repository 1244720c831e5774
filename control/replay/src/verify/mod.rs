//! Verification of a record of the live system: the same solver with the same inputs must place the same allocations on
//! the same nodes in the same cycle.
//!
//! There are two comparisons. *Each cycle by itself*: the planner gets the inputs of the live planner, and placements
//! and reservations are compared. The first difference is reported with its probable cause. *All cycles in a row*: each
//! cycle continues from the replay's own placements, so a difference affects all later cycles. Starts, nodes, makespan
//! and waits are compared, for each attempt of an allocation. If all cycles are equal, both comparisons find no
//! difference.

mod attempts;
mod cycle_replay;
mod inputs;
mod record;
#[cfg(test)]
mod tests;

pub use record::{Record, RecordError, RecordInfo, open};

use cycle_replay::{CycleReplay, SequenceDifference};
use inputs::{ChangedEntries, RecentInputs};
use lattice_placement::{
    Planner,
    record::{BlockedReservation, Cycle, Line, Outcome, PlacedAllocation},
};
use lattice_quorum_types::{AllocationId, UnixMillis, VclusterName, hostlist};
use serde::Serialize;
use std::collections::BTreeMap;

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerificationResult {
    /// Name of the recorded cluster.
    pub cluster: String,
    /// Name of the control that wrote the record.
    pub control: String,
    /// Version of the control, by the last header of the record.
    pub recorded_by: String,
    /// Time of the first line, Unix milliseconds.
    pub from: UnixMillis,
    /// Latest time in the record, Unix milliseconds.
    pub until: UnixMillis,
    /// Number of lines.
    pub lines: u64,
    /// Error at the truncated end of the record; `None` for a complete record.
    pub cut_off: Option<String>,
    /// Number of plans in the record.
    pub cycles: u64,
    /// Number of plans with the same placements and reservations in the replay.
    pub cycles_equal: u64,
    /// First plan with a difference.
    pub first_divergence: Option<Divergence>,
    /// Recorded submits that were refused; they never reached a plan.
    pub refused_submits: u64,
    /// Recorded placements that the quorum refused.
    pub refused: u64,
    /// Recorded placements that were held back and never proposed to the quorum.
    pub held_back: u64,
    /// Allocations that started in the record or in the replay.
    pub allocations: u64,
    /// Allocations with the same starts in the record and in the replay. A requeued or resumed allocation has several
    /// starts.
    pub same_start: u64,
    /// Allocations with the same starts on the same nodes, in the same rank order, in the record and in the replay.
    pub same_nodes: u64,
    /// Mean of the absolute difference of starts, over starts of both, seconds.
    pub mean_start_difference_s: f64,
    /// Largest absolute difference of starts, seconds.
    pub max_start_difference_s: f64,
    /// Recorded makespan, from the first submit to the last end, seconds.
    pub makespan_recorded_s: f64,
    /// Replayed makespan, seconds.
    pub makespan_replayed_s: f64,
    /// Kolmogorov-Smirnov distance of the two distributions of waits: 0 is equal, 1 is disjoint.
    pub wait_distance: f64,
}

impl VerificationResult {
    /// Whether the replay equals the complete record.
    pub fn is_same(&self) -> bool {
        self.first_divergence.is_none()
            && self.cut_off.is_none()
            && self.same_nodes == self.allocations
            && self.max_start_difference_s == 0.0
    }
}

/// Plan that differs from the record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// Line of the plan in the record.
    pub line: u64,
    /// Number of the plan in the record, from 1.
    pub cycle: u64,
    /// vCluster of the plan.
    pub vcluster: VclusterName,
    /// Time of the plan.
    pub at: UnixMillis,
    /// First allocation with a difference.
    pub id: Option<AllocationId>,
    /// Recorded and replayed decision.
    pub what: String,
    /// Probable cause.
    pub cause: String,
    /// Recorded inputs since the plan before it of the same vCluster, in words, the latest change of an allocation
    /// first.
    pub inputs: Vec<String>,
}

/// Verifies a record. The record is read twice and never stored in full: each call of `open` starts at the first line.
///
/// # Errors
/// When the record cannot be read or is not valid.
pub fn verify(
    open: impl Fn() -> Result<Record, RecordError>,
) -> Result<VerificationResult, RecordError> {
    let mut again = CycleReplay::default();
    let mut record = open()?;
    while let Some((_, line)) = record.next_line()? {
        again.read_line(&line);
    }
    again.finish_reading();
    let mut planners: BTreeMap<VclusterName, Planner> = BTreeMap::new();
    let mut recent: BTreeMap<VclusterName, RecentInputs> = BTreeMap::new();
    let mut counts = Counts::default();
    let mut first = None;
    let mut record = open()?;
    while let Some((number, line)) = record.next_line()? {
        match line {
            Line::View { vcluster, at, view } => {
                again.view(&vcluster, at, &view);
                planners.insert(vcluster, Planner::new(*view));
            }
            Line::Cycle(cycle) => {
                counts.cycles += 1;
                let missing = || RecordError::NoView {
                    line: number,
                    vcluster: cycle.vcluster.clone(),
                };
                let planner = planners.get_mut(&cycle.vcluster).ok_or_else(missing)?;
                let recent = recent.entry(cycle.vcluster.clone()).or_default();
                let entries = ChangedEntries::of(&cycle, planner.view());
                let found = replan(planner, &cycle);
                match found.equals(&cycle) {
                    true => counts.equal += 1,
                    false if first.is_none() => {
                        let place = RecordPosition {
                            line: number,
                            cycle: counts.cycles,
                        };
                        let inputs = recent.texts(&cycle, &entries);
                        let found = divergence(&record.about, &cycle, &found, place);
                        first = Some(Divergence { inputs, ..found });
                    }
                    false => {}
                }
                recent.planned(&cycle);
                again.cycle(number, &cycle);
            }
            Line::Allocation(changed) => {
                let recent = recent.entry(changed.vcluster.clone()).or_default();
                recent.changed(number, &changed);
            }
            Line::Outcome { outcome, .. } => match outcome {
                Outcome::Refused { .. } => counts.refused += 1,
                Outcome::HeldBack { .. } => counts.held_back += 1,
                Outcome::Assigned { .. } => {}
            },
            Line::RefusedSubmit { .. } => counts.refused_submits += 1,
            Line::Begin { .. } => {}
        }
    }
    let (mut compared, about) = (again.compared(), record.about);
    let in_sequence = compared.first_difference.take().map(sequence_divergence);
    Ok(VerificationResult {
        cluster: about.cluster,
        control: about.control,
        recorded_by: about.version,
        from: about.from,
        until: about.until,
        lines: about.lines,
        cut_off: about.cut_off,
        cycles: counts.cycles,
        cycles_equal: counts.equal,
        first_divergence: first.or(in_sequence),
        refused_submits: counts.refused_submits,
        refused: counts.refused,
        held_back: counts.held_back,
        allocations: compared.allocations,
        same_start: compared.same_start,
        same_nodes: compared.same_nodes,
        mean_start_difference_s: compared.mean_start_difference_s,
        max_start_difference_s: compared.max_start_difference_s,
        makespan_recorded_s: compared.makespan_recorded_s,
        makespan_replayed_s: compared.makespan_replayed_s,
        wait_distance: compared.wait_distance,
    })
}

#[derive(Default)]
struct Counts {
    cycles: u64,
    equal: u64,
    refused_submits: u64,
    refused: u64,
    held_back: u64,
}

/// Position in the record.
struct RecordPosition {
    line: u64,
    cycle: u64,
}

/// Decision of a planner on a cycle's inputs, with the reasons why allocations that the record places wait in the
/// replay.
struct PlannerDecision {
    placed: Vec<PlacedAllocation>,
    reserved: Vec<BlockedReservation>,
    waits: BTreeMap<AllocationId, String>,
}

impl PlannerDecision {
    fn equals(&self, cycle: &Cycle) -> bool {
        self.placed == cycle.placed && self.reserved == cycle.reserved
    }
}

fn replan(planner: &mut Planner, cycle: &Cycle) -> PlannerDecision {
    if let Some(delta) = &cycle.delta {
        planner.update((**delta).clone());
    }
    planner.set_policy(cycle.policy);
    let plan = planner.plan_with_promised(cycle.promised.clone(), cycle.at);
    let (placed, reserved) = Cycle::decided(&plan);
    let mut waits = BTreeMap::new();
    // Reasons are costly to build and are needed only for a difference.
    if placed != cycle.placed {
        for was in &cycle.placed {
            let why = plan.waiting.get(was.id).map(|why| why.to_string());
            waits.extend(why.map(|why| (was.id, why)));
        }
    }
    PlannerDecision {
        placed,
        reserved,
        waits,
    }
}

fn divergence(
    record: &RecordInfo,
    cycle: &Cycle,
    found: &PlannerDecision,
    place: RecordPosition,
) -> Divergence {
    let pairs = cycle.placed.iter().zip(&found.placed);
    let same = pairs.take_while(|(was, is)| was == is).count();
    let (was, is) = (cycle.placed.get(same), found.placed.get(same));
    let nodes = |placed: &PlacedAllocation| hostlist::fold(&placed.nodes);
    let (id, what) = match (was, is) {
        (Some(was), Some(is)) if was.id == is.id && was.nodes == is.nodes => {
            let how = |of: &PlacedAllocation| {
                if of.backfilled {
                    "by backfill"
                } else {
                    "in queue order"
                }
            };
            (
                Some(was.id),
                format!(
                    "allocation {} was placed {} in the record and {} in the replay",
                    was.id,
                    how(was),
                    how(is)
                ),
            )
        }
        (Some(was), Some(is)) if was.id == is.id => (
            Some(was.id),
            format!(
                "allocation {} was placed on {} in the record and on {} in the replay",
                was.id,
                nodes(was),
                nodes(is)
            ),
        ),
        (Some(was), _) => {
            let now = match found.waits.get(&was.id) {
                Some(why) => format!("waits: {}", why.lines().next().unwrap_or_default()),
                None => match is {
                    Some(is) => format!("comes after allocation {}", is.id),
                    None => "is not in the queue".to_owned(),
                },
            };
            (
                Some(was.id),
                format!(
                    "allocation {} was placed on {} in the record; in the replay it {now}",
                    was.id,
                    nodes(was)
                ),
            )
        }
        (None, Some(is)) => (
            Some(is.id),
            format!(
                "allocation {} was not placed in the record and is on {} in the replay",
                is.id,
                nodes(is)
            ),
        ),
        (None, None) => reservation(cycle, found),
    };
    let version = env!("CARGO_PKG_VERSION");
    let cause = match record.version == version {
        true => "the inputs are those of the record: the solver differs from that of the control although the \
                 versions are equal, or the record was changed"
            .to_owned(),
        false => format!(
            "the inputs are those of the record: the control had version {}, this is version {version}",
            record.version
        ),
    };
    Divergence {
        line: place.line,
        cycle: place.cycle,
        vcluster: cycle.vcluster.clone(),
        at: cycle.at,
        id,
        what,
        cause,
        inputs: Vec::new(),
    }
}

/// Describes a placement that differs only in the sequence of all plans.
fn sequence_divergence(difference: SequenceDifference) -> Divergence {
    let SequenceDifference {
        line,
        cycle,
        vcluster,
        at,
        id,
        what,
    } = difference;
    Divergence {
        line,
        cycle,
        vcluster,
        at,
        id: Some(id),
        what,
        cause: "each plan by itself places as in the record: the difference results from the placements before it"
            .to_owned(),
        inputs: Vec::new(),
    }
}

/// Time in UTC, to the millisecond. A time beyond the end of the calendar is written as its number.
fn time(at: UnixMillis) -> String {
    let millis = i64::try_from(at.0).ok();
    let time = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    time.map_or_else(|| at.to_string(), |time| time.to_string())
}

/// Returns the first reservation that differs, for a plan with equal placements.
fn reservation(cycle: &Cycle, found: &PlannerDecision) -> (Option<AllocationId>, String) {
    let pairs = cycle.reserved.iter().zip(&found.reserved);
    let same = pairs.take_while(|(was, is)| was == is).count();
    let (was, is) = (cycle.reserved.get(same), found.reserved.get(same));
    let shown = |reserved: Option<&BlockedReservation>| match reserved {
        Some(of) => format!("allocation {} at {}", of.id, time(of.starts_at)),
        None => "no allocation".to_owned(),
    };
    let id = was.or(is).map(|of| of.id);
    let what = format!(
        "the record reserves nodes for {}, the replay for {}",
        shown(was),
        shown(is)
    );
    (id, what)
}
