//! Gossip membership of control: it joins every configured cell, publishes only its version and the validity period of
//! its HTTPS certificate, and takes over what agents and other controls publish.

use crate::{core::Core, https_certificates::PublishedControl, observed_state};
use lattice_conformance::{Class, ClassMark, EarlierDigest};
use lattice_gossip::{
    Cell, CellConfig, CertificatePeriod, Gossip, GossipLiveness, JoinError, Member, PublishedState,
    Snapshot, Verdict,
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
    let published = published_state(None);
    let mut joined = Vec::with_capacity(cells.len());
    for config in cells {
        joined.push(gossip.join(mesh, config.clone(), &published).await?);
    }
    Ok(joined)
}

/// State that a control publishes.
fn published_state(https: Option<CertificatePeriod>) -> PublishedState {
    PublishedState {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        https,
        ..PublishedState::default()
    }
}

/// Publishes the validity period of this control's HTTPS certificate in every cell.
pub fn publish_https(cells: &[Cell], period: CertificatePeriod) {
    let published = published_state(Some(period));
    for cell in cells {
        if let Err(error) = cell.publish(&published) {
            tracing::error!(cell = cell.name().as_str(), %error, "certificate period not published");
        }
    }
}

/// Takes over the latest snapshot of one cell after each change, until control leaves the cell.
pub async fn follow(core: Arc<Core>, cell: Cell) {
    let mut changes = cell.changes();
    loop {
        let snapshot = changes.borrow_and_update().clone();
        let name = cell.name().as_str();
        core.https_certificates
            .set_published(name, controls(&snapshot));
        observed_state::cell(&core, name, members(&snapshot));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Alive controls of the cell, by name.
fn controls(snapshot: &Snapshot) -> BTreeMap<String, PublishedControl> {
    let controls = snapshot
        .alive()
        .filter(|member| member.identity.role() == Role::Control);
    let published = controls.map(|member| {
        let control = PublishedControl {
            addr: member.addr,
            https: member.published.https,
        };
        (member.identity.id().to_owned(), control)
    });
    published.collect()
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
        keep_output_s: said.keep_output_s,
        is_alive: member.liveness == GossipLiveness::Alive,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_conformance::Digest;
    use lattice_mesh::Identity;

    /// Only a control has a TLS port: the same key of an agent, which an attacker controls, is ignored.
    #[test]
    fn https_certificates_are_those_of_controls() {
        let period = CertificatePeriod {
            issued_at_ms: 1,
            expires_at_ms: 2,
        };
        let member = |role, id: &str| {
            let identity = Identity::new("test", role, id).unwrap();
            let member = Member {
                identity: identity.clone(),
                addr: "127.0.0.1:1".parse().unwrap(),
                generation: 1,
                liveness: GossipLiveness::Alive,
                published: published_state(Some(period)),
                unreadable: Vec::new(),
                version: 1,
            };
            (identity, Arc::new(member))
        };
        let snapshot = Snapshot {
            cell: "c0".parse().unwrap(),
            members: BTreeMap::from([member(Role::Agent, "n1"), member(Role::Control, "c2")]),
        };
        let control = PublishedControl {
            addr: "127.0.0.1:1".parse().unwrap(),
            https: Some(period),
        };
        assert_eq!(
            controls(&snapshot),
            BTreeMap::from([("c2".to_owned(), control)])
        );
    }

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
