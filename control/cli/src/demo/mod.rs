//! `lattice demo`: a whole cluster in one process, with a recorded workload.
//!
//! The daemons are the real ones: three quorum members, one control service and one agent per node, each with its own
//! socket, certificate and data, connected over loopback. Only the hosts that the agents probe are captured trees,
//! except for this machine, and the BMCs that control reads are simulators.

mod bmcs;
mod capacity;
mod change;
mod cluster;
mod fixtures;
mod folder;
mod groups;
mod job_submission;
mod packed;
#[cfg(test)]
mod readme_tests;
mod scenario;
mod verdict;
mod workload;

use crate::{
    context::{ContextFile, PublishedContext},
    failure::Failure,
    output::{self, Format},
    progress::Progress,
    terminal::LogWriter,
    waiting::{NoticeTimes, noticed},
};
use capacity::Machine;
use clap::Args;
use cluster::Cluster;
use fixtures::{DemoNode, FixtureSource, Fixtures};
use folder::Folder;
use job_submission::JobResults;
use lattice_client::{Client, ClientError};
use lattice_cluster::UNPRIVILEGED_ID;
use lattice_quorum_types::NodeId;
use std::{
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    process::ExitCode,
    time::{Duration, Instant},
};
use tokio::signal::unix::{SignalKind, signal};
use verdict::{JobEnd, Outcome};
use workload::DemoJob;

/// Interval between two progress lines of the workload without a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two progress lines of the start without a terminal.
const START_PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Progress bar of the start on a terminal.
const START_BAR: &str = "starting {bar:30} {pos}/{len} {msg}, {elapsed}";

/// Default number of nodes: every captured tree once, and this machine.
pub const DEFAULT_NODES: usize = 24;
/// Maximum number of nodes: each is an agent in this process.
const MAX_NODES: u64 = 512;
/// Number of nodes up to which the intervals of periodic work are those of a small demo.
const UNSTRETCHED_NODES: usize = 64;
/// Time limit for all nodes to become ready after their agents have started.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Further time for each node.
const JOIN_TIMEOUT_PER_NODE: Duration = Duration::from_millis(500);
/// Interval between two reads of the node list while the nodes become ready. Longer in a large demo.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for finding the planted differences after the jobs have ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
const SETTLE_INTERVAL: Duration = Duration::from_millis(250);

/// Start a whole cluster on this machine and run a recorded workload on it.
///
/// Three quorum members, one control and one agent per node, in one process and on loopback. One agent probes this
/// machine, the others captured hosts. The command prints its addresses and runs until Ctrl-C. While it runs, `lattice
/// node list` and the other commands find it without any flag. LATTICE_LOG=info shows the logs of the daemons.
#[derive(Args)]
pub struct DemoArgs {
    /// Number of nodes [default: 24, or that of the data folder]. A number that this machine cannot carry is refused.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=MAX_NODES))]
    nodes: Option<u64>,
    /// Folder for the data, resumed if it has data; left out: a temporary folder.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Exit when the workload has ended; the exit code shows whether the results are as expected.
    #[arg(long)]
    exit: bool,
    /// Address of the web page and the API.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// User id for jobs [default: 65534 when started by root, else the same user].
    #[arg(long, value_name = "UID")]
    run_as: Option<u32>,
    /// Folder with the captured hosts and the recorded workload, to edit them [default: `fixtures` above the program or
    /// the working directory, as in a checkout of Lattice; else a copy in the program].
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,
}

/// Exit code that a shell reports for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs the demo.
pub fn run(args: DemoArgs, format: Format) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    // Handled from here on: a signal must not end the process while there is a temporary folder.
    let interrupted = {
        let _context = runtime.enter();
        interrupted()?
    };
    let demo = Demo::prepare(&args, started)?;
    log_to_stderr();
    let code = runtime.block_on(demo.run(&args, format, interrupted));
    // Blocking probes may still be running; their results are no longer needed.
    runtime.shutdown_timeout(Duration::from_secs(2));
    // Only now does no task write into the folder any more.
    output::message_lines(&format!("stopped; {}", demo.folder.close()));
    Ok(code?)
}

