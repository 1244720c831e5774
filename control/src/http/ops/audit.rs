//! The audit.

use super::{paging, read, unexpected};
use crate::{
    Core,
    http::caller::{Caller, Role},
};
use lattice_api::{
    audit::{ACTIONS, AuditView, is_about_node, word},
    page::Page,
    problem::Problem,
    text,
};
use lattice_quorum_types::{
    AllocationId, NodeId, UnixMillis,
    audit::AuditEntry,
    hostlist,
    view::{Answer, Query},
};

/// Entries read from the quorum at a time.
const CHUNK: u32 = 1_000;
/// Reads for one page. A page may come out short when few entries match; its cursor goes on.
const MAX_READS: usize = 20;

/// What to look for, as it was written.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) by: Option<&'a str>,
    pub(crate) node: Option<&'a str>,
    pub(crate) allocation: Option<u64>,
    pub(crate) action: Option<&'a str>,
    pub(crate) since: Option<&'a str>,
}

/// What to look for.
#[derive(Debug, Default)]
struct Filter {
    by: Option<String>,
    nodes: Option<Vec<NodeId>>,
    allocation: Option<AllocationId>,
    action: Option<&'static str>,
    since: Option<UnixMillis>,
}

impl Filter {
    fn new(wanted: &Wanted<'_>, now: UnixMillis) -> Result<Self, Problem> {
        let filled = |text: Option<&'_ str>| text.filter(|t| !t.is_empty()).map(str::to_owned);
        let nodes = filled(wanted.node).map(|list| hostlist::expand(&list));
        let action = filled(wanted.action).map(|asked| {
            let found = ACTIONS.into_iter().find(|known| *known == asked);
            found.ok_or_else(|| {
                let reason = format!("{asked:?} is not one of {}", ACTIONS.join(", "));
                Problem::field("action", reason)
            })
        });
        let since = filled(wanted.since).map(|text| text::moment(&text, now));
        Ok(Self {
            by: filled(wanted.by),
            nodes: nodes
                .transpose()
                .map_err(|e| Problem::field("node", e.to_string()))?,
            allocation: wanted.allocation.map(AllocationId),
            action: action.transpose()?,
            since: since
                .transpose()
                .map_err(|reason| Problem::field("since", reason))?,
        })
    }

    fn passes(&self, entry: &AuditEntry) -> bool {
        let action = &entry.action;
        self.by.as_ref().is_none_or(|by| entry.by.name == *by)
            && self.action.is_none_or(|wanted| word(action) == wanted)
            && self.since.is_none_or(|since| entry.at >= since)
            && self
                .allocation
                .is_none_or(|id| action.subjects().allocations.contains(&id))
            && self
                .nodes
                .as_ref()
                .is_none_or(|nodes| nodes.iter().any(|node| is_about_node(action, node)))
    }
}

async fn chunk(core: &Core, after: u64) -> Result<Vec<AuditEntry>, Problem> {
    let limit = CHUNK;
    match read(core, Query::Audit { after, limit }).await? {
        Answer::Audit(entries) => Ok(entries),
        _ => Err(unexpected()),
    }
}

/// Looks at every entry there is.
pub(super) async fn each(core: &Core, mut look: impl FnMut(&AuditEntry)) -> Result<(), Problem> {
    let mut after = 0;
    loop {
        let entries = chunk(core, after).await?;
        entries.iter().for_each(&mut look);
        match entries.last() {
            // An answer may be shorter than what was asked for and still have a next.
            Some(last) => after = last.number,
            None => return Ok(()),
        }
    }
}

/// Entries after a number, oldest first. The next page comes after `next_cursor`.
pub(crate) async fn list(
    core: &Core,
    caller: &Caller,
    wanted: &Wanted<'_>,
    after: u64,
    limit: Option<u32>,
) -> Result<Page<AuditView>, Problem> {
    caller.check_whole(Role::Operator, "reading the audit")?;
    let limit = paging::limit(limit)?;
    let filter = Filter::new(wanted, core.now())?;
    let mut after = after;
    let mut found: Vec<AuditEntry> = Vec::new();
    for _ in 0..MAX_READS {
        let entries = chunk(core, after).await?;
        let Some(last) = entries.last().map(|entry| entry.number) else {
            return Ok(page(found, limit));
        };
        after = last;
        found.extend(entries.into_iter().filter(|entry| filter.passes(entry)));
        if found.len() > limit {
            return Ok(page(found, limit));
        }
    }
    let items = found.iter().map(AuditView::from).collect();
    let next_cursor = Some(after.to_string());
    Ok(Page { items, next_cursor })
}

fn page(found: Vec<AuditEntry>, limit: usize) -> Page<AuditView> {
    let page = paging::page(found.into_iter(), limit, |entry| entry.number.to_string());
    page.map(|entry| AuditView::from(&entry))
}
