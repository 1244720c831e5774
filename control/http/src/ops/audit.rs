//! Audit queries.

use super::{paging, past_window, read, trust, unexpected};
use crate::caller::{Caller, Role};
use lattice_api::{
    audit::{ACTIONS, AuditHeadView, AuditView},
    page::Page,
    problem::{Kind, Problem},
};
use lattice_engine::Core;
use lattice_quorum_types::{
    AllocationId, ProjectPath, UnixMillis,
    audit::{AuditEntry, AuditFilter, AuditOrder, AuditPage, AuditSearch},
    hostlist,
    view::{Answer, Query},
};
use std::collections::BTreeSet;

/// Entries read from the quorum at a time.
const ENTRIES_PER_READ: u32 = 1_000;

/// Audit filter as given by the caller.
#[derive(Debug, Default)]
pub(crate) struct AuditQuery<'a> {
    pub(crate) by: Option<&'a str>,
    pub(crate) user: Option<&'a str>,
    pub(crate) node: Option<&'a str>,
    pub(crate) allocation: Option<u64>,
    pub(crate) project: Option<&'a str>,
    pub(crate) action: Option<&'a str>,
    pub(crate) since: Option<&'a str>,
    pub(crate) until: Option<&'a str>,
    pub(crate) newest_first: bool,
}

impl AuditQuery<'_> {
    fn filter(&self, now: UnixMillis) -> Result<AuditFilter, Problem> {
        let filled = |text: Option<&'_ str>| text.filter(|t| !t.is_empty()).map(str::to_owned);
        let given = |text: &&str| !text.is_empty();
        let window = past_window(self.since.filter(given), self.until.filter(given), now)?;
        let nodes = filled(self.node).map(|list| hostlist::expand(&list));
        let nodes = nodes
            .transpose()
            .map_err(|error| Problem::field("node", error.to_string()))?;
        let within = filled(self.project).map(ProjectPath::new);
        let within = within
            .transpose()
            .map_err(|error| Problem::field("project", error.to_string()))?;
        Ok(AuditFilter {
            by: filled(self.by),
            user: filled(self.user),
            nodes: nodes.unwrap_or_default().into_iter().collect(),
            allocation: self.allocation.map(AllocationId),
            within,
            since: window.since,
            until: window.until,
            actions: actions(filled(self.action).as_deref())?,
        })
    }
}

/// Parses a list of actions; each one must be known.
fn actions(list: Option<&str>) -> Result<BTreeSet<String>, Problem> {
    let named = list.into_iter().flat_map(|list| list.split(','));
    let known = |word: &str| match ACTIONS.contains(&word) {
        true => Ok(word.to_owned()),
        false => {
            let reason = format!("{word:?} is not one of {}", ACTIONS.join(", "));
            Err(Problem::field("action", reason))
        }
    };
    named.map(|word| known(word.trim())).collect()
}

/// Narrows the filter to entries that the caller may read. Operators of the whole cluster read everything.
/// Tenant-scoped operators and tenant administrators read entries about their tenants only. Users read entries about
/// their own actions and objects.
fn restrict_to_caller(caller: &Caller, filter: &mut AuditFilter) -> Result<(), Problem> {
    let refused = |detail: String| Err(Problem::new(Kind::Forbidden, "forbidden", detail));
    match (caller.role, &caller.tenants) {
        (Role::Operator | Role::Admin, None) => Ok(()),
        (Role::TenantAdmin, None) => caller.check_role(Role::Operator, "reading all of the audit"),
        (_, Some(tenants)) if caller.sees_all() => match (&filter.within, tenants.first()) {
            (Some(project), _) => caller.check_sees(project),
            (None, Some(only)) if tenants.len() == 1 => {
                filter.within = Some(only.clone());
                Ok(())
            }
            (None, _) => {
                let reason = "name one of your tenants, or a project in it";
                Err(Problem::field("project", reason))
            }
        },
        (Role::User, _) => match &filter.user {
            Some(other) if **other != *caller.name => refused(format!(
                "reading the entries of other users needs the role operator; {} has the role {}",
                caller.name, caller.role
            )),
            _ => {
                filter.user = Some(caller.name.to_string());
                Ok(())
            }
        },
        (_, _) => caller.check_role(Role::User, "reading the audit"),
    }
}

