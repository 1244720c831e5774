//! Cluster of a scene: three members, the links between them, and a client.

use crate::{
    clients::{self, Client},
    member::{self, Handle, MemberReport},
    run::{Report, check_heals},
    simulated_run::SimulatedRun,
};
use lattice_mesh::{ExpectedIdentity, Mesh, Role};
use lattice_quorum_types::{
    Applied, Revision,
    view::{Answer, Query},
    wire::Read,
};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Largest simulated time for a condition that a scene waits for.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for which an old leader is queried. A leader without an answering majority sends messages every two seconds,
/// and a candidate starts an election several times a second.
const QUERY_DURATION: Duration = Duration::from_secs(10);
/// Timeout of a query to one member.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);
/// Clients by number: the writer, and the client that queries single members. Client 0 checks the healing at the end.
const WRITER: u64 = 1;
const QUERY_CLIENT: u64 = 2;

/// Number of writes that exceed the retained log, so that an empty member receives a snapshot. openraft purges 64
/// entries at a time.
pub const WRITES_BEYOND_LOG: u64 = 105;

/// Position of one of the three members.
pub type MemberIndex = usize;

/// A founded cluster.
pub struct FoundedCluster {
    pub world: Arc<SimulatedRun>,
    pub members: Vec<Handle>,
    client: Client,
    asker: Mesh,
}

/// Founds a cluster, plays the script, and lets the cluster heal.
pub async fn play(
    world: &Arc<SimulatedRun>,
    script: impl AsyncFnOnce(&mut FoundedCluster) -> Result<(), String>,
) -> Report {
    let members: Vec<Handle> = (0..world.members.len())
        .map(|place| member::run(world.clone(), place))
        .collect();
    let played = async {
        let mut stage = FoundedCluster {
            client: Client::new(world, WRITER)?,
            asker: clients::mesh(world, QUERY_CLIENT)?,
            world: world.clone(),
            members: members.clone(),
        };
        let founded = timeout(CONDITION_TIMEOUT, stage.client.create_cluster_objects()).await;
        founded.map_err(|_| "the cluster was not founded".to_owned())?;
        script(&mut stage).await?;
        stage.heals().await
    };
    if let Err(reason) = played.await {
        world.violation(reason);
    }
    Report {
        seed: world.seed,
        violations: world.violations(),
        counts: world.counts(),
        counters: world.agreed_history.counters(),
        simulated: world.elapsed(),
        trace: world.trace_digest(),
        last_lines: world.last_lines(),
        ..Report::default()
    }
}

impl FoundedCluster {
    fn addr(&self, place: MemberIndex) -> SocketAddr {
        self.world.members[place].1
    }

    /// Restricts the links between members to these pairs. Clients reach all members.
    pub fn connect_only(&self, pairs: &[(MemberIndex, MemberIndex)]) {
        self.world
            .trace(|| format!("pairs of members with contact: {pairs:?}"));
        let network = &self.world.network;
        network.restore_links();
        for a in 0..self.members.len() {
            for b in 0..self.members.len() {
                if !pairs.contains(&(a, b)) && !pairs.contains(&(b, a)) {
                    network.cut(self.addr(a), self.addr(b));
                }
            }
        }
    }

    /// Restores all links.
    pub fn mend(&self) {
        self.world.trace(|| "all members have contact".to_owned());
        self.world.network.restore_links();
    }

    /// Checks whether the scheduled power cut of this member has happened.
    pub fn has_lost_power(&self, place: MemberIndex) -> bool {
        self.world.disks[place].cuts() > 0
    }

    /// Status and log positions of all members; `None` for a member that is down or does not answer at once.
    async fn look(&self) -> Vec<Option<MemberReport>> {
        let mut standings = Vec::new();
        for member in &self.members {
            let look = timeout(Duration::from_millis(5), member.report()).await;
            standings.push(look.ok().flatten());
        }
        standings
    }

