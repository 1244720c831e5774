//! Forged gossip. A malicious agent gossips as another node. It has no certificate of that node. It lets a fake node of
//! that name gossip under an authority of its own, and forwards the fake node's bytes with its own certificate. For
//! control the bytes come from a member, and they pretend to be from n2.

use super::{
    fixture::{CELL, CLUSTER, ClusterFixture, authority, credentials},
    names::member,
};
use lattice_cluster::LOOPBACK;
use lattice_gossip::{
    Boot, CellConfig, Gossip, Health, MESSAGE_KIND, PublishedState, Seed, Verdict,
};
use lattice_mesh::{Clock as _, ExpectedIdentity, Mesh, MeshConfig, Role, Router, SystemClock};
use lattice_placement::Liveness;
use lattice_quorum_types::{AllocationState, node::Lifecycle};
use lattice_tests::wait::{LivenessChecks, PATIENCE, eventually};
use std::time::{Duration, Instant};

const FORGED_BOOT: &str = "00000000-dead-beef-0000-000000000000";

/// Time between two rounds of gossip.
const ROUND: Duration = Duration::from_millis(100);

/// Statements that n2 would never publish.
fn lies(verdict: Verdict) -> PublishedState {
    let mark = "f".repeat(64);
    PublishedState {
        fingerprints: [
            ("gpu".to_owned(), mark.clone()),
            ("kernel".to_owned(), mark),
        ]
        .into(),
        health: Some(Health {
            verdict,
            reasons: Vec::new(),
        }),
        boot: Some(Boot {
            boot_id: FORGED_BOOT.to_owned(),
            incarnation: 99,
        }),
        version: Some("forged".to_owned()),
        ..PublishedState::default()
    }
}

/// Both directions of the fake node's gossip, forwarded with a member's certificate.
struct Relay {
    stranger: Mesh,
    inner: Mesh,
    outer: Mesh,
    cell: lattice_gossip::Cell,
}

impl Relay {
    async fn start(cluster: &ClusterFixture) -> Self {
        let theirs = authority();
        let bind = |role, id| {
            let own = credentials(&theirs, CLUSTER, role, id);
            Mesh::bind(LOOPBACK, own, MeshConfig::default()).unwrap()
        };
        let (stranger, inner) = (bind(Role::Agent, "n2"), bind(Role::Control, "relay"));
        // The only valid part: a certificate of n1.
        let outer = member(cluster, Role::Agent, "n1");
        let to_control = outer.peer(
            cluster.control.mesh_addr(),
            ExpectedIdentity::role(Role::Control),
        );
        let to_stranger = inner.peer(stranger.local_addr(), ExpectedIdentity::role(Role::Agent));
        let members: &[Role] = &[Role::Agent, Role::Control];
        let out = Router::new().messages(MESSAGE_KIND, members, move |_, bytes| {
            let _ = to_control.send_message(MESSAGE_KIND, bytes);
        });
        inner.serve(out).unwrap();
        let back = Router::new().messages(MESSAGE_KIND, members, move |_, bytes| {
            let _ = to_stranger.send_message(MESSAGE_KIND, bytes);
        });
        outer.serve(back).unwrap();
        let gossip = Gossip::new();
        stranger.serve(gossip.route(Router::new())).unwrap();
        // A later incarnation of n2 than any real one, at the address of the malicious agent.
        let later = SystemClock.now().0 + 1_000_000;
        let mut config = CellConfig::new(CELL.parse().unwrap(), later);
        config.interval = ROUND;
        config.advertise = Some(outer.local_addr());
        config.seeds = vec![Seed {
            addr: inner.local_addr(),
            role: Role::Control,
        }];
        let cell = gossip
            .join(&stranger, config, &lies(Verdict::Faulty))
            .await
            .unwrap();
        Self {
            stranger,
            inner,
            outer,
            cell,
        }
    }

    async fn stop(self) {
        self.cell.leave().await;
        for mesh in [self.stranger, self.inner, self.outer] {
            mesh.shutdown(Duration::ZERO).await;
        }
    }
}

/// Control receives the forged gossip. A job that holds n2 continues to hold it, and a new job is sent to the real n2.
/// n2 is alive, ready and not drained.
pub async fn what_gossip_claims_of_another_moves_nothing(cluster: &ClusterFixture) {
    let (go, ran) = (
        cluster.folder().join("forged-go"),
        cluster.folder().join("forged-ran"),
    );
    let script = format!(
        "echo \"$LATTICE_NODE\" >> {}; until [ -e {} ]; do sleep 0.05; done; exit 7",
        ran.display(),
        go.display()
    );
    let before = cluster.node("n2").await;
    let held = cluster.job_on("n2", &script).await;
    let reaches = |id, wanted| async move {
        let found = cluster.allocation(id).await;
        (found.state == wanted).then_some(found)
    };
    eventually("the job runs", || reaches(held, AllocationState::Running)).await;

    let relay = Relay::start(cluster).await;
    let (core, n2) = (cluster.core(), super::fixture::node("n2"));
    let hears_it = || async {
        let view = core.view();
        let seen = view.node(&n2)?.gossip.as_ref()?;
        (seen.boot_id.as_deref() == Some(FORGED_BOOT)).then_some(seen.addr)
    };
    let addr = eventually("control hears what is claimed of n2", hears_it).await;
    assert_eq!(
        addr,
        relay.outer.local_addr(),
        "it says n2 is at the liar's"
    );

    // Longer than control's timeout for a suspect node, on a machine that does not stall.
    let looks = Duration::from_secs(6).as_millis() / ROUND.as_millis();
    let (begun, mut machine) = (Instant::now(), LivenessChecks::begin());
    while u128::from(machine.counted()) < looks {
        assert!(begun.elapsed() < PATIENCE, "this machine stands still");
        let view = core.view();
        if machine.may_blame(Instant::now()) {
            assert_eq!(view.node(&n2).unwrap().liveness, Liveness::Alive);
        }
        let node = cluster.node("n2").await;
        assert_eq!(
            (node.lifecycle, &node.drain),
            (Lifecycle::Ready, &before.drain)
        );
        assert_eq!(node.holder.unwrap().allocation, held);
        tokio::time::sleep(ROUND).await;
    }
    std::fs::write(&go, "").unwrap();
    eventually("the job ends", || reaches(held, AllocationState::Failed)).await;

    // A forged hint may keep jobs off a node, but must never redirect them.
    let next = cluster.job_on("n2", &script).await;
    relay.cell.publish(&lies(Verdict::Healthy)).unwrap();
    let next = eventually("the next one ends too", || {
        reaches(next, AllocationState::Failed)
    })
    .await;
    let text = format!("{:?}", next.ranks[0].phase);
    assert!(text.contains("code: 7"), "{text}");
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "n2\nn2\n");
    relay.stop().await;
}
