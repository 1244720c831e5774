//! Records in which allocations leave and enter the queue and the running set, for each reason that the state machine
//! has. The real state machine, view and solver write them.

use super::*;
use lattice_quorum_state::{MAX_LEASE_MS, State};
use lattice_quorum_types::{
    Applied, Command, Envelope, NodeId, ProjectPath, Refusal,
    allocation::RankExit,
    command::{ExpectedNode, Fence, LimitChange, Principal, Privilege, RankReport, SCHEMA, Victim},
    event::EventKind,
    id::LeaseName,
    limit::{LimitPatch, Limits, Patch},
    node::{Lifecycle, Node},
    scheduler::{PlannedReservations, SchedulerPatch, SettingPatch},
    spec::{AllocationSpec, Requeue, Workload},
};
use lattice_view::{BaseView, Changes, ViewNode, full_input};
use std::sync::Arc;

const HOUR_MS: u64 = 3_600_000;
const SERVICE: &str = "service:control/c1";
/// Nodes of the cluster.
const NODES: usize = 8;

/// Healthy node of the simulated cluster.
#[derive(Clone, Default)]
struct SceneNode {
    record: Option<Node>,
    facts: lattice_placement::NodeFacts,
}

impl ViewNode for SceneNode {
    fn unknown(_: NodeId) -> Self {
        Self::default()
    }

    fn record(&self) -> Option<&Node> {
        self.record.as_ref()
    }

    fn set_record(&mut self, record: Node) -> Option<Node> {
        self.record.replace(record)
    }

    fn facts(&self) -> lattice_placement::NodeFacts {
        self.facts.clone()
    }
}

/// Cluster of eight nodes with one scheduler, which records as a control does.
struct Scene {
    state: State,
    index: u64,
    now: UnixMillis,
    vcluster: VclusterName,
    nodes: Vec<NodeId>,
    view: BaseView<SceneNode>,
    changes: Changes,
    planner: Planner,
    lines: Vec<Line>,
}

