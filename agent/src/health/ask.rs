//! What control may ask and say of a node's health.

use super::{LIVE, NodeHealth};
use bytes::Bytes;
use lattice_hwprobe::health::Report;
use lattice_quorum_types::{text::truncated, wire::GetHealth};
use serde::Serialize;

/// A reason's evidence beyond this is cut.
const MAX_EVIDENCE_BYTES: usize = 300;
/// The mildest reasons of a longer answer are left out.
const MOST_BYTES: usize = 256 << 10;
/// Longest name of somebody who clears that is kept.
const MOST_NAME_CHARS: usize = 128;

/// `lattice-hwprobe`'s `Report`, with what is known around it.
#[derive(Debug, Serialize)]
struct Document {
    #[serde(flatten)]
    report: Report,
    /// Whether anything is looked at. Without it there are no reasons, and that says nothing.
    enabled: bool,
    /// Mildest reasons that are not here, for length.
    left_out: usize,
    /// When the node was last read, Unix milliseconds; none before the first read.
    read_at_ms: Option<u64>,
    /// How long ago that is, by a clock that is never set. Of this run of the agent, so of this
    /// boot.
    read_age_ms: Option<u64>,
    /// Reasons of the probes that gave nothing.
    probes: Vec<String>,
    /// Without what the checks see nothing: those of them that they need, and the probes that do not
    /// know what there is. That nothing is found then does not mean that nothing is wrong.
    blind: Vec<String>,
    /// Codes of what is worth knowing and no fault.
    notes: Vec<&'static str>,
    /// Whether what is remembered cannot be written.
    unwritten: bool,
    /// Reasons that this call ended.
    cleared: usize,
}

impl NodeHealth {
    /// Answers; clears first, so that what is still wrong is there again after a pass.
    pub(crate) async fn ask(&self, wanted: GetHealth) -> Result<Bytes, String> {
        if !self.0.settings.enabled {
            return match wanted.clear {
                None => self.document(0),
                Some(_) => Err(
                    "health checks are switched off on this node (health.disabled): there is \
                     nothing to clear"
                        .to_owned(),
                ),
            };
        }
        let cleared = match wanted.clear {
            None => 0,
            Some(clear) => {
                let by = wanted.by.unwrap_or_default();
                let by: String = by.chars().filter(|c| !c.is_control()).collect();
                let by: String = by.trim().chars().take(MOST_NAME_CHARS).collect();
                if by.is_empty() {
                    return Err("a reason is cleared by somebody: say by whom".to_owned());
                }
                let (code, entity) = (clear.code, clear.entity);
                let at_ms = self.0.around.clock.now().0;
                let what = (code.as_str(), entity.as_deref());
                let cleared = self.change(|state| state.clear(at_ms, &by, what));
                tracing::warn!(by, code, entity, cleared, "reasons were cleared");
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
            let said = self.0.said.borrow();
            let blind = said.blind_for(&LIVE);
            (
                said.probe_reasons(&[]),
                blind,
                said.notes.clone(),
                said.disk,
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
            if json.len() <= MOST_BYTES || document.report.reasons.pop().is_none() {
                return Ok(json.into());
            }
            document.left_out += 1;
        }
    }
}
