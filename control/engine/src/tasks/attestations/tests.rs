#![expect(clippy::unwrap_used, reason = "tests")]
use super::{
    signed_attestation::{MAX_AGE_MS, check},
    *,
};
use crate::tasks::testing::{
    self,
    world::{self, World},
};
use lattice_conformance::{Class, ClassMark, Digest};
use lattice_quorum_types::{
    UnixMillis,
    attestation::{Attestation, ClassAttestation},
};
use lattice_view::NodeEntry;

const NONCE: [u8; 16] = [3; 16];
const NOW: UnixMillis = UnixMillis(1_000_000);

fn claim(digest: u8) -> Attestation {
    Attestation {
        node: testing::id("a"),
        boot_id: "b1".to_owned(),
        cohort: None,
        classes: BTreeMap::from([(
            Class::Gpu.to_string(),
            ClassAttestation::of_schema(1, [digest; 32]),
        )]),
        read_at: NOW,
        nonce: NONCE,
    }
}

fn entry(boot: &str, digest: u8) -> NodeEntry {
    let mut seen = testing::seen(1);
    let digest = Digest([digest; 32]);
    let mark = ClassMark::Complete { schema: 1, digest };
    seen.marks.insert(Class::Gpu, mark);
    seen.marks.insert(Class::Bmc, ClassMark::Disabled);
    let mut entry = testing::entry("a");
    entry.gossip = Some(seen);
    entry.boot = Some(boot.to_owned());
    entry
}

#[test]
fn a_claim_must_say_what_was_planned_on() {
    assert_eq!(differs(&claim(1), &entry("b1", 1)), None);
    let other = differs(&claim(2), &entry("b1", 1)).unwrap_or_default();
    assert!(other.ends_with("than it publishes: gpu"), "{other}");
    let rebooted = differs(&claim(1), &entry("b2", 1)).unwrap_or_default();
    assert!(rebooted.contains("has rebooted"), "{rebooted}");
    let mut more = claim(1);
    let bmc = ClassAttestation::of_schema(1, [4; 32]);
    more.classes.insert(Class::Bmc.to_string(), bmc);
    let more = differs(&more, &entry("b1", 1)).unwrap_or_default();
    assert!(more.ends_with("than it publishes: bmc"), "{more}");
}

#[test]
fn a_claim_must_answer_this_question_now() {
    let node = testing::id("a");
    let ok = |attestation: &Attestation, nonce, now| {
        check(attestation, &node, nonce, UnixMillis(now)).is_ok()
    };
    assert!(ok(&claim(1), NONCE, NOW.0));
    assert!(ok(&claim(1), NONCE, NOW.0 + MAX_AGE_MS));
    assert!(!ok(&claim(1), NONCE, NOW.0 + MAX_AGE_MS + 1));
    assert!(!ok(&claim(1), NONCE, NOW.0 - MAX_AGE_MS - 1));
    assert!(!ok(&claim(1), [4; 16], NOW.0));
    let others = Attestation {
        node: testing::id("b"),
        ..claim(1)
    };
    assert!(!ok(&others, NONCE, NOW.0));
}

/// State time is ahead of every clock, so that every attestation is stale.
#[tokio::test]
async fn repeated_staleness_is_reported_after_one_retry() {
    let world = World::new();
    world.agent_answers.lock().unwrap().digests = BTreeMap::from([("gpu".to_owned(), [1; 32])]);
    let digest = Digest([1; 32]);
    let mark = ClassMark::Complete { schema: 1, digest };
    world.set_marks(BTreeMap::from([(Class::Gpu, mark)]));
    let node = testing::id(world::NODE);
    let nodes = [ExpectedNode {
        node: node.clone(),
        version: world.node().version,
        boot: Some("b1".to_owned()),
    }];
    let fault = |fault| NodeProofFault {
        node: node.clone(),
        fault,
    };
    let made = |class: &str| {
        let class = class.to_owned();
        fault(ProofFault::MadeOfAnother { class })
    };
    // Two classes of one node are one reason to query it.
    let first = [made("bios"), made("bmc")];
    let again = [fault(ProofFault::Age {
        read_at: NOW,
        off_ms: 200_000,
        limit_ms: 120_000,
    })];
    let said = || world.core.view().node(&node)?.attestation_fault.clone();
    let mut attestations = Attestations::new(world.core.clone());
    for refused in [&first[..], &again[..]] {
        assert_eq!(said(), None);
        assert!(attestations.confirm(&world.core.view(), &nodes).is_none());
        assert!(attestations.under_way.contains(&node));
        attestations.answered().await;
        assert!(attestations.confirm(&world.core.view(), &nodes).is_some());
        attestations.refused(refused);
    }
    assert_eq!(
        said().as_deref(),
        Some("its attestation was made 200 s from state time; at most 120 s are allowed")
    );
    assert!(attestations.confirm(&world.core.view(), &nodes).is_none());
    assert!(attestations.under_way.is_empty());
}

#[tokio::test]
async fn panicked_query_refuses_its_node_alone() {
    let world = World::new();
    let mut attestations = Attestations::new(world.core.clone());
    let (panicked, other) = (testing::id(world::NODE), testing::id("n9"));
    for node in [&panicked, &other] {
        attestations.under_way.insert(node.clone());
    }
    attestations
        .asked
        .spawn(other.clone(), std::future::pending());
    attestations
        .asked
        .spawn(panicked.clone(), async { panic!("a bug") });
    attestations.answered().await;
    assert_eq!(attestations.under_way, BTreeSet::from([other]));
    assert_eq!(attestations.asked.len(), 1);
    let view = world.core.view();
    let fault = view.node(&panicked).unwrap().attestation_fault.clone();
    assert_eq!(
        fault.as_deref(),
        Some("control failed to read its attestation; see the log of control")
    );
}
