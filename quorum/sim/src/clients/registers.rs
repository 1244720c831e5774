//! Clients of the registers, a limit and a baseline: two clients write and read with concurrent operations, and one
//! only reads.

use super::quorum;
use crate::{
    registers::{BaselineOperation, Histories, LimitOperation, TENANT, WriteResult},
    simulated_run::{FIRST_REGISTER, SimulatedRun},
};
use lattice_mesh::Clock as _;
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    Applied, Command, Envelope, Outcome, ProjectPath, Refusal,
    baseline::{
        BaselineDefinition, ClassRule, Constraint, DriftPolicy, Rule, Scalar, SensitivePolicy,
    },
    command::{LimitChange, Principal, Privilege, SCHEMA},
    id::BaselineName,
    limit::{LimitPatch, Patch},
    view::{Answer, Query},
};
use lattice_rng::Rng;
use parking_lot::MutexGuard;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::sleep;

/// Number of operations of each of the two tasks of a client that writes and reads.
const OPERATIONS: usize = 25;
/// Number of operations of the client that only reads. Such a client keeps its known leader while that leader answers,
/// even after another member was elected.
const READS: usize = 70;
/// Number of writes with an unknown outcome in a history from which on no further write starts. The checker must try
/// every position for such a write, which takes long.
const MAX_UNKNOWN_WRITES: usize = 5;

/// Starts the clients of the registers.
pub fn run(world: &Arc<SimulatedRun>) -> Result<Vec<tokio::task::JoinHandle<()>>, String> {
    let mut working = Vec::new();
    for nth in [FIRST_REGISTER, FIRST_REGISTER + 1] {
        let quorum = quorum(world, nth)?;
        for turn in 0..2 {
            let client = Client {
                world: world.clone(),
                quorum: quorum.clone(),
                rng: Rng::new(world.seed, &format!("register {nth} {turn}")),
                nth,
            };
            working.push(tokio::spawn(client.work()));
        }
    }
    let nth = FIRST_REGISTER + 2;
    let reader = Client {
        world: world.clone(),
        quorum: quorum(world, nth)?,
        rng: Rng::new(world.seed, "register reader"),
        nth,
    };
    working.push(tokio::spawn(reader.only_read()));
    Ok(working)
}

struct Client {
    world: Arc<SimulatedRun>,
    quorum: QuorumClient,
    rng: Rng,
    nth: u64,
}

impl Client {
    async fn work(mut self) {
        for _ in 0..OPERATIONS {
            if self.world.faults_ended.load(Relaxed) || self.world.is_broken() {
                return;
            }
            sleep(Duration::from_millis(self.rng.range(1, 400))).await;
            match self.rng.below(4) {
                0 => self.read_plain().await,
                1 => self.write_plain().await,
                2 => self.read_versioned().await,
                _ => self.write_versioned().await,
            }
        }
    }

    async fn only_read(mut self) {
        for _ in 0..READS {
            if self.world.faults_ended.load(Relaxed) || self.world.is_broken() {
                return;
            }
            sleep(Duration::from_millis(self.rng.range(1, 200))).await;
            match self.rng.chance(500) {
                true => self.read_plain().await,
                false => self.read_versioned().await,
            }
        }
    }

