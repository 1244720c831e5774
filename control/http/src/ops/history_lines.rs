//! Lines of a node history, as shown to callers.

mod bmc;

use super::time;
use lattice_api::{
    history::{HistoryEntryView, KeyChangeView, NodeEventView},
    text::rounded_duration,
};
use lattice_conformance::{
    ClassMark,
    health::{Action, Severity},
    history::{Entry, Event, EventKind, ReasonChange},
};
use lattice_engine::{
    history::{
        CHANGE_KIND, DrainTurn, EventContent, HistoryEntry, HistoryItem, NodeObservation,
        PositionedEvent, Source,
    },
    tasks::faults,
};
use lattice_quorum_types::UnixMillis;

/// Maximum number of keys named in a line.
const MAX_NAMED_KEYS: usize = 3;

/// Converts an item to its view.
pub(super) fn view(item: HistoryItem) -> HistoryEntryView {
    match item {
        HistoryItem::Change(history_entry) => change(*history_entry),
        HistoryItem::Event(happened) => event(&happened),
    }
}

fn change(history_entry: HistoryEntry) -> HistoryEntryView {
    let entry = history_entry.entry;
    let changes: Vec<KeyChangeView> = entry
        .changes
        .iter()
        .map(|change| KeyChangeView {
            key: change.key.clone(),
            from: change.from.to_string(),
            to: change.to.to_string(),
        })
        .collect();
    HistoryEntryView {
        number: history_entry.number,
        at: time(UnixMillis(history_entry.when)),
        kind: CHANGE_KIND.to_owned(),
        what: change_text(
            (&entry, history_entry.source),
            &changes,
            history_entry.left_out,
        ),
        source: match history_entry.source {
            Source::Agent => "agent",
            Source::Bmc => "bmc",
        }
        .to_owned(),
        cause: entry.cause.name().to_owned(),
        occasion: entry.cause.to_string(),
        boot_id: entry.boot_id,
        class: entry.class.to_string(),
        from: entry.from.map(|mark| mark.to_string()),
        to: entry.to.to_string(),
        changes,
        more: entry.more,
        event: None,
    }
}

/// Text of a change, for example `nic.5.firmware 28.41.1000 -> 28.43.2026 (operator (ada))`.
fn change_text(
    (entry, source): (&Entry, Source),
    changes: &[KeyChangeView],
    left_out: u32,
) -> String {
    let named = changes.iter().take(MAX_NAMED_KEYS);
    let named: Vec<String> = named
        .map(|change| format!("{} {} -> {}", change.key, change.from, change.to))
        .collect();
    let mut what = match (named.is_empty(), entry.from) {
        (false, _) => named.join(", "),
        (true, from) => {
            let to = match entry.to {
                ClassMark::Complete { .. } if from.is_none() => "read",
                ClassMark::Complete { .. } => "complete",
                ClassMark::Incomplete => "incomplete",
                ClassMark::Disabled => "disabled",
            };
            // Agent and BMC each report their part of some classes.
            let part = match source {
                Source::Agent => "",
                Source::Bmc => " of its BMC",
            };
            format!("class {}{part} is {to}", entry.class)
        }
    };
    let more = changes.len().saturating_sub(MAX_NAMED_KEYS) + entry.more as usize;
    if more > 0 {
        what.push_str(&format!(" and {more} more keys"));
    }
    if left_out > 0 {
        what.push_str(&format!("; {left_out} earlier changes left out"));
    }
    format!("{what} ({})", entry.cause)
}

fn event(happened: &PositionedEvent) -> HistoryEntryView {
    let (source, boot_id) = match &happened.what {
        EventContent::Event(event) => ("agent", event.boot_id.clone()),
        EventContent::Other(_) => ("agent", String::new()),
        EventContent::Noted(_) => ("control", String::new()),
        EventContent::Bmc(_) => ("bmc", String::new()),
    };
    let (what, event) = match &happened.what {
        EventContent::Event(event) => agent_event(event),
        EventContent::Noted(noted) => self::observation(noted),
        EventContent::Bmc(did) => bmc::bmc_event(did),
        EventContent::Other(_) => (
            "event of a newer version that this control does not support".to_owned(),
            NodeEventView::default(),
        ),
    };
    HistoryEntryView {
        number: happened.number,
        at: time(UnixMillis(happened.when)),
        kind: happened.what.kind().to_owned(),
        what,
        source: source.to_owned(),
        boot_id,
        cause: String::new(),
        occasion: String::new(),
        class: String::new(),
        from: None,
        to: String::new(),
        changes: Vec::new(),
        more: 0,
        event: Some(event),
    }
}

