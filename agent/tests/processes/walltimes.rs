//! Walltime changes of running ranks.

use crate::support::{Bench, key, pid_in, runs, shell, terminate};
use lattice_agent::attempt::{AttemptDir, WalltimeRecord};
use lattice_agent::executor::Executor;
use lattice_agent_rpc::{AttemptKey, SetWalltime, WalltimeRefused, WalltimeStatus};
use lattice_mesh::{Clock, SystemClock};
use lattice_quorum_types::allocation::RankExit;

/// Longer than any step takes.
const LONG_MS: u64 = 600_000;
/// Walltimes, in milliseconds, of jobs that must still run when they receive a change. If the machine was too busy for
/// one, the next is tried.
const WALLTIMES: [u64; 3] = [1_500, 6_000, 20_000];

fn set(key: AttemptKey, number: u32, walltime_ms: u64) -> SetWalltime {
    SetWalltime {
        key,
        epoch: 1,
        number,
        walltime_ms,
    }
}

fn in_force(number: u32, walltime_ms: u64) -> WalltimeStatus {
    WalltimeStatus::InForce {
        number,
        walltime_ms,
    }
}

/// Starts a job that ends by itself with code 7, about one second after its walltime.
async fn outlasting(bench: &Bench, executor: &Executor, key: AttemptKey, walltime_ms: u64) {
    let script = format!("sleep {}.5; exit 7", walltime_ms / 1000 + 1);
    let mut wanted = shell(key, &script);
    wanted.walltime_ms = Some(walltime_ms);
    executor.launch(wanted).await.unwrap();
    bench.ledger.started(key).await;
}

#[tokio::test]
async fn a_job_runs_past_the_walltime_it_began_with() {
    let bench = Bench::new();
    let executor = bench.open();
    for (n, walltime_ms) in (1..).zip(WALLTIMES) {
        let key = key(n);
        outlasting(&bench, &executor, key, walltime_ms).await;
        let answer = executor.set_walltime(set(key, 1, LONG_MS)).await.unwrap();
        let exit = bench.ledger.end(key).await;
        if exit == RankExit::Walltime && n < 3 {
            continue;
        }
        assert_eq!(exit, RankExit::Exited { code: 7 });
        assert_eq!(answer, in_force(1, LONG_MS));
        break;
    }
    executor.stop().await;
}

#[tokio::test]
async fn changed_walltime_survives_agent_restart() {
    let bench = Bench::new();
    for (n, walltime_ms) in (1..).step_by(2).zip(WALLTIMES) {
        let (sent, noted) = (key(n), key(n + 1));
        let first = bench.open();
        outlasting(&bench, &first, sent, walltime_ms).await;
        outlasting(&bench, &first, noted, walltime_ms).await;
        let answer = first.set_walltime(set(sent, 1, LONG_MS)).await.unwrap();
        first.stop().await;
        // State left by an agent that ends between its record and the signal.
        let record = WalltimeRecord {
            number: 1,
            walltime_ms: LONG_MS,
            taken_at: SystemClock.now(),
        };
        let dir = AttemptDir::at(bench.attempt_dir(noted));
        dir.write_walltime(&record).unwrap();
        let second = bench.open();
        let again = second.set_walltime(set(sent, 1, LONG_MS)).await.unwrap();
        let ends = [bench.ledger.end(sent).await, bench.ledger.end(noted).await];
        second.stop().await;
        if ends.contains(&RankExit::Walltime) && n < 5 {
            continue;
        }
        let own = || RankExit::Exited { code: 7 };
        assert_eq!(ends, [own(), own()]);
        assert_eq!([answer, again], [in_force(1, LONG_MS); 2]);
        break;
    }
}

#[tokio::test]
async fn a_shorter_walltime_ends_a_job_and_an_earlier_change_is_not_taken() {
    let bench = Bench::new();
    let executor = bench.open();
    let pid_file = bench.file("pid");
    let script = format!("echo $$ > {}; sleep 1000", pid_file.display());
    executor.launch(shell(key(1), &script)).await.unwrap();
    let pid = pid_in(&pid_file).await;
    let ask = |wanted| executor.set_walltime(wanted);
    assert_eq!(ask(set(key(1), 2, LONG_MS)).await, Ok(in_force(2, LONG_MS)));
    assert_eq!(ask(set(key(1), 1, 1)).await, Ok(in_force(2, LONG_MS)));
    assert_eq!(ask(set(key(1), 2, 1)).await, Ok(in_force(2, LONG_MS)));
    assert!(runs(pid));
    assert_eq!(ask(set(key(1), 3, 1)).await, Ok(in_force(3, 1)));
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Walltime);
    assert!(!runs(pid));
    executor.stop().await;
}

#[tokio::test]
async fn walltime_change_after_end_is_refused() {
    let bench = Bench::new();
    let executor = bench.open();
    executor.launch(shell(key(1), "exit 3")).await.unwrap();
    bench.ledger.end(key(1)).await;
    for number in [1, 2] {
        let answer = executor.set_walltime(set(key(number), 1, LONG_MS)).await;
        assert_eq!(answer, Ok(WalltimeStatus::Gone));
        let path = bench.attempt_dir(key(number)).join("walltime.json");
        assert!(!path.exists());
    }
    executor.stop().await;
}

#[tokio::test]
async fn refuses_the_walltime_of_a_stale_dispatcher() {
    let bench = Bench::new();
    let executor = bench.open();
    let mut wanted = shell(key(1), "sleep 1000");
    wanted.epoch = 5;
    executor.launch(wanted).await.unwrap();
    bench.ledger.started(key(1)).await;
    let stale = WalltimeRefused::StaleEpoch {
        given: 1,
        current: 5,
    };
    let wanted = SetWalltime {
        epoch: 1,
        ..set(key(1), 1, LONG_MS)
    };
    assert_eq!(executor.set_walltime(wanted).await, Err(stale));
    let mut end = terminate(key(1));
    end.epoch = 5;
    executor.terminate(end).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    executor.stop().await;
}
