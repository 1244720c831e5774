//! Node claims: nodes claimed, used, released and wiped.

mod cases;
mod counts;
mod idle;
mod property;
mod vclusters;
mod wipes;

use crate::common::{self, Cluster, envelope, limits, node, path, principal, spec};
use bytes::Bytes;
use lattice_quorum_state::{MAX_FORWARD_MS, State};
use lattice_quorum_types::{
    AllocationId, Applied, Command, NodeId, Refusal, UnixMillis,
    allocation::{RankExit, RankPhase},
    attestation::{Attestation, ClassAttestation, Proof},
    audit::{AuditAction, AuditEntry, verify_chain},
    baseline::{BaselineDefinition, ClassRule, DriftPolicy, Rule, SensitivePolicy},
    command::{AttestedNode, ExpectedNode, Fence, Privilege, RankReport},
    event::EventKind,
    id::{BaselineName, LeaseName},
    limit::{LimitPatch, Patch, SensitivePool, SystemLimitPatch},
    node::{Lifecycle, Node, UnavailableNode, UnavailableReason},
    node_claim::{NodeClaim, NodeClaimPhase, WipeOutcome},
    refusal::ProofFault,
    spec::AllocationSpec,
    view::{Answer, Query},
};
use std::collections::{BTreeMap, BTreeSet};

const SERVICE: &str = "service:control/c1";

fn lease() -> LeaseName {
    LeaseName::new("wipe").unwrap()
}

/// `n000`, `n001`, ...
fn n(i: usize) -> NodeId {
    node(&format!("n{i:03}"))
}

