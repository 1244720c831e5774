//! Users of rank processes. Tests that need root are skipped with a note for other users.

use crate::support::{Bench, is_root, key, launch, open_to_others, shell};
use lattice_agent::executor::{Accounts, AgentUser, Ids};
use lattice_agent_rpc::LaunchRefused;
use lattice_quorum_types::allocation::RankExit;

fn skip_without_root() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
    }
    !is_root()
}

#[tokio::test]
async fn a_root_agent_runs_work_as_the_configured_user_without_any_privilege() {
    if skip_without_root() {
        return;
    }
    let bench = Bench::new();
    let executor = bench.open();
    let script = "id -u; id -g; id -G; grep -E 'Cap(Prm|Eff|Amb)|NoNewPrivs' /proc/self/status";
    executor.launch(shell(key(1), script)).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 0 });
    let text = bench.stdout(key(1));
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(lines[..3], [["65534"], ["65534"], ["65534"]]);
    for line in &lines[3..6] {
        assert_eq!(line[1], "0000000000000000", "{line:?}");
    }
    assert_eq!(lines[6], ["NoNewPrivs:", "1"]);
    executor.stop().await;
}

/// A job that requests no working directory starts in the home directory of its account, or not at all.
#[tokio::test]
async fn missing_home_directory_fails_job_unless_directory_is_given() {
    let mut bench = Bench::new();
    let uid = match bench.settings.run_as.fixed {
        Some(ids) => ids.uid,
        None => AgentUser::current().uid,
    };
    let (passwd, home) = (bench.file("passwd"), bench.file("home"));
    let account = format!("ada:x:{uid}:{uid}::{}:/bin/sh\n", home.display());
    std::fs::write(&passwd, account).unwrap();
    bench.settings.run_as.accounts = Accounts::from_file(passwd);
    bench.settings.working_dir = None;
    let executor = bench.open();
    executor.launch(shell(key(1), "pwd")).await.unwrap();
    let expected = format!(
        "home directory {} of ada: No such file or directory (os error 2); submit with --chdir, or have the home \
         directory created on this node",
        home.display()
    );
    let reason = RankExit::SpawnFailed { reason: expected };
    assert_eq!(bench.ledger.end(key(1)).await, reason);
    let mut elsewhere = shell(key(2), "pwd");
    elsewhere.workload.working_dir = Some("/usr".to_owned());
    executor.launch(elsewhere).await.unwrap();
    assert_eq!(bench.ledger.end(key(2)).await, RankExit::Exited { code: 0 });
    assert_eq!(bench.stdout(key(2)), "/usr\n");
    std::fs::create_dir(&home).unwrap();
    open_to_others(&home);
    executor.launch(shell(key(3), "pwd")).await.unwrap();
    assert_eq!(bench.ledger.end(key(3)).await, RankExit::Exited { code: 0 });
    let physical = std::fs::canonicalize(&home).unwrap();
    assert_eq!(bench.stdout(key(3)), format!("{}\n", physical.display()));
    executor.stop().await;
    // The site's own directory for jobs without one.
    bench.settings.working_dir = Some("/usr".into());
    let configured = bench.open();
    configured.launch(shell(key(4), "pwd")).await.unwrap();
    assert_eq!(bench.ledger.end(key(4)).await, RankExit::Exited { code: 0 });
    assert_eq!(bench.stdout(key(4)), "/usr\n");
    configured.stop().await;
}

#[tokio::test]
async fn script_is_readable_by_job_user_only() {
    if skip_without_root() {
        return;
    }
    let bench = Bench::new();
    let executor = bench.open();
    let mut wanted = launch(key(1), &[]);
    let folder = bench.settings.folder.display();
    wanted.workload.script = Some(format!(
        "#!/bin/sh\nid -u\nls {folder} && echo open\nexit 0\n"
    ));
    executor.launch(wanted).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 0 });
    assert_eq!(bench.stdout(key(1)), "65534\n");
    executor.stop().await;
}

#[tokio::test]
async fn a_job_of_another_user_can_open_its_output_by_name() {
    let bench = Bench::new();
    let executor = bench.open();
    let script = "echo one > /dev/stdout; echo two > /dev/stderr";
    executor.launch(shell(key(1), script)).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 0 });
    assert_eq!(bench.stdout(key(1)), "one\n");
    let errors = std::fs::read_to_string(bench.attempt_dir(key(1)).join("stderr")).unwrap();
    assert_eq!(errors, "two\n");
    executor.stop().await;
}

#[tokio::test]
async fn refuses_root_and_system_users() {
    let mut bench = Bench::new();
    bench.settings.run_as.agent = AgentUser { uid: 0, gid: 0 };
    for (n, uid, gid) in [
        (1, 0, 0),
        (2, 33, 33),
        (3, 1000, 0),
        (4, u32::MAX, 1000),
        (5, 1000, u32::MAX),
    ] {
        bench.settings.run_as.fixed = Some(Ids { uid, gid });
        let executor = bench.open();
        let refused = executor.launch(shell(key(n), "id -u")).await.unwrap_err();
        assert!(
            matches!(refused, LaunchRefused::UserNotAllowed { ref user, .. } if user == "alice"),
            "{refused}"
        );
        assert!(!bench.attempt_dir(key(n)).exists());
        executor.stop().await;
    }
}

#[tokio::test]
async fn an_agent_that_only_observes_runs_nothing() {
    let mut bench = Bench::new();
    bench.settings.enabled = false;
    let executor = bench.open();
    let refused = executor.launch(shell(key(1), "true")).await.unwrap_err();
    assert!(
        refused.to_string().contains("job execution is disabled"),
        "{refused}"
    );
    executor.stop().await;
}
