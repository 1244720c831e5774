//! `lattice audit export`: writes a complete file or none, and verifies it while writing.

use super::{
    NextPage, PAGE,
    check::{ChainPosition, Checker, Report},
    file::{Header, KnownAuthority, Writer},
    pages, recover_entry, verification_failure, verify,
    window::AuditWindow,
};
use crate::{connect::Connection, failure::Failure, output};
use anyhow::Context as _;
use clap::Args;
use lattice_api::{audit::AuditHeadView, text};
use lattice_client::AuditFilter;
use lattice_host::durable::NewFile;
use lattice_mesh::{Clock as _, SystemClock};
use lattice_quorum_types::audit::AuditEntry;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

const WHERE: &str = "the cluster's audit";

#[derive(Args)]
pub struct ExportArgs {
    /// New file. An existing file is not replaced.
    file: PathBuf,
    /// Export only entries after this number, as a continuation of an earlier export.
    #[arg(long, value_name = "NUMBER", conflicts_with = "since")]
    after: Option<u64>,
    /// Export only entries from this time on.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Export only entries before this time, and the following ones up to the signed head that covers them.
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
}

/// Result of the export.
#[derive(Debug, Serialize)]
struct ExportResult<'a> {
    file: &'a Path,
    #[serde(flatten)]
    report: &'a Report,
}

pub async fn run(args: &ExportArgs, connection: &Connection) -> Result<(), Failure> {
    if args.file.exists() {
        let file = args.file.display();
        let text =
            format!("{file} exists already, and exports never overwrite a file; give another name");
        return Err(Failure::refused(text));
    }
    let head = connection.client.sign_audit().await?;
    let range = Range::find(args, connection).await?;
    if head.number == range.start.0 {
        return Err(Failure::refused(format!(
            "no entry follows entry {}",
            range.start.0
        )));
    }
    let known = head.authorities.iter().map(|authority| KnownAuthority {
        pin: authority.pin.clone(),
        certificate: authority.certificate.clone(),
    });
    let exported_at = text::time(SystemClock.now());
    let header = Header::new(
        head.cluster.clone(),
        exported_at,
        range.start,
        known.collect(),
    );
    let about = || args.file.display().to_string();
    let file = NewFile::create(&args.file, 0o600).with_context(about)?;
    let mut file = BufWriter::new(file);
    let report = write(&head, &range, &header, connection, &mut file).await?;
    let file = file.into_inner().map_err(|error| error.into_error());
    file.and_then(NewFile::commit_new).with_context(about)?;
    print_summary(args, connection, &report)
}

fn print_summary(
    args: &ExportArgs,
    connection: &Connection,
    report: &Report,
) -> Result<(), Failure> {
    let file = args.file.as_path();
    let exported = ExportResult { file, report };
    let mut rows = vec![vec!["file".to_owned(), file.display().to_string()]];
    rows.extend(verify::rows(report));
    output::print_details(connection.format, &exported, ["what", "found"], rows)?;
    output::message!(
        "keep the pins or the certificates of the authorities elsewhere: they verify the file; \
         continue the next export with --after {}",
        report.last
    );
    Ok(())
}

/// Range of entries to export.
struct Range {
    start: ChainPosition,
    /// Last requested entry; `None`: no bound.
    last: Option<u64>,
}

impl Range {
    async fn find(args: &ExportArgs, connection: &Connection) -> Result<Self, Failure> {
        let (since, until) = (args.since.as_deref(), args.until.as_deref());
        let AuditWindow { since, until } = AuditWindow::read(since, until, SystemClock.now())?;
        let after = match (since, args.after) {
            (None, after) => after.unwrap_or(0),
            (Some(since), _) => {
                let first = first_match(
                    connection,
                    AuditFilter {
                        since: Some(since),
                        ..AuditFilter::default()
                    },
                );
                let first = first
                    .await?
                    .ok_or_else(|| Failure::refused("no entry was written since then"))?;
                first.number - 1
            }
        };
        let last = match until {
            None => None,
            Some(until) => {
                let filter = AuditFilter {
                    until: Some(until),
                    newest_first: true,
                    ..AuditFilter::default()
                };
                let last = first_match(connection, filter)
                    .await?
                    .map_or(0, |entry| entry.number);
                if last <= after {
                    return Err(Failure::refused("no entry was written in that time"));
                }
                Some(last)
            }
        };
        let start = match after {
            0 => (0, [0; 32]),
            after => position_of(connection, after).await?,
        };
        Ok(Self { start, last })
    }
}

/// Returns the first entry that matches the filter.
async fn first_match(
    connection: &Connection,
    filter: AuditFilter,
) -> Result<Option<AuditEntry>, Failure> {
    let mut found = None;
    pages(connection, &filter, 0, 1, |items| {
        found = items
            .first()
            .map(|view| recover_entry(WHERE, view))
            .transpose()?;
        Ok(match found {
            Some(_) => NextPage::Stop,
            None => NextPage::Continue,
        })
    })
    .await?;
    Ok(found)
}

/// Returns the position of an entry, by its number.
async fn position_of(connection: &Connection, number: u64) -> Result<ChainPosition, Failure> {
    let filter = AuditFilter::default();
    let page = connection.client.audit_page(&filter, number - 1, Some(1));
    let page = page.await?;
    let entry = page.items.first().map(|view| recover_entry(WHERE, view));
    match entry.transpose()? {
        Some(entry) if entry.number == number => Ok((number, entry.hash)),
        _ => Err(Failure::refused(format!(
            "--after: there is no entry {number}"
        ))),
    }
}

/// Writes and verifies at the same time, so that entries that fail verification are never exported.
async fn write(
    head: &AuditHeadView,
    range: &Range,
    header: &Header,
    connection: &Connection,
    file: &mut BufWriter<NewFile>,
) -> Result<Report, Failure> {
    let serde = |error: serde_json::Error| Failure::from(anyhow::Error::from(error));
    let mut checker = Checker::new(Some(head.cluster.clone()), range.start);
    let (mut writer, line) = Writer::begin(header, range.start).map_err(serde)?;
    let mut write = |line: String| {
        let written = file.write_all(line.as_bytes());
        let path = file.get_ref().path().display();
        written.with_context(|| format!("{path} cannot be written"))
    };
    write(line)?;
    let all = AuditFilter::default();
    pages(connection, &all, range.start.0, PAGE, |items| {
        for view in &items {
            let entry = recover_entry(WHERE, view)?;
            checker
                .verify_entry(&entry)
                .map_err(|fault| verification_failure(WHERE, &fault))?;
            write(writer.entry(&entry).map_err(serde)?)?;
            if range.last.is_some_and(|last| checker.is_covered(last)) {
                return Ok(NextPage::Stop);
            }
        }
        Ok(NextPage::Continue)
    })
    .await?;
    write(writer.end().map_err(serde)?)?;
    let pins: BTreeSet<String> = head.authorities.iter().map(|a| a.pin.clone()).collect();
    checker
        .finish(&pins)
        .map_err(|fault| verification_failure(WHERE, &fault))
}
