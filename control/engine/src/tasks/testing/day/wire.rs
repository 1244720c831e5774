//! Requests to the day's agents, and their signed attestations.

use bytes::Bytes;
use lattice_agent_rpc::{
    GetAttestation, GetUsage, Launch, Ping, PingReply, Terminate, WriteCheckpoint,
};
use lattice_conformance::{Class, Digest};
use lattice_mesh::{Authority, Clock, Credentials, Identity, Mesh, MeshConfig, Role, Validity};
use lattice_quorum_types::{
    NodeId, UnixMillis,
    attestation::{Attestation, ClassAttestation},
};
use lattice_replay::day::{START, Site};
use std::{
    any::Any,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// GPU record digest of every node of the day.
pub const GPU_DIGEST: [u8; 32] = [1; 32];

/// Clock of the day.
#[derive(Debug, Clone)]
pub struct DayClock(pub(super) Arc<AtomicU64>);

impl DayClock {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(START.0)))
    }

    pub fn set(&self, now: UnixMillis) {
        self.0.store(now.0, Relaxed);
    }
}

impl Clock for DayClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Relaxed))
    }
}

/// Certificates of the day.
pub struct DayCertificates {
    authority: Authority,
    validity: Validity,
}

impl DayCertificates {
    pub fn new() -> Self {
        let validity = Validity::from_now(START, Duration::from_secs(7 * 86_400));
        let authority = Authority::create("day", validity).unwrap();
        Self {
            authority,
            validity,
        }
    }

    fn credentials(&self, role: Role, name: &str) -> Credentials {
        let identity = Identity::new("day", role, name).unwrap();
        Credentials::issued_by(&self.authority, &identity, self.validity).unwrap()
    }

    /// A mesh endpoint over which no call is made.
    pub fn mesh(&self) -> Mesh {
        let addr = "127.0.0.1:0".parse().unwrap();
        let credentials = self.credentials(Role::Control, "c1");
        Mesh::bind(addr, credentials, MeshConfig::default()).unwrap()
    }

    /// Credentials with which these nodes sign.
    pub fn signers<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeId>,
    ) -> BTreeMap<NodeId, Credentials> {
        let signer = |node: &NodeId| (node.clone(), self.credentials(Role::Agent, node.as_str()));
        nodes.map(signer).collect()
    }
}

/// Answer of a node's agent; `None` if the agent does not answer.
pub fn answer(
    site: &Site,
    signers: &BTreeMap<NodeId, Credentials>,
    node: &NodeId,
    request: &dyn Any,
) -> Option<Box<dyn Any>> {
    fn boxed<T: Any>(answer: T) -> Box<dyn Any> {
        Box::new(answer)
    }
    if let Some(Ping) = request.downcast_ref::<Ping>() {
        let pong = site.ping(node).map(|boot_id| PingReply {
            node: node.clone(),
            boot_id,
            at: site.now(),
        });
        return pong.map(boxed);
    }
    if let Some(launch) = request.downcast_ref::<Launch>() {
        return site.launch(node, launch).map(boxed);
    }
    if let Some(Terminate { key, .. }) = request.downcast_ref::<Terminate>() {
        return site.terminate(node, *key).map(boxed);
    }
    if let Some(asked) = request.downcast_ref::<WriteCheckpoint>() {
        return site.checkpoint(node, asked).map(boxed);
    }
    if let Some(GetUsage { .. }) = request.downcast_ref::<GetUsage>() {
        return site.gpu_utilization(node).map(boxed);
    }
    if let Some(GetAttestation { nonce }) = request.downcast_ref::<GetAttestation>() {
        let boot_id = site.ping(node)?;
        let attestation = Attestation {
            node: node.clone(),
            boot_id,
            cohort: None,
            classes: BTreeMap::from([(
                Class::Gpu.to_string(),
                ClassAttestation::of_schema(1, GPU_DIGEST),
            )]),
            read_at: site.now(),
            nonce: *nonce,
        };
        let claim = postcard::to_stdvec(&attestation).unwrap();
        let signed = signers[node].sign(Attestation::CONTEXT, &claim).unwrap();
        let both = postcard::to_stdvec(&(Bytes::from(claim), signed)).unwrap();
        return Some(boxed(Ok::<Bytes, String>(Bytes::from(both))));
    }
    panic!("simulated agent received an unsupported request")
}

/// GPU record digest as gossiped.
pub fn gpu_digest() -> Digest {
    Digest(GPU_DIGEST)
}