fn principal(name: &str, privilege: Privilege) -> Principal {
    Principal {
        name: name.to_owned(),
        privilege,
    }
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::dragonfly(2, 4).unwrap();
        let hosts = cluster.nodes.iter().map(|(id, host)| {
            let facts = host.facts.clone();
            let record = None;
            (id.clone(), Arc::new(SceneNode { record, facts }))
        });
        let state = State::new();
        let view = BaseView {
            system: state.system(),
            nodes: Arc::new(hosts.collect()),
            ..BaseView::default()
        };
        let vcluster = cluster.nodes.values().next().unwrap().vcluster.clone();
        let mut scene = Self {
            index: 0,
            now: UnixMillis(1_700_000_000_000),
            nodes: cluster.nodes.keys().cloned().collect(),
            changes: Changes::since(&view),
            planner: Planner::new(ClusterView::default()),
            lines: vec![BEGIN],
            state,
            view,
            vcluster,
        };
        assert_eq!(scene.nodes.len(), NODES);
        scene.admin(Command::CreateProject {
            path: ProjectPath::new("t").unwrap(),
            limits: Some(Limits {
                max_nodes: Some(100),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        });
        for node in scene.nodes.clone() {
            scene.admin(Command::RegisterNode {
                node: node.clone(),
                vcluster: scene.vcluster.clone(),
            });
            scene.admin(Command::SetLifecycle {
                node,
                lifecycle: Lifecycle::Ready,
            });
        }
        let seen = full_input(&scene.view, &scene.vcluster, 0);
        scene.changes = Changes::since(&scene.view);
        scene.planner = Planner::new(seen.clone());
        scene.lines.push(Line::View {
            vcluster: scene.vcluster.clone(),
            at: scene.now,
            view: Box::new(seen),
        });
        scene
    }

    fn apply(
        &mut self,
        principal: Principal,
        fence: Option<Fence>,
        command: Command,
    ) -> Result<Applied, Refusal> {
        self.index += 1;
        let envelope = Envelope {
            schema: SCHEMA,
            principal,
            key: None,
            at: self.now,
            fence,
            command,
        };
        let applied = self.state.apply(self.index, &envelope)?;
        for event in &applied.events {
            if let EventKind::Allocation { change, record } = &event.kind {
                let changed = ChangedAllocation::new(*change, record, event.at);
                self.lines.push(Line::Allocation(Box::new(changed)));
            }
            let event = self.view.expanded(event);
            (self.view.revision, self.view.at) = (event.revision, event.at);
            let former = self.view.apply(&event);
            self.changes.note(&event, former);
        }
        Ok(applied)
    }

    fn admin(&mut self, command: Command) -> Applied {
        let admin = principal("root", Privilege::Admin);
        self.apply(admin, None, command).unwrap()
    }

    /// Proposes a command under the lease of the scheduler, which is acquired or renewed first.
    fn scheduler(&mut self, command: Command) -> Result<Applied, Refusal> {
        let service = principal(SERVICE, Privilege::Service);
        let lease = LeaseName::of_scheduler(&self.vcluster);
        let acquire = Command::AcquireLease {
            lease: lease.clone(),
            holder: SERVICE.to_owned(),
            ttl_ms: MAX_LEASE_MS,
        };
        self.apply(service.clone(), None, acquire).unwrap();
        let (epoch, _) = self.state.lease(lease.as_str()).unwrap();
        self.apply(service, Some(Fence { lease, epoch }), command)
    }

    fn spec(&self, nodes: u32) -> AllocationSpec {
        let workload = Workload {
            argv: vec!["true".to_owned()],
            ..Workload::default()
        };
        let project = ProjectPath::new("t").unwrap();
        AllocationSpec {
            requeue: Requeue::Always,
            ..AllocationSpec::new(project, self.vcluster.clone(), nodes, workload)
        }
    }

    fn submit(&mut self, spec: AllocationSpec) -> AllocationId {
        let spec = Box::new(spec);
        match self.admin(Command::Submit { spec }).outcome {
            lattice_quorum_types::Outcome::Submitted { id } => id,
            other => panic!("{other:?}"),
        }
    }

    /// One second later: plans, records the plan, and starts what was placed.
    fn plan(&mut self) {
        self.now = self.now.after(1_000);
        let changes = std::mem::replace(&mut self.changes, Changes::since(&self.view));
        let delta = changes.delta(&self.view, &self.vcluster, 0);
        let policy = self.view.policy_of(&self.vcluster);
        self.planner.update(delta.clone());
        self.planner.set_policy(policy);
        let plan = self.planner.plan(self.now);
        let (placed, reserved) = Cycle::decided(&plan);
        self.lines.push(Line::Cycle(Box::new(Cycle {
            vcluster: self.vcluster.clone(),
            at: self.now,
            epoch: 1,
            policy,
            delta: Some(Box::new(delta)),
            promised: BTreeMap::new(),
            placed,
            reserved,
        })));
        let planned_at = self.now;
        for placed in plan.placements {
            let id = placed.id;
            let nodes = placed.nodes;
            let assigned = self.scheduler(Command::Assign { id, nodes }).unwrap();
            self.lines.push(Line::Outcome {
                vcluster: self.vcluster.clone(),
                planned_at,
                id,
                outcome: Outcome::Assigned {
                    revision: assigned.revision,
                },
            });
            self.start_ranks(id);
        }
        // Later events have another time than the plan.
        self.now = self.now.after(1);
    }

    /// Reports of the agents of an allocation.
    fn report(&mut self, id: AllocationId, only: Option<&NodeId>, report: &RankReport) {
        let held = self.state.allocation(id).unwrap();
        let attempt = held.attempt;
        let ranks = held.ranks.iter().filter(|rank| !rank.phase.is_over());
        let nodes: Vec<NodeId> = ranks
            .map(|rank| rank.node.clone())
            .filter(|node| only.is_none_or(|only| only == node))
            .collect();
        assert!(!nodes.is_empty(), "no rank of {id} is left");
        for node in nodes {
            let command = Command::Report {
                id,
                attempt,
                node,
                report: report.clone(),
            };
            let service = principal(SERVICE, Privilege::Service);
            self.apply(service, None, command).unwrap();
        }
    }

    fn start_ranks(&mut self, id: AllocationId) {
        let at = self.now;
        self.report(id, None, &RankReport::Started { at });
    }

    /// All ranks of an allocation end, or the one on the node `only`.
    fn end_ranks(&mut self, id: AllocationId, only: Option<&NodeId>, exit: RankExit) {
        let (at, fault) = (self.now, None);
        self.report(id, only, &RankReport::Ended { at, exit, fault });
    }

    fn complete(&mut self, id: AllocationId) {
        self.end_ranks(id, None, RankExit::Exited { code: 0 });
    }

    fn state_of(&self, id: AllocationId) -> AllocationState {
        self.state.allocation(id).unwrap().state
    }

    fn nodes_of(&self, id: AllocationId) -> Vec<NodeId> {
        let held = self.state.allocation(id).unwrap();
        held.ranks.iter().map(|rank| rank.node.clone()).collect()
    }

    /// A free node of the cluster, as an assignment names it.
    fn free_node(&self) -> ExpectedNode {
        let free = self.state.nodes().find(|node| node.holder.is_none());
        let free = free.unwrap();
        ExpectedNode {
            node: free.id.clone(),
            version: free.version,
            boot: None,
        }
    }

    fn set_max_nodes(&mut self, max_nodes: u64) {
        let patch = LimitPatch {
            max_nodes: Patch::Set(max_nodes),
            ..LimitPatch::default()
        };
        let path = ProjectPath::new("t").unwrap();
        self.admin(Command::SetLimits {
            changes: vec![LimitChange { path, patch }],
        });
    }

    fn set_scheduler(&mut self, settings: SchedulerPatch) {
        self.admin(Command::SetScheduler {
            vcluster: self.vcluster.clone(),
            change: Box::default(),
            settings: Box::new(settings),
            expected_version: None,
        });
    }

    /// Number of recorded placements of an allocation.
    fn placements(&self, id: AllocationId) -> usize {
        let placed = self.lines.iter().filter_map(|line| match line {
            Line::Cycle(cycle) => Some(&cycle.placed),
            _ => None,
        });
        placed.flatten().filter(|placed| placed.id == id).count()
    }

    fn has_change(&self, id: AllocationId, change: AllocationChange) -> bool {
        self.lines.iter().any(|line| match line {
            Line::Allocation(changed) => (changed.id, changed.change) == (id, change),
            _ => false,
        })
    }
}

/// A scene with a running allocation of two nodes, which no scenario changes.
fn scene() -> (Scene, AllocationId) {
    let mut scene = Scene::new();
    let spec = scene.spec(2);
    let bystander = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.placements(bystander), 1);
    (scene, bystander)
}

