//! `lattice audit query`: lists audit entries.

use super::window::AuditWindow;
use super::{DROPPED_FIRST, LIST, NextPage, PAGE, pages, row};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Fitting, time},
};
use clap::Args;
use lattice_api::audit::AuditView;
use lattice_client::{AuditFilter, JobRef};
use lattice_mesh::{Clock as _, SystemClock};

#[derive(Args)]
pub struct QueryArgs {
    /// Show only entries about these nodes: gpu007, gpu[001-004].
    #[arg(long, value_name = "HOSTLIST")]
    node: Option<String>,
    /// Show only actions of this user and entries about this user: node claims, allocations.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Show only actions of this principal.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Show only entries about this allocation, or this array element: 12, 12_7.
    #[arg(long, value_name = "ID")]
    allocation: Option<JobRef>,
    /// Show only entries about this project and everything below it.
    #[arg(long, value_name = "PATH")]
    project: Option<String>,
    /// Show only these actions: drained, nodes_claimed, limits_changed, … The error for an unknown action lists the
    /// valid ones.
    #[arg(long, value_delimiter = ',', hide_possible_values = true,
          value_parser = lattice_api::audit::ACTIONS)]
    action: Vec<String>,
    /// Start of the range: 2026-11-21, 2026-11-21T09:30:00Z, 09:30 (of today), yesterday, or an age: 2d. UTC without an
    /// offset.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// End of the range, exclusive. Times of day depend on each other: at 07:00, --since 22:00 --until 06:00 began
    /// yesterday; after a date, --until 24:00 is its end.
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Show the oldest entries after this number, for programs that read page by page.
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Maximum number of entries: the newest or, with --after, the oldest.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
}

pub async fn run(args: QueryArgs, connection: &Connection) -> Result<(), Failure> {
    let (since, until) = (args.since.as_deref(), args.until.as_deref());
    let AuditWindow { since, until } = AuditWindow::read(since, until, SystemClock.now())?;
    let filter = AuditFilter {
        by: args.by,
        user: args.user,
        node: args.node,
        allocation: match args.allocation {
            Some(allocation) => Some(number(allocation, connection).await?),
            None => None,
        },
        project: args.project,
        actions: args.action,
        since,
        until,
        newest_first: args.after.is_none(),
    };
    let limit = args.limit as usize;
    // One entry more than is shown determines whether there are more.
    let page = args.limit.saturating_add(1).min(PAGE);
    let mut found: Vec<AuditView> = Vec::new();
    pages(
        connection,
        &filter,
        args.after.unwrap_or(0),
        page,
        |items| {
            found.extend(items);
            Ok(match found.len() > limit {
                true => NextPage::Stop,
                false => NextPage::Continue,
            })
        },
    )
    .await?;
    let more = found.len() > limit;
    found.truncate(limit);
    if filter.newest_first {
        found.reverse();
    }
    if let Some(title) = title(&filter) {
        output::title(connection.format, &title)?;
    }
    let rows = found.iter().map(row);
    output::print_fitted(
        connection.format,
        &found,
        LIST,
        Fitting::Texts(DROPPED_FIRST),
        rows,
    )?;
    match (found.last(), more, filter.newest_first) {
        (None, ..) => output::message!("no matching entry"),
        (_, false, _) => {}
        (_, true, true) => output::message!("the newest {limit}; --limit shows more"),
        (Some(last), true, false) => output::message!("continue with --after {}", last.number),
    }
    Ok(())
}

/// Number of an allocation. That of an array element is in its record.
async fn number(allocation: JobRef, connection: &Connection) -> Result<u64, Failure> {
    match allocation.index {
        Some(_) => Ok(connection.client.allocation(allocation).await?.id.0),
        None => Ok(allocation.id),
    }
}

/// Returns the time range as parsed; `None` without one.
fn title(filter: &AuditFilter) -> Option<String> {
    let since = filter
        .since
        .as_ref()
        .map(|at| format!("since {}", time(at)));
    let until = filter
        .until
        .as_ref()
        .map(|at| format!("until {}", time(at)));
    let both: Vec<String> = since.into_iter().chain(until).collect();
    (!both.is_empty()).then(|| both.join(", "))
}
