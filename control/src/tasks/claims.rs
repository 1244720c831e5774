//! Claims before sensitive work: plans rest on gossiped digests, which one bad node could forge for
//! others. Before sensitive work is assigned, each chosen node says itself, signed and on the spot,
//! what it is; a node that says other than what the plan was made on gets no sensitive work, and
//! its entry says why. What it said goes along with the assignment, and is held against the
//! baselines once more where that is committed.

use crate::{
    baselines::{self, Chosen},
    core::Core,
    observe,
    view::{NodeEntry, View},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use lattice_hwprobe::{Class, ClassMark, Digest, Earlier};
use lattice_mesh::{Role, Signed};
use lattice_quorum_types::{
    NodeId, UnixMillis,
    baseline::Sensitive,
    claim::{BaselineVersion, Claim, ClaimedNode, ClassClaim, Completed, Proof, SchemaDigest},
    command::ExpectedNode,
    refusal::{ProofFault, Unproven},
    wire::GetClaim,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};

/// A claim's reading may be this old, or this far ahead, by our clock.
const MAX_AGE_MS: u64 = 60_000;
/// How long a claim may be used once it was received, and how long a node that could not claim is
/// left alone.
const HOLDS: Duration = Duration::from_secs(30);
/// An agent may have to read its hardware first.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Agents asked at a time.
const MAX_CALLS: usize = 256;

/// What a node said, and its signature.
#[derive(Debug, Clone)]
struct Said {
    claim: Claim,
    signature: Bytes,
}

#[derive(Debug)]
enum Known {
    Claimed(Box<Said>),
    /// It could not be had, or is not what was planned on.
    Refused,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Claims {
    core: Arc<Core>,
    known: BTreeMap<NodeId, (Instant, Known)>,
    /// When they were asked anew, since what they had said was of no use any more.
    asked_anew: BTreeMap<NodeId, Instant>,
    under_way: BTreeSet<NodeId>,
    asked: JoinSet<(NodeId, Result<Said, String>)>,
}

impl Claims {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            known: BTreeMap::new(),
            asked_anew: BTreeMap::new(),
            under_way: BTreeSet::new(),
            asked: JoinSet::new(),
        }
    }

    /// Resolves when a node that was asked has answered, or cannot.
    pub(crate) async fn answered(&mut self) {
        let Some(answer) = self.asked.join_next().await else {
            return std::future::pending().await;
        };
        match answer {
            Ok((node, Ok(said))) => {
                self.under_way.remove(&node);
                let known = Known::Claimed(Box::new(said));
                self.known.insert(node, (Instant::now(), known));
            }
            Ok((node, Err(reason))) => {
                self.under_way.remove(&node);
                self.refuse(node, reason);
            }
            Err(error) => {
                tracing::error!(%error, "asking for a claim broke down; all are asked again");
                self.asked.abort_all();
                self.under_way.clear();
            }
        }
    }

    /// Forgets what is too old. A node that was refused may be chosen again then, and asked anew.
    pub(crate) fn forget_old(&mut self) {
        let now = Instant::now();
        let is_old = |at: Instant| now.saturating_duration_since(at) >= HOLDS;
        self.asked_anew.retain(|_, at| !is_old(*at));
        let old = self.known.extract_if(.., |_, (at, _)| is_old(*at));
        let cleared: BTreeMap<NodeId, Option<String>> = old
            .filter(|(_, (_, known))| matches!(known, Known::Refused))
            .map(|(node, _)| (node, None))
            .collect();
        if !cleared.is_empty() {
            observe::claims(&self.core, &cleared);
        }
    }

    /// The nodes with what speaks for them, once every one claims to be what the view says. Those
    /// that have not said it yet are asked; the next cycle sees what came of it.
    pub(crate) fn confirm(
        &mut self,
        view: &View,
        nodes: &[ExpectedNode],
    ) -> Option<Vec<ClaimedNode>> {
        // Every one is looked at: those that are missing are asked at once, not one by one.
        let looked: Vec<Option<ClaimedNode>> = nodes
            .iter()
            .map(|expected| {
                let proof = self.confirm_one(view, &expected.node)?;
                let expected = expected.clone();
                Some(ClaimedNode { expected, proof })
            })
            .collect();
        looked.into_iter().collect()
    }

    fn confirm_one(&mut self, view: &View, node: &NodeId) -> Option<Proof> {
        let entry = view.node(node)?;
        // What it gossips now may not have been held against its baseline yet.
        if !view.is_judged(entry) || entry.no_sensitive().is_some() {
            return None;
        }
        let said = match self.known.get(node) {
            Some((_, Known::Claimed(said))) => said.as_ref().clone(),
            Some((_, Known::Refused)) => return None,
            None => {
                self.ask(node);
                return None;
            }
        };
        match differs(&said.claim, entry) {
            None => Some(proof(view, entry, said)),
            Some(reason) => {
                self.refuse(node.clone(), reason);
                None
            }
        }
    }

    /// An assignment was refused for what its nodes said. Where asking anew may help they are, once
    /// in a while: an answer wakes who asks, and what is stale at once again (state time may be far
    /// ahead) would be asked for as fast as it comes. Where not, they get no sensitive work for now,
    /// and their entries say why.
    pub(crate) fn refused(&mut self, faults: &[Unproven]) {
        // One fault for each class: a node may have many, of either kind.
        let mut of_nodes: BTreeMap<&NodeId, &ProofFault> = BTreeMap::new();
        for Unproven { node, fault } in faults {
            let worst = of_nodes.entry(node).or_insert(fault);
            if worst.is_stale() && !fault.is_stale() {
                *worst = fault;
            }
        }
        for (node, fault) in of_nodes {
            if fault.is_stale() && !self.asked_anew.contains_key(node) {
                self.asked_anew.insert(node.clone(), Instant::now());
                self.known.remove(node);
                continue;
            }
            self.refuse(node.clone(), fault.to_string());
        }
    }

    fn refuse(&mut self, node: NodeId, reason: String) {
        tracing::warn!(%node, reason, "node gets no sensitive work for now");
        let refused = BTreeMap::from([(node.clone(), Some(reason))]);
        observe::claims(&self.core, &refused);
        self.known.insert(node, (Instant::now(), Known::Refused));
    }

    fn ask(&mut self, node: &NodeId) {
        if self.asked.len() >= MAX_CALLS || !self.under_way.insert(node.clone()) {
            return;
        }
        let (core, node) = (self.core.clone(), node.clone());
        self.asked.spawn(async move {
            let claim = read(&core, &node).await;
            (node, claim)
        });
    }
}

