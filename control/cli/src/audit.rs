//! `lattice audit`: what was written down for ever, and whether it still is what was written.

mod check;
mod export;
mod file;
mod query;
#[cfg(test)]
mod site;
mod verify;

use crate::{
    connect::Connection,
    failure::Failure,
    output::{Columns, Format, time},
};
use check::Fault;
use clap::Subcommand;
use lattice_api::audit::{AuditView, word};
use lattice_client::AuditFilter;
use lattice_quorum_types::audit::AuditEntry;
use std::path::Path;

/// Entries asked for at a time.
const PAGE: u32 = 1_000;

/// What can be asked of the audit.
#[derive(Subcommand)]
pub enum AuditCommand {
    /// Show entries, the newest last: who did what, to whom and when.
    ///
    /// Operators read all of it, operators of some tenants what is about these, users what they did
    /// and what is about them.
    Query(query::QueryArgs),
    /// Check that no entry was changed, left out or moved, and that it was signed.
    ///
    /// Each entry's hash covers the one before it, and members of the quorum sign how far the chain
    /// has come. Without FILE the cluster's own audit is checked, signed now; with it an export,
    /// without asking anybody. What was rewritten as a whole, or cut behind the last checkpoint,
    /// shows beside an export made before: --against. Exit code 1 where something does not hold.
    Verify(verify::VerifyArgs),
    /// Write entries into a new file that can be checked anywhere, years later.
    ///
    /// The audit is signed first. The file is lines of JSON, an entry each; `lattice audit verify
    /// FILE --ca ca.pem` checks it without a cluster. For operators.
    Export(export::ExportArgs),
}

/// Runs one of them.
pub async fn run(
    command: AuditCommand,
    context: Option<&Path>,
    format: Format,
) -> Result<(), Failure> {
    let open = || Connection::open(context, format);
    match command {
        AuditCommand::Query(args) => query::run(args, &open()?).await,
        AuditCommand::Export(args) => export::run(&args, &open()?).await,
        AuditCommand::Verify(args) => match args.is_offline() {
            true => verify::offline(&args, format),
            false => verify::online(&args, &open()?).await,
        },
    }
}

const LIST: Columns<'_> = Columns {
    narrow: &["number", "at", "by", "what"],
    wide: &["action", "power", "revision", "hash"],
};

fn row(entry: &AuditView) -> Vec<String> {
    let power = serde_json::to_value(entry.power).ok();
    let power = power.and_then(|word| Some(word.as_str()?.to_owned()));
    vec![
        entry.number.to_string(),
        time(&entry.at),
        entry.by.clone(),
        entry.summary.clone(),
        word(&entry.action).to_owned(),
        power.unwrap_or_default(),
        entry.revision.0.to_string(),
        entry.hash.clone(),
    ]
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    Stop,
}

/// Looks at every page of what passes the filter, until it is told to stop.
async fn pages(
    connection: &Connection,
    filter: &AuditFilter,
    mut after: u64,
    page: u32,
    mut look: impl FnMut(Vec<AuditView>) -> Result<Next, Failure>,
) -> Result<(), Failure> {
    loop {
        let client = &connection.client;
        let page = client.audit_page(filter, after, Some(page)).await?;
        if look(page.items)? == Next::Stop {
            return Ok(());
        }
        let Some(next) = page.next_cursor else {
            return Ok(());
        };
        let no_number = "the server's next_cursor is no number";
        after = next.parse().map_err(|_| Failure::refused(no_number))?;
    }
}

/// What does not hold, as a refusal with its number.
fn broken(where_: &str, fault: &Fault) -> Failure {
    Failure::refused(format!("{where_} does not hold: {fault}"))
}

/// The entry as it was written, or why it is not.
fn as_written(where_: &str, view: &AuditView) -> Result<AuditEntry, Failure> {
    AuditEntry::try_from(view).map_err(|altered| {
        let (number, reason) = (altered.number, altered.reason);
        let reason = format!("is not as it was written: {reason}");
        broken(where_, &Fault::Entry { number, reason })
    })
}
