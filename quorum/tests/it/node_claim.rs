//! Node claims: many users claim the same nodes at once, on three members. Each node gets exactly one owner, and every
//! other user receives that owner's name.

use crate::common::{
    Cluster, admin, create_project, credentials, envelope, now, path, ready, register, until,
};
use futures::future::join_all;
use lattice_mesh::{Authority, Role};
use lattice_quorum_types::{
    Command, Envelope, NodeId, Refusal,
    attestation::{Attestation, ClassAttestation, Proof},
    command::{AttestedNode, ExpectedNode, Privilege},
    node::{Node, UnavailableReason},
    view::{Answer, Query},
};
use std::collections::{BTreeMap, BTreeSet};

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const USERS: usize = 8;

/// Attestation of a node, signed by it.
fn claimed(authority: &Authority, of: &Node) -> AttestedNode {
    let attestation = Attestation {
        node: of.id.clone(),
        boot_id: "b1".to_owned(),
        cohort: None,
        classes: BTreeMap::from([("gpu".to_owned(), ClassAttestation::of_schema(1, [1; 32]))]),
        read_at: now(),
        nonce: [7; 16],
    };
    let own = credentials(authority, Role::Agent, of.id.as_str());
    let signed = own.sign(
        Attestation::CONTEXT,
        &postcard::to_stdvec(&attestation).unwrap(),
    );
    AttestedNode {
        expected: ExpectedNode {
            node: of.id.clone(),
            version: of.version,
            boot: Some("b1".to_owned()),
        },
        proof: Proof {
            attestation,
            signature: postcard::to_stdvec(&signed.unwrap()).unwrap().into(),
            completed: BTreeMap::new(),
            conforms: BTreeMap::new(),
        },
    }
}

async fn nodes(client: &lattice_quorum_client::QuorumClient) -> Vec<Node> {
    match client.read(Query::Hot).await.unwrap() {
        Answer::Hot(hot) => hot.nodes,
        other => panic!("{other:?}"),
    }
}

fn claim(user: &str, nodes: Vec<AttestedNode>) -> Envelope {
    let claim = Command::ClaimNodes {
        project: path("atlas"),
        nodes,
        purpose: String::new(),
    };
    envelope(
        user,
        Privilege::User,
        Some(format!("claim-of-{user}")),
        claim,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_node_claims_have_one_winner() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let mut commands = vec![admin(None, create_project("atlas", 100))];
    for name in NODES {
        commands.push(admin(None, register(name)));
        commands.push(admin(None, ready(name)));
    }
    for reply in client.propose_all(commands).await.unwrap() {
        reply.unwrap();
    }
    let all = nodes(&client).await;
    // Each user requests two neighbours, so that of any three nodes at most one user gets both.
    let wants = |n: usize| [&all[n % 4], &all[(n + 1) % 4]];
    let asked = (0..USERS).map(|n| {
        let user = format!("user{n}");
        let proven = wants(n).map(|node| claimed(&cluster.authority, node));
        let client = cluster.client(&format!("c{}", n + 2));
        async move {
            let answer = client.propose(claim(&user, proven.into())).await.unwrap();
            (user, answer)
        }
    });
    let answers: Vec<_> = join_all(asked).await;
    let after = nodes(&client).await;
    let owner = |id: &NodeId| {
        let node = after.iter().find(|node| node.id == *id).unwrap();
        node.node_claim
            .as_ref()
            .map(|node_claim| node_claim.user.clone())
    };
    let mut won = BTreeSet::new();
    for (n, (user, answer)) in answers.iter().enumerate() {
        match answer {
            Ok(_) => {
                assert!(
                    wants(n)
                        .iter()
                        .all(|node| owner(&node.id).as_ref() == Some(user))
                );
                won.insert(user.clone());
            }
            Err(Refusal::NodesTaken { nodes }) => {
                for taken in nodes {
                    let UnavailableReason::User { user: holder, .. } = &taken.by else {
                        panic!("{taken:?}")
                    };
                    assert_eq!(owner(&taken.node).as_ref(), Some(holder));
                    assert_ne!(holder, user);
                }
            }
            Err(other) => panic!("{user}: {other}"),
        }
    }
    assert!((1..=2).contains(&won.len()), "{won:?}");
    let owners: BTreeSet<String> = after.iter().filter_map(|node| owner(&node.id)).collect();
    assert_eq!(owners, won, "all or none");

    // An attestation that the node did not sign is refused before it enters the log.
    let mut forged = vec![claimed(&cluster.authority, &after[0])];
    forged[0].proof.attestation.nonce = [8; 16];
    let refused = client.propose(claim("mallory", forged)).await.unwrap();
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, Refusal::NotConforming { .. }),
        "{refused}"
    );
    until("all members at one digest", || async {
        let digests: Vec<_> = (1..=3).map(|id| cluster.app(id).state_digest()).collect();
        digests.windows(2).all(|pair| pair[0] == pair[1])
    })
    .await;
    cluster.stop().await;
}