/// Nodes as they are named in a claim of a user before any is asked: whose they are, and whether they
/// fit, can be judged without.
pub(crate) fn unasked(view: &View, nodes: &[NodeId]) -> Vec<ClaimedNode> {
    let unasked = |node: &NodeId| ClaimedNode {
        expected: expected(view, node),
        proof: Proof {
            claim: Claim {
                node: node.clone(),
                boot_id: "not asked yet".to_owned(),
                cohort: None,
                classes: BTreeMap::new(),
                read_at: UnixMillis(0),
                nonce: [0; 16],
            },
            signature: Bytes::new(),
            completed: BTreeMap::new(),
            conforms: BTreeMap::new(),
        },
    };
    nodes.iter().map(unasked).collect()
}

fn expected(view: &View, node: &NodeId) -> ExpectedNode {
    let entry = view.node(node);
    let record = entry.and_then(|entry| entry.record.as_ref());
    ExpectedNode {
        node: node.clone(),
        version: record.map_or(0, |record| record.version),
        boot: entry.and_then(|entry| entry.boot.clone()),
    }
}

/// What speaks for these nodes, asked of each of them now; or why it does not, of each of which that
/// is so.
pub(crate) async fn prove(core: &Core, nodes: &[NodeId]) -> Result<Vec<ClaimedNode>, Vec<String>> {
    let asked = stream::iter(nodes.to_vec()).map(|node| async move {
        let said = read(core, &node).await;
        (node, said)
    });
    let said: Vec<_> = asked.buffered(MAX_CALLS).collect().await;
    let view = core.view();
    let (mut proven, mut faults) = (Vec::new(), Vec::new());
    for (node, said) in said {
        match said.and_then(|said| proven_by(&view, &node, said)) {
            Ok(claimed) => proven.push(claimed),
            Err(why) => faults.push(format!("node {node}: {why}")),
        }
    }
    match faults.is_empty() {
        true => Ok(proven),
        false => Err(faults),
    }
}

fn proven_by(view: &View, node: &NodeId, said: Said) -> Result<ClaimedNode, String> {
    let entry = view.node(node).ok_or("it is not known")?;
    if let Some(reason) = entry.no_sensitive() {
        return Err(reason.to_owned());
    }
    if !view.is_judged(entry) {
        return Err("it was not held against its baselines yet; try again".to_owned());
    }
    match differs(&said.claim, entry) {
        Some(reason) => Err(reason),
        None => Ok(ClaimedNode {
            expected: expected(view, node),
            proof: proof(view, entry, said),
        }),
    }
}

