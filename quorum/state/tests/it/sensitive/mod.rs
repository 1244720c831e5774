//! Sensitive allocations: attestations of their nodes, checked against the baselines in force at commit.

mod cases;
mod property;

use crate::common::{self, Cluster, envelope, node, principal};
use bytes::Bytes;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Applied, Command, NodeId, Refusal, UnixMillis,
    allocation::RankExit,
    attestation::{
        Attestation, BaselineVersion, ClassAttestation, CompletedClass, MAX_AGE_MS, Proof,
        SchemaDigest,
    },
    baseline::{
        Baseline, BaselineDefinition, ClassRule, Cohort, CohortSelector, Constraint, DriftPolicy,
        Rule, Scalar, SensitivePolicy,
    },
    command::{AttestedNode, ExpectedNode, Privilege},
    id::BaselineName,
    refusal::ProofFault,
    view::{Answer, Query},
};
use std::collections::{BTreeMap, BTreeSet};

fn name(text: &str) -> BaselineName {
    BaselineName::new(text).unwrap()
}

fn exact(digest: u8) -> Rule {
    Rule::Exact {
        schema: 1,
        digest: [digest; 32],
        preimage: vec![digest; 8].into(),
    }
}

fn partial(version: &str) -> Rule {
    Rule::Partial {
        constraints: vec![Constraint {
            key: "nic.*.firmware".to_owned(),
            any_of: vec![Scalar::Text(version.to_owned())],
            or_absent: false,
        }],
    }
}

fn of(
    nodes: &str,
    cohort: Option<CohortSelector>,
    rules: &[(&str, SensitivePolicy, Rule)],
) -> BaselineDefinition {
    let rule = |(class, sensitive, rule): &(&str, SensitivePolicy, Rule)| {
        let rule = ClassRule {
            policy: DriftPolicy::Warn,
            sensitive: *sensitive,
            rule: rule.clone(),
        };
        ((*class).to_owned(), rule)
    };
    BaselineDefinition {
        description: String::new(),
        nodes: nodes.to_owned(),
        cohort,
        classes: rules.iter().map(rule).collect(),
    }
}

fn product(text: &str, count: Option<u32>) -> CohortSelector {
    CohortSelector {
        product: Some(text.to_owned()),
        gpu_count: count,
        ..CohortSelector::default()
    }
}

fn xe9680() -> Cohort {
    Cohort {
        vendor: Some("Dell Inc.".to_owned()),
        product: Some("XE9680".to_owned()),
        gpu_model: Some("H100".to_owned()),
        gpu_count: Some(8),
    }
}

/// A class in schema 1.
fn said(digest: u8) -> ClassAttestation {
    ClassAttestation::of_schema(1, [digest; 32])
}

/// Attestation of a node under boot `b1`, of now.
fn proof(c: &Cluster, of: &NodeId, digests: &[(&str, u8)]) -> Proof {
    let digests = digests.iter();
    Proof {
        attestation: Attestation {
            node: of.clone(),
            boot_id: "b1".to_owned(),
            cohort: Some(xe9680()),
            classes: digests
                .map(|(class, digest)| ((*class).to_owned(), said(*digest)))
                .collect(),
            read_at: c.now(),
            nonce: [0; 16],
        },
        signature: Bytes::new(),
        completed: BTreeMap::new(),
        conforms: BTreeMap::new(),
    }
}

trait Sensitively {
    fn set(&mut self, at: &str, definition: BaselineDefinition);
    fn submit_sensitive(&mut self, nodes: u32) -> AllocationId;
    /// Assignment to the first free nodes, each with this attestation.
    fn plan(&self, id: AllocationId, say: &dyn Fn(&NodeId) -> Proof) -> Command;
    fn in_force(&self) -> Vec<Baseline>;
}

impl Sensitively for Cluster {
    fn set(&mut self, at: &str, definition: BaselineDefinition) {
        let set = Command::SetBaseline {
            name: name(at),
            definition: Box::new(definition),
            expected_version: None,
        };
        self.propose("olga", Privilege::Operator, set).unwrap();
    }

    fn submit_sensitive(&mut self, nodes: u32) -> AllocationId {
        let mut spec = common::spec("t", nodes);
        spec.sensitive = true;
        self.submit(spec).unwrap()
    }

    fn plan(&self, id: AllocationId, say: &dyn Fn(&NodeId) -> Proof) -> Command {
        let count = self.state.allocation(id).unwrap().spec.nodes as usize;
        let nodes = self.free(count).into_iter().map(|expected| AttestedNode {
            proof: say(&expected.node),
            expected: ExpectedNode {
                boot: Some("b1".to_owned()),
                ..expected
            },
        });
        Command::AssignSensitive {
            id,
            nodes: nodes.collect(),
        }
    }

    fn in_force(&self) -> Vec<Baseline> {
        match self.state.query(&Query::Baselines) {
            Answer::Baselines(view) => view.baselines,
            other => panic!("{other:?}"),
        }
    }
}

fn founded(nodes: usize) -> Cluster {
    let mut c = Cluster::default();
    c.create("t", Some(common::limits(64))).unwrap();
    c.add_nodes(nodes);
    c
}

fn faults(answer: Result<Applied, Refusal>) -> Vec<ProofFault> {
    match answer.unwrap_err() {
        Refusal::Unproven { faults, .. } => faults.into_iter().map(|f| f.fault).collect(),
        other => panic!("{other}"),
    }
}
