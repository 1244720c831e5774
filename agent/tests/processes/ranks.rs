//! A single rank with real processes: execution, end and cleanup.

use crate::support::{Bench, Ledger, eventually, key, launch, pid_in, runs, shell, terminate};
use lattice_agent::attempt::{AttemptDir, OutputReader};
use lattice_agent_rpc::{Launch, LaunchRefused, LogStream, Report, ReportAnswer, left_out_line};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use lattice_quorum_types::origin::AttemptOrigin;
use lattice_quorum_types::progress::ArrayElement;
use lattice_quorum_types::spec::Workload;
use lattice_quorum_types::{AllocationId, ProjectPath};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_rank_ends_as_its_process_does() {
    let bench = Bench::new();
    let executor = bench.open();
    let cases = [
        (1, "exit 0", RankExit::Exited { code: 0 }),
        (2, "exit 1", RankExit::Exited { code: 1 }),
        (3, "exit 255", RankExit::Exited { code: 255 }),
        (4, "kill -9 $$", RankExit::Signaled { signal: 9 }),
        (5, "kill -SEGV $$", RankExit::Signaled { signal: 11 }),
    ];
    for (n, script, _) in &cases {
        executor.launch(shell(key(*n), script)).await.unwrap();
    }
    for (n, script, exit) in cases {
        assert_eq!(bench.ledger.end(key(n)).await, exit, "{script}");
    }
    executor.stop().await;
}

/// A restored quorum has no record of the attempt. Its node has until the end is acknowledged, also after a restart of the
/// agent.
#[tokio::test]
async fn origin_of_attempt_is_on_record() {
    let bench = Bench::new();
    let executor = bench.open();
    let element = ArrayElement {
        array: AllocationId(1),
        index: 7,
    };
    let wanted = Launch {
        name: Some("train".to_owned()),
        element: Some(element),
        ..shell(key(2), "sleep 600")
    };
    executor.launch(wanted).await.unwrap();
    let origin = AttemptOrigin {
        user: "alice".to_owned(),
        project: ProjectPath::new("atlas/web").unwrap(),
        name: Some("train".to_owned()),
        element: Some(element),
    };
    assert_eq!(executor.origin(key(2)).await, Some(origin.clone()));
    bench.ledger.started(key(2)).await;
    executor.stop().await;
    let second = bench.open();
    assert_eq!(second.origin(key(2)).await, Some(origin));
    assert_eq!(second.origin(key(3)).await, None);
    second.terminate(terminate(key(2))).await.unwrap();
    bench.ledger.end(key(2)).await;
    second.stop().await;
}

#[tokio::test]
async fn the_end_of_the_only_process_is_heard_at_once() {
    let bench = Bench::new();
    let executor = bench.open();
    // Without leftover processes, the grace for them (2 s) must not delay the end. The minimum over several runs
    // counts, because a busy machine may take that long at times.
    let mut quickest = Duration::MAX;
    for n in 1..=10 {
        let started_at = Instant::now();
        executor.launch(launch(key(n), &["true"])).await.unwrap();
        assert_eq!(bench.ledger.end(key(n)).await, RankExit::Exited { code: 0 });
        quickest = quickest.min(started_at.elapsed());
        if quickest < Duration::from_millis(1500) {
            break;
        }
    }
    assert!(quickest < Duration::from_millis(1500), "{quickest:?}");
    executor.stop().await;
}

