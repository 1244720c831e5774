//! Inputs from sources reach the solver, incrementally and from scratch alike.

use crate::{
    inputs::{Inputs, Price, System},
    tasks::testing::{allocation, entry},
};
use lattice_conformance::{NodeDocument, NodeResources, Reading};
use lattice_placement::{Factors, Fraction, Planner, Policy, StorageView};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, UnixMillis, VclusterName, spec::Demand,
    view::LiveState,
};
use lattice_view::{BaseView, View, delta, full_input};
use std::sync::Arc;

fn vcluster() -> VclusterName {
    VclusterName::new("default").unwrap()
}

/// An allocation with these values.
fn says(id: u64, state: AllocationState, ready: Option<u32>, scratch_mb_s: u64) -> Allocation {
    let mut made = allocation(state, Vec::new());
    made.id = AllocationId(id);
    made.spec.nodes = 1;
    made.spec.demand = Demand {
        data_ready_ppm: ready,
        storage_mb_s: match scratch_mb_s {
            0 => <_>::default(),
            mb_s => [("scratch".to_owned(), mb_s)].into(),
        },
        ..Demand::default()
    };
    made
}

fn scratch(budget_mb_s: u64, others_mb_s: Option<u64>) -> Inputs {
    let system = System {
        budget_mb_s,
        others_mb_s,
        ..System::default()
    };
    Inputs {
        storage: Arc::new([("scratch".to_owned(), system)].into()),
        ..Inputs::default()
    }
}

fn ready(parts: &[(u64, u32)]) -> Arc<std::collections::BTreeMap<AllocationId, Fraction>> {
    let part = |(id, part): &(u64, u32)| (AllocationId(*id), Fraction::millionths(*part));
    Arc::new(parts.iter().map(part).collect())
}

fn left(view: &View) -> Option<i64> {
    let storage = full_input(view, &vcluster(), 0).storage;
    storage.get("scratch").map(|s: &StorageView| s.left_mb_s)
}

#[test]
fn a_budget_is_left_by_others_and_by_what_running_work_was_promised() {
    use AllocationState::{Completed, Pending, Running, Starting, Stopping};
    let mut view = View::from(BaseView {
        inputs: scratch(1_000, None),
        ..BaseView::default()
    });
    assert_eq!(left(&view), Some(1_000));
    // A pending allocation has no bandwidth granted.
    view.set_allocation(says(1, Pending, None, 300));
    assert_eq!(left(&view), Some(1_000));
    view.set_allocation(says(1, Starting, None, 300));
    view.set_allocation(says(2, Running, None, 100));
    assert_eq!(left(&view), Some(600));
    view.inputs = scratch(1_000, Some(450));
    assert_eq!(left(&view), Some(150));
    // The bandwidth stays granted until the nodes are released, and is subtracted once.
    view.set_allocation(says(1, Running, None, 300));
    view.set_allocation(says(1, Stopping, None, 300));
    assert_eq!(left(&view), Some(150));
    view.set_allocation(says(1, Completed, None, 300));
    assert_eq!(left(&view), Some(450));
    view.inputs = scratch(1_000, Some(5_000));
    // More than the total is in use: bandwidth released by running allocations makes up for it first.
    assert_eq!(left(&view), Some(1_000 - 5_000 - 100));
    // Without a budget nothing is rationed.
    view.inputs = Inputs::default();
    assert_eq!(left(&view), None);
    view.set_allocation(says(2, Completed, None, 100));
    assert!(view.promised.is_empty(), "{:?}", view.promised);
}

/// Neither all nor none of the budget counts as used.
#[test]
fn missing_usage_is_half_or_last_value() {
    let mut system = System {
        budget_mb_s: 1_000,
        has_source: true,
        ..System::default()
    };
    let mut view = View::default();
    view.set_allocation(says(1, AllocationState::Running, None, 100));
    let mut left_after = |edit: &dyn Fn(&mut System)| {
        edit(&mut system);
        view.inputs.storage = Arc::new([("scratch".to_owned(), system)].into());
        left(&view)
    };
    // No reply yet.
    assert_eq!(left_after(&|_| {}), Some(400));
    assert_eq!(left_after(&|system| system.report(Some(850))), Some(50));
    // The source is silent for long, with a last value above and then below half of the budget.
    assert_eq!(left_after(&|system| system.report(None)), Some(50));
    assert_eq!(left_after(&|system| system.report(Some(20))), Some(880));
    assert_eq!(left_after(&|system| system.report(None)), Some(400));
    // Without a source no use by others is assumed.
    assert_eq!(left_after(&|system| system.has_source = false), Some(900));
}

#[test]
fn reread_state_counts_promise_once() {
    let hot = || LiveState {
        allocations: vec![says(1, AllocationState::Running, None, 100)],
        ..LiveState::default()
    };
    let mut view = View::from(BaseView {
        inputs: scratch(1_000, None),
        ..BaseView::default()
    });
    view.replace(hot());
    view.replace(hot());
    assert_eq!(left(&view), Some(900));
    view.replace(LiveState::default());
    assert_eq!(left(&view), Some(1_000));
}

