//! `lattice audit`: what was written down for ever, and whether it still is what was written.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format, time},
};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use lattice_api::audit::{AuditView, word};
use lattice_client::AuditFilter;
use lattice_quorum_types::audit::{AuditEntry, AuditFault, verify_chain};
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

/// Entries asked for at a time.
const PAGE: u32 = 1_000;

/// What can be asked of the audit. For operators and administrators.
#[derive(Subcommand)]
pub enum AuditCommand {
    /// Show entries, the newest last.
    Query(QueryArgs),
    /// Check that no entry was changed, left out or moved.
    ///
    /// Each entry's hash covers the one before it. Without --file the cluster's own audit is
    /// checked; with it an export, without asking anybody. An audit that was rewritten as a whole,
    /// or cut at its end, shows only beside an export made before: --file with --with-cluster.
    Verify(VerifyArgs),
    /// Write all entries, one JSON document a line (-o csv: a table), oldest first.
    ///
    /// Keep it elsewhere: `lattice audit verify --file` checks it.
    Export(ExportArgs),
}

#[derive(Args)]
pub struct QueryArgs {
    /// Only what this principal did.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only what is about these nodes: gpu007, gpu[001-004].
    #[arg(long, value_name = "HOSTLIST")]
    node: Option<String>,
    /// Only what is about this allocation.
    #[arg(long, value_name = "ID")]
    allocation: Option<u64>,
    /// Only this action: force_released, certificates_revoked, …
    #[arg(long, value_parser = lattice_api::audit::ACTIONS)]
    action: Option<String>,
    /// Only from this moment on: 2026-11-21, 2026-11-21T09:30:00Z, 09:30 (of today), yesterday, or
    /// how long ago: 2d. UTC where no offset is written.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// At most so many, the newest.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// An export to check instead of the cluster's audit.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Compare the export with what the cluster has now.
    #[arg(long, requires = "file")]
    with_cluster: bool,
}

#[derive(Args)]
pub struct ExportArgs {
    /// Only entries after this number: what was exported before.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    after: u64,
}

