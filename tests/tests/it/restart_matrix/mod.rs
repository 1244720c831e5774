//! Restart matrix. Every process of Lattice is killed with SIGKILL at every step of a job's life, in a cluster of real
//! processes. After each kill the job has run at most once per attempt, and the API reports its true end. The node was
//! never free while a process of the job lived.
//!
//! `cargo test -p lattice-tests --test it restart_matrix:: -- --nocapture` prints the matrix.

mod job;

use futures::{FutureExt as _, future::join_all};
use job::{Job, Step, Victim};
use lattice_client::AllocationView;
use lattice_tests::{
    daemon::Daemon,
    matrix::Matrix,
    monitor::Monitor,
    procs::{self, Process},
    script::{Behaviour, Script},
    site::{Hook, Plan, Site},
    wait::{PATIENCE, eventually, until},
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

type Cells = BTreeMap<(Victim, Step), String>;

/// Text of a cell: the end of the job and the time since the kill, or the failure.
async fn cell(work: impl Future<Output = (AllocationView, Duration)>) -> String {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok((view, took)) => {
            let exit = view.ranks[0].exit.clone().unwrap_or_default();
            let exit = exit.split(':').next().unwrap_or_default();
            format!("{}, {exit}, {:.1} s", view.state, took.as_secs_f64())
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            format!("WRONG: {}", text.unwrap_or_default())
        }
    }
}

/// Kills the agent; the job continues without it and ends; then another agent starts.
async fn kill_agent(
    site: &Site,
    agent: &mut Daemon,
    node: &str,
    step: Step,
) -> (AllocationView, Duration) {
    let job = Job::submit(site, node, Victim::Agent, step).await;
    job.arrives().await;
    let begun = Instant::now();
    agent.kill();
    job.release();
    until("the job ends without an agent", || job.is_over()).await;
    agent.start();
    (job.ends().await, begun.elapsed())
}

/// Delays of the kill after the agent recorded the attempt, while the agent starts the supervisor, milliseconds.
const MOMENTS: [u64; 8] = [0, 1, 2, 3, 5, 8, 15, 30];

/// At `Starting`, kills the agent repeatedly with other delays; later, kills the agent that started the supervisor and
/// the agent that found it.
async fn kill_parent(
    site: &Site,
    agent: &mut Daemon,
    node: &str,
    step: Step,
) -> (AllocationView, Duration) {
    if step == Step::Starting {
        let mut last = None;
        for moment in MOMENTS {
            last = Some(kill_while_starting(site, agent, node, moment).await);
        }
        return last.unwrap();
    }
    let job = Job::submit(site, node, Victim::Parent, step).await;
    job.arrives().await;
    let begun = Instant::now();
    agent.kill();
    let said = agent.said().len();
    agent.start();
    until("the next agent has started", || {
        agent
            .said()
            .get(said..)
            .is_some_and(|news| news.contains("agent started"))
    })
    .await;
    agent.kill();
    job.release();
    agent.start();
    (job.ends().await, begun.elapsed())
}

async fn kill_while_starting(
    site: &Site,
    agent: &mut Daemon,
    node: &str,
    moment: u64,
) -> (AllocationView, Duration) {
    let script = Script::in_folder(site.path(&format!("parent-starting-{moment}")));
    script.may_exit();
    let id = site.submit(node, &script.text(Behaviour::Plain)).await;
    let record = site.attempt_folder(node, id, 1).join("launch.json");
    // Checks more often than usual, because milliseconds count here.
    let submitted = Instant::now();
    while !record.exists() {
        assert!(submitted.elapsed() < PATIENCE, "{id} is not launched");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    tokio::time::sleep(Duration::from_millis(moment)).await;
    let begun = Instant::now();
    agent.kill();
    agent.start();
    let job = Job {
        site,
        node: node.to_owned(),
        victim: Victim::Parent,
        step: Step::Starting,
        script,
        id,
    };
    let view = job.ends().await;
    site.are_ready(std::slice::from_ref(&job.node)).await;
    (view, begun.elapsed())
}

/// Number of tries. On a busy machine the two seconds of a job's last processes may pass before the test observes them.
const TRIES: usize = 10;

/// A job that has reached its step, with its supervisor.
async fn with_supervisor<'a>(site: &'a Site, node: &str, step: Step) -> (Job<'a>, Process) {
    for n in 1..=TRIES {
        let folder = format!("supervisor-{step:?}-{n}");
        let job = Job::submit_in(site, &folder, node, Victim::Supervisor, step).await;
        job.arrives().await;
        if let Some(supervisor) = site.supervisor(node, job.id, 1) {
            return (job, supervisor);
        }
        println!("supervisor, {}: too late, once more", step.title());
        job.release();
        site.reaches(job.id, &["failed"]).await;
        site.are_ready(&[node.to_owned()]).await;
    }
    panic!("a job's last moments passed unseen, {TRIES} times");
}

/// Kills the supervisor: all processes of the job are ended, and the job is lost.
async fn kill_supervisor(site: &Site, node: &str, step: Step) -> (AllocationView, Duration) {
    let (job, supervisor) = with_supervisor(site, node, step).await;
    let begun = Instant::now();
    procs::signal(supervisor, Signal::KILL);
    // A hook is not part of the job: it runs again, and must not be held forever.
    site.let_go(node, Hook::Prolog);
    site.let_go(node, Hook::Epilog);
    (job.ends().await, begun.elapsed())
}

