//! Planner input for arrays, promises, begin times, reservations and loans: from scratch, and by differences between
//! two views.

use super::*;
use lattice_placement::Explanation;
use lattice_quorum_types::{
    array::{ArraySpec, IndexSet},
    id::ReservationName,
    progress::{ArrayElement, Tally},
    reservation::{Reservation, ReservationSpec},
    scheduler::{CheckpointSettings, PreemptionSettings, SchedulerSettings, SharingSettings},
    vcluster::{Vcluster, VclusterDefinition},
};

const MINUTE: u64 = 60_000;

pub(super) fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn name(text: &str) -> VclusterName {
    VclusterName::new(text).unwrap()
}

/// Planner states after the whole first view and the differences of the others.
fn followed(steps: &[Arc<View>]) -> Vec<ClusterView> {
    let mut planner = Planner::new(full_input(&steps[0], &vcluster(), 7));
    let mut seen = vec![planner.view().clone()];
    for pair in steps.windows(2) {
        planner.update(delta(&pair[0], &pair[1], &vcluster(), 7));
        assert_eq!(planner.view(), &full_input(&pair[1], &vcluster(), 7));
        seen.push(planner.view().clone());
    }
    seen
}

/// A view as folding makes it: its indexes follow from the records.
pub(super) fn folded(
    revision: u64,
    nodes: &[Arc<NodeEntry>],
    allocations: &[Arc<Allocation>],
) -> Arc<View> {
    let mut view = View::clone(&view(revision, nodes, &[], 0));
    for record in allocations {
        view.set_allocation(Allocation::clone(record));
    }
    // Unchanged records are shared, as between two views.
    let shared = allocations.iter().filter(|a| !a.state.is_terminal());
    view.allocations = Arc::new(shared.map(|a| (a.id, a.clone())).collect());
    for record in nodes.iter().filter_map(|node| node.record.as_ref()) {
        view.follow_promise(None, record);
    }
    Arc::new(view)
}

pub(super) fn alive(name: &str) -> Arc<NodeEntry> {
    node(name, 1, "default", Liveness::Alive)
}

pub(super) fn edited(entry: &Arc<NodeEntry>, edit: impl FnOnce(&mut Node)) -> Arc<NodeEntry> {
    let mut entry = NodeEntry::clone(entry);
    let record = entry.record.as_mut().unwrap();
    record.version += 1;
    edit(record);
    Arc::new(entry)
}

fn pending_of(cluster: &ClusterView) -> Vec<u64> {
    cluster.pending.keys().map(|id| id.0).collect()
}

fn set(first: u32, last: u32) -> IndexSet {
    IndexSet::range(first, last, 1).unwrap()
}

/// The array 10 of the indices 0, 2, … 38, three at a time, with these pending.
fn array(state: AllocationState, pending: IndexSet, alive: u32) -> Arc<Allocation> {
    let mut array = Allocation::clone(&allocation(10, state));
    let indices = IndexSet::range(0, 38, 2).unwrap();
    array.spec.terms.array = Some(ArraySpec::new(indices, Some(3)).unwrap());
    array.progress.tally = Some(Box::new(Tally {
        pending,
        alive,
        ..Tally::default()
    }));
    Arc::new(array)
}

fn element(id: u64, index: u32, state: AllocationState) -> Arc<Allocation> {
    let mut element = Allocation::clone(&allocation(id, state));
    let array = AllocationId(10);
    element.progress.element = Some(ArrayElement { array, index });
    Arc::new(element)
}

#[test]
fn another_walltime_of_an_array_is_that_of_its_elements_that_wait() {
    let nodes = [alive("n1")];
    let with = |walltime_ms| {
        let indices = IndexSet::range(0, 38, 2).unwrap();
        let mut array = Allocation::clone(&array(AllocationState::Pending, indices, 0));
        array.spec.walltime_ms = Some(walltime_ms);
        Arc::new(array)
    };
    let seen = followed(&[
        folded(1, &nodes, &[with(3_600_000)]),
        folded(2, &nodes, &[with(36_000_000)]),
    ]);
    let waits = seen[1].pending.values().map(|waits| waits.walltime_ms);
    assert_eq!(waits.collect::<Vec<_>>(), [Some(36_000_000); 3]);
}