/// Ends the scene, and verifies its record: unchanged, and with another first node of the bystander. The change makes
/// every later plan of the sequence continue from the replay's own placements.
fn verified(mut scene: Scene, bystander: AllocationId) {
    scene.plan();
    scene.complete(bystander);
    scene.plan();
    let verdict = of(&scene.lines);
    assert!(verdict.is_same(), "{verdict:#?}");
    assert!(verdict.cycles >= 4 && verdict.allocations >= 2);
    let mut lines = scene.lines;
    let changed = cycles(&mut lines)
        .flat_map(|cycle| &mut cycle.placed)
        .find(|placed| placed.id == bystander)
        .unwrap();
    changed.nodes[0] = NodeId::new("elsewhere").unwrap();
    let verdict = of(&lines);
    let first = verdict.first_divergence.as_ref().unwrap();
    assert_eq!(first.id, Some(bystander), "{first:#?}");
    assert!(first.what.contains("elsewhere"), "{first:#?}");
    assert!(
        first.inputs[0].starts_with(&format!("allocation {bystander} was submitted at 2023-")),
        "{first:#?}"
    );
    assert_eq!(verdict.cycles_equal, verdict.cycles - 1);
    // Every other start is as recorded, although the course differs.
    assert_eq!(
        (verdict.same_start, verdict.same_nodes),
        (verdict.allocations, verdict.allocations - 1),
        "{verdict:#?}"
    );
    assert_eq!(verdict.max_start_difference_s, 0.0);
    assert_eq!(verdict.makespan_recorded_s, verdict.makespan_replayed_s);
}

/// An allocation of three nodes that runs.
fn running(scene: &mut Scene) -> AllocationId {
    let spec = AllocationSpec {
        walltime_ms: Some(HOUR_MS),
        ..scene.spec(3)
    };
    let id = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.state_of(id), AllocationState::Running);
    id
}

