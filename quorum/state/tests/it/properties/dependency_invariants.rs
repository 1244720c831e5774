//! Invariants of dependencies, arrays and preemption, recomputed from the records.

use super::*;
use lattice_quorum_types::{
    dag::{Dag, DagState},
    id::DagId,
    progress::Tally,
    terms::Condition,
};

/// Final state of everything that has an id; `None` while it has not ended.
struct FinalStates {
    records: BTreeMap<AllocationId, Allocation>,
    ends: BTreeMap<AllocationId, Option<AllocationState>>,
}

/// Id of the element at a position.
fn element(array: &Allocation, place: usize) -> AllocationId {
    AllocationId(array.id.0 + 1 + place as u64)
}

fn indices(array: &Allocation) -> Vec<u32> {
    let spec = array.spec.terms.array.as_ref();
    spec.map_or_else(Vec::new, |spec| spec.indices().iter().collect())
}

impl FinalStates {
    fn of(state: &State) -> Self {
        let everything = Query::Allocations {
            after: AllocationId(0),
            limit: u32::MAX,
            states: Vec::new(),
            within: None,
        };
        let Answer::Allocations(all) = state.query(&everything) else {
            panic!("allocations")
        };
        let records: BTreeMap<_, _> = all.into_iter().map(|a| (a.id, a)).collect();
        let mut ends = BTreeMap::new();
        for (id, record) in &records {
            for (place, index) in indices(record).into_iter().enumerate() {
                let tally = record.progress.tally.as_ref().unwrap();
                let cancelled = tally.cancelled.contains(index);
                let end = cancelled.then_some(AllocationState::Cancelled);
                ends.entry(element(record, place)).or_insert(end);
            }
            let end = record.state.is_terminal().then_some(record.state);
            ends.insert(*id, end);
        }
        Self { records, ends }
    }

    /// Evaluation of all dependencies as a whole: `None` while one has not ended, otherwise whether all are met.
    fn whole(&self, a: &Allocation) -> Option<bool> {
        let is_array = a.progress.tally.is_some();
        let whole = a.spec.terms.after.iter();
        let whole = whole.filter(|d| !(is_array && d.condition == Condition::Corresponding));
        let met: Vec<Option<bool>> = whole
            .map(|d| self.ends[&d.on].and_then(|end| d.condition.is_met(end)))
            .collect();
        match met.contains(&Some(false)) {
            true => Some(false),
            false => met.into_iter().collect::<Option<Vec<_>>>().map(|_| true),
        }
    }

    /// Same for one index of an array.
    fn of_index(&self, a: &Allocation, index: u32) -> Option<bool> {
        let others = a.spec.terms.after.iter();
        let others = others.filter(|d| d.condition == Condition::Corresponding);
        let mut waits = false;
        for dependency in others {
            let other = &self.records[&dependency.on];
            let place = indices(other).iter().position(|other| *other == index);
            let Some(place) = place else { continue };
            match self.ends[&element(other, place)] {
                None => waits = true,
                Some(AllocationState::Completed) => {}
                Some(_) => return Some(false),
            }
        }
        (!waits).then_some(true)
    }

    /// Whether another allocation of the same user holds its mutex.
    fn is_locked_out(&self, a: &Allocation) -> bool {
        let Some(mutex) = &a.spec.terms.mutex else {
            return false;
        };
        let same = |b: &&Allocation| {
            b.id != a.id && b.user == a.user && b.spec.terms.mutex.as_ref() == Some(mutex)
        };
        self.records.values().filter(same).any(has_mutex)
    }
}

/// Whether the allocation is eligible or further; for an array, while any element is.
fn has_mutex(a: &Allocation) -> bool {
    use AllocationState::{Blocked, Held};
    let runs = a
        .progress
        .tally
        .as_ref()
        .is_some_and(|tally| tally.alive > 0);
    runs || !(a.state.is_terminal() || matches!(a.state, Blocked | Held))
}

/// Runs all checks below.
pub fn check_waiting(state: &State) {
    let ends = FinalStates::of(state);
    for a in ends.records.values() {
        check_one(&ends, a);
        let writes = a.state == AllocationState::Checkpointing;
        assert_eq!(a.progress.writing.is_some(), writes, "{} {}", a.id, a.state);
        if let Some(tally) = &a.progress.tally {
            check_tally(&ends, a, tally);
        }
        if let (true, Some(place)) = (!a.state.is_terminal(), &a.progress.dag) {
            let dag = state.dag(place.dag).unwrap();
            assert_eq!(dag.state, DagState::Running);
        }
    }
    check_mutexes(&ends);
    check_promises(state, &ends);
    check_dags(state, &ends);
}

/// A blocked allocation has a reason to wait, and an eligible one has none.
fn check_one(ends: &FinalStates, a: &Allocation) {
    use AllocationState::{Blocked, Cancelled, Held, Pending};
    let whole = ends.whole(a);
    let waits = whole.is_none() || ends.is_locked_out(a);
    match a.state {
        Blocked if a.progress.tally.is_none() => assert!(waits, "{} waits for nothing", a.id),
        Pending => assert!(!waits && whole == Some(true), "{} must wait", a.id),
        Blocked | Held => assert_ne!(whole, Some(false), "{} waits in vain", a.id),
        Cancelled => {}
        // An allocation beyond `Pending` had its dependencies met.
        _ if a.progress.tally.is_none() => assert_eq!(whole, Some(true), "{} {}", a.id, a.state),
        _ => {}
    }
}

