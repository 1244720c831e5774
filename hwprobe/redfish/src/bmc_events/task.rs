//! Finished tasks of a BMC.

use super::route::{NodeSystem, concerned_systems};
use super::{
    BmcEvent, BmcEventKind, BmcEventsRead, MAX_NAME_CHARS, identity, line_of_text, message, page,
    severity, subject, time,
};
use crate::documents::ResourcePath;
use crate::walk::{DocumentWalk, string, type_name};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of tasks read, starting with the newest.
const MAX_TASKS: usize = 32;
/// Maximum number of messages read per task, starting with the last.
const MAX_MESSAGES: usize = 32;
/// Final task states (DSP0268, `TaskState`), and one that a vendor adds.
const FINAL_STATES: &[&str] = &["completed", "killed", "exception", "cancelled", "failed"];

pub(super) fn read(
    walk: &mut DocumentWalk<'_>,
    list: &ResourcePath,
    systems: &[NodeSystem],
    read: &mut BmcEventsRead,
) {
    let newest = read.seen.newest.get(list).cloned();
    let page = match page::newest(walk, list, newest.as_ref()) {
        Reading::Present(page) => page,
        other => {
            read.unread.push((list.clone(), other.map(|_| ())));
            return;
        }
    };
    // A list without its previous newest member was cleared, so its task numbers may have restarted.
    let is_same = newest.is_some_and(|newest| page.listed.iter().any(|one| one.path == newest));
    let before = read.seen.ended.remove(list).filter(|_| is_same);
    let before = before.unwrap_or_default();
    let mut is_over = BTreeSet::new();
    let mut deeds = Vec::new();
    for one in page.listed.iter().rev().take(MAX_TASKS) {
        if one.inline.is_none() && before.contains(&one.path) {
            is_over.insert(one.path.clone());
            continue;
        }
        let value = match one.inline {
            Some(value) => value,
            None => match walk.get(&one.path) {
                Reading::Present(value) => value,
                _ => continue,
            },
        };
        let Some(state) = final_state(value) else {
            continue;
        };
        is_over.insert(one.path.clone());
        deeds.extend(task(value, (list, &one.path), state, systems));
    }
    deeds.reverse();
    read.events.extend(deeds);
    read.seen.ended.insert(list.clone(), is_over);
    read.record_list(list, &page, page.is_complete);
}

/// Final state of a task; `None` for a running task, or a resource that is not a task.
fn final_state(value: &Value) -> Option<&'static str> {
    if type_name(value).is_some_and(|name| name != "Task") {
        return None;
    }
    let state = string(value, "TaskState")?.to_ascii_lowercase();
    FINAL_STATES.iter().copied().find(|ended| *ended == state)
}

fn task(
    value: &Value,
    (list, path): (&ResourcePath, &ResourcePath),
    state: &str,
    systems: &[NodeSystem],
) -> Option<BmcEvent> {
    let name = line_of_text(value, "Name", MAX_NAME_CHARS).unwrap_or_default();
    let (code, message) = last_message(value);
    let target = value.pointer("/Payload/TargetUri").and_then(Value::as_str);
    let texts = [
        Some(name.as_str()),
        message.as_deref(),
        code.as_deref(),
        target,
    ];
    if !texts.into_iter().flatten().any(subject::is_setup_text) {
        return None;
    }
    let (started_at, at) = (time(value, "StartTime"), time(value, "EndTime"));
    // A restarted BMC numbers its tasks from the beginning.
    let when = started_at.or(at).map(|at| at.to_string());
    let when = when.unwrap_or_default();
    let all: Vec<String> = systems.iter().map(|system| system.id.clone()).collect();
    Some(BmcEvent {
        list: list.clone(),
        identity: identity(&[path.as_str(), &name, &when]),
        systems: concerned_systems(&all, systems, target),
        at: at.or(started_at),
        severity: severity(value, &["TaskStatus"]),
        code,
        message: message.unwrap_or_default(),
        of: BmcEventKind::Task {
            name,
            state: state.to_owned(),
            started_at,
        },
    })
}

/// The last message with a text.
fn last_message(value: &Value) -> (Option<String>, Option<String>) {
    let messages = value.get("Messages").and_then(Value::as_array);
    let messages = messages.into_iter().flatten().rev().take(MAX_MESSAGES);
    let mut said = messages.map(message).filter(|(_, text)| text.is_some());
    said.next().unwrap_or_default()
}
