//! Network split through the services, with real processes on hosts of their own. The smaller side has the active
//! control, the leading member, and three agents. The larger side has another control, two members and two agents. The
//! lease moves; its former holder launches and ends nothing; the larger side continues; then the network is healed.
//!
//! Needs root, as `partition` does. `-- --nocapture` prints the table.

use lattice_client::{AllocationView, SubmitOptions};
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    matrix::Matrix,
    monitor::Monitor,
    netns::{Netns, Network},
    script::{Behaviour, Script},
    site::{Plan, Site},
    wait::{eventually, until},
};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Indices of the control that is active first, and of its successor.
const CUT_OFF: usize = 0;
const OTHER: usize = 1;
/// Final states of an allocation.
const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

/// Fate of a job during the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobOutcome {
    /// The job ends by itself.
    Ends,
    /// The control of the larger side receives a cancel request.
    IsCancelled,
    /// The control of the smaller side receives a cancel request.
    IsCancelledInVain,
    /// The job waits for the node of a job that ends on the smaller side.
    WaitsInVain,
    /// The job waits for the node of a job that is cancelled on the larger side.
    Waits,
}

/// One job for each fate: node, whether on the smaller side, fate, description.
const JOBS: [(&str, bool, JobOutcome, &str); 6] = [
    ("m1", true, JobOutcome::Ends, "ends by itself"),
    ("m1", true, JobOutcome::WaitsInVain, "waits for m1"),
    (
        "m2",
        true,
        JobOutcome::IsCancelled,
        "cancelled by the other control",
    ),
    (
        "m3",
        true,
        JobOutcome::IsCancelledInVain,
        "cancelled by the one cut off",
    ),
    (
        "g1",
        false,
        JobOutcome::IsCancelled,
        "cancelled by the other control",
    ),
    ("g1", false, JobOutcome::Waits, "waits for g1"),
];

struct Job {
    node: &'static str,
    is_cut: bool,
    fate: JobOutcome,
    words: &'static str,
    script: Script,
    id: AllocationId,
    /// Reported state and true state at the end of the split.
    during: String,
}

impl Job {
    async fn submit(site: &Site, n: usize) -> Self {
        let (node, is_cut, fate, words) = JOBS[n];
        let script = Script::in_folder(site.path(&format!("job-{n}")));
        let id = site.submit(node, &script.text(Behaviour::Plain)).await;
        let waits = matches!(fate, JobOutcome::Waits | JobOutcome::WaitsInVain);
        site.reaches(id, &[if waits { "pending" } else { "running" }])
            .await;
        Self {
            node,
            is_cut,
            fate,
            words,
            script,
            id,
            during: String::new(),
        }
    }

    /// Expected end of the job, independent of its side.
    fn end(&self) -> (&'static str, &'static str) {
        match self.fate {
            JobOutcome::IsCancelled => ("cancelled", "stopped"),
            _ => ("failed", "exit code 7"),
        }
    }

    async fn settles(&self, site: &Site) -> AllocationView {
        let view = site.reaches(self.id, &ENDED).await;
        let exit = view.ranks[0].exit.clone().unwrap_or_default();
        assert_eq!(
            (view.state.as_str(), exit.as_str()),
            self.end(),
            "{}",
            self.words
        );
        assert_eq!(view.attempt, 1, "{}", self.words);
        let ran = [format!("{}.1.0", self.id)];
        assert_eq!(self.script.effects(), ran, "{}: it ran once", self.words);
        view
    }
}

/// Sends a request to the control that is cut off, and returns its answer: the request cannot succeed.
async fn in_vain(asked: &str, command: std::process::Command) -> String {
    let begun = Instant::now();
    let mut command = tokio::process::Command::from(command);
    let done = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    assert_eq!(done.status.code(), Some(3), "{asked}: {said}");
    let took = begun.elapsed().as_secs_f64();
    format!("{asked} at the control cut off, after {took:.1} s: {said}")
}

/// Times since the cut, seconds.
#[derive(Debug, Default)]
struct Times {
    quorum_answers: f64,
    other_acts: f64,
    waiting_job_runs: f64,
    new_job_ended: f64,
    healed: f64,
}

