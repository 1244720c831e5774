//! Simulated agent of the node `a` in a test world: a real endpoint with answers set by the test.

use super::{id, world::NODE};
use bytes::Bytes;
use lattice_agent_rpc::{
    AttemptKey, AttemptStatus, CheckHealth, GateFailed, GetAttestation, GetHealth, GetHistory,
    GetInventory, GetOrigin, GetPreimage, GetUsage, HistoryPage, Launch, LaunchRefused,
    ListAttempts, Part, Ping, PingReply, SetWalltime, Terminate, WalltimeRefused, WalltimeStatus,
    Wipe, WipeStatus,
};
use lattice_conformance::{Digest, Inventory, health::Reason};
use lattice_mesh::{Clock as _, Credentials, HandlerFailed, Router, SystemClock};
use lattice_quorum_types::{
    attestation::{Attestation, ClassAttestation},
    baseline::Cohort,
    origin::AttemptOrigin,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Answers of the agent.
pub struct AgentAnswers {
    pub boot: String,
    pub attempts: Vec<AttemptStatus>,
    /// Recorded origins of attempts.
    pub origins: BTreeMap<AttemptKey, AttemptOrigin>,
    pub gate: Result<(), GateFailed>,
    pub digests: BTreeMap<String, [u8; 32]>,
    pub cohort: Option<Cohort>,
    /// GPU counts of the launches that request GPUs.
    pub gpus: Vec<u32>,
    /// Walltime changes received.
    pub walltimes: Vec<SetWalltime>,
    /// Reason for refusing walltime changes, if any.
    pub walltime_refusal: Option<String>,
    /// Attempts that the agent received a request to terminate.
    pub terminated: Vec<AttemptKey>,
    /// Attempts started, each with the boot id at that time. The agent has no record of attempts of an earlier boot.
    pub started: Vec<(AttemptKey, String)>,
    /// Wipe orders received.
    pub wipe_orders: Vec<Wipe>,
    /// State of each wipe by number. A wipe without a state does not start.
    pub wipes: BTreeMap<u64, WipeStatus>,
    /// Error returned for a wipe that does not start.
    pub wipe_refusal: String,
    /// Answers to launches, walltime changes and wipes are lost.
    pub loses_replies: bool,
    /// Inventory of the hardware.
    pub inventory: Option<Inventory>,
    /// Number of inventory requests.
    pub inventory_requests: usize,
    /// Health answer.
    pub health: Result<serde_json::Value, String>,
    /// Number of requests for a new pass of the health checks.
    pub health_passes: usize,
    /// The health checks never answer.
    pub health_hangs: bool,
    /// Records available by their digest.
    pub preimages: Vec<Vec<u8>>,
    /// Journal page, returned for every request.
    pub history: Option<HistoryPage>,
    /// Processor load in millionths. The node has no GPUs.
    pub processor_load_ppm: u32,
    /// The agent answers no pings.
    pub silent: bool,
    /// The agent reports another boot id at each ping.
    pub reboots_at_each_ping: bool,
}

impl AgentAnswers {
    /// Answers of a healthy node without attempts.
    pub fn healthy() -> Self {
        Self {
            boot: "b1".to_owned(),
            attempts: Vec::new(),
            origins: BTreeMap::new(),
            gate: Ok(()),
            digests: BTreeMap::new(),
            cohort: None,
            gpus: Vec::new(),
            walltimes: Vec::new(),
            walltime_refusal: None,
            terminated: Vec::new(),
            started: Vec::new(),
            wipe_orders: Vec::new(),
            wipes: BTreeMap::new(),
            wipe_refusal: "work still runs".to_owned(),
            loses_replies: false,
            inventory: None,
            inventory_requests: 0,
            health: Ok(health(&[])),
            health_passes: 0,
            health_hangs: false,
            preimages: Vec::new(),
            history: None,
            processor_load_ppm: 0,
            silent: false,
            reboots_at_each_ping: false,
        }
    }

    fn launched(&mut self, launch: &Launch) -> Result<AttemptStatus, LaunchRefused> {
        let (key, current) = (launch.key, self.boot.clone());
        let status = AttemptStatus { key, report: None };
        if self.started.contains(&(key, current.clone())) {
            return Ok(status);
        }
        if let Some(expected) = launch.boot.clone().filter(|boot| *boot != current) {
            return Err(LaunchRefused::OtherBoot { expected, current });
        }
        self.started.push((key, current));
        Ok(status)
    }
}

/// Health answer with these reasons.
pub fn health(reasons: &[Reason]) -> serde_json::Value {
    serde_json::json!({
        "table": "1", "worst": null, "reasons": reasons, "enabled": true, "read_age_ms": 1,
    })
}

pub fn router(says: Arc<Mutex<AgentAnswers>>, signer: Credentials) -> Router {
    let (pinged, listed, gated, ended, claimed, read, kept, checked, history, wiped) = (
        says.clone(),
        says.clone(),
        says.clone(),
        says.clone(),
        says.clone(),
        says.clone(),
        says.clone(),
        says.clone(),
        says.clone(),
        says.clone(),
    );
    let (works, extended, describing) = (says.clone(), says.clone(), says.clone());
    Router::new()
        .rpc(move |_, _: Ping| {
            let mut says = pinged.lock().unwrap();
            if says.reboots_at_each_ping {
                says.boot.push('0');
            }
            let pong = PingReply {
                node: id(NODE),
                boot_id: says.boot.clone(),
                at: SystemClock.now(),
            };
            let answer = match says.silent {
                true => Err(HandlerFailed::new("cut off")),
                false => Ok(pong),
            };
            async move { answer }
        })
        .rpc(move |_, launch: Launch| {
            let mut says = says.lock().unwrap();
            if launch.gpus > 0 {
                says.gpus.push(launch.gpus);
            }
            let (answer, is_lost) = (says.launched(&launch), says.loses_replies);
            async move {
                match is_lost {
                    true => Err(HandlerFailed::new("cut off")),
                    false => Ok(answer),
                }
            }
        })
        .rpc(move |_, asked: SetWalltime| {
            let mut says = extended.lock().unwrap();
            let answer = match says.walltime_refusal.clone() {
                Some(reason) => Err(WalltimeRefused::JournalFailed { reason }),
                None => Ok(WalltimeStatus::InForce {
                    number: asked.number,
                    walltime_ms: asked.walltime_ms,
                }),
            };
            says.walltimes.push(asked);
            let is_lost = says.loses_replies;
            async move {
                match is_lost {
                    true => Err(HandlerFailed::new("cut off")),
                    false => Ok(answer),
                }
            }
        })
        .rpc(move |_, GetUsage { of }| {
            let usage = match of {
                Part::Processors => Ok(works.lock().unwrap().processor_load_ppm),
                Part::Gpus => Err("it has no GPUs".to_owned()),
            };
            async move { Ok(usage) }
        })
        .rpc(move |_, order: Wipe| {
            let mut says = wiped.lock().unwrap();
            let status = says.wipes.get(&order.number).cloned();
            let (answer, is_lost) = (status.ok_or(says.wipe_refusal.clone()), says.loses_replies);
            says.wipe_orders.push(order);
            async move {
                match is_lost {
                    true => Err(HandlerFailed::new("cut off")),
                    false => Ok(answer),
                }
            }
        })
        .rpc(move |_, asked: GetPreimage| {
            let says = kept.lock().unwrap();
            let digest = Digest(asked.digest);
            let mut kept = says.preimages.iter();
            let found = kept.find(|bytes| lattice_conformance::verify(&digest, bytes).is_ok());
            let found = found.cloned().map(Bytes::from);
            async move { Ok(found) }
        })
        .rpc(move |_, _: GetHistory| {
            let page = history.lock().unwrap().history.clone();
            let page = page.ok_or("it has none".to_owned());
            async move { Ok(page) }
        })
        .rpc(move |_, _: GetInventory| {
            let mut says = read.lock().unwrap();
            says.inventory_requests += 1;
            let inventory = says
                .inventory
                .as_ref()
                .map(|i| serde_json::to_vec(i).unwrap());
            async move {
                Ok(inventory
                    .map(Bytes::from)
                    .ok_or_else(|| "the probe hangs".to_owned()))
            }
        })
        .rpc(move |_, asked: GetHealth| {
            let mut says = checked.lock().unwrap();
            says.health_passes += usize::from(asked.fresh);
            let (health, hangs) = (says.health.clone(), says.health_hangs);
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(health.map(|health| Bytes::from(health.to_string())))
            }
        })
        .rpc(move |_, _: ListAttempts| {
            let attempts = listed.lock().unwrap().attempts.clone();
            async move { Ok(attempts) }
        })
        .rpc(move |_, asked: GetOrigin| {
            let origin = describing.lock().unwrap().origins.get(&asked.key).cloned();
            async move { Ok(origin) }
        })
        .rpc(move |_, _: CheckHealth| {
            let gate = gated.lock().unwrap().gate.clone();
            async move { Ok(gate) }
        })
        .rpc(move |_, asked: Terminate| {
            let mut says = ended.lock().unwrap();
            says.terminated.push(asked.key);
            // An agent removes the record of a launch with the end of the attempt.
            says.origins.remove(&asked.key);
            let status = AttemptStatus {
                key: asked.key,
                report: None,
            };
            async move { Ok(Ok(status)) }
        })
        .rpc(move |_, GetAttestation { nonce }| {
            let says = claimed.lock().unwrap();
            let attestation = Attestation {
                node: id(NODE),
                boot_id: says.boot.clone(),
                cohort: says.cohort.clone(),
                classes: says
                    .digests
                    .iter()
                    .map(|(class, digest)| (class.clone(), ClassAttestation::of_schema(1, *digest)))
                    .collect(),
                read_at: SystemClock.now(),
                nonce,
            };
            let claim = postcard::to_stdvec(&attestation).unwrap();
            let signed = signer.sign(Attestation::CONTEXT, &claim).unwrap();
            let both = postcard::to_stdvec(&(Bytes::from(claim), signed)).unwrap();
            async move { Ok(Ok(Bytes::from(both))) }
        })
}
