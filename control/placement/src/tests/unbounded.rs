//! Jobs without an end next to reservations: they wait until every job that contests their nodes has begun, and no
//! promised start lies in the present.

use super::{arbitrary::*, build::*, oracle};
use crate::*;
use lattice_quorum_types::{AllocationId, UnixMillis};
use proptest::{prelude::*, sample::Index};

fn policy(reservations: PlannedReservations) -> Policy {
    Policy {
        reservations,
        ..Policy::default()
    }
}

/// Three of four nodes are busy for ten minutes. The first job waits for two of them, the second has no end, and the
/// third is short.
fn three_of_four_busy() -> ClusterView {
    let mut view = machine(1, 4);
    run(&mut view, 90, &["n0-00", "n0-01", "n0-02"], Some(10));
    let with_class = |class, job| PendingView { class, ..job };
    submit(&mut view, 1, with_class(9, job(2, Some(60))));
    submit(&mut view, 2, with_class(7, job(1, None)));
    submit(&mut view, 3, with_class(5, job(1, Some(5))));
    view
}

#[test]
fn a_node_is_not_held_back_from_now_on_for_work_without_an_end() {
    let in_ten = NOW.after(10 * MINUTE);
    for all in [PlannedReservations::First(2), PlannedReservations::All] {
        let plan = Planner::with_policy(three_of_four_busy(), policy(all)).plan(NOW);
        let starts: Vec<_> = plan
            .reservations
            .iter()
            .map(|held| (held.id.0, held.starts_at))
            .collect();
        assert_eq!(starts, [(1, in_ten), (2, in_ten)]);
        assert_eq!(placed(&plan), [(3, vec!["n0-03".to_owned()])]);
    }
    // When that time has come, both start.
    let mut view = three_of_four_busy();
    view.nodes.values_mut().for_each(|node| node.holder = None);
    view.running.clear();
    view.pending.remove(&AllocationId(3));
    let plan = Planner::with_policy(view, policy(PlannedReservations::All)).plan(in_ten);
    assert_eq!(placed(&plan).len(), 2);
}

#[test]
fn dry_run_without_walltime_has_no_past_start() {
    let asked = AllocationId(2);
    let mut planner = Planner::new(three_of_four_busy());
    let waiting = planner.plan_estimating(NOW, Some(asked)).waiting;
    let start = waiting.get(asked).unwrap().estimated_start;
    assert_eq!(start, Some(NOW.after(10 * MINUTE)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(600)))]

    #[test]
    fn waiting_job_has_future_start(
        mut view in rationed_view(),
        policy in any_policy(),
        chosen in any::<Index>(),
        endless in any::<bool>(),
    ) {
        if endless {
            view.pending.values_mut().step_by(2).for_each(|job| job.walltime_ms = None);
        }
        let chosen = (!view.pending.is_empty())
            .then(|| *chosen.get(&view.pending.keys().collect::<Vec<_>>()))
            .copied();
        let plan = Planner::with_policy(view.clone(), policy).plan_estimating(NOW, chosen);
        for reservation in &plan.reservations {
            prop_assert!(reservation.starts_at > NOW, "{}", reservation.id);
        }
        for (id, why) in plan.waiting.iter() {
            let start = why.estimated_start.unwrap_or(UnixMillis(u64::MAX));
            prop_assert!(start > NOW, "{id}: {why}");
        }
        // Earlier jobs that could use its nodes have begun.
        for (n, held) in plan.reservations.iter().enumerate() {
            if view.pending[&held.id].walltime_ms.is_some() {
                continue;
            }
            for before in &plan.reservations[..n] {
                let job = &view.pending[&before.id];
                let contested = held.nodes.iter().any(|n| oracle::fits(n, &view.nodes[n], job));
                prop_assert!(!contested || before.starts_at <= held.starts_at);
            }
        }
    }
}
