//! Reports to control, repeated until control acknowledges them.

use crate::executor::Shared;
use crate::executor::rank::Rank;
use lattice_agent_rpc::{Report, ReportAnswer};
use lattice_quorum_types::command::RankReport;
use std::sync::Arc;
use std::time::Duration;

/// First pause after a report that was not accepted; each further pause is twice as long.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Longest pause: upper bound for the delay of an end after control is reachable again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Reports every change of `rank` until control acknowledges the end, then removes the attempt from memory.
pub(in crate::executor) async fn report_until_acknowledged(shared: &Shared, rank: &Arc<Rank>) {
    let mut changes = rank.subscribe();
    let mut last_report: Option<RankReport> = None;
    let mut pause = MIN_RETRY_DELAY;
    loop {
        let news = changes
            .wait_for(|now| now.is_some() && *now != last_report)
            .await;
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
                    tracing::info!(attempt = %rank, %reason, "control superseded the attempt");
                }
                if matches!(report, RankReport::Ended { .. }) {
                    return forget(shared, rank).await;
                }
                last_report = Some(report);
                pause = MIN_RETRY_DELAY;
            }
            Err(error) => {
                tracing::debug!(attempt = %rank, %error, "control did not accept a report");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            }
        }
    }
}

/// Records that control has the end. If the write fails, the next restart causes one repeated report.
async fn forget(shared: &Shared, rank: &Arc<Rank>) {
    let noted = {
        let rank = rank.clone();
        tokio::task::spawn_blocking(move || rank.dir().acknowledge()).await
    };
    if let Ok(Err(error)) = noted {
        let error = crate::with_causes(&error);
        tracing::warn!(
            attempt = %rank,
            %error,
            "acknowledged end of an attempt could not be recorded"
        );
    }
    shared.known().remove(&rank.key());
}
