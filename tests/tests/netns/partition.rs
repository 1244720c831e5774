//! Network partition with real processes on hosts of their own (network namespaces). Control and the quorum are cut
//! from half of the agents, which continue; then the network is healed. Two of the cut agents are isolated, the other
//! two reach each other.
//!
//! `just partition` cuts for two minutes; by default the cut takes seconds. Needs root; without root the test prints
//! that it is skipped. `LATTICE_CUT_S` sets the seconds, `LATTICE_OUTPUT=json` prints one object instead of tables.

use lattice_client::{AllocationView, SubmitOptions, api::node::NodeView};
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    matrix::Matrix,
    monitor::{Monitor, MonitorReport},
    netns::Network,
    script::{Behaviour, Script},
    site::{Plan, Site},
    wait::{LOOK_EVERY, LivenessChecks, PATIENCE, until},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Default length of the cut.
const CUT: Duration = Duration::from_secs(8);

/// Fate of each cut node and its job, in the order of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutNodeOutcome {
    /// Isolated; the job ends meanwhile.
    AloneJobEnds,
    /// Isolated; the job continues.
    AloneJobRuns,
    /// Connected to another cut node; the job is cancelled meanwhile.
    TogetherJobCancelled,
    /// Connected to another cut node; the job may be requeued, and continues.
    TogetherJobRequeues,
}

impl CutNodeOutcome {
    const ALL: [Self; 4] = [
        Self::AloneJobEnds,
        Self::AloneJobRuns,
        Self::TogetherJobCancelled,
        Self::TogetherJobRequeues,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::AloneJobEnds => "sees nobody, job ends",
            Self::AloneJobRuns => "sees nobody, job runs on",
            Self::TogetherJobCancelled => "sees one other, job cancelled",
            Self::TogetherJobRequeues => "sees one other, job may requeue",
        }
    }
}

/// A job with its node and script.
struct Job {
    node: String,
    script: Script,
    id: AllocationId,
}

/// Result of one cut node.
#[derive(Debug, Serialize)]
struct Outcome {
    node: String,
    fate: &'static str,
    suspect_after_s: f64,
    unreachable_after_s: Option<f64>,
    /// State in the API at the end of the cut: node, allocation.
    during: String,
    alive_after_heal_s: f64,
    settled_after_heal_s: f64,
    end: String,
    runs: usize,
}

/// Printed report.
#[derive(Debug, Serialize)]
struct Report {
    cut_s: f64,
    nodes: Vec<Outcome>,
    suspect_p50_s: f64,
    suspect_max_s: f64,
    recover_p50_s: f64,
    recover_max_s: f64,
    /// Nodes that were not cut, but not alive in some observation.
    falsely_suspected: BTreeSet<String>,
    /// New jobs during the cut, and their nodes.
    new_work: Vec<String>,
    looks: u64,
    longest_gap_s: f64,
    violations: BTreeSet<String>,
}

/// First observation of each liveness, since the cut.
#[derive(Debug, Default)]
struct FirstObservations {
    first: BTreeMap<(String, String), f64>,
    not_alive: BTreeSet<String>,
}

impl FirstObservations {
    fn note(&mut self, nodes: &[NodeView], since: Instant, may_blame: bool) {
        let at = since.elapsed().as_secs_f64();
        for node in nodes {
            let word = (node.name.clone(), node.liveness.clone());
            self.first.entry(word).or_insert(at);
            if node.liveness != "alive" && may_blame {
                self.not_alive.insert(node.name.clone());
            }
        }
    }

    fn first(&self, node: &str, word: &str) -> Option<f64> {
        self.first.get(&(node.to_owned(), word.to_owned())).copied()
    }
}

fn seconds() -> Duration {
    let given = std::env::var("LATTICE_CUT_S").ok();
    given.map_or(CUT, |text| {
        Duration::from_secs(text.parse().expect("LATTICE_CUT_S: seconds"))
    })
}

async fn start_job(site: &Site, node: &str, requeue: Option<&str>) -> Job {
    let script = Script::in_folder(site.path(&format!("job-{node}")));
    let mut request = site.request(Some(node), &script.text(Behaviour::Plain));
    request.requeue = requeue.map(str::to_owned);
    let id = site.submit_request(&request).await;
    site.reaches(id, &["running"]).await;
    Job {
        node: node.to_owned(),
        script,
        id,
    }
}