#[test]
fn elements_of_an_array_are_planned_and_not_the_array_as_many_as_may_run() {
    use AllocationState::{Held, Pending, Running, Starting};
    let indices = || IndexSet::range(0, 38, 2).unwrap();
    let left = |gone: &[u32]| {
        let mut left = indices();
        for index in gone {
            left.remove(*index);
        }
        left
    };
    let nodes = [alive("n1")];
    let steps = [
        folded(1, &nodes, &[array(Pending, indices(), 0)]),
        // The first element is placed and starts: it counts as running.
        folded(
            2,
            &nodes,
            &[array(Pending, left(&[0]), 1), element(11, 0, Starting)],
        ),
        // The element lost its node and waits again, as an allocation of its own; another one runs.
        folded(
            3,
            &nodes,
            &[
                array(Pending, left(&[0, 2]), 2),
                element(11, 0, Pending),
                element(12, 2, Running),
            ],
        ),
        // Both have ended, and a user cancelled the third.
        folded(4, &nodes, &[array(Pending, left(&[0, 2, 4]), 0)]),
        folded(5, &nodes, &[array(Held, left(&[0, 2, 4]), 0)]),
        folded(6, &nodes, &[array(Pending, set(38, 38), 0)]),
        folded(
            7,
            &nodes,
            &[array(Running, IndexSet::new(), 1), element(30, 38, Running)],
        ),
        folded(8, &nodes, &[]),
    ];
    let seen = followed(&steps);
    let pending: Vec<Vec<u64>> = seen.iter().map(pending_of).collect();
    let expected: [&[u64]; 8] = [
        &[11, 12, 13],
        &[12, 13],
        &[11, 13],
        &[14, 15, 16],
        &[],
        &[30],
        &[],
        &[],
    ];
    assert_eq!(pending, expected);
    let first = &seen[0].pending[&AllocationId(11)];
    assert_eq!(
        *first,
        lattice_placement::PendingView::from(&*array(Pending, indices(), 0))
    );
}

#[test]
fn of_a_large_array_so_many_are_planned_at_once() {
    let mut large = Allocation::clone(&array(AllocationState::Pending, set(0, 9_999), 0));
    large.spec.terms.array = Some(ArraySpec::new(set(0, 9_999), None).unwrap());
    let seen = followed(&[folded(1, &[alive("n1")], &[Arc::new(large)])]);
    let pending = pending_of(&seen[0]);
    assert_eq!((pending.len(), pending[0], pending[999]), (1000, 11, 1010));
}

#[test]
fn an_array_of_another_vcluster_is_not_planned_here() {
    let mut other = Allocation::clone(&array(AllocationState::Pending, set(0, 0), 0));
    other.spec.vcluster = name("other");
    let seen = followed(&[folded(1, &[alive("n1")], &[Arc::new(other)])]);
    assert!(seen[0].pending.is_empty());
}

/// A job with promised nodes receives them once they are free; meanwhile no other job does.
#[test]
fn promised_nodes_are_not_planned() {
    let waits = [1, 2].map(|id| allocation(id, AllocationState::Pending));
    let (free, other) = (alive("n1"), alive("n2"));
    let promised = edited(&free, |record| record.promised = Some(AllocationId(1)));
    let steps = [
        folded(1, &[free.clone(), other.clone()], &waits),
        folded(2, &[promised.clone(), other.clone()], &waits),
        folded(
            3,
            &[edited(&promised, |record| record.promised = None), other],
            &waits,
        ),
    ];
    let seen = followed(&steps);
    let pending: Vec<Vec<u64>> = seen.iter().map(pending_of).collect();
    assert_eq!(pending, [vec![1, 2], vec![2], vec![1, 2]]);
    let in_service: Vec<bool> = seen.iter().map(|c| c.nodes[&id("n1")].in_service).collect();
    assert_eq!(in_service, [true, false, true]);
}

fn waiting(planner: &mut Planner, now: u64) -> Option<Explanation> {
    planner.plan(UnixMillis(now)).waiting.get(AllocationId(1))
}

/// A node that accepts jobs.
pub(super) fn well(name: &str) -> Arc<NodeEntry> {
    let mut entry = crate::tasks::testing::entry(name);
    if let Some(record) = &mut entry.record {
        record.holder = None;
    }
    Arc::new(entry)
}

#[test]
fn nothing_is_placed_before_it_may_begin() {
    let mut later = Allocation::clone(&allocation(1, AllocationState::Pending));
    later.spec.terms.begin_at = Some(UnixMillis(5 * MINUTE));
    later.eligible_at = UnixMillis(5 * MINUTE);
    let seen = followed(&[folded(1, &[well("a")], &[Arc::new(later)])]);
    let mut planner = Planner::new(seen[0].clone());
    let before = waiting(&mut planner, 5 * MINUTE - 1).unwrap();
    assert_eq!(
        before.to_string(),
        "needs 1 of 1 nodes: 1 free; begins at 1970-01-01 00:05 UTC at the earliest"
    );
    assert_eq!(waiting(&mut planner, 5 * MINUTE), None);
}

