//! `lattice audit`: query, verification and export of the audit log.

mod check;
mod export;
mod file;
mod query;
#[cfg(test)]
mod site;
mod verify;
mod window;

use crate::{
    connect::Connection,
    failure::Failure,
    output::{Columns, Format, time},
};
use check::AuditCheckError;
use clap::Subcommand;
use lattice_api::audit::{AuditView, action_name};
use lattice_client::AuditFilter;
use lattice_quorum_types::audit::AuditEntry;
use std::path::Path;

/// Page size of audit queries, entries.
const PAGE: u32 = 1_000;

/// Audit subcommands.
#[derive(Subcommand)]
pub enum AuditCommand {
    /// Show audit entries, newest last: principal, action, object and time.
    ///
    /// Operators read all entries, operators of certain tenants the entries about these tenants, and users the entries
    /// about their own actions and about themselves.
    Query(query::QueryArgs),
    /// Verify that no entry was changed, removed or moved, and that the audit log is signed.
    ///
    /// The hash of each entry covers the previous one, and quorum members sign the head of the chain. Without FILE the
    /// command signs the cluster's audit log and verifies it; with FILE it verifies an export offline. To detect an
    /// audit log that was rewritten completely, or cut after the last signed head, compare it with an earlier export:
    /// --against. The exit code is 1 if the verification fails.
    Verify(verify::VerifyArgs),
    /// Export entries into a new file that can be verified anywhere, years later.
    ///
    /// The audit log is signed first. The file is JSON Lines: a header, one line per entry, and an end line.
    /// `lattice audit verify FILE --ca ca.pem` verifies the file without a cluster. For operators.
    Export(export::ExportArgs),
}

/// Runs an audit command.
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
    narrow: &["number", "at", "by", "summary"],
    wide: &["action", "privilege", "revision", "hash"],
};

/// Columns that a narrow terminal leaves out, in this order.
const DROPPED_FIRST: &[&str] = &["number", "by", "at"];

fn row(entry: &AuditView) -> Vec<String> {
    let power = serde_json::to_value(entry.privilege).ok();
    let power = power.and_then(|word| Some(word.as_str()?.to_owned()));
    vec![
        entry.number.to_string(),
        time(&entry.at),
        entry.by.clone(),
        entry.summary.clone(),
        action_name(&entry.action).to_owned(),
        power.unwrap_or_default(),
        entry.revision.0.to_string(),
        entry.hash.clone(),
    ]
}

/// Whether to read the next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextPage {
    Continue,
    Stop,
}

/// Passes every page of matching entries to `look`, until it returns [`NextPage::Stop`].
async fn pages(
    connection: &Connection,
    filter: &AuditFilter,
    mut after: u64,
    page: u32,
    mut look: impl FnMut(Vec<AuditView>) -> Result<NextPage, Failure>,
) -> Result<(), Failure> {
    loop {
        let client = &connection.client;
        let page = client.audit_page(filter, after, Some(page)).await?;
        if look(page.items)? == NextPage::Stop {
            return Ok(());
        }
        let Some(next) = page.next_cursor else {
            return Ok(());
        };
        let no_number = "the server's next_cursor is not a number";
        after = next.parse().map_err(|_| Failure::refused(no_number))?;
    }
}

/// Describes a failed verification, with its exit code.
fn verification_failure(where_: &str, fault: &AuditCheckError) -> Failure {
    Failure::refused(format!("{where_} is not intact: {fault}"))
}

/// Recovers the entry as it was written, or reports the difference.
fn recover_entry(where_: &str, view: &AuditView) -> Result<AuditEntry, Failure> {
    AuditEntry::try_from(view).map_err(|altered| {
        let (number, reason) = (altered.number, altered.reason);
        let reason = format!("was altered: {reason}");
        verification_failure(where_, &AuditCheckError::Entry { number, reason })
    })
}
