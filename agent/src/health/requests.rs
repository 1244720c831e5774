//! Health requests of control: report and clear.

use super::{LIVE, NodeHealth};
use bytes::Bytes;
use lattice_agent_rpc::GetHealth;
use lattice_conformance::health::HealthReport;
use lattice_quorum_types::text::truncated;
use serde::Serialize;

/// Evidence of a reason is truncated to this length, bytes.
const MAX_EVIDENCE_BYTES: usize = 300;
/// Size limit of the answer, bytes. The mildest reasons of a longer answer are omitted.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Longest stored name of an operator that clears a reason, characters.
const MAX_NAME_CHARS: usize = 128;

/// Answer to a health request: a [`HealthReport`] with context.
#[derive(Debug, Serialize)]
struct Document {
    #[serde(flatten)]
    report: HealthReport,
    /// Whether health checks run. Without checks there are no reasons, which does not mean that the node is healthy.
    enabled: bool,
    /// Number of mildest reasons that are omitted because of the size limit.
    left_out: usize,
    /// Time of the last read, Unix milliseconds; `None` before the first read.
    read_at_ms: Option<u64>,
    /// Age of the last read, milliseconds, by a monotonic clock; covers this run of the agent only.
    read_age_ms: Option<u64>,
    /// Reasons of the probes that failed.
    probes: Vec<String>,
    /// Failed probes that checks depend on, and probes with an unknown device count. While this list is not empty, the
    /// absence of reasons does not mean that the node is healthy.
    blind: Vec<String>,
    /// Informational codes that are not faults.
    notes: Vec<&'static str>,
    /// Whether the stored state cannot be written.
    unwritten: bool,
    /// Number of reasons that this call cleared.
    cleared: usize,
}

impl NodeHealth {
    /// Answers a health request. A clear runs first, so that a fault that persists is found again by a requested pass.
    pub(crate) async fn answer_request(&self, wanted: GetHealth) -> Result<Bytes, String> {
        if !self.0.settings.enabled {
            return match wanted.clear {
                None => self.document(0),
                Some(_) => Err(
                    "health checks are disabled on this node (health.disabled); there is nothing \
                     to clear"
                        .to_owned(),
                ),
            };
        }
        let cleared = match wanted.clear {
            None => 0,
            Some(clear) => {
                let by = wanted.by.unwrap_or_default();
                let by: String = by.chars().filter(|c| !c.is_control()).collect();
                let by: String = by.trim().chars().take(MAX_NAME_CHARS).collect();
                if by.is_empty() {
                    return Err("to clear a reason, `by` must name the operator".to_owned());
                }
                let (code, entity) = (clear.code, clear.entity);
                let at_ms = self.0.dependencies.clock.now().0;
                let what = (code.as_str(), entity.as_deref());
                let cleared = self.change(|state| state.clear(at_ms, &by, what));
                tracing::warn!(by, code, entity, cleared, "health reasons cleared");
                cleared
            }
        };
        if wanted.fresh {
            self.fresh().await?;
        }
        self.document(cleared)
    }

    fn document(&self, cleared: usize) -> Result<Bytes, String> {
        let (mut report, read_at_ms) = {
            let state = self.state();
            (state.report(), state.read_at_ms())
        };
        for reason in &mut report.reasons {
            let end = truncated(&reason.evidence, MAX_EVIDENCE_BYTES).len();
            reason.evidence.truncate(end);
        }
        let read_age = self.read_at().map(|at| at.elapsed().as_millis());
        let (probes, blind, notes, unwritten) = {
            let said = self.0.summary.borrow();
            let blind = said.probe_failures(&LIVE);
            (
                said.probe_reasons(&[]),
                blind,
                said.notes.clone(),
                said.is_unsaved,
            )
        };
        let mut document = Document {
            report,
            enabled: self.0.settings.enabled,
            left_out: 0,
            read_at_ms,
            read_age_ms: read_age.and_then(|age| u64::try_from(age).ok()),
            probes,
            blind,
            notes,
            unwritten,
            cleared,
        };
        loop {
            let json = serde_json::to_vec(&document).map_err(|error| error.to_string())?;
            if json.len() <= MAX_ANSWER_BYTES || document.report.reasons.pop().is_none() {
                return Ok(json.into());
            }
            document.left_out += 1;
        }
    }
}
