//! Simulated cluster that records as a control does, and verification of its record. The real state machine, view and
//! solver write the record.

use super::*;
use lattice_quorum_state::{MAX_LEASE_MS, State};
use lattice_quorum_types::{
    Applied, Command, Envelope, NodeId, ProjectPath, Refusal,
    allocation::RankExit,
    attestation::{Attestation, Proof},
    command::{
        AttestedNode, ExpectedNode, Fence, LimitChange, Principal, Privilege, RankReport, SCHEMA,
    },
    event::EventKind,
    id::LeaseName,
    limit::{LimitPatch, Limits, Patch},
    node::{Lifecycle, Node},
    scheduler::SchedulerPatch,
    spec::{AllocationSpec, Requeue, Workload},
};
use lattice_view::{BaseView, Changes, ViewNode, full_input};
use std::sync::Arc;

pub(super) const HOUR_MS: u64 = 3_600_000;
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
pub(super) struct Scene {
    pub(super) state: State,
    index: u64,
    pub(super) now: UnixMillis,
    vcluster: VclusterName,
    nodes: Vec<NodeId>,
    view: BaseView<SceneNode>,
    changes: Changes,
    planner: Planner,
    pub(super) lines: Vec<Line>,
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

    pub(super) fn admin(&mut self, command: Command) -> Applied {
        let admin = principal("root", Privilege::Admin);
        self.apply(admin, None, command).unwrap()
    }

    /// Proposes a command under the lease of the scheduler, which is acquired or renewed first.
    pub(super) fn scheduler(&mut self, command: Command) -> Result<Applied, Refusal> {
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

    pub(super) fn spec(&self, nodes: u32) -> AllocationSpec {
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

    pub(super) fn submit(&mut self, spec: AllocationSpec) -> AllocationId {
        let spec = Box::new(spec);
        match self.admin(Command::Submit { spec }).outcome {
            lattice_quorum_types::Outcome::Submitted { id } => id,
            other => panic!("{other:?}"),
        }
    }

    /// One second later: plans, records the plan, and starts what was placed.
    pub(super) fn plan(&mut self) {
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
            let assignment = self.assignment(id, placed.nodes);
            let assigned = self.scheduler(assignment).unwrap();
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

    /// Command that assigns nodes to an allocation. Those of a sensitive one are attested.
    fn assignment(&self, id: AllocationId, nodes: Vec<ExpectedNode>) -> Command {
        let held = self.state.allocation(id);
        match held.is_some_and(|held| held.spec.sensitive) {
            true => {
                let nodes = nodes.iter().map(|expected| self.attested(&expected.node));
                let nodes = nodes.collect();
                Command::AssignSensitive { id, nodes }
            }
            false => Command::Assign { id, nodes },
        }
    }

    /// A node at its present version, with an attestation to which no baseline applies.
    pub(super) fn attested(&self, node: &NodeId) -> AttestedNode {
        let boot_id = "b1".to_owned();
        AttestedNode {
            expected: ExpectedNode {
                node: node.clone(),
                version: self.state.node(node).unwrap().version,
                boot: Some(boot_id.clone()),
            },
            proof: Proof {
                attestation: Attestation {
                    node: node.clone(),
                    boot_id,
                    cohort: None,
                    classes: BTreeMap::new(),
                    read_at: self.now,
                    nonce: [0; 16],
                },
                signature: Default::default(),
                completed: BTreeMap::new(),
                conforms: BTreeMap::new(),
            },
        }
    }

    /// Reports of the agents of an allocation.
    pub(super) fn report(&mut self, id: AllocationId, only: Option<&NodeId>, report: &RankReport) {
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

    pub(super) fn start_ranks(&mut self, id: AllocationId) {
        let at = self.now;
        self.report(id, None, &RankReport::Started { at });
    }

    /// All ranks of an allocation end, or the one on the node `only`.
    pub(super) fn end_ranks(&mut self, id: AllocationId, only: Option<&NodeId>, exit: RankExit) {
        let (at, fault) = (self.now, None);
        self.report(id, only, &RankReport::Ended { at, exit, fault });
    }

    pub(super) fn complete(&mut self, id: AllocationId) {
        self.end_ranks(id, None, RankExit::Exited { code: 0 });
    }

    pub(super) fn state_of(&self, id: AllocationId) -> AllocationState {
        self.state.allocation(id).unwrap().state
    }

    pub(super) fn nodes_of(&self, id: AllocationId) -> Vec<NodeId> {
        let held = self.state.allocation(id).unwrap();
        held.ranks.iter().map(|rank| rank.node.clone()).collect()
    }

    /// The first free nodes.
    pub(super) fn free_nodes(&self, count: usize) -> Vec<NodeId> {
        let free = self.state.nodes().filter(|node| node.holder.is_none());
        let free: Vec<NodeId> = free.take(count).map(|node| node.id.clone()).collect();
        assert_eq!(free.len(), count);
        free
    }

    /// A free node of the cluster, as an assignment names it.
    pub(super) fn free_node(&self) -> ExpectedNode {
        let free = self.state.nodes().find(|node| node.holder.is_none());
        let free = free.unwrap();
        ExpectedNode {
            node: free.id.clone(),
            version: free.version,
            boot: None,
        }
    }

    pub(super) fn set_max_nodes(&mut self, max_nodes: u64) {
        let patch = LimitPatch {
            max_nodes: Patch::Set(max_nodes),
            ..LimitPatch::default()
        };
        let path = ProjectPath::new("t").unwrap();
        self.admin(Command::SetLimits {
            changes: vec![LimitChange { path, patch }],
        });
    }

    pub(super) fn set_scheduler(&mut self, settings: SchedulerPatch) {
        self.admin(Command::SetScheduler {
            vcluster: self.vcluster.clone(),
            change: Box::default(),
            settings: Box::new(settings),
            expected_version: None,
        });
    }

    /// Number of recorded placements of an allocation.
    pub(super) fn placements(&self, id: AllocationId) -> usize {
        let placed = self.lines.iter().filter_map(|line| match line {
            Line::Cycle(cycle) => Some(&cycle.placed),
            _ => None,
        });
        placed.flatten().filter(|placed| placed.id == id).count()
    }

    pub(super) fn has_change(&self, id: AllocationId, change: AllocationChange) -> bool {
        self.lines.iter().any(|line| match line {
            Line::Allocation(changed) => (changed.id, changed.change) == (id, change),
            _ => false,
        })
    }
}

/// A scene with a running allocation of two nodes, which no scenario changes.
pub(super) fn scene() -> (Scene, AllocationId) {
    let mut scene = Scene::new();
    let spec = scene.spec(2);
    let bystander = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.placements(bystander), 1);
    (scene, bystander)
}

/// Ends the scene, and verifies its record: unchanged, and with another first node of the bystander. The change makes
/// every later plan of the sequence continue from the replay's own placements.
pub(super) fn verified(mut scene: Scene, bystander: AllocationId) {
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
pub(super) fn running(scene: &mut Scene) -> AllocationId {
    let spec = AllocationSpec {
        walltime_ms: Some(HOUR_MS),
        ..scene.spec(3)
    };
    let id = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.state_of(id), AllocationState::Running);
    id
}