/// Logs errors of the daemons to standard error, or the levels in `LATTICE_LOG`. The log of openraft is off by default,
/// since openraft logs an error when a starting member does not vote yet.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LATTICE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error,openraft=off"));
    // If another subscriber is set already, it stays in use.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| LogWriter)
        .log_internal_errors(false)
        .try_init();
}

/// Input of the demo, validated before anything starts.
struct Demo {
    started: Instant,
    fixtures: Fixtures,
    nodes: Vec<DemoNode>,
    jobs: Vec<DemoJob>,
    folder: Folder,
    run_as: Option<u32>,
}

impl Demo {
    fn prepare(args: &DemoArgs, started: Instant) -> Result<Demo, Failure> {
        let run_as = run_as(args.run_as)?;
        let asked = args.nodes.map(usize::try_from).transpose();
        let asked = asked.map_err(|_| Failure::usage("--nodes is too large"))?;
        let kept = args.data_dir.as_deref().and_then(Folder::kept_nodes);
        // Nothing has been created yet.
        check_capacity(asked.or(kept).unwrap_or(DEFAULT_NODES))?;
        let source = FixtureSource::find(args.fixtures.as_deref())?;
        let folder = Folder::open(args.data_dir.as_deref(), asked)?;
        let fixtures = source.unpacked_in(folder.path())?;
        let nodes = fixtures.nodes(folder.nodes, this_machine()?)?;
        let jobs = workload::read(&fixtures.trace(), nodes.len())?;
        Ok(Demo {
            started,
            fixtures,
            nodes,
            jobs,
            folder,
            run_as,
        })
    }

    async fn run(
        &self,
        args: &DemoArgs,
        format: Format,
        interrupted: impl Future<Output = ()>,
    ) -> anyhow::Result<ExitCode> {
        let mut interrupted = std::pin::pin!(interrupted);
        let progress = Progress::new(START_PROGRESS_INTERVAL);
        progress.print_line(&format!(
            "starting 3 quorum members, 1 control, {} agents; data in {}",
            self.nodes.len(),
            self.folder.path().display()
        ));
        let hosts = (&self.fixtures, self.nodes.as_slice());
        let start = Cluster::start(&self.folder, hosts, args.listen);
        let mut notices = NoticeTimes::new(Instant::now());
        let daemons = || "the quorum members and the control to start".to_owned();
        let start = noticed(start, &mut notices, daemons);
        let mut cluster = tokio::select! {
            cluster = start => cluster?,
            () = &mut interrupted => return Ok(ExitCode::from(INTERRUPTED)),
        };
        let agents = cluster.start_agents(&self.folder, &self.nodes, self.run_as, &progress);
        let agents = tokio::select! {
            started = agents => Some(started),
            () = &mut interrupted => None,
        };
        progress.end();
        let code = match agents {
            None => Ok(ExitCode::from(INTERRUPTED)),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => {
                self.use_cluster(&cluster, args.exit, format, &progress, interrupted)
                    .await
            }
        };
        progress.end();
        cluster.stop(self.folder.is_temporary()).await;
        code
    }

    /// Publishes the context, runs the scenario, prints its results and, unless `exit`, waits for an interrupt. The
    /// caller must stop the cluster afterwards, whatever the result.
    async fn use_cluster(
        &self,
        cluster: &Cluster,
        exit: bool,
        format: Format,
        progress: &Progress,
        mut interrupted: Pin<&mut impl Future<Output = ()>>,
    ) -> anyhow::Result<ExitCode> {
        let context = ContextFile {
            server: cluster.url(),
            ca_pem: cluster.ca_pem().to_owned(),
            token: cluster.token().to_owned(),
            demo_pid: Some(std::process::id()),
        };
        let published = PublishedContext::write(&context)?;
        progress.print_line(&greeting(cluster, &published, &self.folder));
        let ended = tokio::select! {
            ended = self.scenario(cluster, progress) => ended?,
            () = &mut interrupted => return Ok(ExitCode::from(INTERRUPTED)),
        };
        let (outcome, endings) = ended;
        let faults = verdict::find_faults(&outcome, &endings, &self.nodes);
        verdict::print(&outcome, &faults, format)?;
        if !exit {
            progress.print_line("\nThe cluster keeps running; press Ctrl-C to stop it.");
            interrupted.await;
        }
        Ok(ExitCode::from(u8::from(!faults.is_empty())))
    }