/// Jobs at all steps, one per node.
async fn at_all_steps<'a>(site: &'a Site, victim: Victim, nodes: &[String]) -> Vec<Job<'a>> {
    let submit = nodes
        .iter()
        .zip(Step::ALL)
        .map(|(node, step)| Job::submit(site, node, victim, step));
    let jobs = join_all(submit).await;
    join_all(jobs.iter().map(Job::arrives)).await;
    jobs
}

async fn all_end(jobs: &[Job<'_>], begun: Instant, cells: &mut Cells) {
    let ends = jobs.iter().map(|job| async move {
        let end = cell(async { (job.ends().await, begun.elapsed()) }).await;
        ((job.victim, job.step), end)
    });
    cells.extend(join_all(ends).await);
}

fn names(range: std::ops::RangeInclusive<u32>) -> Vec<String> {
    range.map(|n| format!("n{n:02}")).collect()
}

/// Kills that affect a single node: all at the same time, one per node.
async fn kill_on_nodes(site: &Site, agents: &mut BTreeMap<String, Daemon>, cells: &mut Cells) {
    let mut free = agents.iter_mut();
    let mut work = Vec::new();
    for step in Step::ALL {
        let (node, agent) = free.next().unwrap();
        let run = kill_agent(site, agent, node, step);
        work.push(async move { ((Victim::Agent, step), cell(run).await) }.boxed_local());
        let (node, agent) = free.next().unwrap();
        let run = kill_parent(site, agent, node, step);
        work.push(async move { ((Victim::Parent, step), cell(run).await) }.boxed_local());
        let (node, _) = free.next().unwrap();
        let run = kill_supervisor(site, node, step);
        work.push(async move { ((Victim::Supervisor, step), cell(run).await) }.boxed_local());
    }
    cells.extend(join_all(work).await);
}

/// Kills control with jobs at all steps; the jobs continue without it, and it returns.
async fn kill_control(site: &Site, control: &mut Daemon, nodes: &[String], cells: &mut Cells) {
    let jobs = at_all_steps(site, Victim::Control, nodes).await;
    let begun = Instant::now();
    control.kill();
    jobs.iter().for_each(Job::release);
    until("what runs ends without a control", || {
        jobs.iter().all(Job::is_over)
    })
    .await;
    control.start();
    all_end(&jobs, begun, cells).await;
    // Control places jobs again only after it has the lease of its predecessor.
    let places = site.submit(&nodes[0], "true").await;
    site.reaches(places, &["completed"]).await;
}

/// Kills the leader with jobs at all steps.
async fn kill_leader(site: &Site, quorum: &mut [Daemon], nodes: &[String], cells: &mut Cells) {
    let jobs = at_all_steps(site, Victim::Leader, nodes).await;
    let observer = site.observer();
    let leader = eventually("a leader", || observer.leader()).await;
    let begun = Instant::now();
    let leader = &mut quorum[usize::try_from(leader).unwrap() - 1];
    leader.kill();
    jobs.iter().for_each(Job::release);
    all_end(&jobs, begun, cells).await;
    leader.start();
}

/// Prints the matrix, with the failures below it.
fn print_matrix(cells: &Cells) {
    let titles = Step::ALL.map(Step::title);
    let mut matrix = Matrix::new(["killed"].into_iter().chain(titles));
    for victim in Victim::ALL {
        let words = Step::ALL.map(|step| match &cells[&(victim, step)] {
            wrong if wrong.starts_with("WRONG") => "WRONG".to_owned(),
            word => word.clone(),
        });
        matrix.row([vec![victim.to_string()], words.to_vec()].concat());
    }
    println!("{matrix}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_runs_once_despite_kills() {
    let all = names(1..=15);
    let plan = Plan {
        hooks: true,
        ..Plan::with_agents(all.clone())
    };
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    let monitor = Monitor::start(site.observer(), site.jobs());
    let begun = Instant::now();
    let mut agents = std::mem::take(&mut site.agents);
    let mut controls = std::mem::take(&mut site.controls);
    let mut quorum = std::mem::take(&mut site.quorum);
    let mut cells = Cells::new();

    kill_on_nodes(&site, &mut agents, &mut cells).await;
    site.are_ready(&all).await;
    kill_control(&site, &mut controls[0], &names(1..=5), &mut cells).await;
    site.are_ready(&all).await;
    kill_leader(&site, &mut quorum, &names(6..=10), &mut cells).await;
    site.are_ready(&all).await;

    let seen = monitor.seen().await;
    print_matrix(&cells);
    println!(
        "{} looks at every process and holder in {:.1} s, {:.1} s apart at most; up to {} processes \
         of jobs",
        seen.looks,
        begun.elapsed().as_secs_f64(),
        seen.longest_gap.as_secs_f64(),
        seen.most_processes
    );
    let wrong: Vec<_> = cells
        .values()
        .filter(|word| word.starts_with("WRONG"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(seen.violations, Default::default());
    site.leaves_nothing().await;
}
