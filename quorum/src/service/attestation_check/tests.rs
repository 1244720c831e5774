#![expect(clippy::unwrap_used, reason = "tests")]
use crate::service::attestation_check::*;
use lattice_mesh::{Authority, Clock as _, Credentials, MeshConfig, SystemClock, Validity};
use lattice_quorum_types::{
    AllocationId, NodeId,
    attestation::ClassAttestation,
    command::{ExpectedNode, Principal, Privilege, SCHEMA},
};
use std::{collections::BTreeMap, time::Duration};

fn authority() -> Authority {
    let year = Validity::from_now(SystemClock.now(), Duration::from_secs(365 * 86_400));
    Authority::create("demo", year).unwrap()
}

fn credentials(by: &Authority, role: Role, name: &str) -> Credentials {
    Credentials::issued_now(by, "demo", role, name, Duration::from_secs(86_400)).unwrap()
}

fn claim(node: &str) -> Attestation {
    Attestation {
        node: NodeId::new(node).unwrap(),
        boot_id: "b1".to_owned(),
        cohort: None,
        classes: BTreeMap::from([("gpu".to_owned(), ClassAttestation::of_schema(1, [1; 32]))]),
        read_at: SystemClock.now(),
        nonce: [7; 16],
    }
}

fn signed(by: &Credentials, attestation: &Attestation) -> Vec<u8> {
    let bytes = postcard::to_stdvec(attestation).unwrap();
    postcard::to_stdvec(&by.sign(Attestation::CONTEXT, &bytes).unwrap()).unwrap()
}

fn assign(claims: Vec<(Attestation, Vec<u8>)>) -> Envelope {
    let node = |(claim, signature): (Attestation, Vec<u8>)| AttestedNode {
        expected: ExpectedNode {
            node: claim.node.clone(),
            version: 1,
            boot: Some("b1".to_owned()),
        },
        proof: Proof {
            attestation: claim,
            signature: signature.into(),
            completed: BTreeMap::new(),
            conforms: BTreeMap::new(),
        },
    };
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "service:control/c1".to_owned(),
            privilege: Privilege::Service,
        },
        key: None,
        at: SystemClock.now(),
        fence: None,
        command: Command::AssignSensitive {
            id: AllocationId(1),
            nodes: claims.into_iter().map(node).collect(),
        },
    }
}

#[tokio::test]
async fn only_a_nodes_own_word_passes_and_its_signature_does_not_go_on() {
    let ours = authority();
    let own = |name: &str| credentials(&ours, Role::Agent, name);
    let leader = credentials(&ours, Role::Quorum, "1");
    let mesh = Mesh::bind(
        "127.0.0.1:0".parse().unwrap(),
        leader,
        MeshConfig::default(),
    )
    .unwrap();
    let check = |claims: Vec<(Attestation, Vec<u8>)>| {
        let mut envelope = assign(claims);
        let checked = verify(&mesh, &mut envelope, SystemClock.now());
        checked.map(|()| envelope)
    };
    let (a, b) = (claim("a"), claim("b"));
    let good = |attestation: &Attestation| {
        (
            attestation.clone(),
            signed(&own(attestation.node.as_str()), attestation),
        )
    };
    let passed = check(vec![good(&a), good(&b)]).unwrap();
    let Command::AssignSensitive { nodes, .. } = &passed.command else {
        panic!("{passed:?}")
    };
    assert!(nodes.iter().all(|node| node.proof.signature.is_empty()));
    assert_eq!(nodes[1].proof.attestation, b);

    let changed = Attestation {
        classes: BTreeMap::from([("gpu".to_owned(), ClassAttestation::of_schema(1, [2; 32]))]),
        ..a.clone()
    };
    let strangers = credentials(&authority(), Role::Agent, "a");
    let as_control = credentials(&ours, Role::Control, "a");
    let cases = [
        (
            "what it says was changed",
            (changed, good(&a).1),
            "not valid",
        ),
        (
            "another node's",
            (a.clone(), signed(&own("b"), &a)),
            "is signed by spiffe",
        ),
        (
            "a service's",
            (a.clone(), signed(&as_control, &a)),
            "is signed by spiffe",
        ),
        (
            "of another cluster",
            (a.clone(), signed(&strangers, &a)),
            "not trusted",
        ),
        ("no signature", (a.clone(), Vec::new()), "cannot be read"),
        (
            "a wild one",
            (a.clone(), vec![0xff; 1 << 20]),
            "signature: has 1048576 bytes",
        ),
    ];
    for (what, bad, says) in cases {
        let refused = check(vec![good(&b), bad]).unwrap_err();
        println!("{what}: {refused}");
        let Refusal::Unproven {
            faults, more: 0, ..
        } = &refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!(faults.len(), 1, "{what}: {refused}");
        assert_eq!(faults[0].node.as_str(), "a");
        assert!(refused.to_string().contains(says), "{what}: {refused}");
    }
    mesh.shutdown(Duration::ZERO).await;
}
