//! Agent upgrade in place: the program is replaced and the process restarted under fifty running jobs, orderly and by
//! SIGKILL.

use crate::cluster::Cluster;
use crate::daemon::{Daemon, configure};
use crate::support;
use crate::support::{PATIENCE, eventually, install, key, program, recorded_pid, shell};
use lattice_agent_rpc::{ListAttempts, Ping};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const JOBS: u64 = 50;
/// The first of the jobs end while no agent runs.
const END_MEANWHILE: u64 = 10;
const DEADLINE: Duration = Duration::from_secs(20);

/// Replaces the program at `path` with another build: running processes keep the old file.
fn replace(path: &Path) {
    let (build, next) = (path.with_extension("build"), path.with_extension("next"));
    std::fs::copy(program(), &build).unwrap();
    let mut file = std::fs::File::options().append(true).open(&build).unwrap();
    file.write_all(b"another build\n").unwrap();
    drop(file);
    install(&build, &next);
    std::fs::rename(&next, path).unwrap();
}

fn code(number: u64) -> i32 {
    i32::try_from(100 + number).unwrap()
}

async fn upgraded_by(signal: Signal, how: &str) {
    let cluster = Cluster::start().await;
    let folder = cluster.folder.path();
    let (data, binary) = (folder.join("n1"), folder.join("lattice-agent"));
    let config = configure(&cluster, &data, "");
    install(&program(), &binary);
    let mut first = Daemon::start(&binary, &config);
    let (ran, early, late) = (
        folder.join("ran"),
        folder.join("early"),
        folder.join("late"),
    );
    std::fs::write(&ran, "").unwrap();
    std::fs::set_permissions(&ran, std::fs::Permissions::from_mode(0o666)).unwrap();
    let peer = first.peer(&cluster);
    let launched_at = Instant::now();
    for number in 1..=JOBS {
        let go = if number <= END_MEANWHILE {
            &early
        } else {
            &late
        };
        let script = format!(
            "echo {number} >> {}; until [ -e {} ]; do sleep 0.3; done; exit {}",
            ran.display(),
            go.display(),
            code(number)
        );
        peer.call(&shell(key(number), &script), DEADLINE)
            .await
            .unwrap()
            .unwrap();
    }
    for number in 1..=JOBS {
        cluster.ledger.started(key(number)).await;
    }
    let launching = launched_at.elapsed();
    let attempt = |number| data.join(format!("executor/attempts/{number}.1"));
    let supervisors: Vec<i32> = (1..=JOBS)
        .map(|number| recorded_pid(&attempt(number), "supervisor.json"))
        .collect();

    let down_at = Instant::now();
    let old = first.inode();
    first.end(signal);
    replace(&binary);
    std::fs::write(&early, "").unwrap();
    eventually("some to end while no agent is there", || {
        let ended = (1..=END_MEANWHILE).all(|n| attempt(n).join("exit.json").exists());
        ended.then_some(())
    })
    .await;
    let running = supervisors
        .iter()
        .filter(|pid| support::runs(**pid))
        .count();
    let second = Daemon::start(&binary, &config);
    assert_ne!(second.inode(), old, "the new program runs");
    let peer = second.peer(&cluster);
    peer.call(&Ping, DEADLINE).await.unwrap();
    let down = down_at.elapsed();
    for number in 1..=END_MEANWHILE {
        let end = cluster.ledger.end(key(number)).await;
        assert_eq!(end, RankExit::Exited { code: code(number) });
    }
    let adopted = peer.call(&ListAttempts, DEADLINE).await.unwrap().len() as u64;
    assert!(adopted >= JOBS - END_MEANWHILE, "{adopted}");
    std::fs::write(&late, "").unwrap();
    for number in END_MEANWHILE + 1..=JOBS {
        let end = cluster.ledger.end(key(number)).await;
        assert_eq!(end, RankExit::Exited { code: code(number) });
    }
    let taken = async {
        while !peer.call(&ListAttempts, DEADLINE).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();

    let mut ends: BTreeMap<u64, u32> = BTreeMap::new();
    for report in cluster.ledger.all() {
        if matches!(report.report, RankReport::Ended { .. }) {
            *ends.entry(report.key.allocation.0).or_default() += 1;
        }
    }
    assert_eq!(ends.len() as u64, JOBS);
    assert!(
        ends.values().all(|times| *times == 1),
        "each end is told once: {ends:?}"
    );
    let mut started: Vec<u64> = std::fs::read_to_string(&ran)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    started.sort_unstable();
    assert_eq!(started, (1..=JOBS).collect::<Vec<_>>(), "each ran once");
    println!(
        "upgrade by {how}: {JOBS} jobs started in {launching:.1?}, {running} ran on while no agent \
         was there ({down:.1?}), {JOBS} ended with their own exit status, each told once"
    );
}

#[tokio::test]
async fn fifty_jobs_outlive_an_agent_that_is_replaced_in_order() {
    upgraded_by(Signal::TERM, "SIGTERM").await;
}

#[tokio::test]
async fn fifty_jobs_outlive_an_agent_that_is_killed_and_replaced() {
    upgraded_by(Signal::KILL, "SIGKILL").await;
}