    fn registers(&self) -> MutexGuard<'_, Histories> {
        self.world.registers.lock()
    }

    /// Proposes a command under a key, and repeats it until the outcome is known or the attempts are exhausted.
    async fn propose(&mut self, value: u64, command: Command) -> Option<Result<Applied, Refusal>> {
        let clock = &self.world.clocks[self.world.members.len() + self.nth as usize];
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "root".to_owned(),
                privilege: Privilege::Admin,
            },
            key: Some(format!("register-{value}")),
            at: clock.now(),
            fence: None,
            command,
        };
        for _ in 0..3 {
            match self.quorum.propose(envelope.clone()).await {
                Ok(answer) => return Some(answer),
                Err(ClientError::Rejected(_)) => return None,
                Err(_) => sleep(Duration::from_millis(self.rng.range(1, 200))).await,
            }
        }
        None
    }

    fn next_value(&self) -> u64 {
        let mut histories = self.registers();
        histories.values += 1;
        histories.values
    }

    async fn read_plain(&mut self) {
        let which = self.registers().plain.begin();
        let answer = self.quorum.read(Query::Hot).await;
        let limit = match answer {
            Ok(Answer::Hot(hot)) => {
                let mut projects = hot.projects.into_iter();
                let register = projects.find(|p| p.path.as_str() == TENANT);
                register.and_then(|p| p.limits.max_nodes)
            }
            _ => None,
        };
        let mut histories = self.registers();
        match limit {
            Some(value) => histories.plain.end(which, LimitOperation::Read(value)),
            None => histories.plain.forget(which),
        }
    }

    async fn write_plain(&mut self) {
        let Ok(path) = ProjectPath::new(TENANT) else {
            return;
        };
        if self.registers().plain.unknown >= MAX_UNKNOWN_WRITES {
            return;
        }
        let value = self.next_value();
        let patch = LimitPatch {
            max_nodes: Patch::Set(value),
            ..LimitPatch::default()
        };
        let changes = vec![LimitChange { path, patch }];
        let which = self.registers().plain.begin();
        let answer = self.propose(value, Command::SetLimits { changes }).await;
        let mut histories = self.registers();
        match answer {
            Some(Ok(_)) => histories.plain.end(which, LimitOperation::Write(value)),
            Some(Err(_)) => histories.plain.forget(which),
            None => {
                histories.plain.unknown += 1;
                histories
                    .plain_unknown
                    .push((which, LimitOperation::Write(value)));
            }
        }
    }

    async fn version(&self) -> Option<(u32, u64)> {
        let (name, version) = (BaselineName::new(TENANT).ok()?, None);
        match self.quorum.read(Query::Baseline { name, version }).await {
            Ok(Answer::Baseline(None)) => Some((0, 0)),
            Ok(Answer::Baseline(Some(found))) => {
                Some((found.version, found.definition.description.parse().ok()?))
            }
            _ => None,
        }
    }

    async fn read_versioned(&mut self) {
        let which = self.registers().versioned.begin();
        let found = self.version().await;
        let mut histories = self.registers();
        match found {
            Some((version, value)) => {
                histories
                    .versioned
                    .end(which, BaselineOperation::Read(version, value));
            }
            None => histories.versioned.forget(which),
        }
    }

    async fn write_versioned(&mut self) {
        let Ok(name) = BaselineName::new(TENANT) else {
            return;
        };
        if self.registers().versioned.unknown >= MAX_UNKNOWN_WRITES {
            return;
        }
        // The expected version was read some time ago and may be stale.
        let Some((expected, _)) = self.version().await else {
            return;
        };
        sleep(Duration::from_millis(self.rng.range(0, 50))).await;
        let value = self.next_value();
        let constraint = Constraint {
            key: "kernel.release".to_owned(),
            any_of: vec![Scalar::Text("6.1".to_owned())],
            or_absent: false,
        };
        let rule = ClassRule {
            policy: DriftPolicy::Warn,
            sensitive: SensitivePolicy::Strict,
            rule: Rule::Partial {
                constraints: vec![constraint],
            },
        };
        let definition = BaselineDefinition {
            description: value.to_string(),
            nodes: "z001".to_owned(),
            cohort: None,
            classes: [("kernel".to_owned(), rule)].into(),
        };
        let command = Command::SetBaseline {
            name,
            definition: Box::new(definition),
            expected_version: Some(expected),
        };
        let which = self.registers().versioned.begin();
        let answer = self.propose(value, command).await;
        let mut histories = self.registers();
        let write = |came| BaselineOperation::Write {
            expected,
            value,
            result: came,
        };
        match answer {
            Some(Ok(applied)) => {
                let came = match applied.outcome {
                    Outcome::BaselineSet { version } => WriteResult::Written(version),
                    _ => WriteResult::NotKnown,
                };
                histories.versioned.end(which, write(came));
            }
            Some(Err(_)) => histories.versioned.end(which, write(WriteResult::Refused)),
            None => {
                histories.versioned.unknown += 1;
                histories
                    .versioned_unknown
                    .push((which, write(WriteResult::NotKnown)));
            }
        }
    }
}
