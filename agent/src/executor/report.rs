//! Telling control, again and again until it has it.

use super::Shared;
use super::rank::Rank;
use futures::future::BoxFuture;
use lattice_quorum_types::command::RankReport;
use lattice_quorum_types::wire::{Report, ReportAnswer};
use std::sync::Arc;
use std::time::Duration;

/// First wait after a report that was not taken; doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest wait: how late an end may be heard after control came back.
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Why control has not taken a report: a reason to tell it again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotReported {
    /// What happened.
    pub reason: String,
}

/// Who is told.
pub trait Control: Send + Sync + 'static {
    /// Tells it once, within a deadline of its own.
    fn report(&self, report: Report) -> BoxFuture<'_, Result<ReportAnswer, NotReported>>;
}

/// Tells every change of `rank` until its end is taken, then forgets the attempt.
pub(super) async fn tell(shared: &Shared, rank: &Arc<Rank>) {
    let mut changes = rank.subscribe();
    let mut told: Option<RankReport> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let news = changes.wait_for(|now| now.is_some() && *now != told).await;
        let Some(report) = news.ok().and_then(|now| now.clone()) else {
            return;
        };
        let message = Report {
            key: rank.key(),
            report: report.clone(),
        };
        match shared.control.report(message).await {
            Ok(answer) => {
                if let ReportAnswer::Superseded { reason } = answer {
                    tracing::info!(attempt = %rank, %reason, "control has moved on");
                }
                if matches!(report, RankReport::Ended { .. }) {
                    return forget(shared, rank).await;
                }
                told = Some(report);
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                tracing::debug!(attempt = %rank, %error, "control did not take a report");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
        }
    }
}

/// Notes that control has the end. A note that cannot be written costs a repeated report after
/// the next restart.
async fn forget(shared: &Shared, rank: &Arc<Rank>) {
    let noted = {
        let rank = rank.clone();
        tokio::task::spawn_blocking(move || rank.dir().acknowledge()).await
    };
    if let Ok(Err(error)) = noted {
        let error = crate::with_causes(&error);
        tracing::warn!(attempt = %rank, %error, "cannot note that control has the end");
    }
    shared.known().remove(&rank.key());
}