    /// Waits for the nodes, creates the project tree, submits a request that must be refused, runs the workload,
    /// collects the results, and changes the firmware of a BMC.
    async fn scenario(
        &self,
        cluster: &Cluster,
        progress: &Progress,
    ) -> anyhow::Result<(Outcome, Vec<JobEnd>)> {
        let client = cluster.client()?;
        let joined = self.all_joined(&client, progress).await?;
        let seconds = self.started.elapsed().as_secs_f64();
        progress.print_line(&format!("{joined} nodes are ready after {seconds:.1} s"));
        scenario::create_tree(&client, self.nodes.len()).await?;
        let refusal = scenario::refused_submit(&client).await?;
        progress.print_line(&format!("refused, as expected:\n{refusal}"));
        let workload = Progress::new(PROGRESS_INTERVAL);
        let played = job_submission::run_jobs(&client, &self.jobs, &workload).await;
        workload.end();
        let mut played = played?;
        played.refusals.insert(0, refusal);
        let endings = endings(&self.jobs, &played);
        let mut outcome = self.outcome(&client, cluster, played).await?;
        self.settle(&client, &mut outcome).await?;
        outcome.changed =
            change::run_firmware_change(&client, cluster.bmcs(), &self.nodes, progress).await?;
        outcome.elapsed_s = self.started.elapsed().as_secs_f64();
        Ok((outcome, endings))
    }

    /// Waits until all nodes are registered, ready and alive, and have published their classes. Returns their number.
    async fn all_joined(&self, client: &Client, progress: &Progress) -> anyhow::Result<usize> {
        let wanted = self.nodes.len();
        let limit = JOIN_TIMEOUT + JOIN_TIMEOUT_PER_NODE * u32::try_from(wanted)?;
        let interval = stretched(JOIN_POLL_INTERVAL, wanted);
        let ends_at = Instant::now() + limit;
        progress.begin(START_BAR, wanted, 0);
        loop {
            let ready = ready_nodes(client).await?;
            progress.update(ready, "nodes ready".to_owned());
            if ready >= wanted {
                progress.end();
                return Ok(ready);
            }
            anyhow::ensure!(
                Instant::now() < ends_at,
                "{ready} of {wanted} nodes are ready after {} s; give a smaller --nodes, or set LATTICE_LOG=info for \
                 details",
                limit.as_secs()
            );
            tokio::time::sleep(interval).await;
        }
    }

    /// Waits for the planted differences, at most [`SETTLE_TIMEOUT`]. A resumed cluster has run its jobs already, so
    /// its results may be collected before control has read the inventories of the nodes.
    async fn settle(&self, client: &Client, outcome: &mut Outcome) -> anyhow::Result<()> {
        let ends_at = Instant::now() + SETTLE_TIMEOUT;
        let mut notices = NoticeTimes::new(Instant::now());
        loop {
            let missing = verdict::missing_planted(&outcome.drifted, &self.nodes);
            if missing.is_empty() || Instant::now() >= ends_at {
                return Ok(());
            }
            notices.print_due(|| format!("the planted differences {}", missing.join(", ")));
            tokio::time::sleep(SETTLE_INTERVAL).await;
            outcome.drifted = client.drift().await?.drifted;
            outcome.conformance_groups = verdict::groups(client).await?;
        }
    }

    async fn outcome(
        &self,
        client: &Client,
        cluster: &Cluster,
        played: JobResults,
    ) -> anyhow::Result<Outcome> {
        let nodes = client.nodes().await?;
        let status = client.status().await?;
        Ok(Outcome {
            nodes: nodes
                .iter()
                .filter(|node| node.lifecycle == "ready")
                .count(),
            cells: status.cells.len(),
            conformance_groups: verdict::groups(client).await?,
            drifted: client.drift().await?.drifted,
            allocations: verdict::count(&played),
            refusals: played.refusals,
            changed: None,
            url: cluster.url(),
            elapsed_s: self.started.elapsed().as_secs_f64(),
        })
    }
}

