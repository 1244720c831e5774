//! Interface of the two compared systems (sides).

use std::{future::Future, process::Child, time::Duration};

/// Number of members of each side.
pub const MEMBERS: usize = 3;

/// Status of a member, reported by itself.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// The member claims to lead.
    pub is_leader: bool,
    /// The member reports a leader.
    pub has_leader: bool,
    /// Raft term; increases with each election.
    pub term: u64,
    /// Index of the last applied log entry.
    pub applied: u64,
}

/// Client that writes records.
pub trait Client: Clone + Send + Sync + 'static {
    /// Writes one record under this name and returns once the write is acknowledged. A repetition under the same name
    /// is harmless. `writer` is the number of the calling writer.
    fn write(&self, writer: usize, name: String)
    -> impl Future<Output = Result<(), String>> + Send;
}

/// One compared system: three members as processes.
pub trait Side {
    /// Name of the system.
    const NAME: &'static str;
    type Client: Client;

    /// Starts a member, for the first time or again. Members are counted from 0.
    fn start(&mut self, member: usize);
    /// Sends SIGKILL to a member and waits until its process has ended.
    fn kill(&mut self, member: usize);
    /// Returns the process ids of the running members.
    fn pids(&self) -> Vec<u32>;
    /// Returns the data folder of a member.
    fn data(&self, member: usize) -> std::path::PathBuf;
    /// Creates a client with this number of connections to each member, if the client supports several.
    fn client(&self, connections: usize) -> Self::Client;
    /// Returns the status of each member; `None` if it does not answer.
    fn statuses(&self) -> impl Future<Output = [Option<Status>; MEMBERS]>;
    /// Returns the names of all records.
    fn names(&self) -> impl Future<Output = Vec<String>>;
}

/// Processes of the members; a drop kills them.
#[derive(Default)]
pub struct Processes([Option<Child>; MEMBERS]);

impl Processes {
    /// Registers the process of a member.
    pub fn put(&mut self, member: usize, child: Child) {
        self.0[member] = Some(child);
    }

    /// Sends SIGKILL to a member and waits until its process has ended.
    pub fn kill(&mut self, member: usize) {
        let mut child = self.0[member].take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Returns the process ids of the running members.
    pub fn ids(&self) -> Vec<u32> {
        self.0.iter().flatten().map(Child::id).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.0.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until all members answer and follow one leader. Returns the leader and the term.
pub async fn wait_for_leader<S: Side>(side: &S) -> (usize, u64) {
    let wait = async {
        loop {
            let statuses = side.statuses().await;
            let terms: Vec<_> = statuses.iter().flatten().map(|s| s.term).collect();
            let agree = terms.len() == MEMBERS && terms.windows(2).all(|t| t[0] == t[1]);
            let all_follow = statuses.iter().flatten().all(|s| s.has_leader);
            let leader = statuses.iter().position(|s| s.is_some_and(|s| s.is_leader));
            if let (true, true, Some(leader)) = (agree, all_follow, leader) {
                return (leader, terms[0]);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
    waited.unwrap_or_else(|_| panic!("{}: members did not agree on a leader within 60 s", S::NAME))
}