/// Observes the nodes until `done`, and records each liveness.
async fn watch(
    site: &Site,
    words: &mut FirstObservations,
    machine: &mut LivenessChecks,
    since: Instant,
    mut done: impl FnMut(&FirstObservations) -> bool,
) {
    let begun = Instant::now();
    while !done(words) {
        if let Ok(nodes) = site.api().nodes().await {
            words.note(&nodes, since, machine.may_blame(Instant::now()));
        }
        assert!(begun.elapsed() < PATIENCE * 4, "{words:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// State of a node in the API, and of its allocation from before the cut.
async fn during(site: &Site, job: &Job) -> String {
    let node = site.api().node(&job.node).await.unwrap();
    let allocation = site.api().allocation(job.id).await.unwrap();
    let holder = node.holder.map(|holder| holder.allocation);
    assert_eq!(
        holder,
        Some(job.id),
        "{} stays held while it is cut off",
        job.node
    );
    assert_eq!(
        allocation.attempt, 1,
        "nothing is tried elsewhere meanwhile"
    );
    format!("{}, {}, held", node.liveness, allocation.state)
}

/// Two single-node jobs for any node, and one for a cut node, which must wait.
async fn new_work(site: &Site, cut: &[String]) -> Vec<String> {
    let any = site.request(None, "echo \"$LATTICE_NODE\"; exit 0");
    let mut ran = Vec::new();
    for _ in 0..2 {
        let submitted = site.api().submit(&any, SubmitOptions::default());
        let id = submitted.await.unwrap().id.unwrap();
        let ended = site
            .reaches(id, &["completed", "failed", "cancelled"])
            .await;
        assert_eq!(ended.state, "completed");
        assert!(!cut.contains(&ended.nodelist), "{ended:?}");
        ran.push(ended.nodelist);
    }
    ran
}

async fn settles(site: &Site, job: &Job, fate: CutNodeOutcome) -> AllocationView {
    let ended = ["completed", "failed", "cancelled"];
    let view = site.reaches(job.id, &ended).await;
    let exit = view.ranks[0].exit.clone().unwrap_or_default();
    let (state, truth) = match fate {
        CutNodeOutcome::TogetherJobCancelled => ("cancelled", "stopped"),
        _ => ("failed", "exit code 7"),
    };
    assert_eq!(
        (view.state.as_str(), exit.as_str()),
        (state, truth),
        "{}",
        job.node
    );
    assert_eq!(
        job.script.effects(),
        [format!("{}.1.0", job.id)],
        "it ran once"
    );
    view
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_the_agents_are_cut_off_and_nothing_runs_twice_or_is_freed() {
    let Some(_turn) = Network::turn().await else {
        return;
    };
    let names: Vec<String> = (1..=8).map(|n| format!("g{n}")).collect();
    let plan = Plan {
        hosts: true,
        ..Plan::with_agents(names.clone())
    };
    let site = Site::found(lattice_tests::programs!(), &plan).await;
    let monitor = Monitor::start(site.observer(), site.jobs());
    let report = cut_and_heal(&site, &names).await;
    let seen = monitor.seen().await;
    let report = finish(report, &seen);
    print(&report);
    assert_eq!(report.violations, BTreeSet::new());
    assert_eq!(report.falsely_suspected, BTreeSet::new());
    // The delay of a busy machine is not control's fault.
    assert!(
        report.suspect_max_s < 3.5 + report.longest_gap_s,
        "suspected within 3 s, and one look"
    );
    site.leaves_nothing().await;
}

async fn cut_and_heal(site: &Site, names: &[String]) -> Report {
    let network = site.network.as_ref().unwrap();
    let (cut, whole) = names.split_at(4);
    let mut jobs = Vec::new();
    for (node, fate) in cut.iter().zip(CutNodeOutcome::ALL) {
        let requeue = (fate == CutNodeOutcome::TogetherJobRequeues).then_some("always");
        jobs.push((start_job(site, node, requeue).await, fate));
    }
    let mut others = Vec::new();
    for node in &whole[..2] {
        others.push(start_job(site, node, None).await);
    }

    let (length, begun) = (seconds(), Instant::now());
    // One node after the other, which takes time on a busy machine.
    let mut cut_at = BTreeMap::new();
    for (job, fate) in &jobs {
        let host = &site.hosts[&job.node];
        match fate {
            CutNodeOutcome::AloneJobEnds | CutNodeOutcome::AloneJobRuns => network.unplug(host),
            _ => network.move_away(host),
        }
        cut_at.insert(&job.node, begun.elapsed().as_secs_f64());
    }
    let since_its_cut = |node: &String, at: f64| at - cut_at[node];
    let (mut words, mut machine) = (FirstObservations::default(), LivenessChecks::begin());
    let suspected =
        |words: &FirstObservations| cut.iter().all(|n| words.first(n, "suspect").is_some());
    watch(site, &mut words, &mut machine, begun, suspected).await;
    jobs[0].0.script.may_exit();
    site.api().cancel(jobs[2].0.id).await.unwrap();
    let ran = new_work(site, cut).await;
    let is_over = |_: &FirstObservations| begun.elapsed() >= length;
    watch(site, &mut words, &mut machine, begun, is_over).await;
    assert!(machine.counted() > 0, "this machine stood still");
    let ended = site
        .attempt_folder(&jobs[0].0.node, jobs[0].0.id, 1)
        .join("exit.json");
    until("a cut node's job ended by itself", || ended.exists()).await;
    let mut at_the_end = Vec::new();
    for (job, _) in &jobs {
        at_the_end.push(during(site, job).await);
    }
    let falsely_suspected = &words.not_alive - &cut.iter().cloned().collect();

    let healed = Instant::now();
    for (job, _) in &jobs {
        network.heal(&site.hosts[&job.node]);
    }
    let mut nodes = Vec::new();
    let mut back = FirstObservations::default();
    // A liveness counts only after the one of the cut is gone.
    let alive = |back: &FirstObservations| cut.iter().all(|n| back.first(n, "alive").is_some());
    watch(site, &mut back, &mut machine, healed, alive).await;
    for (job, fate) in &jobs {
        if matches!(
            fate,
            CutNodeOutcome::AloneJobRuns | CutNodeOutcome::TogetherJobRequeues
        ) {
            job.script.may_exit();
        }
    }
    for ((job, fate), during) in jobs.iter().zip(at_the_end) {
        let view = settles(site, job, *fate).await;
        let exit = view.ranks[0].exit.clone().unwrap_or_default();
        nodes.push(Outcome {
            node: job.node.clone(),
            fate: fate.words(),
            suspect_after_s: since_its_cut(&job.node, words.first(&job.node, "suspect").unwrap()),
            unreachable_after_s: words
                .first(&job.node, "unreachable")
                .map(|at| since_its_cut(&job.node, at)),
            during,
            alive_after_heal_s: back.first(&job.node, "alive").unwrap(),
            settled_after_heal_s: healed.elapsed().as_secs_f64(),
            end: format!("{}, {exit}", view.state),
            runs: job.script.effects().len(),
        });
    }
    for job in &others {
        job.script.may_exit();
        settles(site, job, CutNodeOutcome::AloneJobRuns).await;
    }
    site.are_ready(names).await;
    Report {
        cut_s: length.as_secs_f64(),
        suspect_p50_s: middle(nodes.iter().map(|n| n.suspect_after_s)),
        suspect_max_s: most(nodes.iter().map(|n| n.suspect_after_s)),
        recover_p50_s: middle(nodes.iter().map(|n| n.alive_after_heal_s)),
        recover_max_s: most(nodes.iter().map(|n| n.alive_after_heal_s)),
        nodes,
        falsely_suspected,
        new_work: ran,
        looks: 0,
        longest_gap_s: 0.0,
        violations: BTreeSet::new(),
    }
}

fn most(all: impl Iterator<Item = f64>) -> f64 {
    all.fold(0.0, f64::max)
}

fn middle(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn finish(mut report: Report, seen: &MonitorReport) -> Report {
    report.looks = seen.looks;
    report.longest_gap_s = seen.longest_gap.as_secs_f64();
    report.violations.clone_from(&seen.violations);
    report
}

fn print(report: &Report) {
    if std::env::var("LATTICE_OUTPUT").is_ok_and(|output| output == "json") {
        println!("{}", serde_json::to_string_pretty(report).unwrap());
        return;
    }
    let mut table = Matrix::new([
        "node",
        "cut off",
        "suspect",
        "unreachable",
        "during the cut",
        "alive again",
        "settled",
        "end",
        "runs",
    ]);
    let s = |value: f64| format!("{value:.1} s");
    for node in &report.nodes {
        table.row([
            node.node.clone(),
            node.fate.to_owned(),
            s(node.suspect_after_s),
            node.unreachable_after_s.map_or("-".to_owned(), s),
            node.during.clone(),
            s(node.alive_after_heal_s),
            s(node.settled_after_heal_s),
            node.end.clone(),
            node.runs.to_string(),
        ]);
    }
    println!("{table}");
    println!(
        "cut for {:.0} s; suspect after {:.2} s (p50) and {:.2} s (max); alive again after {:.2} s \
         (p50) and {:.2} s (max); new work ran on {}; {} looks at processes and holders, {:.2} s \
         apart at most, {} violations",
        report.cut_s,
        report.suspect_p50_s,
        report.suspect_max_s,
        report.recover_p50_s,
        report.recover_max_s,
        report.new_work.join(", "),
        report.looks,
        report.longest_gap_s,
        report.violations.len(),
    );
}
