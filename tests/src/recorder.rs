//! Clients that write records while members are killed, stopped and cut off, and keep account of
//! what was acknowledged; in the end each must be there, once.

use crate::wait::{PATIENCE, until};
use lattice_mesh::{Clock as _, SystemClock};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, NodeId, ProjectPath, Refusal, Revision, VclusterName,
    command::{Power, Principal, SCHEMA},
    limit::Limits,
    spec::{AllocationSpec, Workload},
    view::{Answer, Query},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// Between one writer's records: what is written in all is looked for in the end.
const PAUSE: Duration = Duration::from_millis(5);

/// A command of an administrator under this key.
pub fn admin(key: &str, command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "alice".to_owned(),
            power: Power::Admin,
        },
        key: Some(key.to_owned()),
        at: SystemClock.now(),
        fence: None,
        command,
    }
}

/// Proposes until the outcome is known: the key makes that harmless.
///
/// # Panics
/// When nobody answers.
pub async fn settle(client: &QuorumClient, envelope: Envelope) -> Result<Applied, Refusal> {
    assert!(envelope.key.is_some());
    let begun = Instant::now();
    loop {
        match client.propose(envelope.clone()).await {
            Ok(reply) => return reply,
            Err(ClientError::OutcomeUnknown { .. } | ClientError::Unavailable { .. })
                if begun.elapsed() < PATIENCE => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes what records rest on, and these nodes.
pub async fn prepare(client: &QuorumClient, nodes: &[NodeId]) {
    let limits = Limits {
        max_nodes: Some(10),
        max_concurrent_allocations: None,
    };
    let path = ProjectPath::new("atlas").unwrap();
    let project = Command::CreateProject {
        path,
        limits: Some(limits),
        admins: Vec::new(),
        description: String::new(),
    };
    settle(client, admin("project", project)).await.unwrap();
    // What nobody could ever be given is refused.
    let some = NodeId::new("n1").unwrap();
    for node in nodes.iter().chain([&some]) {
        let register = Command::RegisterNode {
            node: node.clone(),
            vcluster: VclusterName::new("default").unwrap(),
        };
        settle(client, admin(node.as_str(), register))
            .await
            .unwrap();
    }
}

/// One record.
fn record(name: &str) -> Command {
    Command::Submit {
        spec: Box::new(AllocationSpec {
            name: Some(name.to_owned()),
            walltime_ms: Some(60_000),
            class: 0,
            ..AllocationSpec::new(
                ProjectPath::new("atlas").unwrap(),
                VclusterName::new("default").unwrap(),
                1,
                Workload {
                    argv: vec!["/bin/true".to_owned()],
                    ..Workload::default()
                },
            )
        }),
    }
}

/// An acknowledged record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its name.
    pub name: String,
    /// What it made.
    pub revision: Revision,
}

/// Writers that go on until they are stopped.
#[derive(Debug)]
pub struct Recorder {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<Acknowledged>>>,
    writers: Vec<JoinHandle<()>>,
}

impl Recorder {
    /// Starts so many writers. `name` begins what they write.
    pub fn start(client: &QuorumClient, name: &str, writers: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let writer = |writer: usize| {
            let (client, stop) = (client.clone(), stop.clone());
            let (acknowledged, name) = (acknowledged.clone(), format!("{name}-{writer}"));
            tokio::spawn(async move {
                for n in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("{name}-{n}");
                    let applied = settle(&client, admin(&name, record(&name))).await;
                    let revision = applied.unwrap().revision;
                    let done = Acknowledged { name, revision };
                    acknowledged.lock().unwrap().push(done);
                    tokio::time::sleep(PAUSE).await;
                }
            })
        };
        Self {
            writers: (0..writers).map(writer).collect(),
            stop,
            acknowledged,
        }
    }

    /// How many were acknowledged so far.
    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Waits until so many more are acknowledged.
    pub async fn writes(&self, more: usize) {
        let target = self.count() + more;
        until("more is acknowledged", || self.count() >= target).await;
    }

    /// Ends the writers, once each has its answer, and gives what was acknowledged.
    pub async fn stop(self) -> Vec<Acknowledged> {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.unwrap();
        }
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

/// Reads all records and compares: each acknowledged one is there, and none twice.
///
/// # Panics
/// When one is lost or doubled.
pub async fn all_there(client: &QuorumClient, acknowledged: &[Acknowledged]) {
    let names = names(client).await;
    let found: BTreeSet<_> = names.iter().map(String::as_str).collect();
    assert_eq!(found.len(), names.len(), "a record was written twice");
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|done| !found.contains(done.name.as_str()))
        .collect();
    assert!(!acknowledged.is_empty(), "nothing was written");
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

/// The names of all records.
async fn names(client: &QuorumClient) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), AllocationId(0));
    loop {
        let query = Query::Allocations {
            after,
            limit: 2000,
            states: Vec::new(),
            within: None,
        };
        let Answer::Allocations(page) = client.read(query).await.unwrap() else {
            panic!("no allocations");
        };
        let Some(last) = page.last() else {
            return names;
        };
        after = last.id;
        names.extend(page.into_iter().filter_map(|a| a.spec.name.clone()));
    }
}
