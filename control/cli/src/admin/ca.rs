//! `lattice admin ca`: certificate authorities (CAs).

use super::short_pin;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, digest, time, until},
};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use lattice_api::{authority::AuthorityView, x509};
use lattice_mesh::{Authority, Clock as _, Credentials, Identity, Role, SystemClock, Validity};
use serde_json::json;
use std::{path::PathBuf, time::Duration};

/// CA subcommands.
#[derive(Subcommand)]
pub enum CaCommand {
    /// Create a CA offline: `ca.pem`, and `ca.key` with mode 0600.
    Create(CreateArgs),
    /// Issue credentials offline, for processes that cannot enrol: the first quorum members.
    Issue(IssueArgs),
    /// List the CAs that the cluster trusts, and which of them issues certificates.
    List,
    /// Trust one more CA: the first step of replacing the issuing CA
    ///
    /// The replacement takes three steps, without an interruption of service:
    ///   1. lattice admin ca create --cluster NAME --out new/; copy new/ into the CA folder
    ///      (enrolment.authority) of every quorum member and send it SIGHUP; then:
    ///      lattice admin ca add new/
    ///   2. lattice admin ca promote PIN: the new CA issues from now on, and every member renews
    ///   3. once `lattice admin ca list` counts no certificate of the old CA:
    ///      lattice admin ca retire OLD_PIN
    ///
    /// Leave the old folder with the members until then: they need its key for join tokens that were
    /// created before the replacement.
    #[command(verbatim_doc_comment)]
    Add {
        /// CA certificate, PEM, or the folder that holds `ca.pem`. The key stays where it is.
        file: PathBuf,
    },
    /// Make a trusted CA the issuing one; every member renews its certificate.
    Promote {
        /// Pin of the CA, or a prefix of it.
        pin: String,
    },
    /// Stop trusting a CA.
    Retire(RetireArgs),
}

#[derive(Args)]
pub struct CreateArgs {
    /// Cluster name, as in every certificate.
    #[arg(long)]
    cluster: String,
    /// Folder for the CA; an existing CA is not replaced.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Validity, days.
    #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=7300))]
    days: u32,
}

#[derive(Args)]
pub struct IssueArgs {
    /// Folder of the CA.
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,
    /// Cluster name.
    #[arg(long)]
    cluster: String,
    /// quorum, control or agent.
    #[arg(long)]
    role: Role,
    /// Name: the number of a quorum member, or the name of a control or node.
    #[arg(long)]
    id: String,
    /// Folder for `identity.pem`, `identity.key` and `roots.pem`.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Validity, days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=825))]
    days: u32,
}

#[derive(Args)]
pub struct RetireArgs {
    /// Pin of the CA, or a prefix of it.
    pin: String,
    /// Retire the CA even while certificates that it issued are in use: their holders must enrol again.
    #[arg(long)]
    force: bool,
}

/// One day.
const DAY: Duration = Duration::from_secs(86_400);

fn validity(days: u32) -> Validity {
    Validity::from_now(SystemClock.now(), DAY * days)
}

/// Creates a CA.
pub fn create(args: &CreateArgs, format: Format) -> anyhow::Result<()> {
    // The name must be valid in certificates.
    Identity::new(&args.cluster, Role::Quorum, "1").context("--cluster")?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    let authority = Authority::create(&args.cluster, validity(args.days))?;
    authority.save(&args.out)?;
    let (folder, pin) = (args.out.display().to_string(), authority.pin().to_string());
    let sentence = format!("made {folder} (pin {pin})");
    output::print_done(format, &json!({"folder": folder, "pin": pin}), &sentence)
}

/// Issues credentials without enrolment.
pub fn issue(args: &IssueArgs, format: Format) -> anyhow::Result<()> {
    let identity = Identity::new(&args.cluster, args.role, &args.id)?;
    if args.role == Role::Quorum && args.id.parse::<u64>().is_err() {
        bail!(
            "--id {:?}: a quorum member's name is its number, like 1",
            args.id
        );
    }
    let key = args.out.join("identity.key");
    if key.exists() {
        bail!(
            "{} exists already; give another --out, or move the file away",
            key.display()
        );
    }
    let authority = Authority::load(&args.ca)?;
    Credentials::issued_by(&authority, &identity, validity(args.days))?.save(&args.out)?;
    let (uri, folder) = (identity.uri(), args.out.display().to_string());
    let sentence = format!("issued {uri} in {folder}");
    output::print_done(
        format,
        &json!({"identity": uri, "folder": folder}),
        &sentence,
    )
}