#[tokio::test]
async fn failed_start_names_reason() {
    let bench = Bench::new();
    let executor = bench.open();
    let cases: [(u64, &[&str], &str); 3] = [
        (1, &["/no/such/program"], "/no/such/program: No such file"),
        (2, &["/etc/passwd"], "Permission denied"),
        (3, &[], "neither a program nor a script"),
    ];
    for (n, argv, _) in &cases {
        executor.launch(launch(key(*n), argv)).await.unwrap();
    }
    for (n, _, text) in cases {
        match bench.ledger.end(key(n)).await {
            RankExit::SpawnFailed { reason } => assert!(reason.contains(text), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    executor.stop().await;
}

#[tokio::test]
async fn rank_environment_lacks_agent_secrets() {
    let bench = Bench::new();
    let executor = bench.open();
    let mut wanted = launch(key(7), &["env"]);
    wanted.workload.env = BTreeMap::from([("COLOUR".to_owned(), "blue".to_owned())]);
    wanted.rank = 0;
    executor.launch(wanted).await.unwrap();
    bench.ledger.end(key(7)).await;
    let text = bench.stdout(key(7));
    let env: BTreeMap<&str, &str> = text.lines().filter_map(|l| l.split_once('=')).collect();
    assert_eq!(env["LATTICE_ALLOCATION_ID"], "7");
    assert_eq!(env["LATTICE_ATTEMPT"], "1");
    assert_eq!(env["LATTICE_NODELIST"], "n[1-2]");
    assert_eq!(env["LATTICE_NODE_RANK"], "0");
    assert_eq!(env["LATTICE_NNODES"], "2");
    assert_eq!(env["LATTICE_NODE"], "n1");
    assert_eq!(env["LATTICE_PROJECT"], "atlas/web");
    assert_eq!(env["LATTICE_USER"], "alice");
    assert_eq!(env["COLOUR"], "blue");
    let known = |name: &str| {
        name.starts_with("LATTICE_")
            || ["PATH", "HOME", "SHELL", "USER", "LOGNAME", "COLOUR", "PWD"].contains(&name)
    };
    let strange: Vec<_> = env.keys().filter(|name| !known(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    executor.stop().await;
}

#[tokio::test]
async fn a_script_runs_by_its_first_line_with_its_arguments() {
    let bench = Bench::new();
    let executor = bench.open();
    let mut wanted = launch(key(1), &["one", "two words"]);
    wanted.workload = Workload {
        script: Some("#!/bin/sh -u\nfor a in \"$@\"; do echo \"[$a]\"; done\numask; pwd\n".into()),
        working_dir: Some("/usr".to_owned()),
        ..wanted.workload
    };
    executor.launch(wanted).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 0 });
    assert_eq!(bench.stdout(key(1)), "[one]\n[two words]\n0022\n/usr\n");
    executor.stop().await;
}

/// Walltimes, in milliseconds, of jobs that must reach a state before their walltime ends. If the machine was too busy
/// for one, the next is tried.
const WALLTIMES: [u64; 3] = [400, 4_000, 20_000];

#[tokio::test]
async fn the_walltime_ends_a_rank_gently_first() {
    let bench = Bench::new();
    let executor = bench.open();
    let mut printed = String::new();
    for (n, walltime) in (1..).zip(WALLTIMES) {
        let mut wanted = shell(
            key(n),
            "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done",
        );
        wanted.walltime_ms = Some(walltime);
        let started_at = Instant::now();
        executor.launch(wanted).await.unwrap();
        assert_eq!(bench.ledger.end(key(n)).await, RankExit::Walltime);
        assert!(started_at.elapsed() >= Duration::from_millis(walltime));
        printed = bench.stdout(key(n));
        if printed.starts_with("ready") {
            break;
        }
    }
    assert_eq!(printed, "ready\nasked\n");
    executor.stop().await;
}

#[tokio::test]
async fn kills_after_grace_period() {
    let mut bench = Bench::new();
    bench.settings.grace = Duration::from_millis(300);
    let executor = bench.open();
    let pid_file = bench.file("pid");
    let script = format!(
        "trap '' TERM; echo $$ > {}; while :; do sleep 0.05; done",
        pid_file.display()
    );
    for (n, walltime) in (1..).zip(WALLTIMES) {
        let mut wanted = shell(key(n), &script);
        wanted.walltime_ms = Some(walltime);
        executor.launch(wanted).await.unwrap();
        assert_eq!(bench.ledger.end(key(n)).await, RankExit::Walltime);
        if std::fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n')) {
            break;
        }
    }
    assert!(!runs(pid_in(&pid_file).await));
    executor.stop().await;
}

/// Process in its own session, without a parent in the rank, that ignores SIGTERM.
const DAEMON: &str = "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > FILE; \
                      while :; do sleep 0.05; done' >/dev/null 2>&1 &) ; ";

#[tokio::test]
async fn termination_ends_the_whole_family_also_daemons() {
    let mut bench = Bench::new();
    bench.settings.grace = Duration::from_millis(300);
    let executor = bench.open();
    let daemon = bench.file("daemon");
    let script = DAEMON.replace("FILE", daemon.to_str().unwrap()) + "sleep 1000 & wait";
    executor.launch(shell(key(1), &script)).await.unwrap();
    let pid = pid_in(&daemon).await;
    bench.ledger.started(key(1)).await;
    assert!(runs(pid));
    let status = executor.terminate(terminate(key(1))).await.unwrap();
    assert!(matches!(status.report, Some(RankReport::Started { .. })));
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    assert!(!runs(pid), "the daemon {pid} still runs");
    executor.stop().await;
}

#[tokio::test]
async fn what_a_rank_leaves_behind_ends_with_it_and_its_exit_code_counts() {
    let mut bench = Bench::new();
    bench.settings.grace = Duration::from_millis(200);
    let executor = bench.open();
    let daemon = bench.file("daemon");
    let script = DAEMON.replace("FILE", daemon.to_str().unwrap())
        + &format!(
            "until [ -s {} ]; do sleep 0.01; done; exit 4",
            daemon.display()
        );
    executor.launch(shell(key(1), &script)).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 4 });
    assert!(!runs(pid_in(&daemon).await));
    executor.stop().await;
}

