//! `lattice admin quorum`.

mod backup;

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format, or_dash},
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

/// Between two steps of a change.
const STEP: Duration = Duration::from_millis(300);
/// How long a quorum that does not answer is waited for: an election takes a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is done with the quorum.
#[derive(Subcommand)]
pub enum QuorumCommand {
    /// Who leads, how far each member is, which one is behind, and what somebody should look at.
    Status,
    /// Add a member: it is brought up to date first and votes then
    ///
    /// Before: give the new machine a certificate (`lattice admin ca issue --role quorum --id ID`), the
    /// authority's folder if it is to issue certificates, and a configuration with `join: true` and
    /// `members` that lists the present members and itself; start lattice-quorum there.
    ///
    /// If this is cut short, run it again: it goes on where it stood.
    #[command(verbatim_doc_comment)]
    Add(AddArgs),
    /// Remove a member. If it leads, another one leads first.
    ///
    /// Refused while a majority of the rest does not answer. Its certificate stays good: `lattice admin
    /// certificate revoke quorum/ID` ends that. Take it out of `members` in the other configurations.
    #[command(verbatim_doc_comment)]
    Remove(RemoveArgs),
    /// Put a new machine in the place of a dead one: add the new one, then remove the old one
    ///
    /// There is a majority at every moment of it. If this is cut short, run it again.
    #[command(verbatim_doc_comment)]
    Replace(ReplaceArgs),
    /// Let another member lead, with a pause of one election; before maintenance of the leader's machine.
    StepDown {
        /// A voter's number; whoever has everything when left out.
        #[arg(long, value_name = "ID")]
        to: Option<u64>,
    },
    /// Write a backup of the whole state into a new file, while work goes on
    ///
    /// It holds everything that was acknowledged before the command, at one revision. Every byte is
    /// verified while it is written; the file appears under its name when it is whole and on disk, and
    /// never over another one. For cron:
    ///
    ///   lattice admin quorum backup /backup/lattice-$(date +%F-%H%M).backup
    ///
    /// No key is in it. Keep beside it, as safe as you keep the keys: the authority's folder
    /// (`enrolment.authority`: ca.pem, ca.key), and the members' configurations.
    #[command(verbatim_doc_comment)]
    Backup(BackupArgs),
    /// Check a backup, and say how a cluster is restored from it. No cluster is asked, nothing is changed.
    Restore {
        /// The backup.
        file: PathBuf,
    },
}

#[derive(Args)]
pub struct AddArgs {
    /// Its number: one that no member has, and best one that none ever had.
    id: u64,
    /// Its mesh address, ip:port.
    address: String,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args)]
pub struct RemoveArgs {
    /// Its number.
    id: u64,
    /// Why; it is written down.
    #[arg(long, default_value = "removed by hand")]
    reason: String,
    /// Even when a majority of the rest does not answer: nothing can be changed then until it does.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args)]
pub struct ReplaceArgs {
    /// Number of the member that goes.
    old: u64,
    /// Number of the member that comes.
    new: u64,
    /// Its mesh address, ip:port.
    address: String,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args)]
pub struct BackupArgs {
    /// The new file, or the one to verify.
    file: PathBuf,
    /// Only check that this file is a whole backup, and say what is in it. No cluster is asked.
    #[arg(long)]
    pub verify: bool,
}

impl BackupArgs {
    /// The file.
    pub fn file(&self) -> &std::path::Path {
        &self.file
    }
}

/// How long a change is waited for.
#[derive(Args, Clone, Copy)]
struct Wait {
    /// Give up waiting after so many seconds; what was begun goes on when the command is given again.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

/// Runs one of those that ask a cluster.
pub async fn run(command: QuorumCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        QuorumCommand::Status => status(connection).await,
        QuorumCommand::Add(args) => {
            add(connection, args.id, &args.address, args.wait).await?;
            told(connection).await
        }
        QuorumCommand::Remove(args) => {
            remove(connection, args.id, &args.reason, args.force, args.wait).await?;
            told(connection).await
        }
        QuorumCommand::Replace(args) => {
            add(connection, args.new, &args.address, args.wait).await?;
            let reason = format!("replaced by member {}", args.new);
            remove(connection, args.old, &reason, false, args.wait).await?;
            told(connection).await
        }
        QuorumCommand::StepDown { to } => step_down(connection, to).await,
        QuorumCommand::Backup(args) => backup::make(connection, &args.file).await,
        QuorumCommand::Restore { file } => restore(&file),
    }
}

const STATUS: Columns<'_> = Columns {
    narrow: &[
        "member", "address", "role", "answers", "applied", "behind", "heard", "snapshot",
    ],
    wide: &["term", "last log", "revision", "build", "format"],
};

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

