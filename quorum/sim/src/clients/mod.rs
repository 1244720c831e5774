//! Clients that compete at the limits, through the product's own client library. Their results are compared with the
//! agreed history.
//!
//! `commands.rs` generates the commands, `connect.rs` creates the endpoints, `watch.rs` follows the events, and
//! `registers.rs` writes and reads the registers.

mod commands;
mod connect;
pub mod registers;
mod watch;

pub use connect::{mesh, quorum};
pub use watch::watch;

use crate::{agreed_history::hash, registers::TENANT, simulated_run::SimulatedRun};
use lattice_mesh::Clock as _;
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Applied, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal, VclusterName,
    command::{LimitChange, Principal, Privilege, SCHEMA},
    limit::{LimitPatch, Limits, Patch},
    node::Lifecycle,
    view::{Answer, LiveState, Query},
};
use lattice_rng::Rng;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::sleep;

/// Projects, parents first, with their limits of nodes and allocations.
const PROJECTS: [(&str, u64, u64); 6] = [
    ("t", 8, 5),
    ("t/a", 5, 3),
    ("t/a/c", 4, 2),
    ("t/a/d", 1, 1),
    ("t/b", 3, 2),
    ("u", 4, 3),
];
const NODES: usize = 10;
/// Largest number of repeats of an acknowledged command after the faults, while no answer arrives.
const MAX_REPEATS: usize = 6;

/// One client.
pub struct Client {
    world: Arc<SimulatedRun>,
    nth: u64,
    rng: Rng,
    quorum: QuorumClient,
    hot: LiveState,
    keys: u64,
    epoch: u64,
    unknown: Vec<Envelope>,
    /// Some acknowledged commands, to be repeated.
    acknowledged: Vec<Envelope>,
    revoked: Vec<String>,
}

fn path(text: &str) -> Option<ProjectPath> {
    ProjectPath::new(text).ok()
}

fn node(nth: usize) -> Option<NodeId> {
    NodeId::new(format!("n{nth:03}")).ok()
}

impl Client {
    /// Creates a client of the simulated cluster.
    pub fn new(world: &Arc<SimulatedRun>, nth: u64) -> Result<Self, String> {
        Ok(Self {
            quorum: quorum(world, nth)?,
            rng: Rng::new(world.seed, &format!("client {nth}")),
            world: world.clone(),
            nth,
            hot: LiveState::default(),
            keys: 0,
            epoch: 0,
            unknown: Vec::new(),
            acknowledged: Vec::new(),
            revoked: Vec::new(),
        })
    }

