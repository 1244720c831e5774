//! Accounting outage. Waldur is down, or hangs: nothing in the cluster waits for it. Real daemons run a continuous
//! stream of jobs. Prints the durations of scheduling cycles in each state, and their ratios. `LATTICE_PHASE_S` is the
//! duration of each state of Waldur, `LATTICE_ROUNDS` the number of rounds; `LATTICE_OUTPUT=json` prints one object.

use lattice_fake_waldur::{Fault, Moment, Rule, Version, Waldur};
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    programs,
    site::{Plan, Site},
    wait::eventually,
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A hundred events a minute are fifty jobs.
const BETWEEN: Duration = Duration::from_millis(600);

fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().unwrap())
}

/// State of Waldur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Up,
    Refuses,
    Hangs,
}

/// Scheduling cycles with their total duration.
#[derive(Debug, Clone, Copy, Default)]
struct Cycles {
    count: f64,
    seconds: f64,
}

impl Cycles {
    async fn now(site: &Site) -> Self {
        let text = site.metrics().await.unwrap();
        let of = |end: &str| {
            let name = format!("lattice_scheduling_cycle_duration_seconds_{end}");
            let lines = text.lines().filter(|line| line.starts_with(&name));
            lines
                .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
                .sum()
        };
        Self {
            count: of("count"),
            seconds: of("sum"),
        }
    }

    fn mean_ms(self) -> f64 {
        self.seconds / self.count * 1e3
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduling_does_not_wait_for_waldur() {
    let phase_s = number("LATTICE_PHASE_S", 2);
    let rounds = number("LATTICE_ROUNDS", 1);
    let waldur = Waldur::builder().version(Version::V8).seed_paths();
    let waldur = waldur.start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut plan = Plan::with_agents(["n01", "n02"]);
    plan.control_lines = section(&waldur, &folder);
    let site = Site::found(programs!(), &plan).await;
    // The tenant's invoice starts with its first usage, and events are lines of it.
    let first = work(&site, "sleep 20").await;
    site.reaches(first, &["completed"]).await;

    let mut measured: BTreeMap<Phase, Cycles> = BTreeMap::new();
    let mut ran: BTreeSet<AllocationId> = [first].into();
    for _ in 0..rounds {
        for phase in [Phase::Up, Phase::Refuses, Phase::Up, Phase::Hangs] {
            match phase {
                Phase::Up => {}
                Phase::Refuses => waldur.down().await,
                Phase::Hangs => waldur.add_fault(Rule::new(
                    "/api/*",
                    Fault::Hang {
                        when: Moment::Before,
                    },
                )),
            }
            let before = Cycles::now(&site).await;
            ran.extend(worked(&site, Duration::from_secs(phase_s)).await);
            let after = Cycles::now(&site).await;
            let of = measured.entry(phase).or_default();
            of.count += after.count - before.count;
            of.seconds += after.seconds - before.seconds;
            waldur.up().await;
            waldur.clear_faults();
        }
    }
    eventually("Waldur has everything", || async {
        let status = site.api().accounting_status().await.unwrap();
        (status.acknowledged == status.last && status.rejected.is_empty()).then_some(())
    })
    .await;
    let events_of_kind = |kind: &str| -> Vec<AllocationId> {
        let items = waldur.seed_items().into_iter();
        let of_kind = items.filter(|item| item.body["type"] == kind);
        of_kind
            .map(|item| AllocationId(item.body["allocation_id"].as_u64().unwrap()))
            .collect()
    };
    for kind in ["allocation.started", "allocation.completed"] {
        let sent = events_of_kind(kind);
        assert!(sent.is_sorted(), "{kind}: {sent:?}");
        assert_eq!(sent, ran.iter().copied().collect::<Vec<_>>(), "{kind}");
    }

    let up = measured[&Phase::Up].mean_ms();
    let rows = measured.iter().map(|(phase, cycles)| {
        let (count, mean) = (cycles.count, cycles.mean_ms());
        (format!("{phase:?}").to_lowercase(), count, mean, mean / up)
    });
    match std::env::var("LATTICE_OUTPUT").as_deref() {
        Ok("json") => {
            let rows: Vec<_> = rows
                .map(|(waldur, cycles, mean_ms, ratio)| {
                    json!({"waldur": waldur, "cycles": cycles, "mean_ms": mean_ms, "ratio": ratio})
                })
                .collect();
            println!("{}", json!({"allocations": ran.len(), "phases": rows}));
        }
        _ => {
            println!("{} pieces of work", ran.len());
            for (waldur, cycles, mean_ms, ratio) in rows {
                println!(
                    "Waldur {waldur:<8} {cycles:>6} cycles of {mean_ms:.2} ms, {ratio:.3} times"
                );
            }
        }
    }
}

/// Runs jobs one after the other for this time; each must complete in time.
async fn worked(site: &Site, span: Duration) -> Vec<AllocationId> {
    let begun = Instant::now();
    let mut ran = Vec::new();
    while begun.elapsed() < span {
        let next = tokio::time::Instant::now() + BETWEEN;
        // A job that ends before its start is reported has no start and no event of it.
        let id = work(site, "sleep 0.2").await;
        site.reaches(id, &["completed"]).await;
        ran.push(id);
        tokio::time::sleep_until(next).await;
    }
    ran
}

async fn work(site: &Site, script: &str) -> AllocationId {
    let request = site.request(None, &format!("#!/bin/sh\n{script}\n"));
    site.submit_request(&request).await
}

fn section(waldur: &Waldur, folder: &TempDir) -> String {
    let token = folder.path().join("token");
    fs::write(&token, waldur.token()).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    format!(
        "accounting:
  enabled: true
  provider: waldur
  waldur:
    api_url: {}/api/
    token_secret_ref: file://{}
    push_interval_seconds: 1
    disk_buffer_path: {}
    seed_paths: true
",
        waldur.url(),
        token.display(),
        folder.path().join("wal").display()
    )
}
