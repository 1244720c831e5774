//! Silent faults. A GPU driver, a BMC, a file and a disk fail silently, at the same time on four of five equal nodes.
//! All agents continue to gossip, and each failure has a reason of its own. No unknown value reads as zero or as
//! healthy. Jobs run where permitted, and all nodes recover by themselves. Prints a table; `LATTICE_OUTPUT=json` prints
//! one object.

mod faults;
mod table;
mod watch;

use faults::{ALL, BMC, Bench, DISK, DRIVER, FIFO, SOUND};
use lattice_client::api::node::NodeView;
use lattice_quorum_types::AllocationId;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use table::Row;
use watch::{LivenessObservation, Watch, longest_silence, longest_unanswered};

/// Time of observation with all faults.
const HOLD: Duration = Duration::from_secs(5);
/// Limit of the time without a heartbeat, or without a reply to a ping. On an idle machine a heartbeat moves every half
/// second and a ping is answered every second. The faults last for 30 s at least.
const MAX_SILENCE: Duration = Duration::from_secs(15);

/// Expected effects of one failure.
struct Case {
    node: &'static str,
    fault: &'static str,
    /// Reason that no other failure has.
    reason: &'static str,
    /// Conformance class with unknown values during the failure.
    class: Option<&'static str>,
}

const CASES: [Case; 4] = [
    Case {
        node: DRIVER,
        fault: "NVML blocked for ever",
        reason: "probe.gpu.hung",
        class: Some("gpu"),
    },
    Case {
        node: BMC,
        fault: "BMC black-holed",
        reason: "bmc.silent",
        class: Some("bmc"),
    },
    Case {
        node: FIFO,
        fault: "FIFO in /sys",
        reason: "nic.incomplete",
        class: Some("nic"),
    },
    Case {
        node: DISK,
        fault: "disk full",
        reason: "history.disk",
        class: None,
    },
];

impl Case {
    fn says(&self, node: &NodeView) -> bool {
        node.health
            .reasons
            .iter()
            .any(|reason| reason == self.reason)
    }

    /// Whether the node's view shows the failure.
    fn is_known(&self, node: &NodeView) -> bool {
        let is_unknown = |class| node.classes[class].state == "incomplete";
        let has_power = node
            .power
            .as_ref()
            .is_some_and(|power| power.draw_watts.is_some());
        self.says(node) && self.class.is_none_or(is_unknown) && has_power == (self.node != BMC)
    }
}

/// Whether the node's view is complete and healthy.
fn is_whole(node: &NodeView) -> bool {
    let draws = node.power.as_ref().and_then(|power| power.draw_watts);
    node.health.verdict == "healthy"
        && node.health.reasons.is_empty()
        && node.fingerprint.is_some()
        && node.resources.gpu_count == Some(4)
        && draws.is_some()
}

async fn submit(bench: &Bench, node: &str, sensitive: bool) -> AllocationId {
    let mut request = bench.site.request(Some(node), "#!/bin/sh\ntrue\n");
    request.sensitive = sensitive;
    bench.site.submit_request(&request).await
}

/// Sensitive jobs for nodes with unknown values wait; other jobs complete.
async fn work(bench: &Bench) -> BTreeMap<&'static str, AllocationId> {
    let mut waiting = BTreeMap::new();
    for node in [DRIVER, BMC, FIFO] {
        waiting.insert(node, submit(bench, node, true).await);
    }
    let done = [
        submit(bench, SOUND, false).await,
        submit(bench, SOUND, true).await,
        // A silent BMC blocks no job that does not need the BMC's values.
        submit(bench, BMC, false).await,
    ];
    for id in done {
        bench.site.reaches(id, &["completed"]).await;
    }
    waiting
}

/// For the whole time from the failures to their end.
fn nothing_reads_as_zero(looks: &[LivenessObservation]) {
    for (name, node) in looks.iter().flat_map(|look| look.nodes.iter()) {
        let facts = &node.resources;
        let power = node.power.as_ref();
        let zero = [
            facts.gpu_count.map(u64::from),
            facts.cores.map(u64::from),
            facts.memory_bytes,
            power.and_then(|power| power.draw_watts),
            power.and_then(|power| power.limit_watts),
        ];
        assert!(!zero.contains(&Some(0)), "{name}: {node:#?}");
        let is_drawn = |draw: &str| power.is_some_and(|p| p.draw_state == draw);
        let draws = power.is_some_and(|p| p.draw_watts.is_some());
        assert_eq!(is_drawn("present"), draws, "{name}: {power:?}");
    }
}

