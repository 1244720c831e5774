//! Events recorded by a BMC: finished tasks, and log entries.
//!
//! [`find_event_lists`] finds the BMC's lists by links, once. [`read_events`] reads the lists pass after pass, and
//! returns the documents it needs next, as [`crate::interpret`] does. In a log, only the newest entries are read. A
//! document that was fetched before is fetched again only if it may have changed ([`FetchedEventDocuments`]). The
//! caller stores which events it has reported, by [`BmcEvent::identity`].
//!
//! Reported events: tasks about firmware, BIOS or configuration; log entries of severity Warning or Critical; and log
//! entries about an update or a change of configuration ([`subject`]). The texts may contain names of people and
//! addresses.

mod log;
mod page;
mod route;
mod subject;
mod task;

pub use route::{EventListRoute, EventListSearch, find_event_lists};

use crate::documents::{Documents, ResourcePath};
use crate::walk::{DocumentWalk, string};
use jiff::Timestamp;
use lattice_conformance::{Digest, Reading, text};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 300;
/// Maximum length of a name or a code, in characters.
const MAX_NAME_CHARS: usize = 120;

/// One event recorded by a BMC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcEvent {
    /// Stable identity: the same in every read by every reader, and different from all other events of this BMC.
    pub identity: u64,
    /// The list that contains the event.
    pub list: ResourcePath,
    /// Kind of the event: a task or a log entry.
    pub of: BmcEventKind,
    /// Ids of the systems that the event may concern.
    pub systems: Vec<String>,
    /// Time at which the task ended or the entry was written, by the BMC's clock, in Unix milliseconds. None if the BMC
    /// reports no valid time.
    pub at: Option<u64>,
    /// Severity as reported by the BMC: `OK`, `Warning`, `Critical`.
    pub severity: BmcEventSeverity,
    /// Message id, such as `IDRAC.2.8.SUP0516`.
    pub code: Option<String>,
    /// Text of the message, else its id and arguments; empty for a task without a message.
    pub message: String,
}

/// Kind of the event: a finished task, or a log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BmcEventKind {
    /// A finished task.
    Task {
        /// Name of the task.
        name: String,
        /// Final state in lower case: `completed`, `exception`, `killed`, `cancelled`, `failed`.
        state: String,
        /// Start time, in the form of [`BmcEvent::at`].
        started_at: Option<u64>,
    },
    /// An entry of a log.
    Log {
        /// Id of the log: `IML`, `Lclog`.
        log: String,
    },
}

/// Severity, in the terms of Redfish's `Health`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum BmcEventSeverity {
    /// `OK`, a text other than the ones below, or no severity reported.
    #[default]
    Ok,
    /// `Warning`.
    Warning,
    /// `Critical`.
    Critical,
}

/// The documents of a BMC's lists that were fetched before, to avoid fetching them again. This is not a record of
/// reported events: without this data, everything is read again with the same result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedEventDocuments {
    /// Finished tasks that were fetched, by their list.
    ended: BTreeMap<ResourcePath, BTreeSet<ResourcePath>>,
    /// The newest member of each list, as of the last complete read of the list.
    newest: BTreeMap<ResourcePath, ResourcePath>,
}

/// Result of reading the lists of a BMC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BmcEventsRead {
    /// Events to report; in each list the oldest first.
    pub events: Vec<BmcEvent>,
    /// The lists that were read, whether or not they contain events to report.
    pub lists: BTreeSet<ResourcePath>,
    /// Input for the next pass.
    pub seen: FetchedEventDocuments,
    /// Lists that could not be read, that contain an invalid entry or page link, or with newest entries beyond the page
    /// limit, each with the reason; a list that no longer exists is `Absent`.
    pub unread: Vec<(ResourcePath, Reading<()>)>,
    /// Documents to fetch before the next call. Empty if the result is final.
    pub wanted: BTreeSet<ResourcePath>,
}