#[test]
fn request_data_readiness_wins() {
    let mut view = View::default();
    view.set_allocation(says(1, AllocationState::Pending, Some(1_000_000), 0));
    view.set_allocation(says(2, AllocationState::Pending, None, 0));
    view.set_allocation(says(3, AllocationState::Pending, None, 0));
    view.inputs.data_ready = ready(&[(1, 100_000), (2, 200_000)]);
    let pending = full_input(&view, &vcluster(), 0).pending;
    let pending: Vec<_> = pending.values().map(|p| p.data_ready).collect();
    let part = |millionths| Some(Fraction::millionths(millionths));
    assert_eq!(pending, [part(1_000_000), part(200_000), None]);
}

#[test]
fn a_planner_kept_warm_follows_every_source() {
    use AllocationState::{Completed, Pending, Running};
    let mut steps = vec![View::default()];
    let mut step = |edit: &dyn Fn(&mut View)| {
        let mut next = steps.last().unwrap().clone();
        edit(&mut next);
        steps.push(next);
    };
    let price = |normalized| {
        Some(Price {
            price: -3.0,
            normalized: Fraction::millionths(normalized),
        })
    };
    step(&|view| drop(view.set_allocation(says(1, Pending, None, 50))));
    step(&|view| view.inputs.energy = price(250_000));
    step(&|view| view.inputs.storage = scratch(1_000, None).storage);
    step(&|view| view.inputs.data_ready = ready(&[(1, 500_000)]));
    step(&|view| view.inputs.data_ready = ready(&[(1, 600_000), (9, 1)]));
    // A source and a record change together; then another record of the same allocation, with its source silent.
    step(&|view| {
        view.set_allocation(says(2, Pending, None, 0));
        view.inputs.data_ready = ready(&[(1, 600_000), (2, 700_000)]);
    });
    step(&|view| drop(view.set_allocation(says(2, Pending, None, 20))));
    step(&|view| drop(view.set_allocation(says(1, Running, None, 50))));
    step(&|view| view.inputs.storage = scratch(1_000, Some(900)).storage);
    // A source drops a value; prices end; a request states the value itself; an allocation ends.
    step(&|view| view.inputs.data_ready = ready(&[]));
    step(&|view| view.inputs.energy = None);
    step(&|view| drop(view.set_allocation(says(2, Pending, Some(1), 0))));
    step(&|view| view.inputs.data_ready = ready(&[(2, 900_000)]));
    step(&|view| drop(view.set_allocation(says(1, Completed, None, 50))));
    step(&|view| view.inputs.storage = Arc::default());
    let mut planner = Planner::new(full_input(&steps[0], &vcluster(), 7));
    for (n, pair) in steps.windows(2).enumerate() {
        planner.update(delta(&pair[0], &pair[1], &vcluster(), 7));
        let cold = full_input(&pair[1], &vcluster(), 7);
        assert_eq!(planner.view(), &cold, "step {n}");
    }
    let seen = |view: &View| full_input(view, &vcluster(), 7).energy_price;
    assert_eq!(seen(&steps[2]), Some(Fraction::millionths(250_000)));
    assert_eq!(seen(steps.last().unwrap()), None);
}

/// The factors of allocation 1, as `lattice why` shows them.
fn factors(view: &View) -> Factors {
    let policy = Policy {
        checkpoint_bytes_s: Some(1_000_000_000),
        ..Policy::default()
    };
    let mut planner = Planner::with_policy(full_input(view, &vcluster(), 0), policy);
    let plan = planner.plan(UnixMillis(20));
    let why = plan.waiting.get(AllocationId(1)).unwrap();
    why.score.unwrap().factors
}

#[test]
fn what_is_known_moves_the_factors_and_what_is_not_weighs_as_unknown() {
    let mut view = View::default();
    let mut waits = says(1, AllocationState::Pending, None, 0);
    // More nodes than exist, so that the allocation waits and has an explanation.
    waits.spec.nodes = 2;
    view.set_allocation(waits);
    let node = entry("gpu001");
    view.nodes = Arc::new([(node.id.clone(), Arc::new(node.clone()))].into());
    let unknown = factors(&view);
    let of = |f: Factors| [f.data_ready, f.energy, f.checkpoint];
    assert_eq!(of(unknown), [0.5, 0.5, 0.5]);
    view.inputs.energy = Some(Price {
        price: 310.0,
        normalized: Fraction::millionths(900_000),
    });
    view.inputs.data_ready = ready(&[(1, 800_000)]);
    let document = NodeDocument {
        version: 1,
        node: "gpu001".to_owned(),
        topology_group: None,
        identity: Default::default(),
        resources: NodeResources {
            gpu_count: Reading::Present(4),
            gpu_memory_bytes: Reading::Present(15_000_000_000),
            ..NodeResources::default()
        },
    };
    let mut node = node;
    node.document = Some(Arc::new(document));
    view.nodes = Arc::new([(node.id.clone(), Arc::new(node))].into());
    let [ready, energy, checkpoint] = of(factors(&view));
    assert_eq!(ready, 0.8);
    assert!((energy - 0.1).abs() < 1e-9, "{energy}");
    // 2 nodes of 60 GB at 1 GB/s: two minutes.
    assert!((checkpoint - 1.0 / 3.0).abs() < 1e-9, "{checkpoint}");
}
