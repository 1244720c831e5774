//! Access matrix: every method of the mesh with every kind of caller, on real daemons. `spec.rs` has the permissions,
//! and `role-matrix.txt` of this package has the results.
//!
//! `cargo test -p lattice-tests --test it role_matrix:: -- --nocapture` prints the matrix.

mod fixture;
mod forged;
mod names;
mod raw;
mod spec;

use fixture::{CLUSTER, ClusterFixture, authority, credentials, valid};
use lattice_mesh::{Clock as _, Credentials, Mesh, Role, SystemClock, Validity};
use lattice_quorum_types::{Command, UnixMillis};
use lattice_tests::{
    bless,
    matrix::Matrix,
    wait::{eventually, until},
};
use raw::{Answer, Line};
use spec::{MESSAGES, Names, RULES, Rule, Server};
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

/// Callers, in the order of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    Is(Role),
    /// Caller without a certificate.
    Nobody,
    /// Permitted role with a revoked certificate.
    Revoked,
    Expired,
    /// Permitted role of another cluster with the same authority.
    OtherCluster,
    /// The same names, from a foreign authority.
    OtherAuthority,
}

impl Caller {
    const ALL: [Self; 8] = [
        Self::Is(Role::Agent),
        Self::Is(Role::Quorum),
        Self::Is(Role::Control),
        Self::Nobody,
        Self::Revoked,
        Self::Expired,
        Self::OtherCluster,
        Self::OtherAuthority,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Is(role) => role.as_str(),
            Self::Nobody => "none",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::OtherCluster => "other cluster",
            Self::OtherAuthority => "other authority",
        }
    }

    /// Expected answer for a rule.
    fn expected(self, rule: &Rule) -> Answer {
        match self {
            Self::Is(role) if rule.callers.contains(&role) => Answer::LetIn,
            Self::Is(_) => Answer::Denied,
            Self::Nobody => Answer::Refused("no certificate".to_owned()),
            Self::Revoked => Answer::Refused("revoked".to_owned()),
            Self::Expired => Answer::Refused("expired".to_owned()),
            Self::OtherCluster => Answer::Refused("not of this cluster".to_owned()),
            Self::OtherAuthority => Answer::Refused("unknown authority".to_owned()),
        }
    }
}

/// Credentials by caller and role.
struct Cards {
    cards: BTreeMap<(Caller, Role), Credentials>,
}

/// Name of callers with this role; no other participant has it.
fn name_of(role: Role, caller: Caller) -> String {
    let n = Caller::ALL.iter().position(|c| *c == caller).unwrap();
    match role {
        // Names of members are numbers.
        Role::Quorum => (90 + n).to_string(),
        Role::Agent | Role::Control => format!("caller{n}"),
    }
}

impl Cards {
    fn print(cluster: &ClusterFixture) -> Self {
        let foreign = authority();
        let now = SystemClock.now().0;
        let past = Validity {
            not_before: UnixMillis(now - 7_200_000),
            not_after: UnixMillis(now - 3_600_000),
        };
        let earlier = Validity::from_now(UnixMillis(now - 60_000), fixture::DAY);
        let mut cards = BTreeMap::new();
        for caller in Caller::ALL {
            for role in Role::ALL {
                let name = name_of(role, caller);
                let card = match caller {
                    Caller::Nobody => continue,
                    Caller::Is(_) => credentials(&cluster.authority, CLUSTER, role, &name),
                    // Issued a minute ago, because a revocation covers certificates that were issued before it.
                    Caller::Revoked => valid(&cluster.authority, CLUSTER, role, &name, earlier),
                    Caller::Expired => valid(&cluster.authority, CLUSTER, role, &name, past),
                    Caller::OtherCluster => credentials(&cluster.authority, "other", role, &name),
                    Caller::OtherAuthority => credentials(&foreign, CLUSTER, role, &name),
                };
                cards.insert((caller, role), card);
            }
        }
        Self { cards }
    }

    /// Credentials of `caller` for a rule; where any role is possible, a permitted one.
    fn card(&self, caller: Caller, rule: &Rule) -> Option<&Credentials> {
        let role = match caller {
            Caller::Is(role) => role,
            _ => rule.callers[0],
        };
        self.cards.get(&(caller, role))
    }
}

fn mesh(cluster: &ClusterFixture, server: Server) -> &Mesh {
    match server {
        Server::Quorum => cluster.quorum.mesh(),
        Server::Control => cluster.control.mesh(),
        Server::Agent => cluster.agents[0].mesh(),
    }
}

/// Connections of callers of every role to every daemon, opened while the callers were trusted.
async fn connected(cluster: &ClusterFixture, cards: &Cards) -> Vec<(Server, Role, Line)> {
    let mut lines = Vec::new();
    for server in [Server::Quorum, Server::Control, Server::Agent] {
        for role in Role::ALL {
            let card = &cards.cards[&(Caller::Revoked, role)];
            let line = Line::open(Some(card), mesh(cluster, server).local_addr()).await;
            // Every role may call this method on every daemon.
            assert_eq!(line.ask("mesh.trust").await, Answer::LetIn);
            lines.push((server, role, line));
        }
    }
    lines
}

