//! One-way partitions: a member sends but receives nothing, or receives but cannot send. The member's return
//! deposes no healthy leader. Calls use a simulated wire that loses requests or answers; all other code is the
//! production code.

use crate::common::{self, CLUSTER, admin, create_project, credentials, until};
use futures::future::BoxFuture;
use lattice_mesh::{
    Authority, CallError, Caller, Clock as _, EndpointHandlers, Identity, Mesh, MeshConfig, Role,
    SystemClock, Wire,
};
use lattice_quorum::{App, Edges, Settings};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{VoterId, membership::MemberReport};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::sync::mpsc;

type Stream = mpsc::Receiver<Result<Vec<u8>, CallError>>;

/// Addresses of the endpoints, and the directions in which messages are lost.
#[derive(Default)]
struct Net {
    ends: Mutex<BTreeMap<SocketAddr, (Identity, Option<EndpointHandlers>)>>,
    cut: Mutex<BTreeSet<(SocketAddr, SocketAddr)>>,
}

impl Net {
    fn passes(&self, from: SocketAddr, to: SocketAddr) -> bool {
        !self.cut.lock().unwrap().contains(&(from, to))
    }
    /// From now on, messages from `from` to `to` are lost.
    fn cut(&self, from: SocketAddr, to: SocketAddr) {
        self.cut.lock().unwrap().insert((from, to));
    }
    fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }
}

/// One end of the wire.
struct End {
    net: Arc<Net>,
    addr: SocketAddr,
    identity: Identity,
}

impl End {
    fn new(net: &Arc<Net>, addr: SocketAddr, identity: Identity) -> Arc<Self> {
        let mut ends = net.ends.lock().unwrap();
        ends.insert(addr, (identity.clone(), None));
        drop(ends);
        let net = net.clone();
        Arc::new(Self {
            net,
            addr,
            identity,
        })
    }
    fn caller(&self) -> Caller {
        Caller {
            identity: self.identity.clone(),
            issued_at: SystemClock.now(),
            addr: self.addr,
        }
    }
    fn answers(&self, to: SocketAddr) -> Option<EndpointHandlers> {
        let ends = self.net.ends.lock().unwrap();
        ends.get(&to)?.1.clone()
    }
}

fn nobody(addr: SocketAddr) -> CallError {
    CallError::Transport {
        addr,
        sent: false,
        reason: "nobody is there".to_owned(),
    }
}

