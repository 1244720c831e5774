//! Gossip membership of control: it joins every configured cell, publishes only its version, and takes over what agents
//! publish.

use crate::{core::Core, observed_state};
use lattice_conformance::{Class, ClassMark, EarlierDigest};
use lattice_gossip::{
    Cell, CellConfig, Gossip, GossipLiveness, JoinError, Member, PublishedState, Snapshot, Verdict,
};
use lattice_mesh::{Mesh, Role};
use lattice_placement::Health;
use lattice_quorum_types::NodeId;
use lattice_view::{GossipedNode, node::JournalPosition};
use std::{collections::BTreeMap, sync::Arc};

/// Joins every cell.
pub async fn join(
    gossip: &Gossip,
    mesh: &Mesh,
    cells: &[CellConfig],
) -> Result<Vec<Cell>, JoinError> {
    let published = PublishedState {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..PublishedState::default()
    };
    let mut joined = Vec::with_capacity(cells.len());
    for config in cells {
        joined.push(gossip.join(mesh, config.clone(), &published).await?);
    }
    Ok(joined)
}

/// Takes over the latest snapshot of one cell after each change, until control leaves the cell.
pub async fn follow(core: Arc<Core>, cell: Cell) {
    let mut changes = cell.changes();
    loop {
        let snapshot = changes.borrow_and_update().clone();
        observed_state::cell(&core, cell.name().as_str(), members(&snapshot));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn members(snapshot: &Snapshot) -> BTreeMap<NodeId, GossipedNode> {
    let agents = snapshot
        .members
        .values()
        .filter(|member| member.identity.role() == Role::Agent);
    agents
        .filter_map(|member| {
            let id = NodeId::new(member.identity.id()).ok()?;
            Some((id, gossiped_node(snapshot.cell.as_str(), member)))
        })
        .collect()
}

/// Converts the values that a member publishes. A value that cannot be parsed counts as not published.
fn gossiped_node(cell: &str, member: &Member) -> GossipedNode {
    let said = &member.published;
    let mark = |(class, mark): (&String, &String)| {
        let class: Class = class.parse().ok()?;
        Some((class, mark.parse::<ClassMark>().ok()?))
    };
    let marks: BTreeMap<Class, ClassMark> = said.fingerprints.iter().filter_map(mark).collect();
    let beside = said.fingerprints.iter();
    let beside = beside.filter_map(|(key, text)| EarlierDigest::parse(key, text));
    let beside = beside.filter(|(class, earlier)| {
        let mark = marks.get(class);
        mark.is_some_and(|mark| earlier.is_consistent_with(mark))
    });
    let health = said.health.as_ref();
    GossipedNode {
        cell: cell.to_owned(),
        addr: member.addr,
        // Ordered by key: of several earlier marks for one class, the last is kept.
        earlier: beside.collect(),
        marks,
        document: said.identity.as_ref().and_then(|text| text.parse().ok()),
        health: match health.map(|h| h.verdict) {
            Some(Verdict::Healthy) => Health::Healthy,
            Some(Verdict::Degraded) => Health::Degraded,
            Some(Verdict::Faulty) => Health::Faulty,
            Some(Verdict::Unknown) | None => Health::Unknown,
        },
        health_reasons: health.map_or_else(Vec::new, |h| h.reasons.clone()),
        boot_id: said.boot.as_ref().map(|boot| boot.boot_id.clone()),
        generation: member.generation,
        agent_version: said.version.clone(),
        group: said.group.clone(),
        history: said.history.map(|mark| JournalPosition {
            journal: mark.journal,
            seq: mark.seq,
        }),
        grace_ms: said.grace_ms,
        is_alive: member.liveness == GossipLiveness::Alive,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::Digest;
    use lattice_mesh::Identity;

    #[test]
    fn rejects_unmergeable_mark_extension() {
        let text = |schema: u16, byte: u8| format!("{schema}:{}", Digest([byte; 32]));
        let said = [
            ("gpu", text(3, 1)),
            // Of the mark's own schema, of a later schema, and of the schema before.
            ("gpu.3", text(3, 2)),
            ("gpu.4", text(4, 3)),
            ("gpu.2", text(2, 4)),
            ("nic", "incomplete".to_owned()),
            ("nic.1", text(1, 5)),
            // Of a class without a published mark.
            ("cpu.1", text(1, 6)),
        ];
        let fingerprints = said.map(|(key, text)| (key.to_owned(), text));
        let member = Member {
            identity: Identity::new("test", Role::Agent, "a").unwrap(),
            addr: "127.0.0.1:1".parse().unwrap(),
            generation: 1,
            liveness: GossipLiveness::Alive,
            published: PublishedState {
                fingerprints: fingerprints.into(),
                ..PublishedState::default()
            },
            unreadable: Vec::new(),
            version: 1,
        };
        let taken = gossiped_node("c0", &member);
        assert_eq!(taken.marks.len(), 2);
        let earlier = EarlierDigest {
            schema: 2,
            digest: Digest([4; 32]),
        };
        assert_eq!(taken.earlier, BTreeMap::from([(Class::Gpu, earlier)]));
    }
}