/// Each index is in one set, and the counts match the records of the elements.
fn check_tally(ends: &FinalStates, a: &Allocation, tally: &Tally) {
    let mut counts = (0, 0, 0, 0);
    let whole = ends.whole(a);
    let goes_on = whole == Some(true) && !ends.is_locked_out(a);
    for (place, index) in indices(a).into_iter().enumerate() {
        let sets = [&tally.pending, &tally.blocked, &tally.cancelled];
        let in_sets = sets.iter().filter(|set| set.contains(index)).count();
        let record = ends.records.get(&element(a, place));
        let of = record.and_then(|record| record.progress.element);
        assert_eq!(
            of.is_some(),
            record.is_some(),
            "{} is not its own",
            element(a, place)
        );
        assert_eq!(
            in_sets + usize::from(record.is_some()),
            1,
            "{index} of {}",
            a.id
        );
        let fate = ends.of_index(a, index);
        if tally.blocked.contains(index) {
            let on_hold = a.state == AllocationState::Held;
            assert!(fate.is_none() || (fate == Some(true) && (on_hold || !goes_on)));
        }
        if tally.pending.contains(index) || record.is_some() {
            assert_eq!(fate, Some(true), "{index} of {}", a.id);
        }
        match record.map(|record| record.state) {
            None => {}
            Some(AllocationState::Completed) => counts.1 += 1,
            Some(AllocationState::Failed) => counts.2 += 1,
            Some(AllocationState::Cancelled) => counts.3 += 1,
            Some(_) => counts.0 += 1,
        }
    }
    let said = (tally.alive, tally.completed, tally.failed, tally.stopped);
    assert_eq!(said, counts, "{}", a.id);
    let most = a
        .spec
        .terms
        .array
        .as_ref()
        .and_then(|array| array.max_running());
    assert!(most.is_none_or(|most| tally.alive <= most));
    let is_over = tally.alive == 0 && tally.pending.is_empty() && tally.blocked.is_empty();
    assert_eq!(a.state.is_terminal(), is_over, "{} {}", a.id, a.state);
    if a.state == AllocationState::Blocked {
        assert!(tally.pending.is_empty() || !goes_on, "{} could go on", a.id);
    }
    assert!(a.state != AllocationState::Pending || !tally.pending.is_empty());
}

fn check_mutexes(ends: &FinalStates) {
    let mut holders = BTreeSet::new();
    for a in ends.records.values().filter(|a| has_mutex(a)) {
        if let Some(mutex) = &a.spec.terms.mutex {
            assert!(holders.insert((&a.user, mutex)), "two have {mutex}");
        }
    }
}

/// A promised node is in service, and its allocation waits for nodes.
fn check_promises(state: &State, ends: &FinalStates) {
    let mut promised: BTreeMap<AllocationId, u32> = BTreeMap::new();
    for node in state.nodes() {
        let Some(id) = node.promised else { continue };
        let a = &ends.records[&id];
        assert_eq!(
            a.state,
            AllocationState::Pending,
            "{} is promised to {id}",
            node.id
        );
        assert_eq!(node.current, a.spec.vcluster);
        assert!(node.lifecycle == Lifecycle::Ready && node.drain.is_empty());
        assert!(node.reclaimed_at.is_none());
        assert_ne!(node.holder.map(|holder| holder.allocation), Some(id));
        *promised.entry(id).or_default() += 1;
    }
    for (id, nodes) in promised {
        assert!(nodes <= ends.records[&id].spec.nodes);
    }
    for node in state.nodes().filter(|node| node.reclaimed_at.is_some()) {
        assert_ne!(node.home, node.current, "{} is home", node.id);
    }
}

/// All DAGs, running and ended.
pub fn dags(state: &State) -> Vec<Dag> {
    let query = Query::Dags {
        after: DagId(0),
        limit: u32::MAX,
        within: None,
    };
    match state.query(&query) {
        Answer::Dags(dags) => dags,
        other => panic!("{other:?}"),
    }
}

fn check_dags(state: &State, ends: &FinalStates) {
    for dag in dags(state) {
        let of = |place: usize| ends.ends[&dag.members[place].allocation];
        let all = 0..dag.members.len();
        let unfinished = all.clone().filter(|place| of(*place).is_none()).count();
        assert_eq!(dag.unfinished as usize, unfinished, "{}", dag.id);
        assert_eq!(dag.state == DagState::Running, unfinished > 0);
        assert_eq!(dag.ended_at.is_some(), unfinished == 0);
        let expected = |failed: usize| {
            let mut edges = dag.members.iter().flat_map(|member| &member.after);
            edges.any(|(before, condition)| {
                *before as usize == failed
                    && matches!(condition, Condition::Failure | Condition::Any)
            })
        };
        let mut failed = all
            .clone()
            .filter(|place| of(*place) == Some(AllocationState::Failed));
        if dag.state == DagState::Completed {
            assert!(failed.all(expected), "{} failed", dag.id);
        } else if failed.any(|place| !expected(place)) {
            assert!(dag.failed.is_some());
            assert!(matches!(dag.state, DagState::Failed | DagState::Running));
        }
    }
}

/// Preemption is only for a higher class, and class 10 is never preempted.
pub fn check_victims(before: &State, command: &Command) {
    let class = |id: AllocationId| before.allocation(id).unwrap().spec.class;
    match command {
        Command::Preempt { id, victims, nodes } => {
            assert!(victims.iter().all(|victim| class(victim.id) < class(*id)));
            for node in nodes {
                let holder = before.node(node).unwrap().holder;
                let holder = holder.map(|holder| holder.allocation);
                let makes_room = |id| victims.iter().any(|victim| victim.id == id);
                assert!(holder.is_none_or(makes_room), "{node}");
            }
        }
        Command::MakeRoom { victim, .. } => assert!(class(victim.id) < 10),
        _ => {}
    }
}