/// Revokes the certificates of `Caller::Revoked`, and waits until every daemon has the revocation.
async fn revoke(cluster: &ClusterFixture) {
    for role in Role::ALL {
        let revoke = Command::RevokeCertificates {
            name: name_of(role, Caller::Revoked),
            role,
            reason: "for the test".to_owned(),
        };
        cluster.propose(revoke).await.unwrap();
    }
    for server in [Server::Quorum, Server::Control, Server::Agent] {
        let knows = || {
            let bundle = mesh(cluster, server).bundle();
            bundle.is_some_and(|signed| {
                signed.decode_unverified().unwrap().revoked.len() == Role::ALL.len()
            })
        };
        until(&format!("{server:?} knows who is revoked"), knows).await;
    }
}

/// Checks that the daemons serve exactly the methods of the specification, with the same callers.
fn the_specification_is_complete(cluster: &ClusterFixture) {
    let sorted = |callers: &[Role]| callers.iter().copied().collect::<BTreeSet<Role>>();
    for server in [Server::Quorum, Server::Control, Server::Agent] {
        let served: BTreeMap<_, _> = mesh(cluster, server)
            .served()
            .into_iter()
            .map(|served| (served.method, sorted(served.callers)))
            .collect();
        let meant: BTreeMap<_, _> = RULES
            .iter()
            .filter(|rule| rule.server == server)
            .map(|rule| (rule.method, sorted(rule.callers)))
            .collect();
        assert_eq!(
            served, meant,
            "{server:?}: left is served, right is specified"
        );
        let taken: Vec<_> = mesh(cluster, server)
            .accepted_messages()
            .into_iter()
            .map(|(kind, callers)| (kind, sorted(callers)))
            .collect();
        let meant: Vec<_> = MESSAGES
            .iter()
            .filter(|(of, ..)| *of == server)
            .map(|(_, kind, callers)| (*kind, sorted(callers)))
            .collect();
        assert_eq!(taken, meant, "{server:?}: messages");
    }
}

/// Text of a cell.
fn shown(answer: &Answer) -> String {
    match answer {
        Answer::LetIn => "allowed".to_owned(),
        Answer::Denied => "refused: role".to_owned(),
        Answer::Unknown => "refused: not served".to_owned(),
        Answer::Refused(word) => format!("refused: {word}"),
    }
}

/// Text for an agent that names another node.
fn named(rule: &Rule) -> &'static str {
    match rule.names {
        _ if !rule.callers.contains(&Role::Agent) => "refused: role",
        Names::Nobody => "no name in it",
        Names::OwnOnly => "own name only",
    }
}

/// Calls every cell; returns one line for each deviation from the specification.
async fn ask_all(cluster: &ClusterFixture, cards: &Cards) -> (Matrix, Vec<String>) {
    let titles = Caller::ALL.map(Caller::title);
    let head = ["served by", "method"].into_iter().chain(titles);
    let mut matrix = Matrix::new(head.chain(["another's name"]));
    let mut wrong = Vec::new();
    let mut lines: BTreeMap<(Server, Caller, Role), Line> = BTreeMap::new();
    for rule in RULES {
        let server = format!("{:?}", rule.server).to_lowercase();
        let mut row = vec![server, rule.method.to_owned()];
        for caller in Caller::ALL {
            let role = match caller {
                Caller::Is(role) => role,
                _ => rule.callers[0],
            };
            let key = (rule.server, caller, role);
            let line = match lines.entry(key) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(free) => {
                    let to = mesh(cluster, rule.server).local_addr();
                    free.insert(Line::open(cards.card(caller, rule), to).await)
                }
            };
            let answer = line.ask(rule.method).await;
            let expected = caller.expected(rule);
            if answer != expected {
                wrong.push(format!(
                    "{:?} {} by {}: {answer:?} where {expected:?} is specified",
                    rule.server,
                    rule.method,
                    caller.title()
                ));
            }
            row.push(shown(&answer));
        }
        row.push(named(rule).to_owned());
        matrix.row(row);
    }
    (matrix, wrong)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_may_call_what_is_specified_and_nothing_else() {
    let cluster = ClusterFixture::found().await;
    cluster.is_ready().await;
    the_specification_is_complete(&cluster);
    let cards = Cards::print(&cluster);
    let lines = connected(&cluster, &cards).await;
    revoke(&cluster).await;
    for (server, role, line) in &lines {
        // A daemon closes open connections shortly after it receives the revocation.
        let answer = eventually("a connection of before is closed", || async {
            let answer = line.ask("mesh.trust").await;
            (answer != Answer::LetIn).then_some(answer)
        })
        .await;
        println!(
            "{role} connected to {server:?} before it was revoked: {}",
            shown(&answer)
        );
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    }
    let before = cluster.hot().await;
    let (matrix, wrong) = ask_all(&cluster, &cards).await;
    let after = cluster.hot().await;
    println!("{matrix}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(before.nodes, after.nodes);
    assert_eq!(before.allocations, after.allocations);
    assert_eq!(before.projects, after.projects);
    bless::check("role-matrix.txt", &matrix.to_string());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_cannot_impersonate_another() {
    let cluster = ClusterFixture::found().await;
    cluster.is_ready().await;
    names::a_report_of_anothers_rank_changes_nothing(&cluster).await;
    names::a_renewal_gives_the_callers_own_name(&cluster).await;
    names::a_taken_name_is_not_given_again(&cluster).await;
    names::a_member_proposes_no_more_than_an_enrolment(&cluster).await;
    forged::what_gossip_claims_of_another_moves_nothing(&cluster).await;
    cluster.stop().await;
}
