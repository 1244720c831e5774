//! Entries of a BMC log.

use super::page;
use super::route::{Log, NodeSystem, concerned_systems};
use super::{
    BmcEvent, BmcEventKind, BmcEventSeverity, BmcEventsRead, entry_time, identity, message,
    severity, subject,
};
use crate::documents::ResourcePath;
use crate::walk::{DocumentWalk, string, type_name};
use lattice_conformance::Reading;
use serde_json::Value;

/// Maximum number of entries fetched one by one per log and pass, starting with the newest.
const MAX_FETCHED: usize = 16;

pub(super) fn read(
    walk: &mut DocumentWalk<'_>,
    log: &Log,
    systems: &[NodeSystem],
    read: &mut BmcEventsRead,
) {
    let newest = read.seen.newest.get(&log.entries).cloned();
    let page = match page::newest(walk, &log.entries, newest.as_ref()) {
        Reading::Present(page) => page,
        other => {
            read.unread.push((log.entries.clone(), other.map(|_| ())));
            return;
        }
    };
    let mut left = MAX_FETCHED;
    let mut is_read = false;
    let mut is_whole = page.is_complete;
    let mut deeds = Vec::new();
    for one in page.listed.iter().rev() {
        is_read |= newest.as_ref() == Some(&one.path);
        let value = match one.inline {
            Some(value) => value,
            None if is_read || left == 0 => break,
            None => {
                left -= 1;
                match walk.get(&one.path) {
                    Reading::Present(value) => value,
                    // A missing or broken entry does not hide the others.
                    other => {
                        is_whole &= page::is_settled(&other);
                        continue;
                    }
                }
            }
        };
        deeds.extend(entry(value, &one.path, log, systems));
    }
    deeds.reverse();
    read.events.extend(deeds);
    read.record_list(&log.entries, &page, is_whole);
}

fn entry(
    value: &Value,
    path: &ResourcePath,
    log: &Log,
    systems: &[NodeSystem],
) -> Option<BmcEvent> {
    if type_name(value).is_some_and(|name| name != "LogEntry") {
        return None;
    }
    let severity = severity(value, &["Severity", "MessageSeverity"]);
    let (code, text) = message(value);
    let message = text?;
    let origin = value
        .pointer("/Links/OriginOfCondition/@odata.id")
        .and_then(Value::as_str);
    let is_event = severity >= BmcEventSeverity::Warning
        || subject::is_update_text(&message)
        || code.as_deref().is_some_and(subject::is_update_code)
        || origin.is_some_and(subject::is_update_origin);
    if !is_event {
        return None;
    }
    let id = string(value, "Id").unwrap_or(path.last());
    let at = entry_time(value);
    // With a time, the identity is independent of later changes to the text.
    let time = at.map(|at| at.to_string());
    let what = time.as_deref().unwrap_or(&message);
    Some(BmcEvent {
        list: log.entries.clone(),
        identity: identity(&[log.entries.as_str(), id, what]),
        of: BmcEventKind::Log {
            log: log.name.clone(),
        },
        systems: concerned_systems(&log.systems, systems, origin),
        at,
        severity,
        code,
        message,
    })
}
