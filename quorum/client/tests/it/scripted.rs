//! The client against members with scripted answers: repeated and non-repeated requests.

use lattice_mesh::{
    Authority, Clock as _, Credentials, HandlerFailed, Mesh, MeshConfig, Role, Router, SystemClock,
    Validity,
};
use lattice_quorum_client::{ClientConfig, ClientError, QuorumClient};
use lattice_quorum_types::{
    Applied, Command, Envelope, Event, Outcome, ProjectPath, Refusal, Revision, UnixMillis,
    command::{Principal, Privilege, SCHEMA},
    event::EventKind,
    membership::{GetMemberStatus, Incarnation, MemberStatus},
    view::{Answer, Query, WatchItem},
    wire::{Propose, Read, Unavailable, Watch},
};
use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

type Reply = Result<Vec<Result<Applied, Refusal>>, Unavailable>;

/// A member's reaction to one proposal.
enum Act {
    /// Answers that each command was applied.
    Apply,
    /// Answers with this reason for unavailability.
    Say(Unavailable),
    /// Never answers.
    Hang,
    /// The handler fails.
    Break,
}

/// A member that follows a script, and applies everything after its end.
struct Member {
    mesh: Mesh,
    script: Arc<Mutex<VecDeque<Act>>>,
    /// Names in the received proposals, one list for each request.
    seen: Arc<Mutex<Vec<Vec<String>>>>,
}

struct Site {
    authority: Authority,
}

fn bind(authority: &Authority, role: Role, id: &str) -> Mesh {
    bind_with(authority, role, id, MeshConfig::default())
}

fn bind_with(authority: &Authority, role: Role, id: &str, config: MeshConfig) -> Mesh {
    let day = Duration::from_secs(86_400);
    let credentials = Credentials::issued_now(authority, "test", role, id, day).unwrap();
    Mesh::bind("127.0.0.1:0".parse().unwrap(), credentials, config).unwrap()
}

impl Site {
    fn new() -> Self {
        let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
        let authority = Authority::create("test", validity).unwrap();
        Self { authority }
    }

    /// Creates a member that reports `leader` as the leader, or itself if `None`.
    fn member(&self, id: u64, leader: Option<SocketAddr>, script: Vec<Act>) -> Member {
        self.member_with(id, leader, script, MeshConfig::default())
    }

    fn member_with(
        &self,
        id: u64,
        leader: Option<SocketAddr>,
        script: Vec<Act>,
        config: MeshConfig,
    ) -> Member {
        let mesh = bind_with(&self.authority, Role::Quorum, &id.to_string(), config);
        let leader = leader.unwrap_or(mesh.local_addr());
        let script = Arc::new(Mutex::new(VecDeque::from(script)));
        let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let router = Router::new()
            .rpc({
                let (script, seen) = (script.clone(), seen.clone());
                move |_, request: Propose| {
                    let names = request.envelopes.iter().map(name_of).collect();
                    seen.lock().unwrap().push(names);
                    let act = script.lock().unwrap().pop_front().unwrap_or(Act::Apply);
                    async move { play(act, request.envelopes.len()).await }
                }
            })
            .rpc(move |_, _: Read| async move { Ok(Ok(Answer::Revision(Revision(7)))) })
            .rpc(move |_, _: GetMemberStatus| async move {
                Ok(MemberStatus {
                    id,
                    leader: Some(1),
                    term: 1,
                    applied_index: 0,
                    revision: Revision(0),
                    members: vec![(1, leader.to_string())],
                    incarnation: Incarnation::NONE,
                    membership_index: 0,
                })
            });
        mesh.serve(router).unwrap();
        Member { mesh, script, seen }
    }

    fn client(&self, members: &[&Member], config: ClientConfig) -> QuorumClient {
        let addrs = members.iter().map(|m| m.mesh.local_addr()).collect();
        QuorumClient::with_config(bind(&self.authority, Role::Control, "c1"), addrs, config)
    }
}

async fn play(act: Act, commands: usize) -> Result<Reply, HandlerFailed> {
    match act {
        Act::Apply => Ok(Ok((0..commands).map(|_| Ok(applied())).collect())),
        Act::Say(unavailable) => Ok(Err(unavailable)),
        Act::Hang => std::future::pending().await,
        Act::Break => Err(HandlerFailed::new("broken on purpose")),
    }
}

fn applied() -> Applied {
    Applied {
        revision: Revision(1),
        outcome: Outcome::Done,
        events: Vec::new(),
    }
}

fn name_of(envelope: &Envelope) -> String {
    match &envelope.command {
        Command::DeleteProject { path } => path.to_string(),
        other => format!("{other:?}"),
    }
}

