//! `lattice admin quorum`: members of the quorum, leadership and backups.

mod backup;

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, or_dash},
};
use clap::{Args, Subcommand};
use lattice_api::quorum::{QuorumMemberView, QuorumStep, QuorumView};
use lattice_client::ClientError;
use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

pub use backup::{restore, verify};

/// Interval between two steps of a change.
const STEP_INTERVAL: Duration = Duration::from_millis(300);
/// Longest wait for a quorum that does not answer: an election takes a second.
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Quorum subcommands.
#[derive(Subcommand)]
pub enum QuorumCommand {
    /// Show the leader, the progress and lag of each member, and warnings.
    Status,
    /// Add a member: it catches up first, and then votes
    ///
    /// Before: give the new machine a certificate (`lattice admin ca issue --role quorum --id ID`), the
    /// CA folder if it is to issue certificates, and a configuration with `join: true` and `members`
    /// that lists the present members and itself; start lattice-quorum there.
    ///
    /// If the command is interrupted, run it again: it continues.
    #[command(verbatim_doc_comment)]
    Add(AddArgs),
    /// Remove a member. If it leads, another member leads first.
    ///
    /// Refused while a majority of the rest does not answer. The certificate of the member stays valid:
    /// `lattice admin certificate revoke quorum/ID` revokes it. Remove the member from `members` in the
    /// other configurations.
    #[command(verbatim_doc_comment)]
    Remove(RemoveArgs),
    /// Replace a dead machine: add the new member, then remove the old one
    ///
    /// The quorum keeps a majority throughout. If the command is interrupted, run it again.
    #[command(verbatim_doc_comment)]
    Replace(ReplaceArgs),
    /// Transfer leadership to another member, with a pause of one election; for maintenance of the leader's machine.
    StepDown {
        /// Number of the voter that is to lead; left out: any voter with a complete log.
        #[arg(long, value_name = "ID")]
        to: Option<u64>,
    },
    /// Write a backup of the whole state into a new file, during operation
    ///
    /// The backup contains everything that was acknowledged before the command, at one revision. Every
    /// byte is verified while it is written. The file gets its name when it is complete and on disk, and
    /// never replaces an existing file. For cron:
    ///
    ///   lattice admin quorum backup /backup/lattice-$(date +%F-%H%M).backup
    ///
    /// The backup contains no key. Store with it, as safe as the keys themselves: the CA folder
    /// (`enrolment.authority`: ca.pem, ca.key), and the members' configurations.
    #[command(verbatim_doc_comment)]
    Backup(BackupArgs),
    /// Check a backup offline, print what a restore from it changes and, once that is confirmed, how to restore a
    /// cluster. Nothing is changed.
    ///
    /// `-o json` and `-o yaml` print all of it as one document, without a confirmation.
    Restore(RestoreArgs),
}

#[derive(Args)]
pub struct AddArgs {
    /// Member number: one that no member has, and preferably none ever had.
    id: u64,
    /// Mesh address, ip:port.
    address: String,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args)]
pub struct RemoveArgs {
    /// Member number.
    id: u64,
    /// Reason; kept in the audit.
    #[arg(long, default_value = "removed by hand")]
    reason: String,
    /// Remove the member even if a majority of the rest does not answer: nothing can then be changed until it does.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args)]
pub struct ReplaceArgs {
    /// Number of the member to remove.
    old: u64,
    /// Number of the member to add.
    new: u64,
    /// Mesh address of the new member, ip:port.
    address: String,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args)]
pub struct BackupArgs {
    /// New backup file, or the file to verify.
    file: PathBuf,
    /// Only verify offline that this file is a complete backup, and show its contents.
    #[arg(long)]
    pub verify: bool,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// Backup file.
    file: PathBuf,
    /// Confirm the listed consequences. Required for the steps of the restore if standard input is not a terminal.
    #[arg(long)]
    yes: bool,
}

impl BackupArgs {
    /// Returns the backup file.
    pub fn file(&self) -> &std::path::Path {
        &self.file
    }
}

/// Longest wait for a change.
#[derive(Args, Clone, Copy)]
struct Wait {
    /// Stop waiting for the addition or the removal after this many seconds; the change continues when the command is
    /// run again.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

/// Runs a quorum command; `restore` does not use the connection.
pub async fn run(command: QuorumCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        QuorumCommand::Status => status(connection).await,
        QuorumCommand::Add(args) => {
            add(connection, args.id, &args.address, args.wait).await?;
            print_quorum(connection).await
        }
        QuorumCommand::Remove(args) => {
            remove(connection, args.id, &args.reason, args.force, args.wait).await?;
            print_quorum(connection).await
        }
        QuorumCommand::Replace(args) => {
            add(connection, args.new, &args.address, args.wait).await?;
            let reason = format!("replaced by member {}", args.new);
            remove(connection, args.old, &reason, false, args.wait).await?;
            print_quorum(connection).await
        }
        QuorumCommand::StepDown { to } => step_down(connection, to).await,
        QuorumCommand::Backup(args) => backup::write_backup(connection, &args.file).await,
        QuorumCommand::Restore(args) => restore(&args, connection.format),
    }
}

const STATUS: Columns<'_> = Columns {
    narrow: &[
        "id",
        "address",
        "role",
        "fault",
        "applied_index",
        "lag",
        "last_contact_ms",
        "snapshot_index",
    ],
    wide: &["term", "last_log_index", "revision", "build", "data_format"],
};

/// Columns that a narrow terminal leaves out, in this order.
const DROPPED_FIRST: &[&str] = &["snapshot_index", "last_contact_ms", "applied_index"];

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

