//! `lattice admin`: what founds a cluster, and how others get into it.

use crate::{connect::Connection, failure::Failure, output};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use lattice_api::token::TokenRequest;
use lattice_mesh::{Authority, Clock as _, Credentials, Identity, Role, SystemClock, Validity};
use std::{path::PathBuf, time::Duration};

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// What administrators do.
#[derive(Subcommand)]
pub enum AdminCommand {
    /// The cluster's certificate authority; offline.
    #[command(subcommand)]
    Ca(CaCommand),
    /// Join tokens.
    #[command(subcommand)]
    Token(TokenCommand),
}

/// What is done with an authority.
#[derive(Subcommand)]
pub enum CaCommand {
    /// Make a new authority: `ca.pem`, and `ca.key` with mode 0600.
    Create(CreateArgs),
    /// Issue credentials, for the processes that cannot enrol: the first quorum members.
    Issue(IssueArgs),
}

#[derive(Args)]
pub struct CreateArgs {
    /// The cluster's name, as in every certificate.
    #[arg(long)]
    cluster: String,
    /// Folder for the authority; an existing one is not replaced.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long it holds.
    #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=7300))]
    days: u32,
}

#[derive(Args)]
pub struct IssueArgs {
    /// Folder of the authority.
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,
    /// The cluster's name.
    #[arg(long)]
    cluster: String,
    /// quorum, control or agent.
    #[arg(long)]
    role: Role,
    /// Its name: a quorum member's number, a node's name.
    #[arg(long)]
    id: String,
    /// Folder for `identity.pem`, `identity.key` and `roots.pem`.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long they hold.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=825))]
    days: u32,
}

/// What is done with join tokens.
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Make a token with which processes enrol. It is shown once.
    Create(TokenArgs),
}

#[derive(Args)]
pub struct TokenArgs {
    /// What may enrol with it: agent, control or quorum.
    #[arg(long)]
    role: Role,
    /// How long it may be used: 30m, 1h, 7d.
    #[arg(long, default_value = "1h")]
    ttl: String,
    /// How often it may be used.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,
    /// Only for these nodes: gpu[001-512].
    #[arg(long, value_name = "HOSTLIST")]
    nodes: Option<String>,
}

fn validity(days: u32) -> Validity {
    Validity::from_now(SystemClock.now(), DAY * days)
}

/// What needs no cluster.
pub fn ca(command: CaCommand) -> anyhow::Result<()> {
    match command {
        CaCommand::Create(args) => {
            // The name must be one that certificates can carry.
            Identity::new(&args.cluster, Role::Quorum, "1").context("--cluster")?;
            std::fs::create_dir_all(&args.out)
                .with_context(|| format!("--out {}", args.out.display()))?;
            let authority = Authority::create(&args.cluster, validity(args.days))?;
            authority.save(&args.out)?;
            eprintln!("made {} (pin {})", args.out.display(), authority.pin());
        }
        CaCommand::Issue(args) => {
            let identity = Identity::new(&args.cluster, args.role, &args.id)?;
            let authority = Authority::load(&args.ca)?;
            Credentials::issued_by(&authority, &identity, validity(args.days))?.save(&args.out)?;
            eprintln!("issued {} in {}", identity.uri(), args.out.display());
        }
    }
    Ok(())
}

/// Makes a token and prints it.
pub async fn token(command: TokenCommand, connection: &Connection) -> Result<(), Failure> {
    let TokenCommand::Create(args) = command;
    let request = TokenRequest {
        role: args.role.to_string(),
        ttl: args.ttl,
        uses: args.uses,
        nodes: args.nodes,
    };
    let created = connection.client.create_token(&request).await?;
    let row = vec![
        created.token.clone(),
        created.uses.to_string(),
        created.expires_at.clone(),
    ];
    let columns = output::Columns::only(&["token", "uses", "expires"]);
    Ok(output::print(connection.format, &created, columns, [row])?)
}