fn reservation(nodes: &[&str], from: u64) -> Arc<Reservation> {
    Arc::new(Reservation {
        name: ReservationName::new("course").unwrap(),
        spec: ReservationSpec {
            nodes: nodes.iter().map(|node| id(node)).collect(),
            from: UnixMillis(from),
            until: None,
            users: ["alice".to_owned()].into(),
            projects: Default::default(),
            reason: "a course".to_owned(),
        },
        by: "root".to_owned(),
        revision: Revision(1),
    })
}

fn reserving(view: &Arc<View>, reservations: &[Arc<Reservation>]) -> Arc<View> {
    let named = reservations.iter().map(|r| (r.name.clone(), r.clone()));
    let mut view = View::clone(view);
    view.reservations = Arc::new(named.collect());
    Arc::new(view)
}

#[test]
fn reports_reservation_changes() {
    let plain = folded(1, &[well("a")], &[allocation(1, AllocationState::Pending)]);
    let made = reserving(&plain, &[reservation(&["a"], 30)]);
    // A node of another vCluster answers; the reservations are unchanged.
    let mut same = View::clone(&made);
    same.version = 9;
    let same = Arc::new(same);
    let changed = reserving(&plain, &[reservation(&["a", "elsewhere"], 10 * MINUTE)]);
    let seen = followed(&[
        plain.clone(),
        made.clone(),
        same.clone(),
        changed,
        plain.clone(),
    ]);
    let reserved: Vec<usize> = seen.iter().map(|c| c.reserved.len()).collect();
    assert_eq!(reserved, [0, 1, 1, 1, 0]);
    assert!(delta(&made, &same, &vcluster(), 7).reserved.is_empty());
    let is_news = |old: &View, new: &View| {
        affects_plan(
            &delta(old, new, &vcluster(), 7),
            &full_input(old, &vcluster(), 7),
        )
    };
    assert!(is_news(&plain, &made) && is_news(&made, &plain) && !is_news(&made, &same));
    // The job asks for a minute, which ends just before the reservation.
    let blockers = seen.iter().map(|cluster| {
        let waits = waiting(&mut Planner::new(cluster.clone()), 20);
        waits.map(|why| why.blocker.to_string())
    });
    let kept = Some("kept for reservation course from 1970-01-01 00:00 UTC".to_owned());
    let expected = [None, kept.clone(), kept, None, None];
    assert_eq!(blockers.collect::<Vec<_>>(), expected);
}

#[test]
fn work_that_names_a_reservation_is_planned_on_its_nodes() {
    let mut named = Allocation::clone(&allocation(1, AllocationState::Pending));
    named.spec.terms.reservation = Some(ReservationName::new("course").unwrap());
    let plain = folded(1, &[well("a"), well("b")], &[Arc::new(named)]);
    let view = reserving(&plain, &[reservation(&["b"], 0)]);
    let plan = Planner::new(full_input(&view, &vcluster(), 7)).plan(UnixMillis(20));
    assert_eq!(plan.placements[0].nodes[0].node, id("b"));
}

fn defined(scheduler: SchedulerSettings) -> Vcluster {
    Vcluster {
        name: name("default"),
        definition: VclusterDefinition {
            scheduler,
            ..VclusterDefinition::default()
        },
        version: 1,
        revision: Revision(1),
    }
}

fn with_settings(
    view: &Arc<View>,
    owner: SchedulerSettings,
    borrower: SchedulerSettings,
) -> Arc<View> {
    let settings = [("default", owner), ("other", borrower)];
    let vclusters = settings.map(|(vcluster, settings)| {
        let known = Vcluster {
            name: name(vcluster),
            ..defined(settings)
        };
        (name(vcluster), known)
    });
    let mut view = View::clone(view);
    view.vclusters = Arc::new(vclusters.into());
    Arc::new(view)
}

