//! Records in which something other than running allocations delays a start: a reservation, a node claim, a limit that
//! the submit waits for, and the order in a DAG. The real state machine, view and solver write them.

use super::{
    scene::{Scene, running, scene, verified},
    *,
};
use lattice_quorum_types::{
    Command, NodeId, Outcome as Applied, ProjectPath,
    allocation::RankExit,
    dag::{DagSpec, Edge, MemberSpec},
    id::ReservationName,
    limit::OnLimit,
    node_claim::WipeOutcome,
    reservation::ReservationSpec,
    spec::AllocationSpec,
    terms::Condition,
};
use std::collections::BTreeSet;

/// The only recorded placement of `id` is moved to the plan before it, in which the allocation could not start. The
/// verification names it; returns the difference in words.
fn difference_of_early_start(lines: &[Line], id: AllocationId) -> String {
    let mut lines = lines.to_vec();
    let mut plans: Vec<&mut Cycle> = cycles(&mut lines).collect();
    let is_it = |placed: &lattice_placement::record::PlacedAllocation| placed.id == id;
    let plan = plans.iter().position(|plan| plan.placed.iter().any(is_it));
    let plan = plan.unwrap();
    let place = plans[plan].placed.iter().position(is_it).unwrap();
    let placed = plans[plan].placed.remove(place);
    plans[plan - 1].placed.push(placed);
    let verdict = of(&lines);
    assert!(!verdict.is_same());
    let first = verdict.first_divergence.unwrap();
    assert_eq!(first.id, Some(id), "{first:#?}");
    let begin = format!("allocation {id} was placed on ");
    assert!(first.what.starts_with(&begin), "{first:#?}");
    first.what
}

/// An allocation of four nodes, for which three free ones do not suffice.
fn of_four_nodes(scene: &mut Scene) -> AllocationId {
    let spec = scene.spec(4);
    let id = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.placements(id), 0);
    id
}

#[test]
fn reserved_nodes_are_for_those_that_name_them() {
    let (mut scene, bystander) = scene();
    let reserved: BTreeSet<NodeId> = scene.free_nodes(3).into_iter().collect();
    let name: ReservationName = "course".parse().unwrap();
    let spec = ReservationSpec {
        nodes: reserved.clone(),
        from: scene.now,
        until: None,
        users: BTreeSet::from(["root".to_owned()]),
        projects: BTreeSet::new(),
        reason: "a course".to_owned(),
    };
    scene.admin(Command::SetReservation {
        name: name.clone(),
        spec: Box::new(spec),
        expected: None,
    });
    let mut spec = scene.spec(3);
    spec.terms.reservation = Some(name.clone());
    let course = scene.submit(spec);
    scene.plan();
    let nodes: BTreeSet<NodeId> = scene.nodes_of(course).into_iter().collect();
    assert_eq!(nodes, reserved);
    scene.complete(course);
    let other = of_four_nodes(&mut scene);
    scene.admin(Command::DeleteReservation { name });
    scene.plan();
    assert_eq!(scene.placements(other), 1);
    let what = difference_of_early_start(&scene.lines, other);
    assert!(what.contains("; in the replay it waits: "), "{what}");
    scene.complete(other);
    verified(scene, bystander);
}

#[test]
fn claimed_nodes_are_for_their_claimant() {
    let (mut scene, bystander) = scene();
    let claimed = scene.free_nodes(3);
    let attested = claimed.iter().map(|node| scene.attested(node)).collect();
    scene.admin(Command::ClaimNodes {
        project: ProjectPath::new("t").unwrap(),
        nodes: attested,
        purpose: "genomes".to_owned(),
    });
    let mut spec = AllocationSpec {
        sensitive: true,
        ..scene.spec(3)
    };
    spec.constraints.nodelist = claimed.clone();
    let own = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.placements(own), 1);
    scene.complete(own);
    // The nodes stay claimed.
    let other = of_four_nodes(&mut scene);
    scene.admin(Command::ReleaseNodes {
        nodes: claimed.clone(),
        reason: None,
    });
    scene.plan();
    assert_eq!(scene.placements(other), 0, "no node is wiped");
    for node in claimed {
        let claim = scene.state.node(&node).unwrap().node_claim.as_ref();
        let wipe = claim.unwrap().awaits_wipe().unwrap();
        let outcome = WipeOutcome::NotNeeded {
            at: scene.now,
            boot: "b1".to_owned(),
        };
        let report = Command::ReportWipe {
            node,
            wipe,
            outcome,
        };
        scene.scheduler(report).unwrap();
    }
    scene.plan();
    assert_eq!(scene.placements(other), 1);
    let what = difference_of_early_start(&scene.lines, other);
    assert!(what.contains("; in the replay it waits: "), "{what}");
    scene.complete(other);
    verified(scene, bystander);
}

#[test]
fn submit_waits_for_its_limit() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.set_max_nodes(5);
    let command = Command::SubmitOnLimit {
        spec: Box::new(scene.spec(2)),
        on_limit: OnLimit::Wait,
    };
    let Applied::Submitted { id: waits } = scene.admin(command).outcome else {
        panic!("not submitted")
    };
    scene.plan();
    assert_eq!(scene.placements(waits), 0, "five of five nodes are used");
    scene.complete(id);
    scene.plan();
    assert_eq!(scene.placements(waits), 1);
    let what = difference_of_early_start(&scene.lines, waits);
    assert!(what.contains("waiting for quota headroom"), "{what}");
    scene.complete(waits);
    verified(scene, bystander);
}

#[test]
fn members_of_a_dag_start_in_order() {
    let (mut scene, bystander) = scene();
    let member = |name: &str, after: Option<Condition>| MemberSpec {
        name: name.to_owned(),
        spec: scene.spec(2),
        after: after
            .map(|condition| Edge {
                member: "prepare".to_owned(),
                condition,
            })
            .into_iter()
            .collect(),
    };
    let dag = DagSpec {
        name: "nightly".to_owned(),
        members: vec![
            member("prepare", None),
            member("train", Some(Condition::Success)),
            member("report", Some(Condition::Failure)),
            member("clean", Some(Condition::Any)),
        ],
    };
    scene.admin(Command::SubmitDag { dag: Box::new(dag) });
    let ids = ["prepare", "train", "report", "clean"].map(|name| {
        let is_it = |held: &&lattice_quorum_types::Allocation| {
            let place = held.progress.dag.as_ref();
            place.is_some_and(|place| place.member == name)
        };
        scene.state.live_allocations().find(is_it).unwrap().id
    });
    let [prepare, train, report, clean] = ids;
    scene.plan();
    assert_eq!(scene.state_of(prepare), AllocationState::Running);
    assert_eq!(scene.state_of(train), AllocationState::Blocked);
    scene.plan();
    scene.end_ranks(prepare, None, RankExit::Exited { code: 0 });
    assert_eq!(scene.state_of(report), AllocationState::Cancelled);
    scene.plan();
    assert_eq!(
        [prepare, train, report, clean].map(|id| scene.placements(id)),
        [1, 1, 0, 1]
    );
    let what = difference_of_early_start(&scene.lines, train);
    assert!(
        what.ends_with("in the replay it is not in the queue"),
        "{what}"
    );
    scene.complete(train);
    scene.complete(clean);
    verified(scene, bystander);
}