/// Reads and verifies a node's claim.
async fn read(core: &Core, node: &NodeId) -> Result<Said, String> {
    let nonce: [u8; 16] = rand::random();
    let view = core.view();
    let request = GetClaim { nonce };
    let asked = core.agents.call(&view, node, &request, CALL_TIMEOUT);
    let answer = asked.await.map_err(|error| error.to_string())?;
    let answer = answer.map_err(|reason| format!("it cannot claim: {reason}"))?;
    let malformed = |error: postcard::Error| format!("its claim cannot be read: {error}");
    let (claim, signed): (Bytes, Signed) = postcard::from_bytes(&answer).map_err(malformed)?;
    let now = core.now();
    let mesh = core.agents.mesh();
    let signer = mesh.verify_signed(Claim::CONTEXT, &claim, &signed, now);
    let signer = signer.map_err(|refused| refused.to_string())?;
    if signer.role() != Role::Agent || signer.id() != node.as_str() {
        return Err(format!("its claim was signed by {signer}"));
    }
    let claim: Claim = postcard::from_bytes(&claim).map_err(malformed)?;
    check(&claim, node, nonce, now)?;
    let signature = postcard::to_stdvec(&signed).map_err(malformed)?.into();
    Ok(Said { claim, signature })
}

/// Whether it can be a claim, answers this question, and is of now.
fn check(claim: &Claim, node: &NodeId, nonce: [u8; 16], now: UnixMillis) -> Result<(), String> {
    let form = claim.check();
    form.map_err(|fault| format!("what it claims is no claim: {fault}"))?;
    if claim.node != *node || claim.nonce != nonce {
        return Err("its claim answers another question".to_owned());
    }
    let off = claim.off_ms(now);
    if off > MAX_AGE_MS {
        return Err(format!(
            "its claim was read {} s from now by this control's clock; at most {} s are allowed",
            off / 1000,
            MAX_AGE_MS / 1000
        ));
    }
    Ok(())
}

/// What a claim says other than the view.
fn differs(claim: &Claim, entry: &NodeEntry) -> Option<String> {
    if entry.boot.as_ref() != Some(&claim.boot_id) {
        return Some("it was booted anew since it was planned on".to_owned());
    }
    // Without its document it is not known here what it is by construction.
    if entry.document.is_some() && entry.cohort().as_ref().map(baselines::cohort) != claim.cohort {
        return Some("it claims another vendor, product or GPUs than its document says".to_owned());
    }
    let differs = |class: &Class| {
        let gossiped = entry.said(*class).and_then(|mark| mark.digest());
        let claimed = claim.classes.get(class.name());
        let beside = entry.seen.as_ref().and_then(|seen| seen.earlier.get(class));
        let is_claimed = |earlier: &Earlier| {
            let claimed = claimed.and_then(|said| said.earlier);
            claimed == Some(schema_digest(earlier.schema, earlier.digest))
        };
        // What it is planned on beside that, it must say as well.
        gossiped.map(|digest| digest.0) != claimed.map(|said| said.now.digest)
            || beside.is_some_and(|earlier| !is_claimed(earlier))
    };
    let classes: Vec<String> = Class::ALL
        .iter()
        .filter(|class| differs(class))
        .map(ToString::to_string)
        .collect();
    (!classes.is_empty()).then(|| {
        let classes = classes.join(", ");
        format!("it claims other digests than are gossiped for it: {classes}")
    })
}

/// What an assignment to this node rests on: its word, what BMCs add to that, and the baselines that
/// it was held against. Of a node that was judged as it is, and that claims what it gossips.
fn proof(view: &View, entry: &NodeEntry, said: Said) -> Proof {
    // What was made of another word is not the whole of this one.
    let of_now = entry.united.iter();
    let of_now = of_now.filter(|(class, united)| entry.said(**class) == united.base);
    let completed = of_now.filter_map(|(class, united)| {
        let made = Completed {
            base: said.claim.classes.get(class.name()).copied(),
            whole: class_claim(united.mark, united.earlier)?,
        };
        Some((class.to_string(), made))
    });
    let chosen = view.baselines.of(&entry.id, entry.cohort().as_ref());
    let conforms = chosen.into_iter().filter_map(|(class, chosen)| {
        let Chosen::One(kept) = chosen else {
            return None;
        };
        let rule = kept.record.definition.classes.get(class.name())?;
        let of = BaselineVersion {
            name: kept.record.name.clone(),
            version: kept.record.version,
        };
        (rule.sensitive == Sensitive::Strict).then(|| (class.to_string(), of))
    });
    Proof {
        completed: completed.collect(),
        conforms: conforms.collect(),
        claim: said.claim,
        signature: said.signature,
    }
}

fn class_claim(mark: ClassMark, earlier: Option<Earlier>) -> Option<ClassClaim> {
    let ClassMark::Complete { schema, digest } = mark else {
        return None;
    };
    Some(ClassClaim {
        now: schema_digest(schema, digest),
        earlier: earlier.map(|earlier| schema_digest(earlier.schema, earlier.digest)),
    })
}

const fn schema_digest(schema: u16, digest: Digest) -> SchemaDigest {
    let digest = digest.0;
    SchemaDigest { schema, digest }
}