/// A cluster with tenant `t` of 8 nodes and `t/a` of 6, and `nodes` ready nodes.
fn founded(nodes: usize) -> Cluster {
    let mut c = Cluster::default();
    c.create("t", Some(limits(8))).unwrap();
    c.create("t/a", Some(limits(6))).unwrap();
    c.create("t/b", Some(limits(2))).unwrap();
    c.add_nodes(nodes);
    let acquire = Command::AcquireLease {
        lease: lease(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    };
    c.propose(SERVICE, Privilege::Service, acquire).unwrap();
    c
}

/// Attestation of a node: one class with this digest.
fn proof(at: UnixMillis, of: &NodeId, digest: u8) -> Proof {
    Proof {
        attestation: Attestation {
            node: of.clone(),
            boot_id: "b1".to_owned(),
            cohort: Some(Default::default()),
            classes: BTreeMap::from([(
                "nic".to_owned(),
                ClassAttestation::of_schema(1, [digest; 32]),
            )]),
            read_at: at,
            nonce: [0; 16],
        },
        signature: Bytes::new(),
        completed: BTreeMap::new(),
        conforms: BTreeMap::new(),
    }
}

trait ClaimCommands {
    fn node(&self, i: usize) -> &Node;
    fn node_claim(&self, i: usize) -> Option<&NodeClaim>;
    fn proven(&self, nodes: &[NodeId]) -> Vec<AttestedNode>;
    fn claim(&mut self, user: &str, project: &str, nodes: &[usize]) -> Result<Applied, Refusal>;
    fn release(&mut self, user: &str, nodes: &[usize]) -> Result<Applied, Refusal>;
    fn fenced(&mut self, command: Command) -> Result<Applied, Refusal>;
    fn wipe(&mut self, i: usize, outcome: WipeOutcome) -> Result<Applied, Refusal>;
    fn submit_as(&mut self, user: &str, spec: AllocationSpec) -> Result<AllocationId, Refusal>;
    fn give(&mut self, id: AllocationId, nodes: &[usize]) -> Result<Applied, Refusal>;
    fn usage(&self, project: &str) -> (u64, u64);
    fn audit(&self) -> Vec<AuditAction>;
    /// Ends the ranks that have not ended.
    fn end_rest(&mut self, id: AllocationId);
}

impl ClaimCommands for Cluster {
    fn node(&self, i: usize) -> &Node {
        self.state.node(&n(i)).unwrap()
    }

    fn node_claim(&self, i: usize) -> Option<&NodeClaim> {
        self.node(i).node_claim.as_ref()
    }

    fn proven(&self, nodes: &[NodeId]) -> Vec<AttestedNode> {
        let proven = |id: &NodeId| AttestedNode {
            expected: ExpectedNode {
                node: id.clone(),
                version: self.state.node(id).map_or(0, |node| node.version),
                boot: Some("b1".to_owned()),
            },
            proof: proof(self.now(), id, 1),
        };
        nodes.iter().map(proven).collect()
    }

    fn claim(&mut self, user: &str, project: &str, nodes: &[usize]) -> Result<Applied, Refusal> {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(n).collect();
        let claim = Command::ClaimNodes {
            project: path(project),
            nodes: self.proven(&nodes),
            purpose: "genomes".to_owned(),
        };
        self.propose(user, Privilege::User, claim)
    }

    fn release(&mut self, user: &str, nodes: &[usize]) -> Result<Applied, Refusal> {
        let release = Command::ReleaseNodes {
            nodes: nodes.iter().copied().map(n).collect(),
            reason: None,
        };
        self.propose(user, Privilege::User, release)
    }

    fn fenced(&mut self, command: Command) -> Result<Applied, Refusal> {
        let epoch = self.state.lease("wipe").map_or(0, |(epoch, _)| epoch);
        let mut envelope = envelope(self.now(), principal(SERVICE, Privilege::Service), command);
        envelope.fence = Some(Fence {
            lease: lease(),
            epoch,
        });
        self.apply(envelope)
    }

    fn wipe(&mut self, i: usize, outcome: WipeOutcome) -> Result<Applied, Refusal> {
        let wipe = self
            .node_claim(i)
            .and_then(NodeClaim::awaits_wipe)
            .unwrap_or(0);
        let node = n(i);
        self.fenced(Command::ReportWipe {
            node,
            wipe,
            outcome,
        })
    }

    fn submit_as(&mut self, user: &str, spec: AllocationSpec) -> Result<AllocationId, Refusal> {
        let submit = Command::Submit {
            spec: Box::new(spec),
        };
        match self.propose(user, Privilege::User, submit)?.outcome {
            lattice_quorum_types::Outcome::Submitted { id } => Ok(id),
            other => panic!("{other:?}"),
        }
    }

    fn give(&mut self, id: AllocationId, nodes: &[usize]) -> Result<Applied, Refusal> {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(n).collect();
        let nodes = self.proven(&nodes);
        if self.state.allocation(id).unwrap().spec.sensitive {
            return self.admin(Command::AssignSensitive { id, nodes });
        }
        let nodes = nodes.into_iter().map(|node| node.expected).collect();
        self.admin(Command::Assign { id, nodes })
    }

    fn usage(&self, project: &str) -> (u64, u64) {
        let total = self.state.project(&path(project)).unwrap().total();
        (total.nodes, total.allocations)
    }

    fn audit(&self) -> Vec<AuditAction> {
        let query = Query::Audit {
            after: 0,
            limit: u32::MAX,
        };
        match self.state.query(&query) {
            Answer::Audit(entries) => entries.into_iter().map(|entry| entry.action).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn end_rest(&mut self, id: AllocationId) {
        let ranks = self.state.allocation(id).unwrap().ranks.clone();
        for rank in ranks {
            if !matches!(rank.phase, RankPhase::Ended { .. }) {
                let ended = RankReport::Ended {
                    at: self.now(),
                    exit: RankExit::Stopped,
                    fault: None,
                };
                self.report(id, &rank.node, ended).unwrap();
            }
        }
    }
}

fn sensitive(project: &str, nodes: u32) -> AllocationSpec {
    AllocationSpec {
        sensitive: true,
        ..spec(project, nodes)
    }
}

fn wiped() -> WipeOutcome {
    WipeOutcome::Wiped {
        at: UnixMillis(5),
        boot: "b1".to_owned(),
        evidence: "exit code 0".to_owned(),
    }
}

fn failed(reason: &str) -> WipeOutcome {
    WipeOutcome::Failed {
        at: UnixMillis(5),
        boot: "b1".to_owned(),
        reason: reason.to_owned(),
    }
}

fn taken(answer: Result<Applied, Refusal>) -> Vec<UnavailableNode> {
    match answer.unwrap_err() {
        Refusal::NodesTaken { nodes } => nodes,
        other => panic!("{other}"),
    }
}