/// Runs a CA command; `create` and `issue` do not use the connection.
pub async fn run(command: CaCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        CaCommand::Create(args) => Ok(create(&args, connection.format)?),
        CaCommand::Issue(args) => Ok(issue(&args, connection.format)?),
        CaCommand::List => list(connection).await,
        CaCommand::Add { file } => add(file, connection).await,
        CaCommand::Promote { pin } => promote(&pin, connection).await,
        CaCommand::Retire(args) => retire(&args, connection).await,
    }
}

const LIST: Columns<'_> = Columns::only(&[
    "pin",
    "phase",
    "since",
    "certificates",
    "subject",
    "expires_at",
]);

fn row(format: Format, authority: &AuthorityView) -> Vec<String> {
    let count = authority.certificates.map(|n| n.to_string());
    vec![
        digest(format, &authority.pin),
        authority.phase.clone(),
        time(&authority.since),
        count.unwrap_or_else(|| "unknown".to_owned()),
        authority.subject.clone(),
        match &authority.expires_at {
            Some(at) => until(format, at),
            None => "unknown".to_owned(),
        },
    ]
}

async fn list(connection: &Connection) -> Result<(), Failure> {
    let all = connection.client.authorities().await?;
    let rows = all
        .iter()
        .map(|authority| row(connection.format, authority));
    let dropped_first = &["subject", "since", "certificates"];
    Ok(output::print_fitted(
        connection.format,
        &all,
        LIST,
        Fitting::Lines(dropped_first),
        rows,
    )?)
}

async fn add(file: PathBuf, connection: &Connection) -> Result<(), Failure> {
    let file = match file.is_dir() {
        true => file.join("ca.pem"),
        false => file,
    };
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    // The certificate is checked here first: a file with a key must not leave this machine.
    let (_, described) = x509::read_authority(&text)
        .map_err(|error| Failure::usage(format!("{}: {}", file.display(), error.reason)))?;
    let done = connection.client.add_authority(&text, None).await?;
    let (pin, subject) = (short_pin(&described.pin), &described.subject);
    let sentence = format!(
        "authority {pin} ({subject}) is trusted; the current authority still issues certificates"
    );
    let added = json!({
        "pin": described.pin, "subject": subject, "revision": done.revision,
    });
    output::print_done(connection.format, &added, &sentence)?;
    output::message!(
        "  next: when every quorum member has its folder in enrolment.authority and has loaded it \
         (SIGHUP): lattice admin ca promote {pin}"
    );
    Ok(())
}

async fn promote(pin: &str, connection: &Connection) -> Result<(), Failure> {
    let done = connection.client.promote_authority(pin, None).await?;
    let all = connection.client.authorities().await?;
    let issuing = all.iter().find(|authority| authority.phase == "issuing");
    let issuing = issuing.map_or(pin, |authority| authority.pin.as_str());
    let sentence = format!(
        "authority {} issues from now on; every member renews within ten minutes",
        short_pin(issuing)
    );
    let promoted = json!({"pin": issuing, "revision": done.revision});
    output::print_done(connection.format, &promoted, &sentence)?;
    for old in all.iter().filter(|authority| authority.phase != "issuing") {
        let pin = short_pin(&old.pin);
        output::message!(
            "  next: when `lattice admin ca list` counts no certificate of {pin}: lattice admin \
             ca retire {pin}"
        );
    }
    Ok(())
}

async fn retire(args: &RetireArgs, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    let done = client.retire_authority(&args.pin, args.force, None).await?;
    let sentence = format!(
        "authority {} is no longer trusted; its certificates are refused",
        args.pin
    );
    let retired = json!({"pin": args.pin, "revision": done.revision});
    output::print_done(connection.format, &retired, &sentence)?;
    output::message!(
        "  join tokens with the pin of this authority only no longer work: create new ones"
    );
    Ok(())
}