#[test]
fn requeued_allocation_starts_twice() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    for _ in 0..2 {
        scene.admin(Command::Requeue { id });
        scene.plan();
        scene.end_ranks(id, None, RankExit::Stopped);
        scene.plan();
    }
    assert_eq!(scene.placements(id), 3);
    assert!(scene.has_change(id, AllocationChange::Requeued));
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn suspended_allocation_is_resumed() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Suspend { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    assert_eq!(scene.state_of(id), AllocationState::Suspended);
    let spec = scene.spec(6);
    let other = scene.submit(spec);
    scene.plan();
    scene.plan();
    scene.admin(Command::Resume { id });
    scene.plan();
    // The other allocation has the nodes.
    assert_eq!((scene.placements(id), scene.placements(other)), (1, 1));
    scene.complete(other);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

/// Another allocation gets nodes ahead of the victim, without a plan: they were promised to it.
#[test]
fn preempted_allocation_waits_again() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = AllocationSpec {
        class: 9,
        ..scene.spec(5)
    };
    let high = scene.submit(spec);
    let nodes: Vec<NodeId> = scene.nodes_of(id);
    let free = scene
        .state
        .nodes()
        .filter(|node| node.holder.is_none())
        .map(|node| node.id.clone());
    let nodes: Vec<NodeId> = nodes.into_iter().chain(free.take(2)).collect();
    let victims = vec![Victim {
        id,
        attempt: 1,
        checkpoint: None,
    }];
    let preempt = Command::Preempt {
        id: high,
        nodes: nodes.clone(),
        victims,
    };
    scene.scheduler(preempt).unwrap();
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    assert_eq!(scene.state_of(id), AllocationState::Pending);
    let promised = nodes.into_iter().map(|node| ExpectedNode {
        version: scene.state.node(&node).unwrap().version,
        node,
        boot: None,
    });
    let nodes = promised.collect();
    scene
        .scheduler(Command::Assign { id: high, nodes })
        .unwrap();
    scene.start_ranks(high);
    scene.plan();
    assert_eq!((scene.placements(id), scene.placements(high)), (1, 0));
    scene.complete(high);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn held_allocation_is_released() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let held = scene.submit(spec);
    scene.plan();
    scene.admin(Command::Hold { id: held });
    scene.complete(id);
    scene.plan();
    assert_eq!(scene.placements(held), 0);
    scene.admin(Command::Release { id: held });
    scene.plan();
    assert_eq!(scene.placements(held), 1);
    scene.complete(held);
    verified(scene, bystander);
}

/// A longer walltime moves the reservation of a blocked allocation, and with it what may be backfilled.
#[test]
fn extended_walltime_delays_others() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let blocked = scene.submit(spec);
    scene.plan();
    scene.admin(Command::SetWalltime {
        id,
        walltime_ms: 3 * HOUR_MS,
    });
    let spec = AllocationSpec {
        walltime_ms: Some(2 * HOUR_MS),
        ..scene.spec(2)
    };
    let short = scene.submit(spec);
    scene.plan();
    scene.admin(Command::SetWalltime {
        id,
        walltime_ms: HOUR_MS / 2,
    });
    scene.plan();
    assert!(scene.has_change(id, AllocationChange::Extended));
    assert_eq!(scene.placements(short), 1);
    scene.complete(id);
    scene.complete(short);
    scene.plan();
    assert_eq!(scene.placements(blocked), 1);
    scene.complete(blocked);
    verified(scene, bystander);
}

#[test]
fn allocation_grows_and_shrinks() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let added = scene.free_node();
    scene.admin(Command::Grow {
        id,
        nodes: vec![added.clone()],
    });
    scene.report(
        id,
        Some(&added.node),
        &RankReport::Started { at: scene.now },
    );
    let spec = scene.spec(3);
    let waits = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.placements(waits), 0, "two nodes are free");
    let leaves = scene.nodes_of(id).first().cloned().unwrap();
    scene.admin(Command::Shrink {
        id,
        nodes: vec![leaves.clone()],
    });
    scene.plan();
    scene.end_ranks(id, Some(&leaves), RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(waits), 1);
    scene.complete(waits);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn lost_node_requeues_its_allocation() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let lost = scene.nodes_of(id).first().cloned().unwrap();
    let evidence = "the node has rebooted".to_owned();
    scene.end_ranks(id, Some(&lost), RankExit::Lost { evidence });
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

