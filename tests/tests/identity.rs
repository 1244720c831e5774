//! Certificates that end within a minute, in a cluster of real processes: who is to stay in renews
//! while work runs, and who was thrown out is out at once.
#![expect(clippy::unwrap_used, reason = "tests")]

use futures::StreamExt as _;
use lattice_client::{LogOptions, LogOutput};
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    script::{Behaviour, Script},
    site::{Plan, Site},
    wait::{eventually, until},
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long certificates hold here; the shortest there is.
const LIFETIME_S: u64 = 30;

/// When each member's newest certificate was issued, by `role/name`.
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

/// Counts on its output until it may exit.
fn counting(script: &Script) -> String {
    let at = script.path().display();
    format!("n=0; until [ -e {at}/exit ]; do n=$((n+1)); echo $n; sleep 0.2; done; exit 7",)
}

/// Reads what a job says until it ends, and returns the number of lines: none may be missing.
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

/// All that are watched have renewed twice: by then the first certificate has ended.
async fn renew_twice(site: &Site, who: &[&str]) {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    eventually("everybody renews twice", || {
        for (name, at) in issued(site) {
            let all = seen.entry(name).or_default();
            if all.last() != Some(&at) {
                all.push(at);
            }
        }
        let twice = |name: &&str| seen.get(*name).is_some_and(|all| all.len() >= 3);
        std::future::ready(who.iter().all(twice).then_some(()))
    })
    .await;
}

/// No node was anything but alive, looked at as often as the API answers, until `done`.
async fn always_alive(site: &Site, done: &tokio::sync::Notify) -> u64 {
    let mut looks = 0;
    let look = async {
        loop {
            for node in site.api().nodes().await.unwrap() {
                assert_eq!(node.liveness, "alive", "{}", node.name);
            }
            looks += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = done.notified() => {}
        () = look => {}
    }
    looks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stays_renews_while_work_runs_and_who_is_thrown_out_is_out() {
    let plan = Plan {
        joining: 1,
        enrolment_keys: format!(", lifetime: {LIFETIME_S}s"),
        ..Plan::with_agents(["n1", "n2"])
    };
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    site.start_joining(&plan).await;
    renewals(&site).await;
    revocation(&mut site).await;
    assert_eq!(site.jobs_left(), []);
}

async fn renewals(site: &Site) {
    let begun = Instant::now();
    let script = Script::in_folder(site.path("counts"));
    let id = site.submit("n1", &counting(&script)).await;
    site.reaches(id, &["running"]).await;
    let done = tokio::sync::Notify::new();
    let work = async {
        renew_twice(site, &["agent/n1", "agent/n2", "control/c2"]).await;
        // A job that begins under the new certificates.
        let next = site.submit("n2", "exit 0").await;
        site.reaches(next, &["completed"]).await;
        script.may_exit();
        let ended = site.reaches(id, &["failed", "completed"]).await;
        assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
        done.notify_one();
    };
    let (lines, looks, ()) = tokio::join!(count(site, id), always_alive(site, &done), work);
    println!(
        "certificates of {LIFETIME_S} s, renewed twice by two agents and a control within {:.0} s; \
         {lines} lines of output without a hole; alive at each of {looks} looks",
        begun.elapsed().as_secs_f64()
    );
}

/// n2 is thrown out while its job runs: it stays held, and what the agent would report is not
/// heard, until it has enrolled again.
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
    // Longer than a report takes, again and again.
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
