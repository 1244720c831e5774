//! `lattice audit verify`: verifies the cluster's audit, or an export of it.

use super::{
    NextPage, PAGE,
    check::{AuditCheckError, Checker, Report},
    file::{ExportReadError, Header, Reader},
    pages, recover_entry, verification_failure,
};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Format, time},
};
use anyhow::Context as _;
use clap::Args;
use lattice_api::x509;
use lattice_client::AuditFilter;
use lattice_mesh::Pin;
use std::{
    collections::BTreeSet,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

#[derive(Args)]
pub struct VerifyArgs {
    /// Export to verify instead of the cluster's audit.
    file: Option<PathBuf>,
    /// Compare with an earlier export: every entry in it must be present and unchanged.
    #[arg(long, value_name = "EXPORT")]
    against: Option<PathBuf>,
    /// CA certificate of the cluster, PEM (`ca.pem`); repeat for several. For the cluster's own audit the default is
    /// the list that the server reports.
    #[arg(long, value_name = "FILE", conflicts_with = "chain_only")]
    ca: Vec<PathBuf>,
    /// Pin of a CA of the cluster (`lattice admin ca list`), instead of its certificate.
    #[arg(long, value_name = "PIN", conflicts_with = "chain_only")]
    pin: Vec<String>,
    /// Cluster name: the audit of another cluster fails the verification.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Verify the hash chain only. The chain alone does not prove its author: anyone can compute a consistent one.
    #[arg(long)]
    chain_only: bool,
}

impl VerifyArgs {
    /// Whether the command works without a cluster.
    pub fn is_offline(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the pins of the given CAs.
    fn pins(&self) -> Result<BTreeSet<String>, Failure> {
        let mut pins = BTreeSet::new();
        for pin in &self.pin {
            let read: Result<Pin, _> = pin.parse();
            let read = read.map_err(|error| Failure::usage(format!("--pin {pin}: {error}")))?;
            pins.insert(read.to_string());
        }
        for path in &self.ca {
            let about = || format!("--ca {}", path.display());
            let text = std::fs::read_to_string(path).with_context(about)?;
            let certificates = x509::read_pem(&text)
                .map_err(|why| Failure::usage(format!("{}: {why}", about())))?;
            let of = certificates
                .iter()
                .map(|der| Pin::of(&(&der[..]).into()).to_string());
            pins.extend(of);
        }
        Ok(pins)
    }
}

/// Export that was read to its end, with its verified chain.
struct ReadExport {
    name: String,
    checker: Checker,
}

fn read_failure(where_: &str, unread: ExportReadError) -> Failure {
    match unread {
        ExportReadError::Other(error) => Failure::refused(format!("{where_}: {error:#}")),
        ExportReadError::Fault(fault) => verification_failure(where_, &fault),
    }
}

/// Reads an export to its end, and verifies its chain.
fn read(path: &Path, cluster: Option<&str>) -> Result<(Header, ReadExport), Failure> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let opened = Reader::open(BufReader::new(file));
    let (header, start, mut reader) = opened.map_err(|e| read_failure(&name, e))?;
    if let Some(wanted) = cluster.filter(|wanted| *wanted != header.cluster) {
        let of = &header.cluster;
        return Err(Failure::refused(format!(
            "{name} is of cluster {of}, not of {wanted}"
        )));
    }
    let mut checker = Checker::new(Some(header.cluster.clone()), start);
    while let Some(entry) = reader.next().map_err(|e| read_failure(&name, e))? {
        checker
            .verify_entry(&entry)
            .map_err(|fault| verification_failure(&name, &fault))?;
    }
    Ok((header, ReadExport { name, checker }))
}

/// Checks that the entries of an earlier export are present and unchanged, except those before the first verified entry
/// of `now`. Returns the number of compared entries, which is never 0.
fn compare(now: &Checker, where_: &str, before: &ReadExport) -> Result<u64, Failure> {
    let (exported, _) = before.checker.last();
    let (last, _) = now.last();
    let mut same = 0;
    for number in 0..=exported {
        let (Some(was), Some(is)) = (before.checker.hash(number), now.hash(number)) else {
            continue;
        };
        if was != is {
            let name = &before.name;
            let reason = format!("differs from the one that was exported to {name}");
            return Err(verification_failure(
                where_,
                &AuditCheckError::Entry { number, reason },
            ));
        }
        same += u64::from(number > 0);
    }
    if last < exported {
        let number = last + 1;
        let name = &before.name;
        let reason = format!("is missing: {name} continues to entry {exported}");
        return Err(verification_failure(
            where_,
            &AuditCheckError::Entry { number, reason },
        ));
    }
    if same == 0 {
        let name = &before.name;
        let text = format!("{name} and {where_} have no entry in common: nothing was compared");
        return Err(Failure::refused(text));
    }
    Ok(same)
}

/// Verifies a file offline.
pub fn offline(args: &VerifyArgs, format: Format) -> Result<(), Failure> {
    let Some(path) = &args.file else {
        return Ok(());
    };
    let pins = args.pins()?;
    if pins.is_empty() && !args.chain_only {
        return Err(Failure::usage(
            "--ca or --pin is required: the certificate of the cluster's authority, or its pin; \
             --chain-only checks the hashes alone",
        ));
    }
    let (_, exported) = read(path, args.cluster.as_deref())?;
    let ReadExport { name, checker } = exported;
    report_result(args, checker, &pins, &name, format)
}

/// Verifies the cluster's own audit, after a quorum member has signed its head.
pub async fn online(args: &VerifyArgs, connection: &Connection) -> Result<(), Failure> {
    let where_ = "the cluster's audit";
    let mut pins = args.pins()?;
    let head = connection.client.sign_audit().await?;
    if let Some(wanted) = args.cluster.as_ref().filter(|c| **c != head.cluster) {
        let text = format!("the server is of cluster {}, not of {wanted}", head.cluster);
        return Err(Failure::refused(text));
    }
    if pins.is_empty() {
        pins = head.authorities.iter().map(|a| a.pin.clone()).collect();
        if !args.chain_only {
            output::message!(
                "the authorities are taken from the server; --ca or --pin names them from elsewhere"
            );
        }
    }
    let mut checker = Checker::new(Some(head.cluster.clone()), (0, [0; 32]));
    let all = AuditFilter::default();
    pages(connection, &all, 0, PAGE, |items| {
        for view in &items {
            let entry = recover_entry(where_, view)?;
            checker
                .verify_entry(&entry)
                .map_err(|fault| verification_failure(where_, &fault))?;
        }
        Ok(NextPage::Continue)
    })
    .await?;
    if checker.last().0 < head.number {
        let (number, last) = (checker.last().0 + 1, head.number);
        let reason = format!("is missing: the audit continues to entry {last}");
        return Err(verification_failure(
            where_,
            &AuditCheckError::Entry { number, reason },
        ));
    }
    report_result(args, checker, &pins, where_, connection.format)
}

fn report_result(
    args: &VerifyArgs,
    checker: Checker,
    pins: &BTreeSet<String>,
    where_: &str,
    format: Format,
) -> Result<(), Failure> {
    let mut compared = None;
    if let Some(against) = &args.against {
        let (_, before) = read(against, None)?;
        compared = Some(compare(&checker, where_, &before)?);
    }
    let report = match args.chain_only {
        true => checker.chain_report(),
        false => checker
            .finish(pins)
            .map_err(|fault| verification_failure(where_, &fault))?,
    };
    output::title(format, &format!("{where_} is intact"))?;
    let mut rows = rows(&report);
    if let (Some(compared), Some(against)) = (compared, &args.against) {
        let text = format!(
            "{compared} entries are identical to those of {}",
            against.display()
        );
        rows.push(vec!["compared".to_owned(), text]);
    }
    output::print_details(format, &report, ["what", "found"], rows)?;
    Ok(())
}

/// Formats a report as rows of item and value.
pub fn rows(report: &Report) -> Vec<Vec<String>> {
    let moment = |at: &Option<String>| at.as_ref().map_or("-".to_owned(), |at| time(at));
    let mut rows = Vec::new();
    let mut row = |what: &str, found: String| rows.push(vec![what.to_owned(), found]);
    row("cluster", output::or_dash(report.cluster.as_deref()));
    let (entries, first, last) = (report.entries, report.first, report.last);
    row("entries", format!("{first} to {last} ({entries})"));
    row(
        "written",
        format!("{} to {}", moment(&report.from), moment(&report.to)),
    );
    row("last hash", report.hash.clone());
    if report.covered == 0 {
        row(
            "signed",
            "not verified: without signatures, a writer of the complete log could have forged it"
                .to_owned(),
        );
        return rows;
    }
    let signers = report
        .signers
        .iter()
        .map(|(name, n)| format!("{name} ({n})"));
    let signers: Vec<String> = signers.collect();
    let count = report.checkpoints;
    row("signed heads", format!("{count}: {}", signers.join(", ")));
    for pin in &report.authorities {
        row("authority", pin.clone());
    }
    let (covered, signed) = (report.covered, moment(&report.signed_at));
    row("covered", format!("{first} to {covered}, signed {signed}"));
    let open = match report.not_covered {
        0 => "-".to_owned(),
        1 => format!("{last}: until the next signed head"),
        n => format!(
            "{} to {last} ({n}): until the next signed head",
            covered + 1
        ),
    };
    row("not covered", open);
    rows
}

#[cfg(test)]
mod tests;