fn row(member: &QuorumMemberView) -> Vec<String> {
    let heard = match member.heard_ms {
        Some(ms) if ms < 10_000 => format!("{ms} ms ago"),
        Some(ms) => format!("{} s ago", ms / 1000),
        None if member.role == "leader" => "-".to_owned(),
        None => "unknown".to_owned(),
    };
    vec![
        member.id.to_string(),
        member.address.clone(),
        member.role.clone(),
        match &member.fault {
            None => "yes".to_owned(),
            Some(_) => "NO".to_owned(),
        },
        number(member.applied_index),
        number(member.lag),
        heard,
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
        None => "NOBODY LEADS".to_owned(),
    };
    let life = match &view.restored_from {
        Some(origin) => format!(
            ", incarnation {} (restored from {origin})",
            view.incarnation
        ),
        None => String::new(),
    };
    format!(
        "{}{life}: {leader} in term {}; {} voters answer, {} are needed",
        view.cluster, view.term, view.reachable, view.majority
    )
}

async fn status(connection: &Connection) -> Result<(), Failure> {
    let view = connection.client.quorum().await?;
    output::title(connection.format, &headline(&view))?;
    output::print(
        connection.format,
        &view,
        STATUS,
        view.members.iter().map(row),
    )?;
    for warning in &view.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(())
}

/// The members after a change, in one line, and what is to be looked at.
async fn told(connection: &Connection) -> Result<(), Failure> {
    let view = connection.client.quorum().await?;
    if matches!(connection.format, Format::Table | Format::Wide) {
        eprintln!("{}", headline(&view));
        for warning in &view.warnings {
            eprintln!("warning: {warning}");
        }
        return Ok(());
    }
    Ok(output::print(
        connection.format,
        &view,
        STATUS,
        view.members.iter().map(row),
    )?)
}

/// Names one request, so that its repeats are written down once.
fn key() -> String {
    format!("cli-{:032x}", rand::random::<u128>())
}

/// Asks for steps until the change is done.
async fn finish<F>(
    what: &str,
    wait: Wait,
    mut step: impl FnMut() -> F,
) -> Result<QuorumStep, Failure>
where
    F: Future<Output = Result<QuorumStep, ClientError>>,
{
    let until = Instant::now() + Duration::from_secs(wait.timeout);
    let (mut heard, mut said) = (Instant::now(), None);
    loop {
        match step().await {
            Ok(done) if done.is_done() => return Ok(done),
            Ok(step) => {
                heard = Instant::now();
                let now = match (step.at, step.of, &step.fault) {
                    (_, _, Some(fault)) => format!("{what}: it is not reached: {fault}"),
                    (Some(at), Some(of), None) => {
                        format!("{what}: it has {at} of {of} log entries")
                    }
                    _ => format!("{what}: under way"),
                };
                if said.as_ref() != Some(&now) {
                    eprintln!("{now}");
                    said = Some(now);
                }
            }
            // Between two leaders nobody answers.
            Err(ClientError::Unavailable(_)) if heard.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= until {
            return Err(Failure::refused(format!(
                "{what}: not done within {} s; give the command again to go on",
                wait.timeout
            )));
        }
        tokio::time::sleep(STEP).await;
    }
}

async fn add(connection: &Connection, id: u64, address: &str, wait: Wait) -> Result<(), Failure> {
    let (key, client) = (key(), &connection.client);
    let what = format!("adding member {id}");
    let done = finish(&what, wait, || client.add_member(id, address, Some(&key))).await?;
    match done.already {
        true => eprintln!("member {id} votes already"),
        false => eprintln!("member {id} at {address} votes from now on"),
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
    let (key, client) = (key(), &connection.client);
    let what = format!("removing member {id}");
    let step = || client.remove_member(id, reason, force, Some(&key));
    let done = finish(&what, wait, step).await?;
    match done.already {
        true => eprintln!("there is no member {id}: nothing was to be done"),
        false => {
            eprintln!("member {id} is removed; its machine can be stopped");
            eprintln!(
                "  next: take it out of `members` in the configurations of the others and of the \
                 controls; if its machine is lost: lattice admin certificate revoke quorum/{id}"
            );
        }
    }
    Ok(())
}

async fn step_down(connection: &Connection, to: Option<u64>) -> Result<(), Failure> {
    let done = connection.client.step_down(to, Some(&key())).await?;
    match (done.leader, done.already) {
        (Some(id), true) => eprintln!("member {id} leads already"),
        (Some(id), false) => eprintln!("member {id} leads now"),
        (None, _) => eprintln!("leadership was given up; see `lattice admin quorum status`"),
    }
    Ok(())
}
