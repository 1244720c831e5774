//! Membership changes as the command line requests them, with concurrent writers.

use super::{admin, create_project};
use lattice_quorum_client::{ClientError, QuorumClient};
use lattice_quorum_types::{
    VoterId,
    audit::AuditEntry,
    command::{Principal, Privilege},
    membership::{ChangeProgress, ChangeRefusal, MemberRole, MembershipChange, QuorumView},
    view::{Answer, Query},
};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

pub fn alice() -> Principal {
    Principal {
        name: "alice".to_owned(),
        privilege: Privilege::Admin,
    }
}

/// Repeats the request until the change is done or refused, under one key, as the command line does.
pub async fn change(
    client: &QuorumClient,
    change: MembershipChange,
) -> Result<bool, ChangeRefusal> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = format!("change-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let asking = async {
        loop {
            let step = client
                .change_quorum(alice(), key.clone(), change.clone())
                .await;
            match step.unwrap()? {
                ChangeProgress::Done { already, .. } => return Ok(already),
                ChangeProgress::CatchingUp { .. } | ChangeProgress::UnderWay => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), asking).await;
    done.unwrap_or_else(|_| panic!("{change:?} is not done"))
}

pub fn add(id: VoterId, addr: SocketAddr) -> MembershipChange {
    MembershipChange::Add { id, addr }
}

pub fn remove(id: VoterId) -> MembershipChange {
    MembershipChange::Remove {
        id,
        force: false,
        reason: "its disk is dying".to_owned(),
    }
}

pub fn voters(view: &QuorumView) -> Vec<VoterId> {
    let voters = view
        .members
        .iter()
        .filter(|m| m.role != MemberRole::Learner);
    voters.map(|m| m.id).collect()
}

pub async fn audit(client: &QuorumClient) -> Vec<AuditEntry> {
    let mut all: Vec<AuditEntry> = Vec::new();
    loop {
        let query = Query::Audit {
            after: all.last().map_or(0, |entry| entry.number),
            limit: 5000,
        };
        match client.read(query).await.unwrap() {
            Answer::Audit(page) if page.is_empty() => return all,
            Answer::Audit(page) => all.extend(page),
            other => panic!("{other:?}"),
        }
    }
}

pub async fn create(client: &QuorumClient, name: &str) {
    let created = client.propose(admin(None, create_project(name, 1))).await;
    created.unwrap().unwrap();
}

pub async fn projects(client: &QuorumClient) -> BTreeSet<String> {
    match client.read(Query::Hot).await.unwrap() {
        Answer::Hot(hot) => hot.projects.iter().map(|p| p.path.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Writers that record their acknowledged writes.
pub struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<String>>>,
    /// Longest time between two acknowledged writes of one writer.
    longest: Arc<Mutex<Duration>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    pub fn start(client: &QuorumClient, count: usize) -> Self {
        let writers = Self {
            stop: Arc::default(),
            acknowledged: Arc::default(),
            longest: Arc::default(),
            tasks: Vec::new(),
        };
        let write = |writer: usize| {
            let (client, stop) = (client.clone(), writers.stop.clone());
            let (acknowledged, longest) = (writers.acknowledged.clone(), writers.longest.clone());
            async move {
                let mut since = Instant::now();
                for n in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("w{writer}-{n}");
                    loop {
                        let envelope = admin(Some(name.clone()), create_project(&name, 1));
                        match client.propose(envelope).await {
                            Ok(done) => {
                                done.unwrap();
                                break;
                            }
                            Err(
                                ClientError::OutcomeUnknown { .. }
                                | ClientError::Unavailable { .. },
                            ) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    acknowledged.lock().unwrap().push(name);
                    let mut longest = longest.lock().unwrap();
                    *longest = longest.max(since.elapsed());
                    since = Instant::now();
                }
            }
        };
        let tasks = (0..count)
            .map(|writer| tokio::spawn(write(writer)))
            .collect();
        Self { tasks, ..writers }
    }
    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }
    /// Discards the gaps measured so far.
    pub fn begin(&self) {
        *self.longest.lock().unwrap() = Duration::ZERO;
    }
    pub fn longest(&self) -> Duration {
        *self.longest.lock().unwrap()
    }
    /// Stops the writers and checks that no acknowledged write was lost. Returns the number of writes.
    pub async fn none_lost(self, client: &QuorumClient) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let acknowledged = std::mem::take(&mut *self.acknowledged.lock().unwrap());
        let found = projects(client).await;
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|n| !found.contains(*n))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
        acknowledged.len()
    }
}