fn epochs(site: &Site, control: usize) -> BTreeSet<u64> {
    let said = site.controls[control].said();
    let held = said.split("Held { epoch: ").skip(1);
    held.filter_map(|rest| rest.split_once(' ')?.0.parse().ok())
        .collect()
}

async fn acts(site: &Site, control: usize) -> bool {
    let status = site.api_of(control).status().await;
    status.is_ok_and(|status| status.active)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_moves_lease_and_fences_old_holder() {
    let Some(_turn) = Network::turn().await else {
        return;
    };
    let names = ["m1", "m2", "m3", "g1", "g2"];
    let plan = Plan {
        hosts: true,
        joining: 1,
        ..Plan::with_agents(names)
    };
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    until_acts(&site, CUT_OFF).await;
    site.start_joining(&plan).await;
    let monitor = Monitor::start(site.observer(), site.jobs());

    let mut jobs = Vec::new();
    for n in 0..JOBS.len() {
        jobs.push(Job::submit(&site, n).await);
    }
    let observer = site.observer();
    let leader = eventually("somebody leads", || observer.leader()).await;
    let smaller = ["control-1".to_owned(), format!("quorum-{leader}")];
    let smaller = smaller
        .into_iter()
        .chain(["m1", "m2", "m3"].map(str::to_owned));
    let smaller: Vec<Netns> = smaller.map(|name| site.hosts[&name].clone()).collect();

    let begun = Instant::now();
    let network = site.network.as_ref().unwrap();
    smaller.iter().for_each(|host| network.move_away(host));
    site.ask_control(OTHER);
    let (mut times, said) = during_the_cut(&site, &mut jobs, begun).await;

    times.healed = begun.elapsed().as_secs_f64();
    let network = site.network.as_ref().unwrap();
    smaller.iter().for_each(|host| network.heal(host));
    let mut table = Matrix::new([
        "node",
        "side",
        "job",
        "at the end of the cut",
        "end",
        "runs",
    ]);
    for job in &jobs {
        // A cancelled job gets its end request sooner or later, and does not end by itself before.
        if !matches!(job.fate, JobOutcome::IsCancelled) {
            job.script.may_exit();
        }
        let view = job.settles(&site).await;
        let exit = view.ranks[0].exit.clone().unwrap_or_default();
        table.row([
            job.node.to_owned(),
            if job.is_cut { "smaller" } else { "larger" }.to_owned(),
            job.words.to_owned(),
            job.during.clone(),
            format!("{}, {exit}", view.state),
            job.script.effects().len().to_string(),
        ]);
    }
    site.are_ready(&names.map(str::to_owned)).await;
    let settled = begun.elapsed().as_secs_f64() - times.healed;
    assert!(acts(&site, OTHER).await, "who took over keeps the lease");
    let (lost, taken) = (epochs(&site, CUT_OFF), epochs(&site, OTHER));
    assert!(lost.iter().max() < taken.iter().min(), "{lost:?} {taken:?}");

    let seen = monitor.seen().await;
    println!("{table}");
    said.iter().for_each(|said| println!("{said}"));
    println!(
        "cut for {:.1} s; on the larger side the quorum answers after {:.1} s, the other control \
         acts after {:.1} s, a waiting job runs after {:.1} s, a new one has ended after {:.1} s; \
         all settled {settled:.1} s after it was healed; epochs {lost:?}, then {taken:?}; {} looks \
         at processes and holders, {:.2} s apart at most, {} violations",
        times.healed,
        times.quorum_answers,
        times.other_acts,
        times.waiting_job_runs,
        times.new_job_ended,
        seen.looks,
        seen.longest_gap.as_secs_f64(),
        seen.violations.len(),
    );
    assert_eq!(seen.violations, BTreeSet::new());
    site.leaves_nothing().await;
}

async fn until_acts(site: &Site, control: usize) {
    eventually("a control holds the leases", || async {
        acts(site, control).await.then_some(())
    })
    .await;
}

fn of(jobs: &[Job], fate: JobOutcome, is_cut: bool) -> &Job {
    let is_it = |job: &&Job| job.fate == fate && job.is_cut == is_cut;
    jobs.iter().find(is_it).expect("a job of that fate")
}

/// Runs the period between cut and healing; returns the times and the output of the isolated control.
async fn during_the_cut(site: &Site, jobs: &mut [Job], begun: Instant) -> (Times, Vec<String>) {
    let mut times = Times::default();
    let kept = of(jobs, JobOutcome::IsCancelledInVain, true).id.to_string();
    let cancels = tokio::spawn(in_vain(
        "cancel",
        site.cli_beside(CUT_OFF, &["cancel", &kept]),
    ));
    let ends = of(jobs, JobOutcome::Ends, true);
    ends.script.may_exit();
    let observer = site.observer();
    eventually("the larger side has a leader", || observer.hot()).await;
    times.quorum_answers = begun.elapsed().as_secs_f64();
    until_acts(site, OTHER).await;
    times.other_acts = begun.elapsed().as_secs_f64();

    for is_cut in [true, false] {
        let id = of(jobs, JobOutcome::IsCancelled, is_cut).id;
        site.api().cancel(id).await.unwrap();
    }
    let any = site.request(None, "exit 0");
    let submitted = site.api().submit(&any, SubmitOptions::default()).await;
    let waited = of(jobs, JobOutcome::Waits, false);
    site.reaches(waited.id, &["running"]).await;
    times.waiting_job_runs = begun.elapsed().as_secs_f64();
    let new = site.reaches(submitted.unwrap().id.unwrap(), &ENDED).await;
    assert_eq!(
        (new.state.as_str(), new.nodelist.as_str()),
        ("completed", "g2")
    );
    times.new_job_ended = begun.elapsed().as_secs_f64();

    let ended = site.attempt_folder(ends.node, ends.id, 1).join("exit.json");
    until("a job ends by itself on the smaller side", || {
        ended.exists()
    })
    .await;
    let mut said = vec![cancels.await.unwrap()];
    // The isolated control reports that it may not act.
    let status = site
        .cli_beside(CUT_OFF, &["node", "list"])
        .output()
        .unwrap();
    let warned = String::from_utf8_lossy(&status.stderr).trim().to_owned();
    assert!(warned.contains("the quorum does not answer"), "{warned:?}");
    said.push(format!("node list: {warned}"));
    tokio::time::sleep(rest_of_the_cut(begun)).await;
    for job in jobs {
        job.during = at_the_end(site, job).await;
    }
    (times, said)
}

/// Rest of `LATTICE_CUT_S`.
fn rest_of_the_cut(begun: Instant) -> Duration {
    let given = std::env::var("LATTICE_CUT_S").ok();
    let length = given.map_or(0, |text| text.parse().expect("LATTICE_CUT_S: seconds"));
    Duration::from_secs(length).saturating_sub(begun.elapsed())
}

/// State of a job according to the larger side, and whether the job lives.
async fn at_the_end(site: &Site, job: &Job) -> String {
    let view = site.api().allocation(job.id).await.unwrap();
    let node = site.api().node(job.node).await.unwrap();
    let holds = node
        .holder
        .is_some_and(|holder| holder.allocation == job.id);
    let lives = site.job_lives(job.id);
    let expected = match (job.fate, job.is_cut) {
        // The quorum has no report of the end, so the node is held.
        (JobOutcome::Ends, _) => ("running", true, false),
        (JobOutcome::WaitsInVain, _) => ("pending", false, false),
        (JobOutcome::IsCancelled, true) => ("stopping", true, true),
        (JobOutcome::IsCancelled, false) => ("cancelled", false, false),
        (JobOutcome::IsCancelledInVain | JobOutcome::Waits, _) => ("running", true, true),
    };
    assert_eq!(
        (view.state.as_str(), holds, lives),
        expected,
        "{}",
        job.words
    );
    let runs = job.script.effects().len();
    assert_eq!(
        runs,
        usize::from(job.fate != JobOutcome::WaitsInVain),
        "{}",
        job.words
    );
    format!(
        "{}, {}, {}{}",
        node.liveness,
        view.state,
        if holds { "held" } else { "not held" },
        if lives { ", lives" } else { "" },
    )
}
