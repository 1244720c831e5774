//! Full log disk: daemons continue when their log and standard output cannot be written.

use lattice_tests::{
    daemon::Daemon,
    site::{Plan, Site},
};
use std::{fs, os::unix::fs::symlink};

/// Restarts the daemon with its log on a full disk.
fn without_a_log(daemon: &mut Daemon) {
    daemon.kill();
    let log = daemon.log_file();
    fs::remove_file(&log).unwrap();
    symlink("/dev/full", &log).unwrap();
    daemon.set_env("LATTICE_LOG", "debug");
    daemon.start();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_takes_nothing_stops_no_daemon() {
    let mut site = Site::found(lattice_tests::programs!(), &Plan::with_agents(["n1"])).await;
    for daemon in site.quorum.iter_mut().chain(&mut site.controls) {
        without_a_log(daemon);
    }
    site.is_up().await;
    without_a_log(site.agent("n1"));
    site.are_ready(&["n1".to_owned()]).await;
    let id = site.submit("n1", "exit 7").await;
    let ended = site.reaches(id, &["failed", "completed"]).await;
    assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
    let agents = site.agents.values_mut();
    for daemon in agents.chain(&mut site.quorum).chain(&mut site.controls) {
        assert!(daemon.is_running(), "{} is gone", daemon.name());
    }
}
