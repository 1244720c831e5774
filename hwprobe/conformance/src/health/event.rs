//! Evaluation of driver events by a health table.

use super::{Action, Severity, Table};
use crate::driver_events::EventCode;

/// Duration for which an event without a class counts, in seconds.
const UNCLASSIFIED_EVENT_S: u64 = 86_400;

/// The evaluation of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventVerdict<'a> {
    pub about: &'a str,
    pub severity: Severity,
    pub action: Action,
    pub observe_only: bool,
    /// Duration for which the event counts, in seconds; `None`: until the node reboots, another event ends it or an
    /// operator clears it.
    counts_for_s: Option<u64>,
    /// Codes of the events that this event ends, for the same device.
    pub ends: &'a [String],
}

impl EventVerdict<'_> {
    /// Time at which an event seen at `seen_ms` stops counting, in Unix milliseconds.
    pub fn ends_at(&self, seen_ms: u64) -> Option<u64> {
        let length = self.counts_for_s?.saturating_mul(1000);
        Some(seen_ms.saturating_add(length))
    }
}

impl Table {
    /// Evaluates an event. `words` is the driver's text after the code. For XID 154 the text names the recovery action,
    /// which overrides the XID's class.
    pub(super) fn evaluate_event(&self, code: &EventCode, words: &str) -> EventVerdict<'_> {
        let unknown = EventVerdict {
            about: "not in the table",
            severity: Severity::Inform,
            action: Action::None,
            observe_only: false,
            counts_for_s: Some(UNCLASSIFIED_EVENT_S),
            ends: &[],
        };
        match code {
            EventCode::Xid(number) => {
                let judged = self
                    .class_of(*number)
                    .map_or(unknown, |(_, class)| EventVerdict {
                        about: &class.about,
                        severity: class.severity,
                        action: class.action,
                        observe_only: class.observe_only,
                        counts_for_s: class.counts_for_s,
                        ends: &[],
                    });
                let said = recovery(words).filter(|_| *number == XID_RECOVERY_ACTION);
                let (severity, action) = said.unwrap_or((judged.severity, judged.action));
                EventVerdict {
                    severity,
                    action,
                    ..judged
                }
            }
            EventCode::Amd(_) | EventCode::Mlx5(_) => {
                let class = self.events.get(&code.reason());
                class.map_or(unknown, |class| EventVerdict {
                    about: &class.about,
                    severity: class.severity,
                    action: class.action,
                    observe_only: class.observe_only,
                    counts_for_s: class.counts_for_s,
                    ends: &class.ends,
                })
            }
        }
    }
}

/// The XID with a text that names the recovery action requested by the driver.
const XID_RECOVERY_ACTION: u32 = 154;

/// Parses the new action in a text like `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`.
fn recovery(words: &str) -> Option<(Severity, Action)> {
    let (_, to) = words.rsplit_once(" to ")?;
    let word = to.split_once('(')?.1.split(')').next()?;
    Some(match word.to_ascii_lowercase().as_str() {
        "none" => (Severity::Inform, Action::None),
        "gpu reset required" | "drain and reset" => (Severity::Faulty, Action::ResetGpu),
        "node reboot required" => (Severity::Faulty, Action::Reboot),
        "drain p2p" => (Severity::Faulty, Action::Inspect),
        _ => return None,
    })
}