impl BmcEventsRead {
    /// Records that a list was read, and the newest member of the list if it was read completely.
    fn record_list(&mut self, list: &ResourcePath, page: &page::NewestMembers<'_>, is_whole: bool) {
        self.lists.insert(list.clone());
        if !page.is_reached {
            let why = Reading::failed("newest entries not reached within 4 pages");
            self.unread.push((list.clone(), why));
        }
        if let Some(why) = &page.invalid_entry {
            let why = Reading::failed(why.as_str());
            self.unread.push((list.clone(), why));
        }
        if !is_whole {
            return;
        }
        let newest = &mut self.seen.newest;
        match page.listed.last() {
            Some(last) => newest.insert(list.clone(), last.path.clone()),
            None => newest.remove(list),
        };
    }
}

/// Reads the lists of `route`, as far as the available documents allow.
#[must_use]
pub fn read_events(
    documents: &Documents,
    route: &EventListRoute,
    seen: &FetchedEventDocuments,
) -> BmcEventsRead {
    let mut walk = DocumentWalk::new(documents);
    let mut read = BmcEventsRead {
        seen: seen.clone(),
        ..BmcEventsRead::default()
    };
    if let Some(tasks) = &route.tasks {
        task::read(&mut walk, tasks, &route.systems, &mut read);
    }
    for list in &route.logs {
        log::read(&mut walk, list, &route.systems, &mut read);
    }
    read.wanted = walk.wanted();
    read
}

/// A text of a BMC on one line, truncated to `most` characters; `None` for a missing text or a placeholder.
fn line_of_text(value: &Value, property: &str, most: usize) -> Option<String> {
    let text = string(value, property)?;
    // The text is truncated first, because it may be as long as a complete response.
    let head: String = text.chars().take(most * 4).collect();
    let text = line(&head, most);
    (text::firmware(&text) != Reading::Unsupported).then_some(text)
}

/// The text on one line of at most `most` characters, without control characters.
fn line(text: &str, most: usize) -> String {
    let plain = text.replace(char::is_control, " ");
    text::collapse(&plain).chars().take(most).collect()
}

/// Time of an entry, preferably from `EventTimestamp`: `Created` may be the time at which the entry was read.
fn entry_time(value: &Value) -> Option<u64> {
    time(value, "EventTimestamp").or_else(|| time(value, "Created"))
}

/// Parses a time as Unix milliseconds; `None` for an invalid time (`0000-00-00T00:00:00Z`), or one before 1970.
fn time(value: &Value, property: &str) -> Option<u64> {
    const LONGEST: usize = 64;
    let text = string(value, property)?;
    let at: Timestamp = text.get(..text.len().min(LONGEST))?.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

fn severity(value: &Value, properties: &[&str]) -> BmcEventSeverity {
    let texts = properties.iter().filter_map(|name| string(value, name));
    let read = |text: &str| match text.to_ascii_lowercase().as_str() {
        "warning" => BmcEventSeverity::Warning,
        "critical" => BmcEventSeverity::Critical,
        _ => BmcEventSeverity::Ok,
    };
    texts.map(read).max().unwrap_or_default()
}

/// Id and text of a log entry's message, or of a task message: with the arguments inserted at their placeholders, and
/// the id in place of a missing text.
fn message(value: &Value) -> (Option<String>, Option<String>) {
    let code = line_of_text(value, "MessageId", MAX_NAME_CHARS);
    let args = value.get("MessageArgs").and_then(Value::as_array);
    let args: Vec<&str> = args.map_or_else(Vec::new, |all| {
        all.iter().take(9).filter_map(Value::as_str).collect()
    });
    let Some(mut text) = line_of_text(value, "Message", MAX_MESSAGE_CHARS) else {
        let stands = code.as_ref().map(|code| match args.is_empty() {
            true => code.clone(),
            false => format!("{code} ({})", args.join(", ")),
        });
        return (code, stands.map(|text| line(&text, MAX_MESSAGE_CHARS)));
    };
    for (at, arg) in args.iter().enumerate() {
        let arg: String = arg.chars().take(MAX_MESSAGE_CHARS).collect();
        text = text.replace(&format!("%{}", at + 1), &arg);
    }
    (code, Some(line(&text, MAX_MESSAGE_CHARS)))
}

fn identity(parts: &[&str]) -> u64 {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part.as_bytes());
        bytes.push(0);
    }
    let Digest(digest) = Digest::derive("lattice 2026-11 deed of a BMC", &bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}
