//! `lattice admin`: what founds a cluster, who gets into it, and who is thrown out.

mod accounting;
mod ca;
mod certificate;
mod quorum;
mod system;
mod tenant;
mod token;
mod vcluster;

use crate::{connect::Connection, context::ContextFile, failure::Failure, output::Format, web_tls};
use anyhow::Context as _;
use clap::{Args, Subcommand};
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
    /// Certificate authorities: make one, and change the one that issues while all goes on.
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Members' certificates: who is in, until when, and how to throw one out.
    #[command(subcommand, visible_alias = "cert")]
    Certificate(certificate::CertificateCommand),
    /// The quorum's members: who leads and who is behind; add, remove and replace them; backups.
    #[command(subcommand)]
    Quorum(quorum::QuorumCommand),
    /// Join tokens: what lets agents, controls and quorum members in.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Tenants: organisations with their limits, the roots of the project tree.
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Accounting: whether Waldur has what was used, and putting it right.
    #[command(subcommand)]
    Accounting(accounting::AccountingCommand),
    /// vClusters: tenants' views of the nodes. For whom they are, and whose nodes are whose.
    ///
    /// A vCluster lends idle nodes and borrows those of others once somebody has said what it is, `default` too: until
    /// `lattice admin vcluster set default` was said once, it does neither, whatever its settings are.
    #[command(subcommand)]
    Vcluster(vcluster::VclusterCommand),
    /// What holds for the whole cluster: the sensitive pool, and what limits mean.
    #[command(subcommand)]
    System(system::SystemCommand),
    /// Make a certificate for the page and the API: `https.pem`, `https.key`, and `https-ca.pem`
    /// for clients to trust. Sites with an authority of their own use that instead.
    Https(HttpsArgs),
    /// Write a context file: where a server is, how to trust it, and the token to show it.
    Context(ContextArgs),
}

/// Runs one of them. What needs no cluster never looks for one.
pub async fn run(
    command: AdminCommand,
    context: Option<&Path>,
    format: Format,
) -> Result<(), Failure> {
    let open = || Connection::open(context, format);
    match command {
        AdminCommand::Ca(ca::CaCommand::Create(args)) => Ok(ca::create(&args)?),
        AdminCommand::Ca(ca::CaCommand::Issue(args)) => Ok(ca::issue(&args)?),
        AdminCommand::Ca(command) => ca::run(command, &open()?).await,
        AdminCommand::Https(args) => Ok(https(&args)?),
        AdminCommand::Context(args) => Ok(self::context(&args)?),
        AdminCommand::Certificate(certificate::CertificateCommand::Show(args)) => {
            certificate::show(&args, format)
        }
        AdminCommand::Certificate(command) => certificate::run(command, &open()?).await,
        AdminCommand::Quorum(quorum::QuorumCommand::Backup(args)) if args.verify => {
            quorum::verify(args.file(), format)
        }
        AdminCommand::Quorum(quorum::QuorumCommand::Restore { file }) => quorum::restore(&file),
        AdminCommand::Quorum(command) => quorum::run(command, &open()?).await,
        AdminCommand::Token(command) => token::run(command, &open()?).await,
        AdminCommand::Tenant(command) => tenant::run(command, &open()?).await,
        AdminCommand::Accounting(command) => accounting::run(command, &open()?).await,
        AdminCommand::Vcluster(command) => vcluster::run(command, &open()?).await,
        AdminCommand::System(command) => system::run(command, &open()?).await,
    }
}

/// The first characters of a pin or hash: what lists show, and enough to name it.
fn short_pin(pin: &str) -> &str {
    pin.get(..12).unwrap_or(pin)
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