/// Agent event as text and as fields.
fn agent_event(event: &Event) -> (String, NodeEventView) {
    let (mut what, mut parts) = agent_event_text(&event.event);
    if event.count > 1 {
        what.push_str(&format!(" x{}", event.count));
        parts.count = Some(event.count);
        parts.first_at = event.first_at.map(|at| time(UnixMillis(at)));
        if let Some(first_at) = event.first_at {
            let over = lattice_api::text::rounded_duration(event.at.saturating_sub(first_at));
            what.push_str(&format!(" in {over}"));
        }
    }
    if event.left_out > 0 {
        what.push_str(&format!(
            " ({} earlier ones are not listed)",
            event.left_out
        ));
        parts.left_out = event.left_out;
    }
    (what, parts)
}

fn agent_event_text(happened: &EventKind) -> (String, NodeEventView) {
    let some = |text: &str| Some(text.to_owned());
    let of = NodeEventView::default;
    match happened {
        EventKind::Boot { before, booted_at } => {
            let booted_at = booted_at.map(|at| time(UnixMillis(at)));
            let when = booted_at.as_deref().map(lattice_api::text::read_time);
            let what = match when.flatten() {
                Some(_) => format!("boot, at {}", booted_at.as_deref().unwrap_or_default()),
                None => "boot".to_owned(),
            };
            let parts = NodeEventView {
                detail: before.clone(),
                first_at: booted_at,
                ..of()
            };
            (what, parts)
        }
        EventKind::Agent { version } => (
            format!("agent {version} started"),
            NodeEventView {
                detail: some(version),
                ..of()
            },
        ),
        EventKind::Stopped { version } => (
            format!("agent {version} shut down"),
            NodeEventView {
                state: some("stopped"),
                detail: some(version),
                ..of()
            },
        ),
        EventKind::Driver { module } => (
            format!("kernel module {module} loaded or unloaded"),
            NodeEventView {
                entity: some(module),
                ..of()
            },
        ),
        EventKind::Device { what } => (
            format!("device: {what}"),
            NodeEventView {
                entity: some(what),
                ..of()
            },
        ),
        EventKind::GpuEvent {
            gpu,
            address,
            code,
            source,
            detail,
            severity,
            action,
        } => {
            let xid = code.strip_prefix("gpu.xid.");
            let sxid = code.strip_prefix("nvswitch.sxid.");
            let name = match (xid, sxid) {
                (Some(number), _) => format!("XID {number}"),
                (None, Some(number)) => format!("SXid {number}"),
                (None, None) => code.clone(),
            };
            let parts = NodeEventView {
                entity: some(gpu),
                address: some(address),
                code: some(code),
                xid: xid.and_then(|number| number.parse().ok()),
                detail: some(detail),
                source: some(source),
                ..severity_fields(*severity, *action)
            };
            (format!("{name} {gpu} ({detail})"), parts)
        }
        EventKind::Health {
            turn,
            code,
            entity,
            evidence,
            severity,
            action,
            observe_only,
        } => {
            let state = match turn {
                ReasonChange::Began => "began",
                ReasonChange::Changed => "changed",
                ReasonChange::Ended => "ended",
            };
            let what = match turn {
                ReasonChange::Ended => format!("{code} {entity} ended"),
                ReasonChange::Began | ReasonChange::Changed => {
                    format!("{code} {entity}, {}: {evidence}", severity_name(*severity))
                }
            };
            let parts = NodeEventView {
                state: some(state),
                entity: some(entity),
                code: some(code),
                detail: some(evidence),
                observe_only: *observe_only,
                ..severity_fields(*severity, *action)
            };
            (what, parts)
        }
        EventKind::Cleared {
            by,
            code,
            entity,
            reasons,
        } => {
            let part = entity.as_deref().unwrap_or("all parts");
            let parts = NodeEventView {
                entity: entity.clone(),
                code: some(code),
                by: some(by),
                ..of()
            };
            let times = match reasons {
                1 => String::new(),
                reasons => format!(", {reasons} reasons"),
            };
            (format!("{code} on {part} cleared by {by}{times}"), parts)
        }
    }
}

