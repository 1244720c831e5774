//! Backups: written completely or not at all, and verified without a cluster.

use super::idempotency_key;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format},
    waiting::{NoticeTimes, next_item},
};
use anyhow::Context as _;
use lattice_host::durable::NewFile;
use lattice_quorum_types::backup::{BackupFault, BackupHeader, BackupVerifier};
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

fn print_summary(format: Format, file: &Path, header: &BackupHeader) -> Result<(), Failure> {
    let columns = Columns::only(&[
        "cluster",
        "incarnation",
        "revision",
        "at",
        "index",
        "members",
        "bytes",
    ]);
    let members: Vec<String> = header
        .members
        .iter()
        .map(|(id, _)| id.to_string())
        .collect();
    let row = vec![
        header.cluster.clone(),
        header.incarnation.to_string(),
        header.revision.to_string(),
        output::time(&lattice_api::text::time(header.at)),
        header.index.to_string(),
        members.join(" "),
        bytes(header).to_string(),
    ];
    output::print_record(format, header, columns, row)?;
    output::message!("{}: the backup is complete", file.display());
    Ok(())
}

/// Verifies a backup, and prints what a restore from it changes, and how to restore a cluster from it. A document has the
/// contents of the backup only.
pub fn restore(file: &Path, format: Format) -> Result<(), Failure> {
    let plan = lattice_quorum::plan_restore(file);
    let plan = plan.map_err(|error| Failure::refused(error.to_string()))?;
    let header = &plan.header;
    if !format.is_for_reading() {
        return print_summary(format, file, header);
    }
    let (cluster, file) = (&header.cluster, file.display());
    let at = output::time(&lattice_api::text::time(header.at));
    let next = header.incarnation.number + 1;
    let text = format!(
        "{file} is complete: {plan}

To restore it into new machines:

 1. Stop what is left of the old cluster. It could not change the new one (that is incarnation
    {next}, and members of two incarnations refuse each other), but controls would find both.
 2. Give each new member its configuration (cluster: {cluster}; all new members in `members`),
    credentials (lattice admin ca issue --role quorum --id N) and, for those that issue
    certificates, the authority's folder. None of it is in the backup.
 3. On every member, with the same file, the same version of lattice-quorum and an empty data_dir:
      lattice-quorum --config member-N.yaml restore {file}
    It lists the consequences again and requests confirmation; without a terminal, add --yes.
 4. Start them. They found the cluster together; all members are equal. Then start the controls.

Changes after {at} are not in the backup: review the submits, cancellations and revocations since then."
    );
    Ok(output::line(&text)?)
}
