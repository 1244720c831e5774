//! What a BMC did and noticed, by its own word: tasks that ended, entries of its logs.
//!
//! [`find_deeds`] finds by links where a BMC lists them, once; [`read_deeds`] reads them there, look
//! after look, and says what it wants next, as [`crate::interpret`] does. Of a log only the newest
//! entries are looked at, and of what was fetched before only what may be other now ([`DeedsSeen`]).
//! Who calls remembers which it told, by [`Deed::identity`].
//!
//! What is told: tasks that are about firmware, BIOS or configuration; entries of severity Warning
//! or Critical, and those that name such an update or change ([`subject`]). Their texts may hold
//! names of people and addresses.

mod log;
mod page;
mod route;
mod subject;
mod task;

pub use route::{DeedRoute, DeedsFound, find_deeds};

use crate::documents::{Documents, ResourcePath};
use crate::walk::{Walk, string};
use jiff::Timestamp;
use lattice_hwprobe::{Digest, Reading, text};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most characters of a message.
const MOST_CHARS: usize = 300;
/// Most characters of a name or a code.
const MOST_NAME_CHARS: usize = 120;

/// One thing that a BMC did or noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// The same whenever and by whomever it is read; another for everything else of this BMC.
    pub identity: u64,
    /// The list it is in.
    pub list: ResourcePath,
    /// What of it was listed.
    pub of: DeedOf,
    /// The ids of the systems it may concern.
    pub systems: Vec<String>,
    /// When it ended, or was written: by the BMC's clock, Unix milliseconds. None where the BMC says
    /// no time, or one that is none.
    pub at: Option<u64>,
    /// What the BMC calls it: `OK`, `Warning`, `Critical`.
    pub severity: DeedSeverity,
    /// The message's id, `IDRAC.2.8.SUP0516`.
    pub code: Option<String>,
    /// The message, or what stands for it.
    pub message: String,
}

/// A task, or an entry of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeedOf {
    /// A task that ended.
    Task {
        /// Its name.
        name: String,
        /// How it ended, in lower case: `completed`, `exception`, `killed`, `cancelled`.
        state: String,
        /// When it began, as [`Deed::at`].
        started_at: Option<u64>,
    },
    /// An entry of this log.
    Log {
        /// The log's id: `IML`, `Lclog`.
        log: String,
    },
}

/// As Redfish's `Health` says it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum DeedSeverity {
    /// `OK`, or nothing is said.
    #[default]
    Ok,
    /// `Warning`.
    Warning,
    /// `Critical`.
    Critical,
}

/// What of a BMC's lists was fetched before, so that it is not fetched again. It is no record of
/// what was told: without it everything is read anew, and is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeedsSeen {
    /// Tasks that were fetched and had ended, by their list.
    ended: BTreeMap<ResourcePath, BTreeSet<ResourcePath>>,
    /// The newest member of each list.
    newest: BTreeMap<ResourcePath, ResourcePath>,
}

/// What reading gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeedsRead {
    /// What is told, of each list the oldest first.
    pub deeds: Vec<Deed>,
    /// The lists that were read, whether or not they have something that is told.
    pub lists: BTreeSet<ResourcePath>,
    /// For the next look.
    pub seen: DeedsSeen,
    /// Lists that could not be read, with why; one that is not there any more is `Absent`.
    pub silent: Vec<(ResourcePath, Reading<()>)>,
    /// What to fetch before asking again. Empty when this is final.
    pub wanted: BTreeSet<ResourcePath>,
}

impl DeedsRead {
    /// That a list was read, for the next look: up to its newest only where it was read as a whole.
    fn remember(&mut self, list: &ResourcePath, page: &page::Newest<'_>, is_whole: bool) {
        self.lists.insert(list.clone());
        if !page.is_reached {
            let why = Reading::failed("its newest entries are not reached");
            self.silent.push((list.clone(), why));
        }
        if let Some(why) = &page.wrong {
            let why = Reading::failed(why.as_str());
            self.silent.push((list.clone(), why));
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

/// Reads what the lists of `route` say, as far as the documents at hand go.
#[must_use]
pub fn read_deeds(documents: &Documents, route: &DeedRoute, seen: &DeedsSeen) -> DeedsRead {
    let mut walk = Walk::new(documents);
    let mut read = DeedsRead {
        seen: seen.clone(),
        ..DeedsRead::default()
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

/// A text of a BMC in one line, cut; nothing for a placeholder.
fn told(value: &Value, property: &str, most: usize) -> Option<String> {
    let text = string(value, property)?;
    // Cut first: a text may be as long as an answer.
    let head: String = text.chars().take(most * 4).collect();
    let text = line(&head, most);
    (text::firmware(&text) != Reading::Unsupported).then_some(text)
}

/// In one line of at most so many characters, none of which does something to a screen.
fn line(text: &str, most: usize) -> String {
    let plain = text.replace(char::is_control, " ");
    text::collapse(&plain).chars().take(most).collect()
}

/// Unix milliseconds; nothing for what is no time (`0000-00-00T00:00:00Z`), or before 1970.
fn time(value: &Value, property: &str) -> Option<u64> {
    const LONGEST: usize = 64;
    let text = string(value, property)?;
    let at: Timestamp = text.get(..text.len().min(LONGEST))?.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

fn severity(value: &Value, properties: &[&str]) -> DeedSeverity {
    let told = properties.iter().filter_map(|name| string(value, name));
    let read = |text: &str| match text.to_ascii_lowercase().as_str() {
        "warning" => DeedSeverity::Warning,
        "critical" => DeedSeverity::Critical,
        _ => DeedSeverity::Ok,
    };
    told.map(read).max().unwrap_or_default()
}

/// The message of an entry, or of a task's list of messages: with its arguments where it has places
/// for them, its id where there is no text.
fn message(value: &Value) -> (Option<String>, Option<String>) {
    let code = told(value, "MessageId", MOST_NAME_CHARS);
    let args = value.get("MessageArgs").and_then(Value::as_array);
    let args: Vec<&str> = args.map_or_else(Vec::new, |all| {
        all.iter().take(9).filter_map(Value::as_str).collect()
    });
    let Some(mut text) = told(value, "Message", MOST_CHARS) else {
        let stands = code.as_ref().map(|code| match args.is_empty() {
            true => code.clone(),
            false => format!("{code} ({})", args.join(", ")),
        });
        return (code, stands.map(|text| line(&text, MOST_CHARS)));
    };
    for (at, arg) in args.iter().enumerate() {
        let arg: String = arg.chars().take(MOST_CHARS).collect();
        text = text.replace(&format!("%{}", at + 1), &arg);
    }
    (code, Some(line(&text, MOST_CHARS)))
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
