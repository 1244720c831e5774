//! Certificate renewal and revocation. Certificates that expire within a minute, in a cluster of real processes: valid
//! members renew while jobs run, and revoked members are rejected at once.

use futures::StreamExt as _;
use lattice_client::{LogOptions, LogOutput, api::node::NodeView};
use lattice_mesh::{JoinToken, enrol};
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    daemon::Daemon,
    matrix::Matrix,
    script::{Behaviour, Script},
    site::{Plan, Site},
    wait::{LivenessChecks, eventually, until},
};
use rustix::process::Signal;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// All holders of certificates, enrolled or issued by hand.
const HOLDERS: [&str; 7] = [
    "agent/n1",
    "agent/n2",
    "control/c1",
    "control/c2",
    "quorum/1",
    "quorum/2",
    "quorum/3",
];
/// Lifetime of certificates in seconds; the shortest permitted one.
const LIFETIME_S: u64 = 30;

/// Issue time of each member's newest certificate, by `role/name`.
fn issued(site: &Site) -> BTreeMap<String, String> {
    let listed = site.lattice_json(&["admin", "certificate", "list"]);
    let all = listed.as_array().cloned().unwrap_or_default();
    let of = |one: &serde_json::Value| {
        let text = |key: &str| one[key].as_str().map(str::to_owned);
        Some((
            format!("{}/{}", text("role")?, text("name")?),
            text("issued_at")?,
        ))
    };
    all.iter().filter_map(of).collect()
}

/// Script that prints a counter until it may exit.
fn counting(script: &Script) -> String {
    let at = script.path().display();
    format!("n=0; until [ -e {at}/exit ]; do n=$((n+1)); echo $n; sleep 0.2; done; exit 7",)
}

/// Reads the output of a job until it ends, and returns the number of lines; no line may be missing.
async fn count(site: &Site, id: AllocationId) -> u64 {
    let options = LogOptions {
        rank: 0,
        output: LogOutput::Stdout,
        offset: 0,
        follow: true,
    };
    let mut read = site.api().logs(id, options).await.unwrap();
    let mut text = String::new();
    while let Some(bytes) = read.next().await {
        text.push_str(&String::from_utf8_lossy(&bytes.unwrap()));
    }
    let lines: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(
        lines.iter().copied().eq(1..=lines.len() as u64),
        "{lines:?}"
    );
    lines.len() as u64
}

/// Waits until all of these have renewed twice; by then the first certificate has expired.
async fn renew_twice(site: &Site, names: &[&str]) {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    eventually("everybody renews twice", || {
        for (name, at) in issued(site) {
            let all = seen.entry(name).or_default();
            if all.last() != Some(&at) {
                all.push(at);
            }
        }
        // A certificate issued by hand is first known after its renewal.
        let enrolled = |name: &str| name.starts_with("agent/") || name == "control/c2";
        let times = |name: &str| 2 + usize::from(enrolled(name));
        let twice = |name: &&str| seen.get(*name).is_some_and(|all| all.len() >= times(name));
        std::future::ready(names.iter().all(twice).then_some(()))
    })
    .await;
}