    fn envelope(&mut self, name: &str, power: Privilege, command: Command) -> Envelope {
        self.keys += 1;
        let key = format!("c{}-{}", self.nth, self.keys);
        let clock = &self.world.clocks[self.world.members.len() + self.nth as usize];
        Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: name.to_owned(),
                privilege: power,
            },
            key: (!self.rng.chance(80)).then_some(key),
            at: clock.now(),
            fence: None,
            command,
        }
    }

    /// Creates the project tree and the nodes, with as many repeats as necessary.
    pub async fn create_cluster_objects(&mut self) {
        let mut commands = Vec::new();
        for (text, nodes, allocations) in PROJECTS {
            commands.extend(path(text).map(|path| Command::CreateProject {
                path,
                limits: Some(Limits {
                    max_nodes: Some(nodes),
                    max_concurrent_allocations: Some(allocations),
                }),
                admins: vec!["alice".to_owned()],
                description: String::new(),
            }));
        }
        commands.extend(path(TENANT).map(|path| Command::CreateProject {
            path,
            limits: Some(Limits {
                max_nodes: Some(0),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        }));
        for nth in 0..NODES {
            let Some(node) = node(nth) else { continue };
            let Ok(vcluster) = VclusterName::new("main") else {
                continue;
            };
            let lifecycle = Lifecycle::Ready;
            commands.push(Command::RegisterNode {
                node: node.clone(),
                vcluster,
            });
            commands.push(Command::SetLifecycle { node, lifecycle });
        }
        let mut found = Vec::new();
        for command in commands {
            let mut envelope = self.envelope("root", Privilege::Admin, command);
            envelope.key = Some(format!("found-{}", self.keys));
            found.push(envelope);
        }
        while self.quorum.propose_all(found.clone()).await.is_err() && !self.world.is_broken() {}
    }

    /// Reads the complete audit through the public query, segments included, and compares it with the agreed history.
    pub async fn read_audit(&mut self) {
        let mut read = Vec::new();
        while !self.world.is_broken() {
            let (after, limit) = (read.len() as u64, 100);
            match self.quorum.read(Query::Audit { after, limit }).await {
                Ok(Answer::Audit(page)) if page.is_empty() => break,
                Ok(Answer::Audit(page)) => read.extend(page),
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
        let written = self.world.agreed_history.audit();
        if read != written && !self.world.is_broken() {
            let (read, written) = (read.len(), written.len());
            let violation = format!("{read} audit entries read, {written} written");
            self.world.violation(violation);
        }
    }

    /// Writes one value, with as many repeats as necessary.
    pub async fn write(&mut self) {
        self.set("the last", 8).await;
    }

    /// Sets the node limit of project `t` under this idempotency key, with as many repeats as necessary. `None` if the
    /// command was refused, or if there is a violation.
    pub async fn set(&mut self, key: &str, nodes: u64) -> Option<Applied> {
        let path = path("t")?;
        let patch = LimitPatch {
            max_nodes: Patch::Set(nodes),
            ..LimitPatch::default()
        };
        let changes = vec![LimitChange { path, patch }];
        let mut envelope = self.envelope("root", Privilege::Admin, Command::SetLimits { changes });
        envelope.key = Some(key.to_owned());
        while !self.world.is_broken() {
            if let Some(answer) = self.propose(envelope.clone()).await {
                return answer.ok();
            }
        }
        None
    }

    /// Issues commands until the faults are over, and then repeats some acknowledged commands.
    pub async fn work(mut self) {
        while !self.world.faults_ended.load(Relaxed) && !self.world.is_broken() {
            sleep(Duration::from_millis(self.rng.range(1, 60))).await;
            self.step().await;
        }
        // Every acknowledged command must still be in effect.
        for envelope in std::mem::take(&mut self.acknowledged) {
            let mut left = MAX_REPEATS;
            while self.propose(envelope.clone()).await.is_none() && left > 0 {
                left -= 1;
            }
        }
    }

    async fn step(&mut self) {
        if self.rng.chance(250) {
            return self.read().await;
        }
        if !self.unknown.is_empty() && self.rng.chance(500) {
            let nth = self.rng.below(self.unknown.len());
            let envelope = self.unknown.swap_remove(nth);
            self.world.count("op repeated after unknown");
            self.propose(envelope).await;
            return;
        }
        if self.rng.chance(40)
            && let Some(envelope) = self.rng.pick(&self.acknowledged).cloned()
        {
            self.world.count("op repeated after acknowledged");
            self.propose(envelope).await;
            return;
        }
        if self.rng.chance(60) {
            return self.propose_batch().await;
        }
        if let Some(envelope) = self.choose() {
            self.propose(envelope).await;
        }
    }

    /// Proposes several commands in one call.
    async fn propose_batch(&mut self) {
        let count = self.rng.range(2, 12);
        let many: Vec<Envelope> = (0..count).filter_map(|_| self.choose()).collect();
        self.world.count("op several at once");
        if let Ok(replies) = self.quorum.propose_all(many.clone()).await {
            for (envelope, reply) in many.iter().zip(replies) {
                if let Ok(applied) = reply {
                    self.check_acknowledged(envelope, &applied);
                }
            }
        }
    }

    async fn read(&mut self) {
        match self.quorum.read(Query::Hot).await {
            Ok(Answer::Hot(hot)) => {
                self.world.count("op read ok");
                if hot.revision < self.hot.revision {
                    let (was, is) = (self.hot.revision, hot.revision);
                    self.world
                        .violation(format!("a read showed {is} after one that showed {was}"));
                }
                self.hot = *hot;
            }
            _ => self.world.count("op read unavailable"),
        }
    }

    /// Proposes a command; `None` if no answer arrived.
    async fn propose(&mut self, envelope: Envelope) -> Option<Result<Applied, Refusal>> {
        let kind = kind(&envelope.command);
        let answer = self.quorum.propose(envelope.clone()).await;
        self.world.add_to_digest(&hash(&answer));
        match answer {
            Ok(Ok(applied)) => {
                self.world.count(&format!("op {kind} ok"));
                self.check_acknowledged(&envelope, &applied);
                if envelope.key.is_some() && (self.acknowledged.len() < 15 || self.rng.chance(100))
                {
                    self.acknowledged.push(envelope);
                }
                Some(Ok(applied))
            }
            Ok(Err(refusal)) => {
                self.world.count(&format!("op {kind} refused"));
                Some(Err(refusal))
            }
            Err(error) => {
                let unknown = matches!(
                    error,
                    ClientError::OutcomeUnknown { .. }
                        | ClientError::OutcomeUnknownWithoutKey { .. }
                );
                let how = if unknown { "unknown" } else { "unavailable" };
                self.world.count(&format!("op {kind} {how}"));
                if envelope.key.is_some() && self.unknown.len() < 20 {
                    self.unknown.push(envelope);
                }
                None
            }
        }
    }

    fn check_acknowledged(&mut self, envelope: &Envelope, applied: &Applied) {
        if let Err(violation) = self
            .world
            .agreed_history
            .check_acknowledgement(envelope, applied)
        {
            self.world.violation(violation);
        }
        if let Outcome::Leased { epoch, .. } = applied.outcome {
            self.epoch = epoch;
        }
    }
}

/// Name of a command.
fn kind(command: &Command) -> String {
    let text = format!("{command:?}");
    let end = text.find([' ', '{', '(']).unwrap_or(text.len());
    text[..end].to_owned()
}
