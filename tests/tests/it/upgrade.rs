//! Agent upgrade. Agents are upgraded in place under running jobs: their program file is replaced, and they are
//! restarted. All jobs end with their true exit status.

use futures::future::join_all;
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    Programs,
    monitor::Monitor,
    script::{Behaviour, Script},
    site::{Plan, Site},
    wait::until,
};
use rustix::process::Signal;
use std::{fs, path::Path, time::Instant};

/// Number of nodes, with one job each.
const JOBS: u32 = 50;

/// Installs a copy of the agent's program by an atomic rename, so that a later copy can replace it.
fn install(program: &str, path: &Path) {
    let new = path.with_extension("new");
    fs::copy(program, &new).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Script that exits with its own code.
fn script(job: &Script, code: u32) -> String {
    let text = job.text(Behaviour::Plain);
    text.replace("exit 7", &format!("exit {code}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_upgraded_in_place_under_fifty_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let installed = folder.path().join("lattice-agent");
    let built = lattice_tests::programs!();
    install(built.agent, &installed);
    let programs = Programs {
        agent: installed.to_str().unwrap().to_owned().leak(),
        ..built
    };
    let names: Vec<String> = (1..=JOBS).map(|n| format!("u{n:02}")).collect();
    let mut site = Site::found(programs, &Plan::with_agents(names.clone())).await;
    let monitor = Monitor::start(site.observer(), site.jobs());
    let jobs = start(&site, &names).await;

    let begun = Instant::now();
    install(built.agent, &installed);
    site.agents
        .values()
        .for_each(|agent| agent.signal(Signal::TERM));
    for agent in site.agents.values_mut() {
        assert!(agent.ended().success());
    }
    let (ends_meanwhile, ends_later) = jobs.split_at(jobs.len() / 2);
    ends_meanwhile.iter().for_each(|job| job.script.may_exit());
    let over = || ends_meanwhile.iter().all(|job| !site.job_lives(job.id));
    until("half of the jobs end while no agent is there", over).await;
    assert!(ends_later.iter().all(|job| site.job_lives(job.id)));
    for agent in site.agents.values_mut() {
        agent.start();
    }
    ends_later.iter().for_each(|job| job.script.may_exit());
    join_all(jobs.iter().map(|job| job.ends(&site))).await;
    site.are_ready(&names).await;
    let seen = monitor.seen().await;
    println!(
        "{JOBS} of {JOBS} jobs ended with their true exit status, {:.1} s after the upgrade began; \
         {} looks at processes and holders, {} violations",
        begun.elapsed().as_secs_f64(),
        seen.looks,
        seen.violations.len()
    );
    assert_eq!(seen.violations, Default::default());
    site.leaves_nothing().await;
}

struct Job {
    id: AllocationId,
    code: u32,
    script: Script,
}

impl Job {
    async fn ends(&self, site: &Site) {
        let view = site.reaches(self.id, &["completed", "failed"]).await;
        let exit = format!("exit code {}", self.code);
        assert_eq!(view.ranks[0].exit.as_ref(), Some(&exit));
        assert_eq!(self.script.effects(), [format!("{}.1.0", self.id)]);
    }
}

/// Starts one job on each node.
async fn start(site: &Site, names: &[String]) -> Vec<Job> {
    let start = names.iter().zip(1..).map(|(node, code)| async move {
        let job = Script::in_folder(site.path(&format!("job-{code}")));
        let id = site.submit(node, &script(&job, code)).await;
        site.reaches(id, &["running"]).await;
        Job {
            id,
            code,
            script: job,
        }
    });
    join_all(start).await
}