/// Runs one of them.
pub async fn run(
    command: AuditCommand,
    context: Option<&Path>,
    format: Format,
) -> Result<(), Failure> {
    let offline =
        matches!(&command, AuditCommand::Verify(args) if !args.with_cluster && args.file.is_some());
    if offline && let AuditCommand::Verify(args) = &command {
        return verify(args, None).await;
    }
    let connection = Connection::open(context, format)?;
    match command {
        AuditCommand::Query(args) => query(args, &connection).await,
        AuditCommand::Verify(args) => verify(&args, Some(&connection)).await,
        AuditCommand::Export(args) => export(&args, &connection).await,
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

/// Looks at every page of what passes the filter.
async fn pages(
    connection: &Connection,
    filter: &AuditFilter,
    mut after: u64,
    mut look: impl FnMut(Vec<AuditView>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let page = connection
            .client
            .audit_page(filter, after, Some(PAGE))
            .await?;
        look(page.items)?;
        let Some(next) = page.next_cursor else {
            return Ok(());
        };
        after = next
            .parse()
            .context("the server's next_cursor is no number")?;
    }
}

async fn query(args: QueryArgs, connection: &Connection) -> Result<(), Failure> {
    let since = args.since.map(|text| output::moment("--since", &text));
    let since = since.transpose()?;
    let filter = AuditFilter {
        by: args.by,
        node: args.node,
        allocation: args.allocation,
        action: args.action,
        since,
    };
    let limit = args.limit as usize;
    let (mut newest, mut found) = (VecDeque::new(), 0_usize);
    pages(connection, &filter, 0, |items| {
        found += items.len();
        newest.extend(items);
        let surplus = newest.len().saturating_sub(limit);
        newest.drain(..surplus);
        Ok(())
    })
    .await?;
    let newest = Vec::from(newest);
    if let Some(since) = &filter.since {
        output::title(connection.format, &format!("since {}", time(since)))?;
    }
    output::print(connection.format, &newest, LIST, newest.iter().map(row))?;
    if found == 0 {
        eprintln!("nothing like that was written down");
    } else if found > limit {
        eprintln!("the newest {limit} of {found}; --limit shows more");
    }
    Ok(())
}

async fn export(args: &ExportArgs, connection: &Connection) -> Result<(), Failure> {
    if connection.format == Format::Yaml {
        let why = "-o yaml: an export is JSON lines, or -o csv";
        return Err(Failure::usage(why));
    }
    let mut all = Vec::new();
    let (mut count, mut last) = (0_u64, None);
    let is_csv = connection.format == Format::Csv;
    pages(connection, &AuditFilter::default(), args.after, |items| {
        count += items.len() as u64;
        last = items.last().map(|entry| entry.number).or(last);
        for entry in &items {
            match is_csv {
                true => all.push(row(entry)),
                false => {
                    output::line(&serde_json::to_string(entry).map_err(anyhow::Error::from)?)?;
                }
            }
        }
        Ok(())
    })
    .await?;
    if is_csv {
        output::print(Format::Csv, &(), LIST, all)?;
    }
    match last {
        Some(last) => eprintln!("exported {count} entries; the next export goes on --after {last}"),
        None => eprintln!("nothing was written down after entry {}", args.after),
    }
    Ok(())
}

/// What does not hold, as a refusal with its number.
fn broken(where_: &str, what: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("{where_} does not hold: {what}"))
}

/// The entries as they were written, or which of them is not.
fn as_written(where_: &str, views: &[AuditView]) -> Result<Vec<AuditEntry>, Failure> {
    let read = views.iter().map(AuditEntry::try_from);
    read.collect::<Result<_, _>>()
        .map_err(|altered| broken(where_, altered))
}

fn in_words(fault: AuditFault) -> String {
    match fault {
        AuditFault::Gap { number, expected } if number > expected => {
            let last = number - 1;
            match last == expected {
                true => format!("entry {expected} is missing (entry {number} stands in its place)"),
                false => format!("entries {expected} to {last} are missing"),
            }
        }
        AuditFault::Gap { number, expected } => {
            format!("entry {number} stands where entry {expected} belongs: it was moved or doubled")
        }
        AuditFault::Changed { number } if number > 1 => format!(
            "entry {number} does not follow entry {}: one of the two was changed",
            number - 1
        ),
        AuditFault::Changed { number } => format!("entry {number} was changed"),
    }
}

/// Checks a chain page by page: the last entry of a page goes before the next one.
#[derive(Default)]
struct Chain {
    all: Vec<AuditEntry>,
}

impl Chain {
    fn extend(&mut self, where_: &str, entries: Vec<AuditEntry>) -> Result<(), Failure> {
        let from = self.all.len().saturating_sub(1);
        self.all.extend(entries);
        verify_chain(&self.all[from..]).map_err(|fault| broken(where_, in_words(fault)))
    }

    fn tell(&self, where_: &str) {
        let (Some(first), Some(last)) = (self.all.first(), self.all.last()) else {
            eprintln!("{where_} is empty: nothing was written down yet");
            return;
        };
        let hash = AuditView::from(last).hash;
        eprintln!(
            "{where_} holds: entries {} to {} are as they were written; the last hash is {hash}",
            first.number, last.number
        );
        if first.number > 1 {
            eprintln!(
                "  entry {} is taken as it is: those before it are not here",
                first.number
            );
        }
    }
}

async fn of_cluster(connection: &Connection) -> Result<Chain, Failure> {
    let where_ = "the cluster's audit";
    let mut chain = Chain::default();
    pages(connection, &AuditFilter::default(), 0, |items| {
        chain.extend(where_, as_written(where_, &items)?)
    })
    .await?;
    match chain.all.first() {
        Some(first) if first.number > 1 => Err(broken(
            where_,
            format!("it begins with entry {}", first.number),
        )),
        _ => Ok(chain),
    }
}

/// Reads an export: one entry a line, or a JSON list as `query -o json` prints it.
fn read_export(path: &Path) -> anyhow::Result<Vec<AuditView>> {
    let about = || path.display().to_string();
    let file = std::fs::File::open(path).with_context(about)?;
    let mut reader = BufReader::new(file);
    let is_list = reader
        .fill_buf()
        .with_context(about)?
        .iter()
        .find(|b| !b.is_ascii_whitespace())
        .is_some_and(|b| *b == b'[');
    if is_list {
        let mut text = String::new();
        reader.read_to_string(&mut text).with_context(about)?;
        return serde_json::from_str(&text).with_context(about);
    }
    let mut all = Vec::new();
    for (n, line) in reader.lines().enumerate() {
        let line = line.with_context(about)?;
        if line.trim().is_empty() {
            continue;
        }
        let entry = serde_json::from_str(&line);
        all.push(entry.with_context(|| format!("{}, line {}", path.display(), n + 1))?);
    }
    Ok(all)
}

async fn verify(args: &VerifyArgs, connection: Option<&Connection>) -> Result<(), Failure> {
    let Some(file) = &args.file else {
        let Some(connection) = connection else {
            return Ok(());
        };
        of_cluster(connection).await?.tell("the cluster's audit");
        return Ok(());
    };
    let where_ = file.display().to_string();
    let mut export = Chain::default();
    export.extend(&where_, as_written(&where_, &read_export(file)?)?)?;
    if let Some(connection) = connection {
        compare(&export, &of_cluster(connection).await?)?;
    }
    export.tell(&where_);
    if connection.is_some() {
        eprintln!("  the cluster's audit has the same entries");
    }
    Ok(())
}

/// Whether the cluster still has what was exported.
fn compare(export: &Chain, cluster: &Chain) -> Result<(), Failure> {
    let last = cluster.all.last().map_or(0, |entry| entry.number);
    let at = |number: u64| {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        cluster.all.get(place)
    };
    for entry in &export.all {
        match at(entry.number) {
            Some(same) if same == entry => {}
            Some(_) => {
                let what = format!("entry {} is another one than was exported", entry.number);
                return Err(broken("the cluster's audit", what));
            }
            None => {
                let what = format!(
                    "it ends with entry {last}, but entry {} was exported",
                    entry.number
                );
                return Err(broken("the cluster's audit", what));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
