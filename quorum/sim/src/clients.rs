//! Clients that race at the limits, through the product's own client library. What is told to them
//! is held against what was agreed on.

use crate::{
    registers::TENANT,
    rng::Rng,
    truth::hash,
    world::{CLUSTER, World},
};
use lattice_mesh::{Clock as _, Identity, Mesh, MeshConfig, Role};
use lattice_quorum_client::{ClientConfig, ClientError, QuorumClient};
use lattice_quorum_types::{
    Allocation, AllocationState, Applied, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal,
    VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    command::{ExpectedNode, Fence, LimitChange, Power, Principal, RankReport, SCHEMA, TokenGrant},
    id::LeaseName,
    limit::{LimitPatch, Limits, Patch},
    node::Lifecycle,
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    view::{Answer, Hot, Query, WatchItem},
};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::sleep;

/// Projects, parents first, with what they may hold.
const PROJECTS: [(&str, u64, u64); 6] = [
    ("t", 8, 5),
    ("t/a", 5, 3),
    ("t/a/c", 4, 2),
    ("t/a/d", 1, 1),
    ("t/b", 3, 2),
    ("u", 4, 3),
];
const NODES: usize = 10;
/// Repeats of a command whose outcome is not known.
const REPEATS: usize = 6;

/// One client.
pub struct Client {
    world: Arc<World>,
    nth: u64,
    rng: Rng,
    quorum: QuorumClient,
    hot: Hot,
    keys: u64,
    epoch: u64,
    unknown: Vec<Envelope>,
    /// Some that were acknowledged, to be repeated.
    acknowledged: Vec<Envelope>,
    revoked: Vec<String>,
}

fn config(seed: u64) -> ClientConfig {
    ClientConfig {
        // Some give up soon, and do not know what became of it.
        deadline: Duration::from_millis(500 + seed % 5000),
        attempt_timeout: Duration::from_secs(3),
        seed: Some(seed),
        ..ClientConfig::default()
    }
}

/// A client's end of the network.
pub fn quorum(world: &World, nth: u64) -> Result<QuorumClient, String> {
    let addr = SocketAddr::from(([10, 1, 0, nth as u8 + 1], 7101));
    let identity = Identity::new(CLUSTER, Role::Control, (nth + 1).to_string());
    let identity = identity.map_err(|e| e.to_string())?;
    let wire = world.network.join(addr, identity);
    let mesh = MeshConfig {
        wire: Some(wire),
        clock: world.clocks[world.members.len() + nth as usize].clone(),
        ..MeshConfig::default()
    };
    let mesh = Mesh::bind(addr, World::of_client(nth), mesh).map_err(|e| e.to_string())?;
    let addrs = world.members.iter().map(|(_, addr)| *addr).collect();
    let seed = Rng::new(world.seed, &format!("waits {nth}")).next();
    Ok(QuorumClient::with_config(mesh, addrs, config(seed)))
}

fn path(text: &str) -> Option<ProjectPath> {
    ProjectPath::new(text).ok()
}

fn node(nth: usize) -> Option<NodeId> {
    NodeId::new(format!("n{nth:03}")).ok()
}

impl Client {
    /// A client of the world's cluster.
    pub fn new(world: &Arc<World>, nth: u64) -> Result<Self, String> {
        Ok(Self {
            quorum: quorum(world, nth)?,
            rng: Rng::new(world.seed, &format!("client {nth}")),
            world: world.clone(),
            nth,
            hot: Hot::default(),
            keys: 0,
            epoch: 0,
            unknown: Vec::new(),
            acknowledged: Vec::new(),
            revoked: Vec::new(),
        })
    }