/// Whether the entry refers only to projects visible to the caller.
fn is_visible(caller: &Caller, entry: &AuditEntry) -> bool {
    let about = entry.action.subjects();
    about.projects.iter().all(|project| caller.sees(project))
}

async fn search(core: &Core, search: AuditSearch) -> Result<AuditPage, Problem> {
    let search = Box::new(search);
    match read(core, Query::AuditSearch { search }).await? {
        Answer::AuditSearch(page) => Ok(*page),
        _ => Err(unexpected()),
    }
}

/// Calls `look` for every audit entry.
pub(super) async fn for_each_entry(
    core: &Core,
    mut look: impl FnMut(&AuditEntry),
) -> Result<(), Problem> {
    let mut wanted = AuditSearch {
        limit: ENTRIES_PER_READ,
        ..AuditSearch::default()
    };
    loop {
        let page = search(core, wanted.clone()).await?;
        page.entries.iter().for_each(&mut look);
        match page.next {
            Some(next) => wanted.cursor = Some(next),
            None => return Ok(()),
        }
    }
}

/// Lists the entries that follow the sequence number `after` in the requested order, all if it is 0. The next page
/// starts after `next_cursor`; a short page may still have a next one.
pub(crate) async fn list(
    core: &Core,
    caller: &Caller,
    wanted: &AuditQuery<'_>,
    after: u64,
    limit: Option<u32>,
) -> Result<Page<AuditView>, Problem> {
    let limit = paging::limit(limit)?;
    let mut filter = wanted.filter(core.now())?;
    restrict_to_caller(caller, &mut filter)?;
    let order = match wanted.newest_first {
        true => AuditOrder::NewestFirst,
        false => AuditOrder::OldestFirst,
    };
    let page = search(
        core,
        AuditSearch {
            filter,
            order,
            cursor: (after > 0).then_some(after),
            limit: u32::try_from(limit).unwrap_or(ENTRIES_PER_READ),
        },
    )
    .await?;
    let shown = page
        .entries
        .iter()
        .filter(|entry| is_visible(caller, entry));
    Ok(Page {
        items: shown.map(AuditView::from).collect(),
        next_cursor: page.next.map(|next| next.to_string()),
    })
}

/// Requests that the leader signs the audit up to its current end, unless that end is signed already.
pub(crate) async fn sign(core: &Core, caller: &Caller) -> Result<AuditHeadView, Problem> {
    caller.check_cluster_role(Role::Operator, "signing the audit")?;
    let signed = core.store.sign_audit().await;
    let head = signed.map_err(|error| Problem::from(&error))?;
    let head = head.map_err(|why| Problem::new(Kind::Unavailable, "audit_not_signed", why))?;
    let authorities = trust::trusted(core).await?;
    Ok(AuditHeadView::new(core.cluster(), &head, &authorities))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn times_of_day_are_one_window() {
        let now = lattice_api::text::read_time("2023-11-14T07:00:00Z").unwrap();
        let filter = |since, until| {
            let query = AuditQuery {
                since: Some(since),
                until: Some(until),
                ..AuditQuery::default()
            };
            query.filter(now)
        };
        let night = filter("22:00", "06:00").unwrap();
        let times = [night.since, night.until].map(|at| lattice_api::text::time(at.unwrap()));
        assert_eq!(
            times,
            ["2023-11-13T22:00:00.000Z", "2023-11-14T06:00:00.000Z"]
        );
        assert_eq!(filter("", "").unwrap().since, None);
        for (since, until, field) in [("soon", "06:00", "since"), ("22:00", "soon", "until")] {
            let problem = filter(since, until).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field));
        }
    }
}