/// A node of the vCluster itself, one borrowed from another, and one lent to another.
#[test]
fn reports_lent_nodes_with_return_time() {
    let timeout = |ms| SchedulerSettings {
        checkpoint: CheckpointSettings {
            timeout_ms: Some(ms),
            max_deferrals: Some(0),
            ..CheckpointSettings::default()
        },
        ..SchedulerSettings::default()
    };
    let soon = SchedulerSettings {
        sharing: SharingSettings {
            return_grace_ms: Some(1000),
            ..SharingSettings::default()
        },
        ..timeout(2000)
    };
    let slow = timeout(4000);
    let (home, away) = (well("a"), well("b"));
    let lent = edited(&away, |record| record.current = name("other"));
    let asked = edited(&lent, |record| record.reclaimed_at = Some(UnixMillis(15)));
    let theirs = edited(&well("c"), |record| record.home = name("other"));
    let other = edited(&theirs, |record| record.current = name("other"));
    let at = |revision, nodes: &[Arc<NodeEntry>], borrower: SchedulerSettings| {
        with_settings(&folded(revision, nodes, &[]), soon, borrower)
    };
    let steps = [
        at(1, &[home.clone(), away.clone(), theirs.clone()], soon),
        at(2, &[home.clone(), lent.clone(), theirs], soon),
        at(3, &[home.clone(), lent, other.clone()], slow),
        at(4, &[home.clone(), asked, other.clone()], slow),
        at(5, &[home, away, other], slow),
    ];
    let seen = followed(&steps);
    let here: Vec<String> = seen
        .iter()
        .map(|cluster| cluster.nodes.keys().map(NodeId::as_str).collect::<String>())
        .collect();
    assert_eq!(here, ["abc", "ac", "a", "a", "ab"]);
    let loans = seen.iter().map(|cluster| {
        let loan = cluster.on_loan.get(&id("b"))?;
        assert!(loan.node.in_service);
        Some((loan.release_after_ms, loan.reclaimed_at))
    });
    // The owner's grace period, and half as much again as the longer timeout: a slow job is granted that much.
    let expected = [
        None,
        Some((1_000 + 3_000, None)),
        Some((1_000 + 6_000, None)),
        Some((1_000 + 6_000, Some(UnixMillis(15)))),
        None,
    ];
    assert_eq!(loans.collect::<Vec<_>>(), expected);
    assert!(seen.iter().all(|cluster| cluster.on_loan.len() <= 1));
    let longest = steps[1]
        .movement_of(&vcluster())
        .checkpoint
        .deadlines(false)
        .longest_ms();
    assert_eq!(longest, 3_000);
}

/// Also when only a rule changes: a job that is nearly done at once is not placed where its owner could not reclaim the
/// node.
#[test]
fn unpreemptible_job_avoids_borrowed_nodes() {
    let job = |id, edit: fn(&mut AllocationSpec)| {
        let mut job = Allocation::clone(&allocation(id, AllocationState::Pending));
        job.spec.walltime_ms = Some(10 * MINUTE);
        edit(&mut job.spec);
        Arc::new(job)
    };
    let jobs = [
        job(1, |_| {}),
        job(2, |spec| spec.class = 10),
        job(3, |spec| spec.sensitive = true),
    ];
    let borrowed = edited(&well("b"), |record| record.home = name("other"));
    let at = |revision, near_completion_ms| {
        let owner = SchedulerSettings {
            preemption: PreemptionSettings {
                near_completion_ms: Some(near_completion_ms),
                ..PreemptionSettings::default()
            },
            ..SchedulerSettings::default()
        };
        let usual = SchedulerSettings::default();
        let nodes = [well("a"), borrowed.clone()];
        with_settings(&folded(revision, &nodes, &jobs), usual, owner)
    };
    let seen = followed(&[at(1, 1000), at(2, 700_000)]);
    let kept = seen.iter().map(|cluster| {
        let pending = cluster.pending.values();
        pending.map(|job| job.home_only).collect::<Vec<_>>()
    });
    let expected = [vec![false, true, true], vec![true, true, true]];
    assert_eq!(kept.collect::<Vec<_>>(), expected);
    let is_borrowed = |cluster: &ClusterView| {
        cluster
            .nodes
            .values()
            .map(|n| n.borrowed)
            .collect::<Vec<_>>()
    };
    assert_eq!(is_borrowed(&seen[0]), [false, true]);
    // Two nodes are free, and only the preemptible job receives the borrowed one.
    let mut planner = Planner::new(seen[0].clone());
    let plan = planner.plan(UnixMillis(20));
    let on_b =
        |placed: &&lattice_placement::Placement| placed.nodes.iter().any(|n| n.node == id("b"));
    let on_b: Vec<_> = plan
        .placements
        .iter()
        .filter(on_b)
        .map(|placed| placed.id.0)
        .collect();
    assert_eq!(on_b, [1]);
}
