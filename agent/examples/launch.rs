//! Launch latency: launches ranks one after the other, then many at once. Prints the time from the call until control
//! receives the report that the process runs.
//!
//! `cargo run -p lattice-agent --example launch -- [ranks] [at once]`

use anyhow::Context as _;
use futures::future::BoxFuture;
use lattice_agent::NodeGpus;
use lattice_agent::executor::{
    Accounts, AgentUser, CgroupSettings, CheckpointSettings, Control, Executor, ExecutorSettings,
    Hooks, Ids, NotReported, OWN_PROGRAM, OrphanPolicy, RunAs,
};
use lattice_agent_rpc::{AttemptKey, Launch, Report, ReportAnswer};
use lattice_mesh::SystemClock;
use lattice_quorum_types::command::RankReport;
use lattice_quorum_types::spec::Workload;
use lattice_quorum_types::{AllocationId, NodeId, Revision};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

struct ReportChannel(mpsc::UnboundedSender<(Report, Instant)>);

impl Control for ReportChannel {
    fn report(&self, report: Report) -> BoxFuture<'_, Result<ReportAnswer, NotReported>> {
        let _ = self.0.send((report, Instant::now()));
        Box::pin(async { Ok(ReportAnswer::Committed) })
    }
}

fn launch(number: u64) -> anyhow::Result<Launch> {
    let argv = ["sleep", "0.2"];
    Ok(Launch {
        key: AttemptKey {
            allocation: AllocationId(number),
            attempt: 1,
        },
        epoch: 1,
        revision: Revision(number),
        user: "example".to_owned(),
        project: "example".to_owned(),
        name: None,
        element: None,
        nodes: vec![NodeId::new("n1")?],
        rank: 0,
        workload: Workload {
            argv: argv.map(str::to_owned).to_vec(),
            ..Workload::default()
        },
        walltime_ms: Some(60_000),
        boot: None,
        sensitive: false,
        gpus: 0,
        checkpoint: None,
    })
}

fn settings(folder: &std::path::Path) -> anyhow::Result<ExecutorSettings> {
    let agent = AgentUser::current();
    let nobody = Ids {
        uid: 65534,
        gid: 65534,
    };
    Ok(ExecutorSettings {
        node: NodeId::new("n1")?,
        folder: folder.to_owned(),
        enabled: true,
        run_as: RunAs {
            agent,
            fixed: (agent.uid == 0).then_some(nobody),
            allow_same_user: true,
            min_uid: 1000,
            map: None,
            accounts: Accounts::system(),
        },
        working_dir: Some("/".into()),
        hooks: Hooks::default(),
        cgroup: CgroupSettings::default(),
        orphans: OrphanPolicy::End,
        orphan_hold: lattice_agent::executor::ORPHAN_HOLD,
        output_cap_bytes: 1 << 20,
        grace: Duration::from_secs(30),
        keep_output: Duration::from_secs(60),
        gpus: NodeGpus::default(),
        checkpoints: CheckpointSettings {
            runtime_dir: folder.join("run"),
            poll: Duration::from_millis(100),
        },
        program: OWN_PROGRAM.into(),
        boot_id: "example".to_owned(),
    })
}

/// Quantile `share` of the sorted times, in milliseconds.
fn quantile_ms(times: &[Duration], share: f64) -> f64 {
    let last = times.len().saturating_sub(1) as f64;
    let index = (last * share).round() as usize;
    times.get(index).map_or(0.0, |t| t.as_secs_f64() * 1000.0)
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    println!(
        "{what}: {} ranks, p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        times.len(),
        quantile_ms(&times, 0.5),
        quantile_ms(&times, 0.99),
        quantile_ms(&times, 1.0)
    );
}

async fn round(
    executor: &Executor,
    reports: &mut mpsc::UnboundedReceiver<(Report, Instant)>,
    numbers: std::ops::Range<u64>,
) -> anyhow::Result<Vec<Duration>> {
    let launched_at = Instant::now();
    let mut waiting = 0;
    for number in numbers {
        executor.launch(launch(number)?).await?;
        waiting += 1;
    }
    let mut times = Vec::new();
    while waiting > 0 {
        let (report, at) = reports.recv().await.context("the executor is gone")?;
        match report.report {
            RankReport::Started { .. } => times.push(at.duration_since(launched_at)),
            _ => waiting -= 1,
        }
    }
    Ok(times)
}

#[tokio::main(worker_threads = 2)]
async fn run(ranks: u64, at_once: u64) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (tell, mut reports) = mpsc::unbounded_channel();
    let control = Arc::new(ReportChannel(tell));
    let executor = Executor::open(settings(folder.path())?, control, Arc::new(SystemClock))?;
    executor.resume()?;
    let mut times = Vec::new();
    for number in 0..ranks {
        times.extend(round(&executor, &mut reports, number..number + 1).await?);
    }
    print(
        "one at a time, from launch to the report that the rank runs",
        times,
    );
    let many = round(&executor, &mut reports, ranks..ranks + at_once).await?;
    print(
        "all at once, from launch to the report that the rank runs",
        many,
    );
    executor.stop().await;
    Ok(())
}

fn main() -> anyhow::Result<()> {
    lattice_agent::child::run_if_child();
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let ranks = numbers.next().transpose()?.unwrap_or(50);
    let at_once = numbers.next().transpose()?.unwrap_or(24);
    run(ranks, at_once)
}