/// All that is kept of the standard output, as a reader receives it.
fn kept_stdout(bench: &Bench) -> String {
    let attempt = AttemptDir::at(bench.attempt_dir(key(1)));
    let mut reader = OutputReader::new(attempt.output(LogStream::Stdout), 0);
    let mut text = Vec::new();
    while let Some(piece) = reader.next_piece().unwrap() {
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn keeps_first_and_last_output_beyond_cap() {
    let mut bench = Bench::new();
    bench.settings.output_cap_bytes = 16_000;
    let executor = bench.open();
    let script = "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo last; echo done >&2";
    executor.launch(shell(key(1), script)).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 0 });
    let stdout = kept_stdout(&bench);
    let head = "first\n".to_owned() + &"x".repeat(8000 - 6);
    let rest = stdout.strip_prefix(&head).unwrap();
    let tail = rest
        .trim_start_matches(|c: char| c != ']')
        .trim_start_matches(']');
    let xs = tail
        .strip_prefix('\n')
        .unwrap()
        .strip_suffix("last\n")
        .unwrap();
    assert!(xs.chars().all(|c| c == 'x'), "{xs}");
    assert!((6990..=8000).contains(&xs.len()), "{}", xs.len());
    let left_out = 5_000_000 - (8000 - 6) - xs.len() as u64;
    assert_eq!(rest, format!("{}{xs}last\n", left_out_line(left_out)));
    let stderr = std::fs::read_to_string(bench.attempt_dir(key(1)).join("stderr")).unwrap();
    assert_eq!(stderr, "done\n");
    executor.stop().await;
}

/// The supervisor writes the end of the output while no agent runs, and the retention removes all parts.
#[tokio::test]
async fn segments_survive_restart_and_are_removed_with_output() {
    let mut bench = Bench::new();
    bench.settings.output_cap_bytes = 16_000;
    let first = bench.open();
    let go = bench.file("go");
    let script = format!(
        "until [ -e {} ]; do sleep 0.02; done; seq 100000; echo last",
        go.display()
    );
    first.launch(shell(key(1), &script)).await.unwrap();
    bench.ledger.started(key(1)).await;
    first.stop().await;
    std::fs::write(&go, "").unwrap();
    let second = bench.open();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 0 });
    let stdout = kept_stdout(&bench);
    assert!(stdout.starts_with("1\n2\n3\n"), "{stdout}");
    assert!(stdout.ends_with("99999\n100000\nlast\n"), "{stdout}");
    eventually("the end to be taken", || {
        second.list().is_empty().then_some(())
    })
    .await;
    second.stop().await;
    bench.settings.keep_output = Duration::ZERO;
    let third = bench.open();
    let attempt = bench.attempt_dir(key(1));
    eventually("all parts of the output to be removed", || {
        let mut files = std::fs::read_dir(&attempt).unwrap();
        let is_output = |file: std::io::Result<std::fs::DirEntry>| {
            let name = file.unwrap().file_name();
            name.to_str().unwrap().starts_with("std")
        };
        (!files.any(is_output)).then_some(())
    })
    .await;
    third.stop().await;
}

#[tokio::test]
async fn repeated_launch_returns_first_outcome() {
    let bench = Bench::new();
    let executor = bench.open();
    let runs_file = bench.file("runs");
    // The job ends after all launches are answered: a launch after the end causes one more report.
    let may_end = bench.file("may-end");
    let script = format!(
        "echo run >> {}; until [ -e {} ]; do sleep 0.02; done; exit 5",
        runs_file.display(),
        may_end.display()
    );
    let wanted = shell(key(1), &script);
    for _ in 0..5 {
        executor.launch(wanted.clone()).await.unwrap();
    }
    std::fs::write(&may_end, "").unwrap();
    bench.ledger.end(key(1)).await;
    eventually("the end to be taken", || {
        executor.list().is_empty().then_some(())
    })
    .await;
    let late = executor.launch(wanted).await.unwrap();
    let Some(RankReport::Ended { exit, .. }) = late.report else {
        panic!("{late:?}");
    };
    assert_eq!(exit, RankExit::Exited { code: 5 });
    // A launch after the end causes a second report of the end.
    let is_end = |report: &&Report| matches!(report.report, RankReport::Ended { .. });
    eventually("the end to be told again, and taken", || {
        let end_reports = bench.ledger.all().iter().filter(is_end).count();
        (end_reports == 2 && executor.list().is_empty()).then_some(())
    })
    .await;
    assert_eq!(std::fs::read_to_string(&runs_file).unwrap(), "run\n");
    executor.stop().await;
}