fn severity_fields(severity: Severity, action: Action) -> NodeEventView {
    let action = serde_json::to_value(action).ok();
    let action = action.and_then(|action| action.as_str().map(str::to_owned));
    NodeEventView {
        severity: Some(severity_name(severity).to_owned()),
        action,
        ..NodeEventView::default()
    }
}

const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Inform => "inform",
        Severity::Degraded => "degraded",
        Severity::Faulty => "faulty",
    }
}

/// Text for a cleared reason. The owner clears its reason, except that an operator clears that of a failed hook.
fn undrained_text(owner: &str) -> String {
    match owner {
        faults::HOOKS_OWNER => format!("undrained by an operator; drained by {owner} before"),
        owner => format!("undrained by {owner}, its owner"),
    }
}

/// Event observed by this control, as text and as fields.
fn observation(noted: &NodeObservation) -> (String, NodeEventView) {
    let some = |text: &str| Some(text.to_owned());
    let (mut what, parts) = match noted {
        NodeObservation::Drain {
            turn,
            owner,
            reason,
            late,
        } => {
            let (state, what) = match turn {
                DrainTurn::Set => ("set", format!("drained by {owner}: {reason}")),
                DrainTurn::Changed => ("changed", format!("drained by {owner}, now: {reason}")),
                DrainTurn::Cleared => ("cleared", format!("{}: {reason}", undrained_text(owner))),
            };
            let parts = NodeEventView {
                state: some(state),
                by: some(owner),
                detail: some(reason),
                late: *late,
                ..NodeEventView::default()
            };
            (what, parts)
        }
        NodeObservation::Lifecycle { from, to, late } => {
            let what = match from {
                Some(from) => format!("{from} -> {to}"),
                None => format!("registered; {to} when first noted"),
            };
            let parts = NodeEventView {
                state: some(to),
                detail: from.clone(),
                late: *late,
                ..NodeEventView::default()
            };
            (what, parts)
        }
        NodeObservation::Liveness {
            is_alive,
            reason,
            left_out,
            late,
        } => {
            let state = if *is_alive { "alive" } else { "unreachable" };
            let mut what = match (is_alive, reason) {
                (true, _) => "answers again".to_owned(),
                (false, Some(reason)) => format!("unreachable: {reason}"),
                (false, None) => "unreachable".to_owned(),
            };
            if *left_out > 0 {
                what.push_str(&format!(" ({left_out} earlier changes are not listed)"));
            }
            let parts = NodeEventView {
                state: some(state),
                detail: reason.clone(),
                left_out: *left_out,
                late: *late,
                ..NodeEventView::default()
            };
            (what, parts)
        }
        NodeObservation::Suspect {
            for_ms,
            reason,
            left_out,
        } => {
            let mut what = format!("suspect for {}", rounded_duration(*for_ms));
            if let Some(reason) = reason {
                what.push_str(&format!(": {reason}"));
            }
            what.push_str("; then it answered again");
            if *left_out > 0 {
                what.push_str(&format!(" ({left_out} earlier times are not listed)"));
            }
            let parts = NodeEventView {
                state: some("suspect"),
                detail: reason.clone(),
                left_out: *left_out,
                ..NodeEventView::default()
            };
            (what, parts)
        }
        NodeObservation::Audit {
            action,
            by,
            summary,
            ..
        } => {
            let parts = NodeEventView {
                state: some(action),
                by: some(by),
                detail: some(summary),
                ..NodeEventView::default()
            };
            (format!("{by}: {summary}"), parts)
        }
    };
    if parts.late {
        what.push_str(" (at this time or earlier: this control was not running or not connected)");
    }
    (what, parts)
}

#[cfg(test)]
mod tests;
