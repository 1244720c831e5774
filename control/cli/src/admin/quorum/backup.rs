//! Backups: written completely or not at all, and verified without a cluster.

use super::{RestoreArgs, idempotency_key};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format},
    waiting::{NoticeTimes, next_item},
};
use anyhow::Context as _;
use lattice_host::durable::NewFile;
use lattice_quorum::RestorePlan;
use lattice_quorum_types::backup::{BackupFault, BackupHeader, BackupVerifier};
use serde::Serialize;
use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::Path,
    time::Instant,
};

/// Bytes of a backup file that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

fn faulty(file: &Path, fault: &BackupFault) -> Failure {
    Failure::refused(format!("{}: {fault}", file.display()))
}

/// Writes a backup. The file gets its name only when it is complete, verified and on disk.
pub async fn write_backup(connection: &Connection, file: &Path) -> Result<(), Failure> {
    let there = || {
        Failure::refused(format!(
            "{} exists already, and backups never overwrite a file; give another name",
            file.display()
        ))
    };
    if file.exists() {
        return Err(there());
    }
    let new = NewFile::create(file, 0o600);
    let mut new = new.with_context(|| file.display().to_string())?;
    let mut pieces = connection.client.backup(Some(&idempotency_key())).await?;
    let mut verifier = BackupVerifier::new();
    let (mut notices, mut received) = (NoticeTimes::new(Instant::now()), 0);
    let rest = |received: usize| format!("the rest of the backup; {} MiB received", received >> 20);
    while let Some(piece) = next_item(&mut pieces, &mut notices, || rest(received)).await {
        let piece = piece?;
        received += piece.len();
        verifier
            .feed(&piece)
            .map_err(|fault| faulty(file, &fault))?;
        let written = new.write_all(&piece);
        written.with_context(|| file.display().to_string())?;
    }
    let header = verifier.finish().map_err(|fault| faulty(file, &fault))?;
    new.commit_new().map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => there(),
        _ => Failure::refused(format!("{}: {error}", file.display())),
    })?;
    print_summary(connection.format, file, &header)
}

/// Reads the file to its end and verifies every byte.
fn check(file: &Path) -> Result<BackupHeader, Failure> {
    let mut reader = File::open(file).with_context(|| file.display().to_string())?;
    let (mut verifier, mut piece) = (BackupVerifier::new(), vec![0; PIECE_BYTES]);
    loop {
        let read = reader.read(&mut piece);
        let read = read.with_context(|| file.display().to_string())?;
        let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        verifier.feed(bytes).map_err(|fault| faulty(file, &fault))?;
    }
    verifier.finish().map_err(|fault| faulty(file, &fault))
}

/// Verifies that a file is a complete backup, and prints a summary of its contents.
pub fn verify(file: &Path, format: Format) -> Result<(), Failure> {
    print_summary(format, file, &check(file)?)
}

fn bytes(header: &BackupHeader) -> u64 {
    header.parts.iter().map(|part| part.bytes).sum()
}

const SUMMARY: [&str; 7] = [
    "cluster",
    "incarnation",
    "revision",
    "at",
    "index",
    "members",
    "bytes",
];

fn summary_row(header: &BackupHeader) -> Vec<String> {
    let members: Vec<String> = header
        .members
        .iter()
        .map(|(id, _)| id.to_string())
        .collect();
    vec![
        header.cluster.clone(),
        header.incarnation.to_string(),
        header.revision.to_string(),
        output::time(&lattice_api::text::time(header.at)),
        header.index.to_string(),
        members.join(" "),
        bytes(header).to_string(),
    ]
}

fn print_summary(format: Format, file: &Path, header: &BackupHeader) -> Result<(), Failure> {
    output::print_record(format, header, Columns::only(&SUMMARY), summary_row(header))?;
    output::message!("{}: the backup is complete", file.display());
    Ok(())
}

/// Everything that an operator reads before a restore.
#[derive(Serialize)]
struct RestoreDocument<'a> {
    #[serde(flatten)]
    plan: &'a RestorePlan,
    /// Changes that the restored cluster has no record of.
    lost_changes: Vec<String>,
    /// What happens to work that runs now.
    consequences: Vec<String>,
    /// How to restore a cluster.
    steps: Vec<String>,
}

fn print_document(format: Format, plan: &RestorePlan, steps: Vec<String>) -> Result<(), Failure> {
    let document = RestoreDocument {
        plan,
        lost_changes: plan.lost_changes(),
        consequences: plan.consequences(),
        steps,
    };
    let more = ["last_allocation", "next_allocation", "running", "waiting"];
    let columns = [&SUMMARY[..], &more[..]].concat();
    let running: Vec<String> = plan.running.iter().map(ToString::to_string).collect();
    let mut row = summary_row(&plan.header);
    row.extend([
        plan.last_allocation.to_string(),
        plan.next_allocation.to_string(),
        running.join("; "),
        plan.waiting.to_string(),
    ]);
    Ok(output::print_record(
        format,
        &document,
        Columns::only(&columns),
        row,
    )?)
}

/// Steps of a restore into new machines.
fn steps(file: &Path, header: &BackupHeader) -> Vec<String> {
    let (cluster, file) = (&header.cluster, file.display());
    let next = header.incarnation.number.saturating_add(1);
    vec![
        format!(
            "Stop what is left of the old cluster. It could not change the new one (that is incarnation {next}, and \
             members of two incarnations refuse each other), but controls would find both."
        ),
        format!(
            "Give each new member its configuration (cluster: {cluster}; all new members in `members`), credentials \
             (lattice admin ca issue --role quorum --id N) and, for those that issue certificates, the authority's \
             folder. None of it is in the backup."
        ),
        format!(
            "On every member, with the same file, the same version of lattice-quorum and an empty data_dir: \
             lattice-quorum --config member-N.yaml restore {file}; it lists the consequences again and requests \
             confirmation; without a terminal, add --yes."
        ),
        "Start them. They found the cluster together; all members are equal. Then start the controls."
            .to_owned(),
        format!(
            "Review the submits, cancellations and revocations after {}: they are not in the backup.",
            output::time(&lattice_api::text::time(header.at))
        ),
    ]
}

/// Verifies a backup, and prints what a restore from it changes. Once the operator confirms this, prints how to restore a
/// cluster from it.
pub fn restore(args: &RestoreArgs, format: Format) -> Result<(), Failure> {
    let file = &args.file;
    let plan = lattice_quorum::plan_restore(file);
    let plan = plan.map_err(|error| Failure::refused(error.to_string()))?;
    let steps = steps(file, &plan.header);
    if !format.is_for_reading() {
        return print_document(format, &plan, steps);
    }
    output::line(&format!("{} is complete: {plan}\n", file.display()))?;
    if !args.yes {
        let question = "Print the steps of the restore?";
        #[expect(
            clippy::disallowed_methods,
            reason = "the question has no text of others"
        )]
        let out = std::io::stderr();
        lattice_quorum::confirm(question, out).map_err(anyhow::Error::from)?;
    }
    let steps = (1..).zip(&steps).map(|(n, step)| format!(" {n}. {step}"));
    let steps: Vec<String> = steps.collect();
    let text = format!("To restore it into new machines:\n\n{}", steps.join("\n"));
    Ok(output::line(&text)?)
}