fn row(member: &QuorumMemberView, format: Format) -> Vec<String> {
    let last_contact = match member.last_contact_ms {
        Some(ms) if format == Format::Csv => ms.to_string(),
        Some(ms) if ms < 10_000 => format!("{ms} ms ago"),
        Some(ms) => format!("{} s ago", ms / 1000),
        None if member.role == "leader" => "-".to_owned(),
        None => "unknown".to_owned(),
    };
    vec![
        member.id.to_string(),
        member.address.clone(),
        member.role.clone(),
        or_dash(member.fault.as_deref()),
        number(member.applied_index),
        number(member.lag),
        last_contact,
        number(member.snapshot_index),
        number(member.term),
        number(member.last_log_index),
        number(member.revision),
        or_dash(member.build.as_deref()),
        number(member.data_format.map(u64::from)),
    ]
}

fn headline(view: &QuorumView) -> String {
    let leader = match view.leader {
        Some(id) => format!("member {id} leads"),
        None => "NO LEADER".to_owned(),
    };
    let life = match &view.restored_from {
        Some(origin) => format!(
            ", incarnation {} (restored from {origin})",
            view.incarnation
        ),
        None => String::new(),
    };
    format!(
        "{}{life}: {leader} in term {}; reachable: {}, needed: {}",
        view.cluster,
        view.term,
        output::counted(view.reachable, "voter"),
        view.majority
    )
}

async fn status(connection: &Connection) -> Result<(), Failure> {
    let view = connection.client.quorum().await?;
    output::title(connection.format, &headline(&view))?;
    print_members(connection, &view)?;
    for warning in &view.warnings {
        output::message!("warning: {warning}");
    }
    Ok(())
}

/// Prints the state of the quorum after a change: one line and the warnings or, as JSON, YAML or CSV, all members.
async fn print_quorum(connection: &Connection) -> Result<(), Failure> {
    let view = connection.client.quorum().await?;
    if connection.format.is_for_reading() {
        output::message!("{}", headline(&view));
        for warning in &view.warnings {
            output::message!("warning: {warning}");
        }
        return Ok(());
    }
    print_members(connection, &view)
}

fn print_members(connection: &Connection, view: &QuorumView) -> Result<(), Failure> {
    let format = connection.format;
    let rows = view.members.iter().map(|member| row(member, format));
    Ok(output::print_fitted(
        format,
        view,
        STATUS,
        Fitting::Lines(DROPPED_FIRST),
        rows,
    )?)
}

/// Returns an idempotency key for one change, so that a repeated request takes effect and is audited only once.
fn idempotency_key() -> String {
    format!("cli-{:032x}", rand::random::<u128>())
}

/// Requests steps until the change is done.
async fn repeat_until_done<F>(
    what: &str,
    wait: Wait,
    mut step: impl FnMut() -> F,
) -> Result<QuorumStep, Failure>
where
    F: Future<Output = Result<QuorumStep, ClientError>>,
{
    let until = Instant::now() + Duration::from_secs(wait.timeout);
    let (mut last_contact, mut said) = (Instant::now(), None);
    loop {
        match step().await {
            Ok(done) if done.is_done() => return Ok(done),
            Ok(step) => {
                last_contact = Instant::now();
                let now = match (step.at, step.of, &step.fault) {
                    (_, _, Some(fault)) => format!("{what}: unreachable: {fault}"),
                    (Some(at), Some(of), None) => {
                        format!("{what}: {at} of {of} log entries replicated")
                    }
                    _ => format!("{what}: under way"),
                };
                if said.as_ref() != Some(&now) {
                    output::message!("{now}");
                    said = Some(now);
                }
            }
            // Between two leaders no member answers.
            Err(ClientError::Unavailable(_)) if last_contact.elapsed() < UNAVAILABLE_TIMEOUT => {}
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= until {
            return Err(Failure::refused(format!(
                "{what}: not done within {} s; repeat the command to continue",
                wait.timeout
            )));
        }
        tokio::time::sleep(STEP_INTERVAL).await;
    }
}

async fn add(connection: &Connection, id: u64, address: &str, wait: Wait) -> Result<(), Failure> {
    let (key, client) = (idempotency_key(), &connection.client);
    let what = format!("adding member {id}");
    let done =
        repeat_until_done(&what, wait, || client.add_member(id, address, Some(&key))).await?;
    match done.unchanged {
        true => output::message!("member {id} is already a voter"),
        false => output::message!("member {id} at {address} votes from now on"),
    }
    Ok(())
}

async fn remove(
    connection: &Connection,
    id: u64,
    reason: &str,
    force: bool,
    wait: Wait,
) -> Result<(), Failure> {
    let (key, client) = (idempotency_key(), &connection.client);
    let what = format!("removing member {id}");
    let step = || client.remove_member(id, reason, force, Some(&key));
    let done = repeat_until_done(&what, wait, step).await?;
    match done.unchanged {
        true => output::message!("there is no member {id}: nothing to do"),
        false => {
            output::message!("member {id} is removed; its machine can be stopped");
            output::message!(
                "  next: remove member {id} from `members` in the configurations of the other members and of the \
                 controls; if its machine is lost: lattice admin certificate revoke quorum/{id}"
            );
        }
    }
    Ok(())
}

async fn step_down(connection: &Connection, to: Option<u64>) -> Result<(), Failure> {
    let done = connection
        .client
        .step_down(to, Some(&idempotency_key()))
        .await?;
    let sentence = match (done.leader, done.unchanged) {
        (Some(id), true) => format!("member {id} leads already"),
        (Some(id), false) => format!("member {id} leads now"),
        (None, _) => "the leader stepped down, and no new leader is elected yet; see `lattice admin quorum status`"
            .to_owned(),
    };
    Ok(output::print_done(connection.format, &done, &sentence)?)
}
