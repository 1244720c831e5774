//! `lattice admin`: what founds a cluster, and how others get into it.

use crate::{
    connect::Connection,
    context::ContextFile,
    failure::Failure,
    output::{self, Format},
    web_tls,
};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use lattice_api::token::TokenRequest;
use lattice_mesh::{Authority, Clock as _, Credentials, Identity, Role, SystemClock, Validity};
use secrecy::ExposeSecret as _;
use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// What administrators do.
#[derive(Subcommand)]
pub enum AdminCommand {
    /// The cluster's certificate authority; offline.
    #[command(subcommand)]
    Ca(CaCommand),
    /// Make a certificate for the page and the API: `https.pem`, `https.key`, and `https-ca.pem`
    /// for clients to trust. Sites with an authority of their own use that instead.
    Https(HttpsArgs),
    /// Write a context file: where a server is, how to trust it, and the token to show it.
    Context(ContextArgs),
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

#[derive(Args)]
pub struct HttpsArgs {
    /// A name or address of the server; repeat for several.
    #[arg(long = "host", required = true)]
    hosts: Vec<String>,
    /// Folder for the files; existing ones are not replaced.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long it holds.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=825))]
    days: u32,
}

#[derive(Args)]
pub struct ContextArgs {
    /// `https://host:port`.
    #[arg(long)]
    server: String,
    /// Certificate of the authority that signed the server's, PEM.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// File with the token alone.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The new context file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
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
            if args.role == Role::Quorum && args.id.parse::<u64>().is_err() {
                bail!(
                    "--id {:?}: a quorum member's name is its number, like 1",
                    args.id
                );
            }
            let key = args.out.join("identity.key");
            if key.exists() {
                bail!(
                    "{} is there already; give another --out, or move it away",
                    key.display()
                );
            }
            let authority = Authority::load(&args.ca)?;
            Credentials::issued_by(&authority, &identity, validity(args.days))?.save(&args.out)?;
            eprintln!("issued {} in {}", identity.uri(), args.out.display());
        }
    }
    Ok(())
}

/// A certificate for the page and the API.
pub fn https(args: &HttpsArgs) -> anyhow::Result<()> {
    let web = web_tls::create(args.hosts.clone(), SystemTime::now(), DAY * args.days)?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    // The key first: what stands in the way is found before anything is written.
    write_new(
        &args.out.join("https.key"),
        web.key_pem.expose_secret().as_bytes(),
        0o600,
    )?;
    write_new(
        &args.out.join("https.pem"),
        web.certificate_pem.as_bytes(),
        0o644,
    )?;
    write_new(&args.out.join("https-ca.pem"), web.ca_pem.as_bytes(), 0o644)?;
    eprintln!("made {} for {}", args.out.display(), args.hosts.join(", "));
    Ok(())
}

/// A context file.
pub fn context(args: &ContextArgs) -> anyhow::Result<()> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let context = ContextFile {
        server: args.server.clone(),
        ca_pem: read(&args.ca)?,
        token: read(&args.token_file)?.trim().to_owned(),
        demo_pid: None,
    };
    // What no client could be made of is not written.
    crate::connect::client(&context)?;
    write_new(&args.out, &serde_json::to_vec_pretty(&context)?, 0o600)?;
    eprintln!(
        "wrote {}; use it with --context, or set LATTICE_CONTEXT",
        args.out.display()
    );
    Ok(())
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    open.and_then(|mut file| file.write_all(bytes))
        .with_context(|| path.display().to_string())
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
    if matches!(connection.format, Format::Table | Format::Wide) {
        // Alone on standard output, so that it can go straight into a file.
        let (uses, until) = (created.uses, &created.expires_at);
        eprintln!(
            "good for {uses} enrolments of role {} until {until}",
            args.role
        );
        return Ok(output::line(&created.token)?);
    }
    let row = vec![
        created.token.clone(),
        created.uses.to_string(),
        created.expires_at.clone(),
    ];
    let columns = output::Columns::only(&["token", "uses", "expires"]);
    Ok(output::print(connection.format, &created, columns, [row])?)
}