    fn envelope(&mut self, name: &str, power: Power, command: Command) -> Envelope {
        self.keys += 1;
        let key = format!("c{}-{}", self.nth, self.keys);
        let clock = &self.world.clocks[self.world.members.len() + self.nth as usize];
        Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: name.to_owned(),
                power,
            },
            key: (!self.rng.chance(80)).then_some(key),
            at: clock.now(),
            fence: None,
            command,
        }
    }

    /// Founds the tree and the nodes, however long that takes.
    pub async fn found(&mut self) {
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
            let mut envelope = self.envelope("root", Power::Admin, command);
            envelope.key = Some(format!("found-{}", self.keys));
            found.push(envelope);
        }
        while self.quorum.propose_all(found.clone()).await.is_err() && !self.world.is_broken() {}
    }

    /// Reads the whole audit as anybody would, segments included, and compares.
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
        let written = self.world.truth.audit();
        if read != written && !self.world.is_broken() {
            let (read, written) = (read.len(), written.len());
            let violation = format!("{read} audit entries are read, {written} were written");
            self.world.violation(violation);
        }
    }

    /// Writes one thing, however long that takes.
    pub async fn write(&mut self) {
        let Some(path) = path("t") else { return };
        let patch = LimitPatch {
            max_nodes: Patch::Set(8),
            ..LimitPatch::default()
        };
        let changes = vec![LimitChange { path, patch }];
        let mut envelope = self.envelope("root", Power::Admin, Command::SetLimits { changes });
        envelope.key = Some("the last".to_owned());
        while self.propose(envelope.clone()).await.is_none() && !self.world.is_broken() {}
    }

    /// Works until it is calm.
    pub async fn work(mut self) {
        while !self.world.is_calm.load(Relaxed) && !self.world.is_broken() {
            sleep(Duration::from_millis(self.rng.range(1, 60))).await;
            self.step().await;
        }
        // Everything acknowledged must still be there.
        for envelope in std::mem::take(&mut self.acknowledged) {
            let mut left = REPEATS;
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
            return self.together().await;
        }
        if let Some(envelope) = self.choose() {
            self.propose(envelope).await;
        }
    }

    /// Several commands of one caller at once.
    async fn together(&mut self) {
        let count = self.rng.range(2, 12);
        let many: Vec<Envelope> = (0..count).filter_map(|_| self.choose()).collect();
        self.world.count("op several at once");
        if let Ok(replies) = self.quorum.propose_all(many.clone()).await {
            for (envelope, reply) in many.iter().zip(replies) {
                if let Ok(applied) = reply {
                    self.told(envelope, &applied);
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

    /// Proposes; `None` when no answer came.
    async fn propose(&mut self, envelope: Envelope) -> Option<Result<Applied, Refusal>> {
        let kind = kind(&envelope.command);
        let answer = self.quorum.propose(envelope.clone()).await;
        self.world.note(&hash(&answer));
        match answer {
            Ok(Ok(applied)) => {
                self.world.count(&format!("op {kind} ok"));
                self.told(&envelope, &applied);
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

    fn told(&mut self, envelope: &Envelope, applied: &Applied) {
        if let Err(violation) = self.world.truth.acknowledged(envelope, applied) {
            self.world.violation(violation);
        }
        if let Outcome::Leased { epoch, .. } = applied.outcome {
            self.epoch = epoch;
        }
    }

    fn choose(&mut self) -> Option<Envelope> {
        let service = format!("service:control/{}", self.nth + 1);
        let lease = LeaseName::new("schedule.main").ok()?;
        let which = self.rng.below(100);
        let mut fenced = false;
        let (name, power, command) = match which {
            0..24 => ("alice", Power::User, self.submit()?),
            24..45 => {
                fenced = self.rng.chance(800);
                let power = if fenced { Power::Service } else { Power::Admin };
                (service.as_str(), power, self.assign()?)
            }
            45..65 => (service.as_str(), Power::Service, self.report()?),
            65..68 => (
                "root",
                Power::Admin,
                Command::Cancel {
                    id: self.live()?.id,
                },
            ),
            68..77 => ("root", Power::Admin, self.limits()?),
            77..84 => {
                let holder = format!("control/{}", self.nth + 1);
                let command = match self.rng.chance(150) {
                    true => Command::ReleaseLease {
                        lease: lease.clone(),
                        holder,
                    },
                    false => Command::AcquireLease {
                        lease: lease.clone(),
                        holder,
                        ttl_ms: self.rng.range(500, 6000),
                    },
                };
                (service.as_str(), Power::Service, command)
            }
            84..88 => ("olga", Power::Operator, self.drain()?),
            88..94 => {
                fenced = true;
                (service.as_str(), Power::Service, self.resize()?)
            }
            94 => {
                fenced = true;
                let (id, cause) = (self.live()?.id, StopCause::Walltime);
                (
                    service.as_str(),
                    Power::Service,
                    Command::Stop { id, cause },
                )
            }
            95..97 => ("root", Power::Admin, self.token()),
            97..99 => ("root", Power::Admin, self.project()?),
            _ => {
                let node = node(self.rng.below(NODES))?;
                let reason = "gone".to_owned();
                let expected = None;
                let command = Command::ForceRelease {
                    node,
                    reason,
                    expected,
                };
                ("olga", Power::Operator, command)
            }
        };
        let mut envelope = self.envelope(name, power, command);
        if fenced {
            let epoch = self.epoch;
            envelope.fence = Some(Fence { lease, epoch });
        }
        Some(envelope)
    }

    fn submit(&mut self) -> Option<Command> {
        let (project, _, _) = *self.rng.pick(&PROJECTS)?;
        let requeue = [Requeue::Never, Requeue::Once, Requeue::Always];
        let spec = AllocationSpec {
            name: None,
            project: path(project)?,
            vcluster: VclusterName::new("main").ok()?,
            nodes: self.rng.range(1, 5) as u32,
            workload: Workload {
                argv: vec!["true".to_owned()],
                ..Workload::default()
            },
            walltime_ms: None,
            class: 5,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: *self.rng.pick(&requeue)?,
            hold: self.rng.chance(30),
        };
        let spec = Box::new(spec);
        Some(Command::Submit { spec })
    }

    fn live(&mut self) -> Option<Allocation> {
        self.rng.pick(&self.hot.allocations).cloned()
    }

    fn assign(&mut self) -> Option<Command> {
        let pending = |a: &&Allocation| a.state == AllocationState::Pending;
        let waiting: Vec<&Allocation> = self.hot.allocations.iter().filter(pending).collect();
        let allocation = *self.rng.pick(&waiting)?;
        let (id, wanted) = (allocation.id, allocation.spec.nodes as usize);
        // Now and then a node that is not free: what was read is old anyway.
        let careless = self.rng.chance(100);
        let mut free: Vec<_> = self.hot.nodes.iter().collect();
        free.retain(|node| careless || node.is_assignable());
        let from = self.rng.below(free.len().max(1));
        free.rotate_left(from);
        let nodes = free.into_iter().take(wanted).map(|n| ExpectedNode {
            node: n.id.clone(),
            version: n.version,
            boot: None,
        });
        let nodes = nodes.collect();
        Some(Command::Assign { id, nodes })
    }

    fn report(&mut self) -> Option<Command> {
        let holding = |a: &&Allocation| a.state.holds();
        let holding: Vec<&Allocation> = self.hot.allocations.iter().filter(holding).collect();
        let allocation = *self.rng.pick(&holding)?;
        let waits = allocation.ranks.iter().find(|rank| !rank.phase.is_over())?;
        let clock = &self.world.clocks[self.world.members.len() + self.nth as usize];
        let at = clock.now();
        let exits = [
            RankExit::Exited { code: 0 },
            RankExit::Exited { code: 1 },
            RankExit::Signaled { signal: 9 },
            RankExit::Lost {
                evidence: "rebooted".to_owned(),
            },
        ];
        let started = matches!(waits.phase, RankPhase::Assigned) && self.rng.chance(500);
        let (id, attempt, node) = (allocation.id, allocation.attempt, waits.node.clone());
        let report = match started {
            true => RankReport::Started { at },
            false => RankReport::Ended {
                at,
                exit: self.rng.pick(&exits)?.clone(),
                fault: self.rng.chance(20).then(|| "the epilog failed".to_owned()),
            },
        };
        Some(Command::Report {
            id,
            attempt,
            node,
            report,
        })
    }

    /// What runs gets more nodes, gives some back, or stands aside.
    fn resize(&mut self) -> Option<Command> {
        let allocation = self.live()?;
        let id = allocation.id;
        if allocation.state == AllocationState::Suspended {
            return Some(Command::Resume { id });
        }
        Some(match self.rng.below(3) {
            0 => {
                let mut free: Vec<_> = self.hot.nodes.iter().collect();
                free.retain(|node| node.is_assignable());
                let from = self.rng.below(free.len().max(1));
                free.rotate_left(from);
                let nodes = free.into_iter().take(self.rng.range(1, 3) as usize);
                let nodes = nodes.map(|n| ExpectedNode {
                    node: n.id.clone(),
                    version: n.version,
                    boot: None,
                });
                let nodes = nodes.collect();
                Command::Grow { id, nodes }
            }
            1 => {
                let rank = self.rng.pick(&allocation.ranks)?;
                let nodes = vec![rank.node.clone()];
                Command::Shrink { id, nodes }
            }
            _ => Command::Suspend { id },
        })
    }

    fn limits(&mut self) -> Option<Command> {
        let mut changes = Vec::new();
        for _ in 0..self.rng.range(1, 4) {
            let (project, nodes, allocations) = *self.rng.pick(&PROJECTS)?;
            let patch = LimitPatch {
                max_nodes: Patch::Set(self.rng.range(0, nodes + 2)),
                max_concurrent_allocations: match self.rng.chance(300) {
                    true => Patch::Set(self.rng.range(0, allocations + 2)),
                    false => Patch::default(),
                },
            };
            let path = path(project)?;
            changes.push(LimitChange { path, patch });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes.dedup_by(|a, b| a.path == b.path);
        Some(Command::SetLimits { changes })
    }

    fn drain(&mut self) -> Option<Command> {
        let node = node(self.rng.below(NODES))?;
        if self.rng.chance(500) {
            let lifecycle = Lifecycle::Ready;
            return Some(Command::SetLifecycle { node, lifecycle });
        }
        let reason = self.rng.chance(300).then(|| "looked at".to_owned());
        Some(Command::Drain {
            node,
            reason,
            expected: None,
        })
    }

    fn token(&mut self) -> Command {
        if self.rng.chance(300)
            && let Some(hash) = self.revoked.pop()
        {
            let id = hash.chars().take(12).collect();
            return Command::RevokeToken { id };
        }
        let hash = format!("{:016x}{:048x}", self.rng.next(), self.nth);
        self.revoked.push(hash.clone());
        let clock = &self.world.clocks[self.world.members.len() + self.nth as usize];
        Command::CreateToken {
            grant: TokenGrant {
                hash,
                role: Role::Agent,
                names: None,
                cidrs: Vec::new(),
                uses: 2,
                replace: false,
                expires_at: clock.now().after(3_600_000),
            },
        }
    }

    fn project(&mut self) -> Option<Command> {
        let path = path(&format!("u/p{}", self.rng.below(4)))?;
        if self.rng.chance(400) {
            return Some(Command::DeleteProject { path });
        }
        Some(Command::CreateProject {
            path,
            limits: Some(Limits {
                max_nodes: Some(self.rng.range(0, 3)),
                max_concurrent_allocations: Some(self.rng.range(0, 3)),
            }),
            admins: vec!["alice".to_owned()],
            description: format!("of client {}", self.nth),
        })
    }
}

/// A command's name.
fn kind(command: &Command) -> String {
    let text = format!("{command:?}");
    let end = text.find([' ', '{', '(']).unwrap_or(text.len());
    text[..end].to_owned()
}

/// Follows the watch and holds what comes against what was agreed on, for as long as it is let.
pub async fn watch(world: Arc<World>, nth: u64) -> Result<(), String> {
    let quorum = quorum(&world, nth)?;
    loop {
        let since = loop {
            match quorum.read(Query::Hot).await {
                Ok(Answer::Hot(hot)) => break hot.revision,
                _ => sleep(Duration::from_millis(100)).await,
            }
        };
        let (mut watching, mut at) = (quorum.watch(since), since);
        while let Some(item) = watching.next().await {
            match item {
                WatchItem::Events(events) => {
                    world.count("watch steps");
                    match world.truth.watched(at, &events) {
                        Ok(reached) => at = reached,
                        Err(violation) => {
                            world.violation(violation);
                            return Ok(());
                        }
                    }
                }
                WatchItem::Idle(upto) => {
                    if let Some(missed) = world.truth.missed(at, upto) {
                        world.violation(format!(
                            "a watch at {at} was told that nothing happened up to {upto}, and \
                             {missed} did"
                        ));
                        return Ok(());
                    }
                    at = at.max(upto);
                }
                WatchItem::Compacted { .. } => world.count("watch compacted"),
            }
        }
    }
}