/// For the time in which a failure is known.
fn stays_known(case: &Case, looks: &[LivenessObservation]) {
    for look in looks {
        let node = &look.nodes[case.node];
        assert!(case.is_known(node), "{node:#?}");
        assert_ne!(node.health.verdict, "healthy", "{node:#?}");
        if let Some(class) = case.class {
            assert_eq!(node.classes[class].digest, None);
            assert_eq!(node.fingerprint, None, "{node:#?}");
        }
    }
}

/// Each reason appears on its node only, and the healthy node has none.
fn reasons_are_distinct(looks: &[LivenessObservation]) {
    for look in looks {
        for case in &CASES {
            let mut others = look.nodes.values().filter(|node| node.name != case.node);
            assert!(!others.any(|node| case.says(node)), "{}", case.reason);
        }
        let sound = &look.nodes[SOUND];
        // A starved process replies late; see `all_live`.
        let is_late = sound.liveness == "suspect" && sound.health.reasons == ["agent.silent"];
        assert!(is_whole(sound) || is_late, "{sound:#?}");
    }
}

/// All nodes answer control's pings, and their heartbeats move. On a machine that runs other tests as well, any process
/// may be starved for some seconds, and control then calls its node suspect. A fault that blocks an agent lasts as long
/// as the test, so the longest silence distinguishes the two.
fn all_live(looks: &[LivenessObservation]) {
    for node in ALL {
        for look in looks {
            let shown = &look.nodes[node];
            assert_ne!(shown.liveness, "unreachable", "{shown:#?}");
        }
        let (heartbeats, replies) = (
            longest_silence(node, looks),
            longest_unanswered(node, looks),
        );
        assert!(
            heartbeats < MAX_SILENCE,
            "{node}: no heartbeat for {heartbeats:?}"
        );
        assert!(
            replies < MAX_SILENCE,
            "{node}: no reply to a ping for {replies:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_failure_is_unknown() {
    let bench = Bench::found().await;
    let watch = Watch::start(&bench.site).await;
    for node in ALL {
        watch.until(node, Instant::now(), is_whole).await;
    }
    watch.hears_all().await;

    let spoiled_at = Instant::now();
    bench.spoil().await;
    let cases = CASES
        .iter()
        .filter(|case| case.node != DISK || bench.has_disk());
    let cases: Vec<&Case> = cases.collect();
    let mut known = Vec::new();
    for case in &cases {
        known.push(
            watch
                .until(case.node, spoiled_at, |node| case.is_known(node))
                .await,
        );
    }
    let all_known_at = Instant::now();
    let waiting = work(&bench).await;
    tokio::time::sleep_until((all_known_at + HOLD).into()).await;
    let mut why = BTreeMap::new();
    for (node, id) in &waiting {
        bench.site.reaches(*id, &["pending"]).await;
        let said = bench.site.api().explanation(*id).await.unwrap();
        why.insert(*node, said.summary);
    }

    let mended_at = Instant::now();
    bench.mend();
    let mut rows = Vec::new();
    for (case, known_at) in cases.iter().zip(&known) {
        let back_at = watch.until(case.node, mended_at, is_whole).await;
        let looks = watch.between(spoiled_at, mended_at);
        let row = Row::of(case.node, case.fault, case.class, &looks);
        let row = row.took(*known_at - spoiled_at, back_at - mended_at);
        rows.push(row.waited(why.remove(case.node)));
    }
    for id in waiting.into_values() {
        bench.site.reaches(id, &["completed"]).await;
    }
    rows.push(Row::of(
        SOUND,
        "none",
        None,
        &watch.between(spoiled_at, mended_at),
    ));
    table::print(&rows);

    let looks = watch.between(spoiled_at, mended_at);
    let whole = watch.between(spoiled_at, Instant::now());
    nothing_reads_as_zero(&whole);
    reasons_are_distinct(&whole);
    all_live(&whole);
    for (case, known_at) in cases.iter().zip(&known) {
        let since = looks.iter().filter(|look| look.at >= *known_at);
        stays_known(case, &since.cloned().collect::<Vec<_>>());
    }
}
