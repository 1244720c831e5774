//! Enrolment of strangers, in a cluster of real processes on hosts of their own: tokens limited to networks, and a
//! stranger that tries wrong tokens continuously. Needs root, as `partition` does.

use lattice_mesh::{EnrolError, EnrolRefused, JoinToken, Role, enrol};
use lattice_tests::{
    matrix::Matrix,
    netns::Network,
    site::{Plan, Site},
    wait::eventually,
};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Burst of tries of one address at each member; one more is permitted each second.
const BURST: u32 = 5;
/// Number of wrong tokens, tried one after the other.
const TRIES: usize = 20;

fn plan() -> Plan {
    Plan {
        hosts: true,
        enrol_burst: Some(BURST),
        ..Plan::with_agents(Vec::<String>::new())
    }
}

fn token(site: &Site, uses: &str, more: &[&str]) -> String {
    let create = ["admin", "token", "create", "--role", "agent", "--uses"];
    site.lattice(&[&create[..], &[uses], more].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_limited_to_networks_and_rate() {
    let Some(_turn) = Network::turn().await else {
        return;
    };
    let plan = plan();
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    let mut table = Matrix::new(["who", "from", "what became of it"]);
    networks(&mut site, &plan, &mut table).await;
    a_burst(&mut site, &plan, &mut table).await;
    println!("{table}");
}

/// One host is in the token's networks, and the other is not.
async fn networks(site: &mut Site, plan: &Plan, table: &mut Matrix) {
    let inside = site.network.as_ref().unwrap().next_ip();
    let network = format!("{inside}/32");
    let only = token(site, "2", &["--cidr", &network, "--cidr", "192.0.2.0/24"]);

    site.start_newcomer(plan, "inside", &only);
    site.are_ready(&["inside".to_owned()]).await;
    table.row(["token --cidr", &inside.to_string(), "node ready"]);

    site.start_newcomer(plan, "outside", &only);
    let outside = site.hosts["outside"].ip();
    let agent = site.agent("outside");
    assert!(!agent.ended().success());
    let said = agent.said();
    let why = said
        .lines()
        .rfind(|line| line.contains(&format!("not for use from {outside}")));
    let why = why.unwrap_or_else(|| panic!("{said}"));
    assert!(why.contains(&format!("{network}, 192.0.2.0/24")), "{why}");
    table.row(["token --cidr", &outside.to_string(), why]);
    // The rejected use did not count.
    let left = site.lattice_json(&["admin", "token", "list"]);
    assert_eq!(left[0]["uses_left"], 1, "{left}");
}

/// Answers to strangers, with their numbers.
type RefusalCounts = BTreeMap<&'static str, usize>;

fn word(answer: &Result<lattice_mesh::Enrolment, EnrolError>) -> &'static str {
    match answer {
        Ok(_) => "enrolled",
        Err(EnrolError::Refused(EnrolRefused::TokenRefused)) => "token refused",
        Err(EnrolError::Refused(EnrolRefused::RateLimited { .. })) => "told to wait",
        Err(other) => panic!("{other}"),
    }
}

/// This process tries wrong tokens, and continues while other hosts enrol.
async fn a_burst(site: &mut Site, plan: &Plan, table: &mut Matrix) {
    let good: JoinToken = token(site, "100", &[]).parse().unwrap();
    let wrong = JoinToken::generate(Role::Agent, good.pins()[0]);
    let here = site.network.as_ref().unwrap().own_ip().to_string();
    let members = site.members().to_vec();
    let (begun, mut refusals) = (Instant::now(), RefusalCounts::new());
    for _ in 0..TRIES {
        let answer = enrol(members[0], &wrong, "guess").await;
        *refusals.entry(word(&answer)).or_default() += 1;
    }
    // The burst, and the tries that were regained meanwhile.
    let most = BURST as usize + begun.elapsed().as_secs() as usize + 1;
    let refused = refusals.get("token refused").copied().unwrap_or_default();
    assert!((BURST as usize..=most).contains(&refused), "{refusals:?}");
    let waits = refusals.get("told to wait").copied().unwrap_or_default();
    assert_eq!(waits, TRIES - refused, "{refusals:?}");
    let took = begun.elapsed().as_secs_f64();
    let what = format!("{refusals:?} of {TRIES} tries at one member within {took:.1} s");
    table.row(["wrong tokens", &here, &what]);

    let going_on = EndlessTries::begin(members.clone(), wrong);
    let mut n = 0;
    eventually("also with a good token one is told to wait", || {
        // This try may be the one that is regained each second, and then it is not refused.
        n += 1;
        let (member, name) = (members[0], format!("meanwhile-{n}"));
        let good = &good;
        async move {
            let answer = enrol(member, good, &name).await;
            (word(&answer) == "told to wait").then_some(())
        }
    })
    .await;
    table.row(["a good token", &here, "told to wait, meanwhile"]);
    let begun = Instant::now();
    let calm = token(site, "2", &[]);
    site.start_newcomer(plan, "calm", &calm);
    site.are_ready(&["calm".to_owned()]).await;
    let there = site.hosts["calm"].ip().to_string();
    let what = format!(
        "node ready after {:.1} s, meanwhile",
        begun.elapsed().as_secs_f64()
    );
    table.row(["a good token", &there, &what]);
    let tries = going_on.end().await;
    table.row([
        "wrong tokens",
        &here,
        &format!("{tries} more tries meanwhile"),
    ]);

    let begun = Instant::now();
    eventually("who waits gets in", || async {
        let answer = enrol(members[0], &good, "here").await;
        if answer.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        answer.ok()
    })
    .await;
    let what = format!(
        "enrolled {:.1} s after it stopped",
        begun.elapsed().as_secs_f64()
    );
    table.row(["a good token", &here, &what]);
}

/// Tries at all members until it is ended.
struct EndlessTries {
    ends: Arc<AtomicBool>,
    tries: Vec<tokio::task::JoinHandle<usize>>,
}

impl EndlessTries {
    fn begin(members: Vec<SocketAddr>, wrong: JoinToken) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let tries = members.into_iter().map(|addr| {
            let (ends, wrong) = (ends.clone(), wrong.clone());
            tokio::spawn(async move {
                let mut tries = 0;
                while !ends.load(Ordering::SeqCst) {
                    word(&enrol(addr, &wrong, "guess").await);
                    tries += 1;
                }
                tries
            })
        });
        let tries = tries.collect();
        Self { ends, tries }
    }

    async fn end(self) -> usize {
        self.ends.store(true, Ordering::SeqCst);
        let mut all = 0;
        for tries in self.tries {
            all += tries.await.unwrap();
        }
        all
    }
}
