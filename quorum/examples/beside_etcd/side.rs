//! What the comparisons know of either side.

use std::{future::Future, process::Child, time::Duration};

/// Members of each side.
pub const MEMBERS: usize = 3;

/// What one member says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// It leads, by its own word.
    pub leads: bool,
    /// It knows of a leader.
    pub follows: bool,
    /// Grows with each election.
    pub term: u64,
    /// Position of what it has applied.
    pub applied: u64,
}

/// Writes records.
pub trait Client: Clone + Send + Sync + 'static {
    /// Writes one record under this name and returns once it is acknowledged. A repeat under the
    /// same name is harmless. `writer` is who asks.
    fn write(&self, writer: usize, name: String)
    -> impl Future<Output = Result<(), String>> + Send;
}

/// Three members as processes.
pub trait Side {
    /// What it is called.
    const NAME: &'static str;
    type Client: Client;

    /// Starts a member, for the first time or again. The first is 0.
    fn start(&mut self, member: usize);
    /// SIGKILL, and waits until it is gone.
    fn kill(&mut self, member: usize);
    /// Process ids of the members that run.
    fn pids(&self) -> Vec<u32>;
    /// Where a member keeps its data.
    fn data(&self, member: usize) -> std::path::PathBuf;
    /// A client with these many connections to each member, where it may have several.
    fn client(&self, connections: usize) -> Self::Client;
    /// What each member says; `None`: nothing.
    fn statuses(&self) -> impl Future<Output = [Option<Status>; MEMBERS]>;
    /// The names of all records.
    fn names(&self) -> impl Future<Output = Vec<String>>;
}

/// The members' processes. They end with it.
#[derive(Default)]
pub struct Processes([Option<Child>; MEMBERS]);

impl Processes {
    /// A member runs as this one.
    pub fn put(&mut self, member: usize, child: Child) {
        self.0[member] = Some(child);
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self, member: usize) {
        let mut child = self.0[member].take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Of those that run.
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

/// Waits until all members answer and follow one leader, and says which it is.
pub async fn settled<S: Side>(side: &S) -> (usize, u64) {
    let wait = async {
        loop {
            let statuses = side.statuses().await;
            let terms: Vec<_> = statuses.iter().flatten().map(|s| s.term).collect();
            let agree = terms.len() == MEMBERS && terms.windows(2).all(|t| t[0] == t[1]);
            let all_follow = statuses.iter().flatten().all(|s| s.follows);
            let leader = statuses.iter().position(|s| s.is_some_and(|s| s.leads));
            if let (true, true, Some(leader)) = (agree, all_follow, leader) {
                return (leader, terms[0]);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
    waited.unwrap_or_else(|_| panic!("{}: no leader that all follow", S::NAME))
}
