//! Clients that write records while members are killed, stopped and disconnected. They list acknowledged records; at
//! the end each of these must exist exactly once.

use crate::wait::{PATIENCE, until};
use lattice_mesh::{Clock as _, SystemClock};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, NodeId, ProjectPath, Refusal, Revision, VclusterName,
    command::{Principal, Privilege, SCHEMA},
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

/// Pause between two records of one writer; bounds the number of records to check at the end.
const PAUSE: Duration = Duration::from_millis(5);

/// Command of an administrator with this idempotency key.
pub fn admin(key: &str, command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "alice".to_owned(),
            privilege: Privilege::Admin,
        },
        key: Some(key.to_owned()),
        at: SystemClock.now(),
        fence: None,
        command,
    }
}

/// Proposes until the outcome is known; the key makes repetition harmless.
///
/// # Panics
/// When no member answers within the patience.
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

/// Creates the project for the records, and these nodes.
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
    // A request that no node could satisfy is refused, so one node is needed.
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

/// Submit command of one record.
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

/// Acknowledged record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Name of the record.
    pub name: String,
    /// Revision that the record created.
    pub revision: Revision,
}

/// Writers that run until they are stopped.
#[derive(Debug)]
pub struct Recorder {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<Acknowledged>>>,
    writers: Vec<JoinHandle<()>>,
}

impl Recorder {
    /// Starts `writers` writers. `name` is the prefix of their records.
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

    /// Number of acknowledged records.
    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Waits until `more` further records are acknowledged.
    pub async fn writes(&self, more: usize) {
        let target = self.count() + more;
        until("more is acknowledged", || self.count() >= target).await;
    }

    /// Stops the writers after their last answers, and returns the acknowledged records.
    pub async fn stop(self) -> Vec<Acknowledged> {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.unwrap();
        }
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

/// Reads all records and checks that each acknowledged record exists, and none twice.
///
/// # Panics
/// When a record is lost or exists twice.
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

/// Names of all records.
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