#[cfg(test)]
impl Claims {
    /// As if this had just been received and found to be signed by the node.
    pub(crate) fn has(&mut self, claim: Claim, signature: Bytes) {
        let node = claim.node.clone();
        let said = Box::new(Said { claim, signature });
        self.known
            .insert(node, (Instant::now(), Known::Claimed(said)));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::tasks::testing::{
        self,
        world::{self, World},
    };

    const NONCE: [u8; 16] = [3; 16];
    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn claim(digest: u8) -> Claim {
        Claim {
            node: testing::id("a"),
            boot_id: "b1".to_owned(),
            cohort: None,
            classes: BTreeMap::from([(Class::Gpu.to_string(), ClassClaim::only(1, [digest; 32]))]),
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
        NodeEntry {
            seen: Some(seen),
            boot: Some(boot.to_owned()),
            ..testing::entry("a")
        }
    }

    #[test]
    fn a_claim_must_say_what_was_planned_on() {
        assert_eq!(differs(&claim(1), &entry("b1", 1)), None);
        let other = differs(&claim(2), &entry("b1", 1)).unwrap_or_default();
        assert!(other.ends_with("gossiped for it: gpu"), "{other}");
        let rebooted = differs(&claim(1), &entry("b2", 1)).unwrap_or_default();
        assert!(rebooted.contains("booted anew"), "{rebooted}");
        let mut more = claim(1);
        let bmc = ClassClaim::only(1, [4; 32]);
        more.classes.insert(Class::Bmc.to_string(), bmc);
        let more = differs(&more, &entry("b1", 1)).unwrap_or_default();
        assert!(more.ends_with("gossiped for it: bmc"), "{more}");
    }

    #[test]
    fn a_claim_must_answer_this_question_now() {
        let node = testing::id("a");
        let ok = |claim: &Claim, nonce, now| check(claim, &node, nonce, UnixMillis(now)).is_ok();
        assert!(ok(&claim(1), NONCE, NOW.0));
        assert!(ok(&claim(1), NONCE, NOW.0 + MAX_AGE_MS));
        assert!(!ok(&claim(1), NONCE, NOW.0 + MAX_AGE_MS + 1));
        assert!(!ok(&claim(1), NONCE, NOW.0 - MAX_AGE_MS - 1));
        assert!(!ok(&claim(1), [4; 16], NOW.0));
        let others = Claim {
            node: testing::id("b"),
            ..claim(1)
        };
        assert!(!ok(&others, NONCE, NOW.0));
    }

    /// State time is ahead of every clock, so that no reading is of now.
    #[tokio::test]
    async fn what_is_stale_at_once_again_is_asked_for_once_and_then_said() {
        let world = World::new();
        world.says.lock().unwrap().digests = BTreeMap::from([("gpu".to_owned(), [1; 32])]);
        let digest = Digest([1; 32]);
        let mark = ClassMark::Complete { schema: 1, digest };
        world.gossips(BTreeMap::from([(Class::Gpu, mark)]));
        let node = testing::id(world::NODE);
        let nodes = [ExpectedNode {
            node: node.clone(),
            version: world.node().version,
            boot: Some("b1".to_owned()),
        }];
        let fault = |fault| Unproven {
            node: node.clone(),
            fault,
        };
        let made = |class: &str| {
            let class = class.to_owned();
            fault(ProofFault::MadeOfAnother { class })
        };
        // Two classes of one node are one reason to ask.
        let first = [made("bios"), made("bmc")];
        let again = [fault(ProofFault::Age {
            read_at: NOW,
            off_ms: 200_000,
            limit_ms: 120_000,
        })];
        let said = || world.core.view().node(&node)?.claim_refused.clone();
        let mut claims = Claims::new(world.core.clone());
        for refused in [&first[..], &again[..]] {
            assert_eq!(said(), None);
            assert!(claims.confirm(&world.core.view(), &nodes).is_none());
            assert!(claims.under_way.contains(&node));
            claims.answered().await;
            assert!(claims.confirm(&world.core.view(), &nodes).is_some());
            claims.refused(refused);
        }
        assert_eq!(
            said().as_deref(),
            Some("its claim was read 200 s from state time; at most 120 s are allowed")
        );
        assert!(claims.confirm(&world.core.view(), &nodes).is_none());
        assert!(claims.under_way.is_empty());
    }

    #[test]
    fn a_refused_node_has_no_known_conformance() {
        use lattice_placement::ConformanceKey;
        let mut entry = entry("b1", 1);
        let known = entry.facts().conformance;
        entry.claim_refused = Some("it differs".to_owned());
        assert_eq!(entry.facts().conformance, ConformanceKey::Unknown);
        assert!(known == ConformanceKey::Unknown || entry.fingerprint().is_some());
    }
}
