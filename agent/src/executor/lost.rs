//! Ends that no supervisor could write.

use super::Shared;
use super::rank::Rank;
use crate::attempt::{AttemptDir, ExitRecord};
use crate::supervisor::{left_of_attempt, signal_process};
use lattice_quorum_types::allocation::RankExit;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at processes that were killed.
const PAUSE: Duration = Duration::from_millis(20);
/// Until a full disk takes the end.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// The supervisor is gone and wrote no end. The job's first process went with it; all others are
/// killed here, and only when none is left is the rank said to be lost.
pub(super) async fn end(shared: &Shared, rank: &Arc<Rank>) {
    let mut killed = BTreeSet::new();
    loop {
        let dir = rank.dir().clone();
        match tokio::task::spawn_blocking(move || kill_left(&dir)).await {
            Ok(Ok(found)) if found.is_empty() => break,
            Ok(Ok(found)) => killed.extend(found),
            Ok(Err(error)) => tracing::error!(attempt = %rank, %error, "cannot list processes"),
            Err(error) => tracing::error!(attempt = %rank, %error, "cannot list processes"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    let evidence = match killed.len() {
        0 => "its supervisor was killed and no process of it is left".to_owned(),
        n => format!("its supervisor was killed; {n} processes of it were found and ended"),
    };
    write_end(shared, rank, RankExit::Lost { evidence }).await;
}

/// Kills what is left and says who that was.
fn kill_left(dir: &AttemptDir) -> Result<Vec<i32>, String> {
    let failed = |error: &dyn std::error::Error| crate::with_causes(error);
    let launch = dir.launch().map_err(|e| failed(&e))?;
    let started = dir.started().map_err(|e| failed(&e))?;
    let launch = launch.ok_or("the record of what was to run is missing")?;
    let left = left_of_attempt(&launch, started.as_ref()).map_err(|e| failed(&e))?;
    for process in &left {
        signal_process(process, Signal::KILL);
    }
    Ok(left.iter().map(|process| process.pid).collect())
}

/// Writes an end in the supervisor's place, however long the disk takes to have room for it.
pub(super) async fn write_end(shared: &Shared, rank: &Arc<Rank>, exit: RankExit) {
    let record = ExitRecord {
        at: shared.clock.now(),
        exit,
    };
    loop {
        let (dir, body) = (rank.dir().clone(), record.clone());
        let written = tokio::task::spawn_blocking(move || dir.write_exit(&body)).await;
        match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                let error = crate::with_causes(&error);
                tracing::error!(attempt = %rank, %error, "cannot write an end");
            }
            Err(error) => tracing::error!(attempt = %rank, %error, "cannot write an end"),
        }
        tokio::time::sleep(WRITE_PAUSE).await;
    }
}