    /// Waits until `is` returns a value for the members' status and log positions. `what` describes the condition.
    ///
    /// # Errors
    /// The condition and the last status, if the condition is not met in time.
    pub async fn until<T>(
        &self,
        what: &str,
        is: impl Fn(&[Option<MemberReport>]) -> Option<T>,
    ) -> Result<T, String> {
        let patience = self.world.elapsed() + CONDITION_TIMEOUT;
        loop {
            let standings = self.look().await;
            if let Some(is) = is(&standings) {
                return Ok(is);
            }
            if self.world.is_broken() {
                return Err(format!("a violation occurred while waiting until {what}"));
            }
            if self.world.elapsed() > patience {
                return Err(format!("timeout while waiting until {what}: {standings:?}"));
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until one of these members leads in a term after `after`, according to all of them.
    pub async fn leader(
        &self,
        among: &[MemberIndex],
        after: u64,
    ) -> Result<(MemberIndex, u64), String> {
        let members = &self.world.members;
        self.until("one of them leads", |standings| {
            let of = |place: &MemberIndex| standings.get(*place)?.as_ref();
            let said: Option<Vec<_>> = among
                .iter()
                .map(|place| Some((of(place)?.status.leader?, of(place)?.status.term)))
                .collect();
            let said = said?;
            let (leader, term) = *said.first()?;
            let place = members.iter().position(|(id, _)| *id == leader)?;
            let is_so = among.contains(&place) && said.iter().all(|s| *s == (leader, term));
            (is_so && term > after).then_some((place, term))
        })
        .await
    }

    /// Index of the last log entry in the newest snapshot of this member.
    pub async fn snapshot(&self, place: MemberIndex) -> Result<u64, String> {
        self.until(
            "a member reports the position of its snapshot",
            |standings| Some(standings.get(place)?.as_ref()?.snapshot),
        )
        .await
    }

    /// Waits until these members have applied the same log entries, and returns the index of the last one.
    pub async fn wait_until_level(&self, among: &[MemberIndex]) -> Result<u64, String> {
        self.until("they have applied the same", |standings| {
            let of = |place: &MemberIndex| Some(standings.get(*place)?.as_ref()?.applied);
            let applied: Option<Vec<u64>> = among.iter().map(of).collect();
            let mut applied = applied?;
            applied.dedup();
            (applied.len() == 1).then(|| applied.first().copied())?
        })
        .await
    }

    /// Writes a value under its own key, until it is acknowledged.
    pub async fn write(&mut self, value: u64) -> Result<Applied, String> {
        let key = format!("value {value}");
        let set = timeout(CONDITION_TIMEOUT, self.client.set(&key, 8 + value)).await;
        let applied = set.map_err(|_| format!("{key} was not accepted"))?;
        let applied = applied.ok_or_else(|| format!("{key} was refused"))?;
        self.world
            .trace(|| format!("{key} is acknowledged at {}", applied.revision));
        Ok(applied)
    }

    /// Reads from these members only. Every answer must contain the acknowledged revision.
    pub async fn read_from(&self, places: &[MemberIndex], acknowledged: Revision) {
        let until = self.world.elapsed() + QUERY_DURATION;
        while self.world.elapsed() < until && !self.world.is_broken() {
            for place in places {
                let (id, addr) = self.world.members[*place];
                let expect = ExpectedIdentity::exactly(Role::Quorum, id.to_string());
                let query = Query::Hot;
                let asked = self.asker.peer(addr, expect);
                let answer = asked.call(&Read { query }, QUERY_TIMEOUT).await;
                let Ok(Ok(Answer::Hot(hot))) = answer else {
                    self.world.count("not answered");
                    continue;
                };
                self.world.count("answered");
                if hot.revision < acknowledged {
                    self.world.violation(format!(
                        "member {id} answered a read with {} after {acknowledged} was acknowledged",
                        hot.revision
                    ));
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn heals(&mut self) -> Result<(), String> {
        self.mend();
        self.world.faults_ended.store(true, Relaxed);
        check_heals(&self.world, &self.members).await;
        Ok(())
    }
}