fn command(name: &str, key: Option<&str>) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "alice".to_owned(),
            privilege: Privilege::Admin,
        },
        key: key.map(str::to_owned),
        at: UnixMillis(1),
        fence: None,
        command: Command::DeleteProject {
            path: ProjectPath::new(name).unwrap(),
        },
    }
}

/// Timeouts long enough that a slow machine causes no repeats.
fn patient() -> ClientConfig {
    ClientConfig {
        deadline: Duration::from_secs(90),
        attempt_timeout: Duration::from_secs(30),
        leader_check_after: Duration::from_secs(10),
        ..ClientConfig::default()
    }
}

/// Short timeout for attempts.
fn quick() -> ClientConfig {
    ClientConfig {
        attempt_timeout: Duration::from_secs(4),
        ..patient()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_happened_is_repeated_only_under_a_key() {
    let site = Site::new();
    let acts: [(fn() -> Act, _); 3] = [
        (|| Act::Say(Unavailable::OutcomeUnknown), patient()),
        (|| Act::Hang, quick()),
        (|| Act::Break, patient()),
    ];
    for (act, config) in acts {
        let member = site.member(1, None, vec![act()]);
        let client = site.client(&[&member], config);
        let error = client.propose(command("a", None)).await.unwrap_err();
        assert!(
            matches!(error, ClientError::OutcomeUnknownWithoutKey { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("was not repeated"), "{error}");
        assert_eq!(*member.seen.lock().unwrap(), [["a"]]);

        member.script.lock().unwrap().push_back(act());
        let reply = client.propose(command("b", Some("k"))).await.unwrap();
        assert_eq!(reply, Ok(applied()));
        assert_eq!(*member.seen.lock().unwrap(), [["a"], ["b"], ["b"]]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_happen_is_repeated_without_a_key() {
    let site = Site::new();
    let script = vec![
        Act::Say(Unavailable::Busy),
        Act::Say(Unavailable::NoMajority),
        Act::Say(Unavailable::NotLeader { leader: None }),
    ];
    let member = site.member(1, None, script);
    let client = site.client(&[&member], patient());
    let reply = client.propose(command("a", None)).await.unwrap();
    assert_eq!(reply, Ok(applied()));
    assert_eq!(member.seen.lock().unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_followed_where_others_say_it_is() {
    let site = Site::new();
    let leader = site.member(1, None, Vec::new());
    let addr = leader.mesh.local_addr();
    let hint = || {
        Act::Say(Unavailable::NotLeader {
            leader: Some(addr.to_string()),
        })
    };
    let other = site.member(2, Some(addr), vec![hint(), hint()]);
    // Only the other member is configured: the client learns the leader from that member alone.
    let client = site.client(&[&other], patient());
    for name in ["a", "b"] {
        let reply = client.propose(command(name, None)).await.unwrap();
        assert_eq!(reply, Ok(applied()));
    }
    assert_eq!(*leader.seen.lock().unwrap(), [["a"], ["b"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_quorum_is_reported_by_deadline() {
    let site = Site::new();
    let member = site.member(1, None, Vec::new());
    let config = ClientConfig {
        deadline: Duration::from_secs(1),
        attempt_timeout: Duration::from_secs(60),
        ..ClientConfig::default()
    };
    let client = site.client(&[&member], config.clone());
    member.mesh.shutdown(Duration::from_millis(100)).await;
    drop(member);
    let started = Instant::now();
    let error = client.propose(command("a", None)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable { .. }), "{error}");
    let error = client.read(Query::Revision).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable { .. }), "{error}");
    // A client that ignores the answer waits ten seconds, twice.
    assert!(started.elapsed() < Duration::from_secs(10));
    let mesh = bind(&site.authority, Role::Control, "c2");
    let nobody = QuorumClient::with_config(mesh, Vec::new(), config);
    let error = nobody.propose(command("a", None)).await.unwrap_err();
    assert!(matches!(error, ClientError::NoMembers), "{error}");
}

/// An attempt that begins just before the deadline ends with it, whatever the timeout of attempts.
#[tokio::test(flavor = "multi_thread")]
async fn silent_member_does_not_outlast_deadline() {
    let site = Site::new();
    let member = site.member(1, None, vec![Act::Hang]);
    let config = ClientConfig {
        deadline: Duration::from_secs(1),
        attempt_timeout: Duration::from_secs(60),
        ..patient()
    };
    let client = site.client(&[&member], config);
    let started = Instant::now();
    let error = client.propose(command("a", Some("k"))).await.unwrap_err();
    assert!(
        matches!(error, ClientError::OutcomeUnknown { .. }),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthorized_role_is_rejected_at_once() {
    let site = Site::new();
    let member = site.member(1, None, Vec::new());
    let agent = bind(&site.authority, Role::Agent, "n1");
    let client = QuorumClient::with_config(agent, vec![member.mesh.local_addr()], patient());
    let error = client.propose(command("a", None)).await.unwrap_err();
    assert!(matches!(error, ClientError::Rejected(_)), "{error}");
    assert!(member.seen.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_share_requests_and_a_list_keeps_its_order() {
    let site = Site::new();
    let member = site.member(1, None, Vec::new());
    let client = site.client(&[&member], patient());
    let callers = (0..200).map(|i| {
        let client = client.clone();
        async move { client.propose(command(&format!("p{i}"), None)).await }
    });
    for reply in futures::future::join_all(callers).await {
        reply.unwrap().unwrap();
    }
    let requests = member.seen.lock().unwrap().len();
    assert!(requests < 100, "{requests} requests for 200 proposals");
    member.seen.lock().unwrap().clear();
    let names: Vec<_> = (0..1300).map(|i| format!("q{i}")).collect();
    let list = names.iter().map(|name| command(name, None)).collect();
    assert_eq!(client.propose_all(list).await.unwrap().len(), 1300);
    assert_eq!(member.seen.lock().unwrap().concat(), names);
}

fn large(bytes: usize) -> Envelope {
    Envelope {
        command: Command::RevokeCertificates {
            name: "n1".to_owned(),
            role: Role::Agent,
            reason: "x".repeat(bytes),
        },
        ..command("a", None)
    }
}

/// Proposes the large command concurrently with others. Returns the result of the large one.
async fn beside_others(client: &QuorumClient, large: Envelope) -> Result<(), ClientError> {
    let others = (0..40).map(|i| {
        let client = client.clone();
        async move { client.propose(command(&format!("p{i}"), None)).await }
    });
    let others = futures::future::join_all(others);
    let (replies, guilty) = futures::join!(others, client.propose(large));
    for reply in replies {
        reply.unwrap().unwrap();
    }
    guilty.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_fails_alone() {
    let site = Site::new();
    // First more than any member accepts; then more than this member accepts, a limit that the client does not have.
    for (bytes, limit) in [(5 << 20, 4 << 20), (200_000, 100_000)] {
        let config = MeshConfig {
            max_request_bytes: limit,
            ..MeshConfig::default()
        };
        let member = site.member_with(1, None, Vec::new(), config);
        let config = ClientConfig {
            in_flight: 1,
            ..patient()
        };
        let client = site.client(&[&member], config);
        let met = beside_others(&client, large(bytes)).await;
        assert!(matches!(met, Err(ClientError::Rejected(_))), "{met:?}");
    }
}

fn event(revision: u64) -> Event {
    Event {
        revision: Revision(revision),
        ordinal: 0,
        at: UnixMillis(1),
        kind: EventKind::ProjectDeleted {
            path: ProjectPath::new("a").unwrap(),
        },
    }
}

/// A member with a watch that sends two revisions, repeats one of them after each new start, and breaks off.
fn watchable(site: &Site) -> (Mesh, Arc<Mutex<Vec<u64>>>) {
    let mesh = bind(&site.authority, Role::Quorum, "1");
    let addr = mesh.local_addr();
    let asked: Arc<Mutex<Vec<u64>>> = Arc::default();
    let router = Router::new()
        .stream({
            let asked = asked.clone();
            move |_, request: Watch, items| {
                let since = request.since.0;
                asked.lock().unwrap().push(since);
                async move {
                    if since >= 6 {
                        let oldest = Revision(9);
                        return items.send(&WatchItem::Compacted { oldest }).await;
                    }
                    let events = (since.max(1)..=since + 2).map(event).collect();
                    items.send(&WatchItem::Events(events)).await?;
                    Err(HandlerFailed::new("broken on purpose"))
                }
            }
        })
        .rpc(move |_, _: GetMemberStatus| async move {
            Ok(MemberStatus {
                id: 1,
                leader: Some(1),
                term: 1,
                applied_index: 0,
                revision: Revision(0),
                members: vec![(1, addr.to_string())],
                incarnation: Incarnation::NONE,
                membership_index: 0,
            })
        });
    mesh.serve(router).unwrap();
    (mesh, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_resumes_where_it_stood_and_ends_when_the_past_is_gone() {
    let site = Site::new();
    let (mesh, asked) = watchable(&site);
    let control = bind(&site.authority, Role::Control, "c1");
    let client = QuorumClient::with_config(control, vec![mesh.local_addr()], patient());
    let mut watch = client.watch(Revision(0));
    let (mut seen, mut last) = (Vec::new(), None);
    while let Some(item) = watch.next().await {
        match item {
            WatchItem::Events(events) => seen.extend(events.iter().map(|e| e.revision.0)),
            other => last = Some(other),
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
    let oldest = Revision(9);
    assert_eq!(last, Some(WatchItem::Compacted { oldest }));
    assert_eq!(*asked.lock().unwrap(), [0, 2, 4, 6]);
}