/// The released node stays drained, so the allocation restarts on other nodes.
#[test]
fn forced_release_requeues_elsewhere() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let node = scene.nodes_of(id).first().cloned().unwrap();
    scene.admin(Command::ForceRelease {
        node: node.clone(),
        reason: "its rack is without power".to_owned(),
        expected: None,
    });
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    assert!(!scene.nodes_of(id).contains(&node));
    scene.admin(Command::Drain {
        node: node.clone(),
        reason: None,
        expected: None,
    });
    let spec = scene.spec(3);
    let other = scene.submit(spec);
    scene.plan();
    assert!(scene.nodes_of(other).contains(&node));
    scene.complete(other);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn cancelled_allocations_leave() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let waits = scene.submit(spec);
    scene.plan();
    scene.admin(Command::Cancel { id: waits });
    scene.admin(Command::Cancel { id });
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    assert_eq!(scene.state_of(id), AllocationState::Cancelled);
    scene.plan();
    assert_eq!((scene.placements(id), scene.placements(waits)), (1, 0));
    verified(scene, bystander);
}

/// A lower limit stops further starts, also of a requeued allocation.
#[test]
fn changed_limits_stop_and_permit_starts() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.set_max_nodes(4);
    scene.plan();
    assert_eq!(scene.placements(id), 1, "two of four nodes are used");
    scene.set_max_nodes(5);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn changed_scheduler_settings_apply() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let blocked = scene.submit(spec);
    let spec = AllocationSpec {
        walltime_ms: Some(2 * HOUR_MS),
        ..scene.spec(2)
    };
    let small = scene.submit(spec);
    scene.plan();
    scene.set_scheduler(SchedulerPatch {
        reservations: SettingPatch::Set(PlannedReservations::First(0)),
        ..SchedulerPatch::default()
    });
    scene.plan();
    assert_eq!(scene.placements(small), 1);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(small);
    scene.complete(id);
    scene.plan();
    assert_eq!(scene.placements(blocked), 1);
    scene.complete(blocked);
    verified(scene, bystander);
}

#[test]
fn array_elements_are_requeued() {
    let (mut scene, bystander) = scene();
    let mut spec = scene.spec(2);
    spec.terms.array = Some("0-3%2".parse().unwrap());
    let array = scene.submit(spec);
    scene.plan();
    let elements: Vec<AllocationId> = scene
        .state
        .live_allocations()
        .filter(|held| held.progress.element.is_some())
        .map(|held| held.id)
        .collect();
    assert_eq!(elements.len(), 2);
    scene.admin(Command::Requeue { id: array });
    scene.plan();
    for id in &elements {
        scene.end_ranks(*id, None, RankExit::Stopped);
    }
    scene.plan();
    for id in &elements {
        assert_eq!(scene.placements(*id), 2, "element {id}");
        scene.complete(*id);
    }
    scene.plan();
    scene.admin(Command::Cancel { id: array });
    let left: Vec<AllocationId> = scene
        .state
        .live_allocations()
        .filter(|held| held.progress.element.is_some())
        .map(|held| held.id)
        .collect();
    for id in left {
        scene.end_ranks(id, None, RankExit::Stopped);
    }
    verified(scene, bystander);
}

/// The scheduler may have received no answer to a proposal that was committed.
#[test]
fn start_without_an_answer_is_taken_from_the_event() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    scene.complete(id);
    scene.plan();
    scene.complete(bystander);
    let is_answer = |line: &Line| matches!(line, Line::Outcome { id: of, .. } if *of == id);
    let mut lines = scene.lines;
    lines.retain(|line| !is_answer(line));
    let verdict = of(&lines);
    assert!(verdict.is_same(), "{verdict:#?}");
    assert_eq!(verdict.allocations, 2);
}

/// A start that the record does not have is named, and the allocation then runs for its recorded run time.
#[test]
fn missing_start_is_named_with_inputs() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    scene.complete(id);
    scene.plan();
    scene.complete(bystander);
    let mut lines = scene.lines;
    let again = cycles(&mut lines).filter(|cycle| cycle.placed.iter().any(|one| one.id == id));
    let again = again.last().unwrap();
    again.placed.retain(|one| one.id != id);
    let verdict = of(&lines);
    let first = verdict.first_divergence.as_ref().unwrap();
    assert_eq!(first.id, Some(id));
    assert!(
        first
            .what
            .starts_with(&format!("allocation {id} was not placed in the record")),
        "{first:#?}"
    );
    assert!(
        first.inputs[0].starts_with(&format!("allocation {id} was requeued at ")),
        "{first:#?}"
    );
    assert!(!verdict.is_same());
    assert_eq!((verdict.allocations, verdict.same_start), (2, 1));
}
