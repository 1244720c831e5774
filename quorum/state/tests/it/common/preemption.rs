//! Helpers for tests of preemption and promised nodes.

use super::*;
use lattice_quorum_types::command::{RequestedCheckpoint, Victim};

pub fn of_class(nodes: u32, class: u8) -> AllocationSpec {
    AllocationSpec {
        class,
        ..spec("t", nodes)
    }
}

/// A limit of twelve nodes, and six nodes.
pub fn cluster() -> Cluster {
    let mut c = Cluster::default();
    c.create("t", Some(limits(12))).unwrap();
    c.add_nodes(6);
    c
}

pub fn names(nodes: &[u32]) -> Vec<NodeId> {
    nodes.iter().map(|n| node(&format!("n{n:03}"))).collect()
}

pub fn victim(c: &Cluster, id: AllocationId, writes: bool) -> Victim {
    Victim {
        id,
        attempt: c.of(id).attempt,
        checkpoint: writes.then(|| RequestedCheckpoint {
            directory: "/scratch".to_owned(),
            timeout_ms: 5_000,
        }),
    }
}

pub fn preempt(
    c: &mut Cluster,
    id: AllocationId,
    nodes: &[u32],
    victims: Vec<Victim>,
) -> Result<Applied, Refusal> {
    let nodes = names(nodes);
    c.service(Command::Preempt { id, nodes, victims })
}

pub fn promised(c: &Cluster, id: AllocationId) -> Vec<String> {
    let nodes = c.state.nodes().filter(|node| node.promised == Some(id));
    nodes.map(|node| node.id.to_string()).collect()
}

pub fn assign(c: &mut Cluster, id: AllocationId, nodes: &[u32]) -> Result<Applied, Refusal> {
    let nodes = c.expected(&names(nodes));
    c.service(Command::Assign { id, nodes })
}
