//! BMC log entries and tasks, as text and as fields.

use super::time;
use lattice_api::{history::NodeEventView, text::rounded_duration};
use lattice_engine::history::ReportedBmcEvent;
use lattice_quorum_types::UnixMillis;
use lattice_redfish::{BmcEventKind, BmcEventSeverity};

/// Text and fields of a BMC event. Examples of the text: `BIOS Update: completed in 7 min: Job completed
/// successfully.`, `IML, critical: …`
pub(super) fn bmc_event(did: &ReportedBmcEvent) -> (String, NodeEventView) {
    let deed = &did.deed;
    let at = |at: u64| time(UnixMillis(at));
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let severity = match deed.severity {
        BmcEventSeverity::Ok => "ok",
        BmcEventSeverity::Warning => "warning",
        BmcEventSeverity::Critical => "critical",
    };
    let mut parts = NodeEventView {
        severity: some(severity),
        code: deed.code.clone(),
        detail: some(&deed.message),
        bmc_time: deed.at.map(at),
        read_at: Some(at(did.read_at)),
        left_out: did.left_out,
        ..NodeEventView::default()
    };
    let mut what = match &deed.of {
        BmcEventKind::Task {
            name,
            state,
            started_at,
        } => {
            parts.state = some(state);
            parts.entity = some(name);
            parts.source = some("tasks");
            parts.first_at = started_at.map(at);
            let took = started_at.zip(deed.at).and_then(|(a, b)| b.checked_sub(a));
            let took = took.filter(|took| *took > 0);
            let took = took.map_or_else(String::new, |took| {
                format!(" in {}", rounded_duration(took))
            });
            let name = some(name).unwrap_or_else(|| "a task".to_owned());
            format!("{name}: {state}{took}")
        }
        BmcEventKind::Log { log } => {
            parts.source = some(log);
            log.clone()
        }
    };
    if deed.severity != BmcEventSeverity::Ok {
        what.push_str(&format!(", {severity}"));
    }
    if !deed.message.is_empty() {
        what.push_str(&format!(": {}", deed.message));
    }
    if did.count > 1 {
        parts.count = Some(did.count);
        parts.first_at = did.first_at.map(at);
        what.push_str(&format!(" x{}", did.count));
        if let Some((first, last)) = did.first_at.zip(deed.at) {
            what.push_str(&format!(
                " in {}",
                rounded_duration(last.saturating_sub(first))
            ));
        }
    }
    if did.left_out > 0 {
        what.push_str(&format!(" ({} earlier ones are not listed)", did.left_out));
    }
    match (did.plausible_time(), &parts.bmc_time) {
        (Some(_), _) => {}
        (None, Some(local_time)) => {
            let local_time = local_time.replace(".000Z", "Z");
            what.push_str(&format!(" (by the BMC's clock {local_time})"));
        }
        (None, None) => what.push_str(" (no BMC time)"),
    }
    (what, parts)
}
