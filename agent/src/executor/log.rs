//! Log streaming: captured output of a rank, sent in chunks.

use super::rank::Rank;
use crate::attempt::{AttemptDir, OutputReader};
use bytes::Bytes;
use lattice_agent_rpc::ReadLog;
use lattice_mesh::{HandlerFailed, ItemSender};
use std::time::{Duration, SystemTime};

/// Poll interval of an output that may grow: not noticeable at a terminal.
const POLL: Duration = Duration::from_millis(100);

type Item = Result<Bytes, String>;

/// Sends the output from the offset on and, with `follow`, further output until the rank ends. `keep` is the retention
/// after control has the end.
pub(super) async fn send(
    dir: &AttemptDir,
    rank: Option<&Rank>,
    request: &ReadLog,
    keep: Duration,
    to: &ItemSender<Item>,
) -> Result<(), HandlerFailed> {
    if let Some(reason) = missing_reason(dir, keep, SystemTime::now()) {
        return to.send(&Err(reason)).await;
    }
    let mut reader = OutputReader::new(dir.output(request.stream), request.offset);
    loop {
        // Checked before the read, so that the read includes all output up to the end.
        let is_last = !request.follow || rank.is_none_or(Rank::has_ended);
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let piece = reader.next_piece();
                (reader, piece)
            });
            let piece = match read.await {
                Ok((back, piece)) => {
                    reader = back;
                    piece
                }
                Err(error) => return to.send(&Err(error.to_string())).await,
            };
            match piece {
                Ok(Some(piece)) => to.send(&Ok(piece)).await?,
                Ok(None) => break,
                Err(error) => return to.send(&Err(error.to_string())).await,
            }
        }
        if is_last {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = to.closed() => return Ok(()),
        }
    }
}

/// Reason that this node has no output of the attempt: unknown attempt, or output older than the retention. Output that
/// is empty has none.
fn missing_reason(dir: &AttemptDir, keep: Duration, now: SystemTime) -> Option<String> {
    let hours = keep.as_secs().div_ceil(3600);
    let time = match hours % 24 {
        0 => format!("{} d", hours / 24),
        _ => format!("{hours} h"),
    };
    let retention = format!("output is kept for {time} after the end of an allocation");
    if !dir.exists() {
        return Some(format!("it has no record of this attempt; {retention}"));
    }
    let ended_at = dir.acknowledged_at()?;
    let is_old = now.duration_since(ended_at).is_ok_and(|age| age >= keep);
    is_old.then(|| format!("the output was removed: {retention}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn output_beyond_its_retention_is_reported_as_removed() {
        let folder = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(folder.path().join("12.1"));
        let day = Duration::from_secs(86_400);
        let now = SystemTime::now();
        let reason = |keep: Duration, now| missing_reason(&dir, keep, now);
        assert_eq!(
            reason(7 * day, now).unwrap(),
            "it has no record of this attempt; output is kept for 7 d after the end of an allocation"
        );
        dir.make().unwrap();
        assert_eq!(reason(day, now + 30 * day), None, "control has no end yet");
        dir.acknowledge().unwrap();
        assert_eq!(reason(7 * day, now + 6 * day), None);
        assert_eq!(
            reason(7 * day, now + 8 * day).unwrap(),
            "the output was removed: output is kept for 7 d after the end of an allocation"
        );
        let hours = reason(day / 4, now + day).unwrap();
        assert!(hours.contains("for 6 h after"), "{hours}");
    }
}
