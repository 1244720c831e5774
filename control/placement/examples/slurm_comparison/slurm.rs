//! Slurm controller with simulated nodes.

use crate::{Job, Row};
use anyhow::{bail, ensure};
use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Select plugin of Slurm.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Select {
    /// `select/cons_tres`, the most common one.
    Tres,
    /// `select/linear`, which allocates whole nodes only, as Lattice does.
    Linear,
}

/// Depth of a backfill cycle in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Depth {
    /// Defaults of Slurm.
    Default,
    /// Every job, two weeks ahead, for at most an hour per cycle.
    All,
}

const NODES_PER_LEAF: u32 = 125;

pub(crate) fn version() -> anyhow::Result<String> {
    let output = Command::new("slurmctld").arg("-V").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Controller process, killed on drop.
struct Controller {
    child: Child,
    conf: PathBuf,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Controller {
    fn start(folder: &Path, nodes: u32, select: Select, depth: Depth) -> anyhow::Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder.join("state"))?;
        let conf = folder.join("slurm.conf");
        fs::write(&conf, configuration(folder, nodes, select, depth)?)?;
        fs::write(folder.join("topology.conf"), topology(nodes))?;
        let log = fs::File::create(folder.join("output"))?;
        let child = Command::new("slurmctld")
            .arg("-D")
            .arg("-f")
            .arg(&conf)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let controller = Self { child, conf };
        let begun = Instant::now();
        while !controller.ask("scontrol", &["ping"])?.contains("is UP") {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "slurmctld does not come up; see {}",
                folder.join("slurmctld.log").display()
            );
            sleep(Duration::from_millis(100));
        }
        Ok(controller)
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", &self.conf);
        command
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.command(program, arguments).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn submit(&self, jobs: &[Job]) -> anyhow::Result<()> {
        for job in jobs {
            let (nodes, minutes) = (job.nodes.to_string(), job.minutes.to_string());
            let arguments = [
                "-N",
                &nodes,
                "-t",
                &minutes,
                "-o",
                "/dev/null",
                "--wrap",
                "true",
            ];
            let mut sbatch = self.command("sbatch", &arguments);
            let status = sbatch.stdout(Stdio::null()).status()?;
            ensure!(status.success(), "sbatch failed for {job:?}");
        }
        Ok(())
    }
}

fn configuration(
    folder: &Path,
    nodes: u32,
    select: Select,
    depth: Depth,
) -> anyhow::Result<String> {
    // The port is free at this time, and no other process of the benchmark takes ports.
    let port = || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let folder = folder.display();
    let mut text = format!(
        "ClusterName=comparison\nSlurmctldHost=localhost(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\n\
         SlurmUser=root\nSlurmdUser=root\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool\n\
         SlurmctldPidFile={folder}/slurmctld.pid\nSlurmctldLogFile={folder}/slurmctld.log\n\
         ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
         SchedulerType=sched/backfill\nPriorityType=priority/basic\nSuspendProgram=/bin/true\n\
         ResumeProgram=/bin/true\nSuspendTime=86400\nResumeTimeout=7200\nResumeRate=0\n\
         TopologyPlugin=topology/tree\nMaxJobCount=200000\n"
    );
    writeln!(
        text,
        "SlurmctldPort={}\nSlurmdPort={}",
        port()?.port(),
        port()?.port()
    )?;
    text += match select {
        Select::Tres => "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n",
        Select::Linear => "SelectType=select/linear\n",
    };
    if let Depth::All = depth {
        text += "SchedulerParameters=bf_max_job_test=1000000,bf_window=20160,bf_resolution=60,\
                 bf_interval=5,bf_max_time=3600,bf_yield_interval=3600000000,default_queue_depth=1000000\n";
    }
    writeln!(
        text,
        "NodeName=n[00001-{nodes:05}] CPUs=1 RealMemory=1000 State=CLOUD\n\
         PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=DOWN OverSubscribe=EXCLUSIVE"
    )?;
    Ok(text)
}

fn topology(nodes: u32) -> String {
    let mut text = String::new();
    let leaves = nodes.div_ceil(NODES_PER_LEAF);
    for leaf in 0..leaves {
        let (first, last) = (
            leaf * NODES_PER_LEAF + 1,
            ((leaf + 1) * NODES_PER_LEAF).min(nodes),
        );
        let _ = writeln!(text, "SwitchName=g{leaf} Nodes=n[{first:05}-{last:05}]");
    }
    let _ = writeln!(text, "SwitchName=top Switches=g[0-{}]", leaves - 1);
    text
}

/// Backfill statistics from `sdiag`.
#[derive(Debug, Default)]
struct Backfill {
    cycles: u64,
    last_us: u64,
    tried: u64,
}

fn backfill(text: &str) -> Backfill {
    let part = text.split("Backfilling stats").nth(1).unwrap_or_default();
    let number = |name: &str| {
        let mut lines = part.lines().map(str::trim);
        let line = lines.find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    Backfill {
        cycles: number("Total cycles:"),
        last_us: number("Last cycle:"),
        tried: number("Last depth cycle (try sched):"),
    }
}

/// Fills the queue while the partition is down, sets the partition to UP, and measures the first backfill cycle.
pub(crate) fn row(
    folder: &Path,
    nodes: u32,
    jobs: &[Job],
    select: Select,
    depth: Depth,
    patience_s: u64,
) -> anyhow::Result<Row> {
    let controller = Controller::start(folder, nodes, select, depth)?;
    controller.submit(jobs)?;
    controller.ask("scontrol", &["update", "PartitionName=p", "State=UP"])?;
    let begun = Instant::now();
    let found = loop {
        let found = backfill(&controller.ask("sdiag", &[])?);
        if found.cycles > 0 {
            break found;
        }
        if begun.elapsed() > Duration::from_secs(patience_s) {
            bail!("no backfill cycle of Slurm ended in {patience_s} s");
        }
        sleep(Duration::from_millis(200));
    };
    let states = controller.ask("squeue", &["-h", "-t", "CF,R", "-o", "%D"])?;
    let started: Vec<u64> = states
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    let select = match select {
        Select::Tres => "cons_tres",
        Select::Linear => "linear",
    };
    let depth = match depth {
        Depth::Default => "default depth",
        Depth::All => "every job",
    };
    Ok(Row {
        nodes,
        scheduler: format!("Slurm, select/{select}, {depth}"),
        cycle_ms: found.last_us as f64 / 1e3,
        jobs_examined: found.tried,
        started: started.len() as u64,
        nodes_busy: started.iter().sum(),
    })
}