/// Checks that this machine can carry a demo of `nodes` nodes, and raises the limit of open files to what they need.
fn check_capacity(nodes: usize) -> Result<(), Failure> {
    capacity::raise_open_files(nodes);
    let machine = Machine::read(Path::new("/"));
    machine
        .check(nodes)
        .map_err(|refusal| Failure::refused(refusal.to_string()))
}

/// Returns the interval of periodic work in a demo of `nodes` nodes. All nodes share the processors of this machine, so
/// their work becomes rarer as their number grows.
fn stretched(interval: Duration, nodes: usize) -> Duration {
    interval.mul_f64((nodes as f64 / UNSTRETCHED_NODES as f64).max(1.0))
}

/// Returns a future that ends with the first signal to stop: Ctrl-C, SIGTERM, or SIGHUP when the terminal is closed,
/// unless SIGHUP is ignored, as under `nohup`.
fn interrupted() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut hangup = match ignores_hangup(&status) {
        true => None,
        false => Some(signal(SignalKind::hangup())?),
    };
    Ok(async move {
        let hangup = async {
            match &mut hangup {
                Some(hangup) => {
                    hangup.recv().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = hangup => {}
        }
    })
}

/// Whether the process with this `/proc/PID/status` ignores SIGHUP, the first signal in the mask.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Returns the number of nodes that are registered, ready and alive, and have published their classes.
async fn ready_nodes(client: &Client) -> anyhow::Result<usize> {
    let nodes = match client.nodes().await {
        // Control has not read the state of the quorum yet.
        Err(ClientError::Unavailable(_)) => return Ok(0),
        listed => listed?,
    };
    let ready = nodes
        .iter()
        .filter(|node| node.lifecycle == "ready" && node.liveness == "alive")
        .filter(|node| !node.classes.is_empty());
    Ok(ready.count())
}

/// Returns the user id for jobs: a demo started by root never runs jobs as root.
fn run_as(asked: Option<u32>) -> Result<Option<u32>, Failure> {
    let root = rustix::process::geteuid().is_root();
    match (asked, root) {
        (Some(0), _) => Err(Failure::usage("--run-as 0: jobs never run as root")),
        (Some(_), false) => Err(Failure::usage(
            "--run-as needs root; without it jobs run as the user of the demo",
        )),
        (None, true) => Ok(Some(UNPRIVILEGED_ID)),
        (asked, _) => Ok(asked),
    }
}

/// Returns the host name of this machine up to the first dot, or `localhost` if that is not a valid node name.
fn this_machine() -> anyhow::Result<NodeId> {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    NodeId::new(name)
        .or_else(|_| NodeId::new("localhost"))
        .map_err(anyhow::Error::from)
}

fn greeting(cluster: &Cluster, published: &PublishedContext, folder: &Folder) -> String {
    let state = match folder.resumed {
        true => "resumed",
        false => "started",
    };
    format!(
        "{state}: 3 quorum members, 1 control, {} agents, {} BMCs; data in {}\n\
         page      {}\n\
         context   {}\n\
         try, in another terminal: lattice node list",
        folder.nodes,
        cluster.bmcs().len(),
        folder.path().display(),
        cluster.page(),
        published.path().display(),
    )
}

/// Lists how each accepted job ended.
fn endings(jobs: &[DemoJob], played: &JobResults) -> Vec<JobEnd> {
    let ending = |job: &DemoJob| {
        Some(JobEnd {
            name: job.name.clone(),
            expected: job.expected_end,
            actual: *played.states.get(&job.name)?,
        })
    };
    jobs.iter().filter_map(ending).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_stretch_with_the_number_of_nodes() {
        let second = Duration::from_secs(1);
        assert_eq!(stretched(second, 24), second);
        assert_eq!(stretched(second, 64), second);
        assert_eq!(stretched(second, 512), 8 * second);
    }

    #[test]
    fn ignored_hangup_is_recognised() {
        let status =
            |mask: &str| format!("Name:\tlattice\nSigBlk:\t0\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup("Name:\tlattice\n"));
    }
}