#[tokio::test]
async fn a_lower_epoch_is_refused_and_changes_nothing() {
    let bench = Bench::new();
    let executor = bench.open();
    let mut wanted = shell(key(1), "sleep 1000");
    wanted.epoch = 7;
    executor.launch(wanted).await.unwrap();
    bench.ledger.started(key(1)).await;
    let stale = LaunchRefused::StaleEpoch {
        given: 6,
        current: 7,
    };
    let mut old = shell(key(2), "true");
    old.epoch = 6;
    assert_eq!(executor.launch(old).await, Err(stale.clone()));
    let mut end = terminate(key(1));
    end.epoch = 6;
    assert_eq!(executor.terminate(end.clone()).await, Err(stale.clone()));
    assert_eq!(executor.running(), 1);
    assert!(!bench.attempt_dir(key(2)).exists());
    executor.stop().await;
    let again = bench.open();
    assert_eq!(again.terminate(end.clone()).await, Err(stale));
    end.epoch = 8;
    again.terminate(end).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    again.stop().await;
}

#[tokio::test]
async fn ending_what_was_never_seen_makes_a_late_launch_do_nothing() {
    let bench = Bench::new();
    let executor = bench.open();
    let status = executor.terminate(terminate(key(9))).await.unwrap();
    assert!(matches!(
        status.report,
        Some(RankReport::Ended {
            exit: RankExit::Stopped,
            ..
        })
    ));
    let file = bench.file("ran");
    let script = format!("touch {}", file.display());
    let late = executor.launch(shell(key(9), &script)).await.unwrap();
    assert_eq!(late.report, status.report);
    assert_eq!(bench.ledger.end(key(9)).await, RankExit::Stopped);
    executor.stop().await;
    let again = bench.open();
    let later = again.launch(shell(key(9), &script)).await.unwrap();
    assert_eq!(later.report, status.report);
    assert!(!file.exists());
    again.stop().await;
}

#[tokio::test]
async fn a_report_is_repeated_until_it_is_taken() {
    let refused = lattice_agent::executor::NotReported {
        reason: "no majority".to_owned(),
    };
    let ledger = Ledger::answering(move |_, before| match before {
        0..3 => Err(refused.clone()),
        _ => Ok(ReportAnswer::Committed),
    });
    let bench = Bench::reporting_to(ledger);
    let executor = bench.open();
    executor.launch(shell(key(1), "exit 2")).await.unwrap();
    eventually("the end to be taken", || {
        executor.list().is_empty().then_some(())
    })
    .await;
    let reports = bench.ledger.all();
    assert!(reports.len() >= 4, "{reports:?}");
    assert!(matches!(
        reports.last().unwrap().report,
        RankReport::Ended {
            exit: RankExit::Exited { code: 2 },
            ..
        }
    ));
    executor.stop().await;
    // After the acknowledgement, another agent has nothing to report.
    let report_count = bench.ledger.all().len();
    let again = bench.open();
    assert!(again.list().is_empty());
    again.stop().await;
    assert_eq!(bench.ledger.all().len(), report_count);
}

#[tokio::test]
async fn what_control_has_moved_on_from_is_forgotten_when_it_ends() {
    let ledger = Ledger::answering(|_, _| {
        Ok(ReportAnswer::Superseded {
            reason: "attempt 2 runs".to_owned(),
        })
    });
    let bench = Bench::reporting_to(ledger);
    let executor = bench.open();
    executor.launch(shell(key(1), "exit 0")).await.unwrap();
    bench.ledger.end(key(1)).await;
    eventually("it to be forgotten", || {
        executor.list().is_empty().then_some(())
    })
    .await;
    executor.stop().await;
}

#[tokio::test]
async fn what_was_assigned_under_another_boot_is_not_started_and_not_recorded() {
    let bench = Bench::new();
    let executor = bench.open();
    let mut wanted = shell(key(1), "exit 3");
    wanted.boot = Some("boot-0".to_owned());
    let refused = executor.launch(wanted.clone()).await.unwrap_err();
    let expected = LaunchRefused::OtherBoot {
        expected: "boot-0".to_owned(),
        current: "boot-1".to_owned(),
    };
    assert_eq!(refused, expected);
    assert!(!bench.attempt_dir(key(1)).exists());
    wanted.boot = Some("boot-1".to_owned());
    executor.launch(wanted.clone()).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 3 });
    // A repeated launch returns the result under any boot id.
    wanted.boot = Some("boot-0".to_owned());
    let late = executor.launch(wanted).await.unwrap();
    assert!(matches!(late.report, Some(RankReport::Ended { .. })));
    executor.stop().await;
}