impl Wire for End {
    fn serve(&self, answers: EndpointHandlers) {
        let mut ends = self.net.ends.lock().unwrap();
        ends.insert(self.addr, (self.identity.clone(), Some(answers)));
    }
    fn dial(&self, to: SocketAddr) -> BoxFuture<'static, Result<Identity, String>> {
        let ends = self.net.ends.lock().unwrap();
        let found = ends.get(&to).map(|(identity, _)| identity.clone());
        Box::pin(async move { found.ok_or_else(|| "nobody is there".to_owned()) })
    }
    fn call(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, CallError>> {
        let (net, from, caller, answers) =
            (self.net.clone(), self.addr, self.caller(), self.answers(to));
        Box::pin(async move {
            let answers = answers.ok_or_else(|| nobody(to))?;
            if !net.passes(from, to) {
                return std::future::pending().await;
            }
            let answer = answers.call(caller, method, &body).await;
            // The request was executed; only the answer may be lost.
            match net.passes(to, from) {
                true => answer,
                false => std::future::pending().await,
            }
        })
    }
    fn open(
        &self,
        to: SocketAddr,
        method: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Stream, CallError>> {
        let (caller, answers) = (self.caller(), self.answers(to));
        Box::pin(async move {
            let answers = answers.ok_or_else(|| nobody(to))?;
            let (mut items, ended) = answers.open(caller, method, &body)?;
            let (out, received) = mpsc::channel(16);
            tokio::spawn(async move {
                while let Some(item) = items.recv().await {
                    if out.send(Ok(item)).await.is_err() {
                        return;
                    }
                }
                if let Err(error) = ended.await {
                    let _ = out.send(Err(error)).await;
                }
            });
            Ok(received)
        })
    }
}

struct ThreeMembers {
    net: Arc<Net>,
    authority: Arc<Authority>,
    apps: Vec<App>,
    _folder: tempfile::TempDir,
}

fn addr(id: VoterId) -> SocketAddr {
    format!("10.0.0.{id}:7101").parse().unwrap()
}

impl ThreeMembers {
    async fn start() -> Self {
        let (net, authority) = (Arc::<Net>::default(), common::authority());
        let folder = tempfile::tempdir().unwrap();
        let mut apps = Vec::new();
        for id in 1..=3 {
            let data = folder.path().join(id.to_string());
            let mut settings = Settings::new(CLUSTER, id, addr(id), data);
            let identity = Identity::new(CLUSTER, Role::Quorum, id.to_string()).unwrap();
            settings.mesh.wire = Some(End::new(&net, addr(id), identity));
            let edges = Edges {
                credentials: credentials(&authority, Role::Quorum, &id.to_string()),
                authority: Some(authority.clone()),
                clock: Arc::new(SystemClock),
            };
            apps.push(App::bind(settings, edges).await.unwrap());
        }
        let members: Vec<_> = (1..=3).map(|id| (id, addr(id))).collect();
        for app in &mut apps {
            app.start(members.clone()).await.unwrap();
        }
        let three = Self {
            net,
            authority,
            apps,
            _folder: folder,
        };
        until("all members follow one leader", || async {
            let accounts = (1..=3).map(|id| three.account(id));
            let leaders: BTreeSet<_> = accounts.map(|a| (a.leader, a.term, a.blank)).collect();
            leaders.len() == 1
                && leaders
                    .iter()
                    .all(|(leader, _, blank)| leader.is_some() && !blank)
        })
        .await;
        three
    }
    fn account(&self, id: VoterId) -> MemberReport {
        self.apps[id as usize - 1].account().unwrap()
    }
    fn client(&self) -> QuorumClient {
        let at: SocketAddr = "10.0.0.99:1".parse().unwrap();
        let identity = Identity::new(CLUSTER, Role::Control, "c1").unwrap();
        let config = MeshConfig {
            wire: Some(End::new(&self.net, at, identity)),
            ..MeshConfig::default()
        };
        let credentials = credentials(&self.authority, Role::Control, "c1");
        let mesh = Mesh::bind(at, credentials, config).unwrap();
        let addrs = (1..=3).map(addr).collect();
        QuorumClient::with_config(mesh, addrs, common::patient())
    }
    async fn stop(self) {
        for app in self.apps {
            app.stop().await;
        }
    }
}

async fn create(client: &QuorumClient, name: &str) {
    let created = client.propose(admin(None, create_project(name, 1))).await;
    created.unwrap().unwrap();
}

/// Cuts a follower off with `cut`, for the duration of many elections, and heals the cut. Compares leaders and terms
/// before and after.
async fn deposes_nobody(
    cut: impl Fn(&Net, SocketAddr, SocketAddr),
    until_cut_shows: fn(&ThreeMembers, VoterId) -> bool,
) {
    let three = ThreeMembers::start().await;
    let client = three.client();
    create(&client, "before").await;
    let before = three.account(1);
    let leader = before.leader.unwrap();
    let cut_off = (1..=3).find(|id| *id != leader).unwrap();
    for other in (1..=3).filter(|id| *id != cut_off) {
        cut(&three.net, addr(cut_off), addr(other));
    }
    until("the cut shows", || async {
        until_cut_shows(&three, cut_off)
    })
    .await;
    create(&client, "meanwhile").await;
    let meanwhile = three.account(leader);
    three.net.heal();
    until("it has caught up", || async {
        let (own, theirs) = (three.account(cut_off), three.account(leader));
        own.applied_index == theirs.applied_index && own.last_contact_ms.is_some_and(|ms| ms < 500)
    })
    .await;
    create(&client, "after").await;
    for id in 1..=3 {
        let after = three.account(id);
        assert_eq!(
            (after.leader, after.term),
            (Some(leader), before.term),
            "member {id}"
        );
    }
    assert_eq!(
        (meanwhile.leader, meanwhile.term),
        (Some(leader), before.term)
    );
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deaf_member_deposes_no_leader() {
    let cut = |net: &Net, cut_off, other| net.cut(other, cut_off);
    deposes_nobody(cut, |three, id| {
        three
            .account(id)
            .last_contact_ms
            .is_some_and(|ms| ms > 3000)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mute_member_deposes_no_leader() {
    let cut = |net: &Net, cut_off, other| net.cut(cut_off, other);
    deposes_nobody(cut, |three, id| {
        let leader = three.account(id).leader.unwrap_or(1);
        let followers = three.account(leader).followers;
        let known = followers.iter().find(|f| f.id == id);
        known.is_some_and(|f| f.last_contact_ms.is_none_or(|ms| ms > 3000))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_member_deposes_no_leader() {
    let cut = |net: &Net, cut_off, other| {
        net.cut(cut_off, other);
        net.cut(other, cut_off);
    };
    deposes_nobody(cut, |three, id| {
        three
            .account(id)
            .last_contact_ms
            .is_some_and(|ms| ms > 3000)
    })
    .await;
}

/// The reverse: a leader that sends but receives no answers commits nothing. It must not prevent the election of a
/// leader that can.
#[tokio::test(flavor = "multi_thread")]
async fn deaf_leader_is_replaced() {
    let three = ThreeMembers::start().await;
    let client = three.client();
    create(&client, "before").await;
    let old = three.account(1).leader.unwrap();
    for other in (1..=3).filter(|id| *id != old) {
        three.net.cut(addr(other), addr(old));
    }
    until("another one leads", || async {
        let others = (1..=3).filter(|id| *id != old);
        let leads = |id| {
            let account = three.account(id);
            account.leader == Some(id)
        };
        others.into_iter().any(leads)
    })
    .await;
    create(&client, "after").await;
    three.net.heal();
    until("the old one follows", || async {
        three
            .account(old)
            .leader
            .is_some_and(|leader| leader != old)
    })
    .await;
    three.stop().await;
}