/// Checks that these nodes are always alive until `done`, as often as the API answers. Returns the number of checks.
async fn always_alive(site: &Site, nodes: &[&str], done: &tokio::sync::Notify) -> u64 {
    let mut machine = LivenessChecks::begin();
    let look = async {
        loop {
            let all = site.api().nodes().await.unwrap();
            let of_these = |node: &&NodeView| nodes.contains(&node.name.as_str());
            let looked_at: Vec<&NodeView> = all.iter().filter(of_these).collect();
            assert_eq!(looked_at.len(), nodes.len());
            let may_blame = machine.may_blame(Instant::now());
            for node in looked_at.into_iter().filter(|_| may_blame) {
                assert_eq!(node.liveness, "alive", "{}", node.name);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = done.notified() => {}
        () = look => {}
    }
    assert!(machine.counted() > 0, "this machine stood still");
    machine.counted()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expelled_process_cannot_renew() {
    let plan = Plan {
        joining: 1,
        lifetime: Some(Duration::from_secs(LIFETIME_S)),
        ..Plan::with_agents(["n1", "n2"])
    };
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    site.start_joining(&plan).await;
    renewals(&site).await;
    revocation(&mut site).await;
    site.leaves_nothing().await;
}

/// Authorities of the cluster: phase and number of certificates, by pin.
fn authorities(site: &Site) -> BTreeMap<String, (String, Option<u64>)> {
    let listed = site.lattice_json(&["admin", "ca", "list"]);
    let all = listed.as_array().cloned().unwrap_or_default();
    let of = |one: &serde_json::Value| {
        let text = |key: &str| one[key].as_str().map(str::to_owned);
        Some((text("pin")?, (text("phase")?, one["certificates"].as_u64())))
    };
    all.iter().filter_map(of).collect()
}

/// Adds, promotes and retires an authority as an operator does. All holders, including quorum members, get a
/// certificate of the new authority while a job runs; certificates of the old one are rejected then. A node that was
/// off meanwhile returns by itself before the old authority is retired. A token is valid as long as an authority of its
/// creation time is trusted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_is_changed_while_work_runs() {
    let plan = Plan {
        // Holders renew within a twentieth of this lifetime.
        lifetime: Some(Duration::from_secs(120)),
        ..Plan::with_agents(["n1", "n2", "n3"])
    };
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    let mut off = site.agents.remove("n3").unwrap();
    off.kill();
    let script = Script::in_folder(site.path("counts"));
    let id = site.submit("n1", &counting(&script)).await;
    site.reaches(id, &["running"]).await;
    let done = tokio::sync::Notify::new();
    let work = async {
        change_authority(&site, &mut off).await;
        for node in ["n2", "n3"] {
            let next = site.submit(node, "exit 0").await;
            site.reaches(next, &["completed"]).await;
        }
        script.may_exit();
        let ended = site.reaches(id, &["failed", "completed"]).await;
        assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
        done.notify_one();
    };
    let alive = always_alive(&site, &["n1", "n2"], &done);
    let (lines, looks, ()) = tokio::join!(count(&site, id), alive, work);
    println!("{lines} lines of output without a hole; alive at each of {looks} looks");
    site.leaves_nothing().await;
}

fn token(site: &Site) -> JoinToken {
    let create = [
        "admin", "token", "create", "--role", "control", "--uses", "9",
    ];
    site.lattice(&create).parse().unwrap()
}

/// Enrols a name at each member, with a token, and returns the outcomes.
async fn enrol_everywhere(site: &Site, token: &JoinToken, name: &str) -> BTreeSet<String> {
    let mut went = BTreeSet::new();
    for (n, addr) in site.members().iter().enumerate() {
        let went_here = match enrol(*addr, token, &format!("{name}-{n}")).await {
            Ok(_) => "enrolled".to_owned(),
            Err(error) => error.to_string().replace(&addr.to_string(), "a member"),
        };
        went.insert(went_here);
    }
    went
}

/// Tokens created before, during and after the overlap, used during and after it.
#[derive(Default)]
struct Tokens {
    table: Matrix,
}

impl Tokens {
    async fn are_used(
        &mut self,
        site: &Site,
        when: &str,
        tokens: &[(&str, &JoinToken)],
    ) -> Vec<BTreeSet<String>> {
        let mut all = Vec::new();
        for (made, token) in tokens {
            let name = format!("{when}-{made}").replace(' ', "-");
            let went = enrol_everywhere(site, token, &name).await;
            let words: Vec<String> = went.iter().cloned().collect();
            let pins = token.pins().len().to_string();
            let row = [(*made).to_owned(), pins, when.to_owned(), words.join("; ")];
            self.table.row(row);
            all.push(went);
        }
        all
    }
}

async fn change_authority(site: &Site, off: &mut Daemon) {
    let begun = Instant::now();
    let early = token(site);
    let enrolled = BTreeSet::from(["enrolled".to_owned()]);
    let mut tokens = Tokens {
        table: Matrix::new(["token made", "pins", "used", "at each of three members"]),
    };
    let old: Vec<String> = authorities(site).into_keys().collect();
    let [old] = old.as_slice() else {
        panic!("one authority: {old:?}");
    };
    let observer = site.observer();
    assert!(
        observer.hot().await.is_some(),
        "a certificate of the old one counts"
    );
    let at = ["--cluster", "site", "--out", "ca/next"];
    site.lattice(&[&["admin", "ca", "create"], &at[..]].concat());
    for member in &site.quorum {
        member.signal(Signal::HUP);
    }
    until("all members hold the new key", || {
        let holds = |member: &Daemon| member.said().contains("issuing keys reloaded");
        site.quorum.iter().all(holds)
    })
    .await;
    site.lattice(&["admin", "ca", "add", "ca/next/ca.pem"]);
    let all = authorities(site);
    let new = all.keys().find(|pin| *pin != old).unwrap();
    let added = token(site);
    site.lattice(&["admin", "ca", "promote", new]);
    let made = [("before", &early), ("between add and promote", &added)];
    let went = tokens.are_used(site, "promoted", &made).await;
    assert!(went.iter().all(|went| *went == enrolled), "{went:?}");
    let overlap = token(site);
    let certificates = |of_new, of_old| {
        let all = authorities(site);
        let renewed = all[new].1 == Some(of_new) && all[old].1 == Some(of_old);
        std::future::ready(renewed.then_some(()))
    };
    // Two agents, a control and three members, and the newly enrolled ones. n3 is off.
    let what = "everybody who is there has a certificate of the new authority";
    eventually(what, || certificates(6 + 6, 1)).await;
    println!(
        "all who are there renewed {:.1} s after the new authority came",
        begun.elapsed().as_secs_f64()
    );
    let back = Instant::now();
    off.start();
    let what = "who was off meanwhile has one too";
    eventually(what, || certificates(6 + 6 + 1, 0)).await;
    println!(
        "who was off meanwhile renewed {:.1} s after it was started",
        back.elapsed().as_secs_f64()
    );
    // No holder uses a certificate of the old authority any more.
    let made = [("before", &early), ("after promote", &overlap)];
    let went = tokens.are_used(site, "all renewed", &made).await;
    assert!(went.iter().all(|went| *went == enrolled), "{went:?}");
    site.lattice(&["admin", "ca", "retire", old]);
    assert_eq!(authorities(site).len(), 1);
    let late = token(site);
    eventually(
        "who was connected with a certificate of the old one is out, everywhere",
        || async { (observer.let_in_by().await == 0).then_some(()) },
    )
    .await;
    assert!(observer.hot().await.is_none());
    let made = [
        ("before", &early),
        ("between add and promote", &added),
        ("after promote", &overlap),
        ("after retire", &late),
    ];
    let went = tokens.are_used(site, "retired", &made).await;
    println!("{}", tokens.table);
    let [before, others @ ..] = went.as_slice() else {
        panic!("{went:?}");
    };
    assert!(others.iter().all(|went| *went == enrolled), "{others:?}");
    let why = format!("retired and replaced by authority {new}");
    let says_why = |said: &String| said.contains(&why) && said.contains("admin token create");
    assert!(before.iter().all(says_why), "{before:?}");
}

async fn renewals(site: &Site) {
    let begun = Instant::now();
    let script = Script::in_folder(site.path("counts"));
    let id = site.submit("n1", &counting(&script)).await;
    site.reaches(id, &["running"]).await;
    let done = tokio::sync::Notify::new();
    let work = async {
        renew_twice(site, &HOLDERS).await;
        // A job that starts with the new certificates.
        let next = site.submit("n2", "exit 0").await;
        site.reaches(next, &["completed"]).await;
        script.may_exit();
        let ended = site.reaches(id, &["failed", "completed"]).await;
        assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
        done.notify_one();
    };
    let alive = always_alive(site, &["n1", "n2"], &done);
    let (lines, looks, ()) = tokio::join!(count(site, id), alive, work);
    println!(
        "certificates of {LIFETIME_S} s, renewed twice by two agents, two controls and three members \
         within {:.0} s; \
         {lines} lines of output without a hole; alive at each of {looks} looks",
        begun.elapsed().as_secs_f64()
    );
}

/// n2 is revoked while its job runs: the node stays held, and reports of its agent are rejected until the agent has
/// enrolled again.
async fn revocation(site: &mut Site) {
    let script = Script::in_folder(site.path("revoked"));
    let id = site.submit("n2", &script.text(Behaviour::Plain)).await;
    site.reaches(id, &["running"]).await;
    let begun = Instant::now();
    site.lattice(&[
        "admin",
        "certificate",
        "revoke",
        "agent/n2",
        "--reason",
        "stolen",
    ]);
    let api = site.api().clone();
    eventually("a node whose agent was thrown out is suspect", || async {
        let node = api.node("n2").await.ok()?;
        (node.liveness != "alive").then_some(())
    })
    .await;
    println!(
        "revoked: suspect after {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    script.may_exit();
    until("the job ends", || !site.job_lives(id)).await;
    // Longer than several reports take.
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert_eq!(api.allocation(id).await.unwrap().state, "running");
        let holder = api.node("n2").await.unwrap().holder.unwrap();
        assert_eq!(holder.allocation, id);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    site.readmit("n2");
    let begun = Instant::now();
    let ended = site.reaches(id, &["failed", "completed"]).await;
    assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
    println!(
        "revoked: enrolled again, its end was taken after {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    site.are_ready(&["n2".to_owned()]).await;
}
