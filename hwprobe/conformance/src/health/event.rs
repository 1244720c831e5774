//! Evaluation of driver events by a health table.

use super::table::{EventClass, SITE_CLASS, XidClass};
use super::{Action, Severity, Table};
use crate::driver_events::{EventCode, MessageSeverity};

/// Duration for which an event without a class, and a non-fatal one, counts, in seconds.
const MINOR_EVENT_S: u64 = 86_400;

/// Separator of description and message in the evidence of an event. No description contains it.
const SEPARATOR: &str = ": ";
/// Maximum length of a message in evidence, in characters.
const MAX_MESSAGE_CHARS: usize = 200;

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

/// Verdict on an event without a class.
const UNCLASSIFIED: EventVerdict<'static> = EventVerdict {
    about: "not in the table",
    severity: Severity::Inform,
    action: Action::None,
    observe_only: false,
    counts_for_s: Some(MINOR_EVENT_S),
    ends: &[],
};

impl<'a> EventVerdict<'a> {
    fn of_number(class: &'a XidClass) -> Self {
        Self {
            about: &class.about,
            severity: class.severity,
            action: class.action,
            observe_only: class.observe_only,
            counts_for_s: class.counts_for_s,
            ends: &class.ends,
        }
    }

    fn of_name(class: &'a EventClass) -> Self {
        Self {
            about: &class.about,
            severity: class.severity,
            action: class.action,
            observe_only: class.observe_only,
            counts_for_s: class.counts_for_s,
            ends: &class.ends,
        }
    }

    /// Verdict on an event that the driver calls non-fatal: informational, for a limited time.
    fn nonfatal(self) -> Self {
        Self {
            severity: Severity::Inform,
            action: match self.severity {
                Severity::Inform => self.action,
                Severity::Degraded | Severity::Faulty => Action::None,
            },
            counts_for_s: self.counts_for_s.or(Some(MINOR_EVENT_S)),
            ..self
        }
    }

    /// Verdict on an event that the driver calls fatal: faulty, with an action that needs a drained node.
    fn fatal(self) -> Self {
        match self.severity {
            Severity::Faulty => self,
            Severity::Inform | Severity::Degraded => Self {
                severity: Severity::Faulty,
                action: match self.action.needs_drain() {
                    true => self.action,
                    false => Action::Inspect,
                },
                counts_for_s: None,
                ..self
            },
        }
    }

    /// Time at which an event seen at `seen_ms` stops counting, in Unix milliseconds.
    pub fn ends_at(&self, seen_ms: u64) -> Option<u64> {
        let length = self.counts_for_s?.saturating_mul(1000);
        Some(seen_ms.saturating_add(length))
    }
}

/// Evidence of an event: the description of its class, and the driver's message if there is one.
pub(super) fn evidence(about: &str, message: &str) -> String {
    match message.is_empty() {
        true => about.to_owned(),
        false => {
            let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
            format!("{about}{SEPARATOR}{message}")
        }
    }
}

/// The driver's message in the evidence of an event; empty without one.
pub(super) fn message(evidence: &str) -> &str {
    evidence
        .split_once(SEPARATOR)
        .map_or("", |(_, message)| message)
}

/// Whether an event reports the present state of its device, so that it replaces an earlier one of any severity.
pub(super) fn is_state_report(code: &EventCode) -> bool {
    *code == EventCode::Xid(XID_RECOVERY_ACTION)
}

impl Table {
    /// Evaluates an event. `message` is the driver's text after the code. The recovery action in the message of XID 154
    /// overrides the class of that XID. The severity in the message of any other XID overrides its class, unless a site
    /// changed the class of this XID.
    pub(super) fn evaluate_event(&self, code: &EventCode, message: &str) -> EventVerdict<'_> {
        match code {
            EventCode::Xid(number) => self.evaluate_xid(*number, message),
            // Only fatal errors are events, so the message adds nothing.
            EventCode::Sxid(number) => {
                let class = self.sxid_class_of(*number);
                class.map_or(UNCLASSIFIED, |(_, class)| EventVerdict::of_number(class))
            }
            EventCode::Amd(_) | EventCode::Mlx5(_) => {
                let class = self.events.get(&code.reason());
                class.map_or(UNCLASSIFIED, EventVerdict::of_name)
            }
        }
    }

    fn evaluate_xid(&self, number: u32, message: &str) -> EventVerdict<'_> {
        let class = self.class_of(number);
        let verdict = class.map_or(UNCLASSIFIED, |(_, class)| EventVerdict::of_number(class));
        if number == XID_RECOVERY_ACTION {
            let named = recovery(message);
            let (severity, action) = named.unwrap_or((verdict.severity, verdict.action));
            return EventVerdict {
                severity,
                action,
                ..verdict
            };
        }
        if class.is_some_and(|(name, _)| name.starts_with(SITE_CLASS)) {
            return verdict;
        }
        match MessageSeverity::of(message) {
            Some(MessageSeverity::Nonfatal) => verdict.nonfatal(),
            Some(MessageSeverity::Fatal) => verdict.fatal(),
            None => verdict,
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
