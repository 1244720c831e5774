//! `lattice admin`: CAs and certificates, enrolment, the quorum, tenants, vClusters, accounting, cluster-wide settings,
//! and context files.

mod accounting;
mod ca;
mod certificate;
mod https;
mod quorum;
mod system;
mod tenant;
mod token;
mod vcluster;

use crate::{
    connect::Connection,
    context::ContextFile,
    failure::Failure,
    output::{self, Format},
};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use lattice_host::private_file;
use secrecy::ExposeSecret as _;
use serde_json::json;
use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// One day.
const DAY: Duration = Duration::from_secs(86_400);

/// Administration commands.
#[derive(Subcommand)]
pub enum AdminCommand {
    /// Certificate authorities (CAs): create one, and replace the issuing one without an interruption.
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Certificates of members and HTTPS ports: list, revoke, show.
    #[command(subcommand, visible_alias = "cert")]
    Certificate(certificate::CertificateCommand),
    /// Quorum members: status and lag; add, remove and replace members; leadership; backups.
    #[command(subcommand)]
    Quorum(quorum::QuorumCommand),
    /// Join tokens, with which agents, controls and quorum members enrol.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Tenants: organisations with their limits, the roots of the project tree.
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Accounting: delivery of usage to Waldur, and reconciliation.
    #[command(subcommand)]
    Accounting(accounting::AccountingCommand),
    /// vClusters (like partitions in Slurm): access of tenants, assignment of nodes, and scheduler settings.
    ///
    /// A vCluster lends idle nodes and borrows those of others only after it has been defined. This includes `default`,
    /// which neither lends nor borrows until the first `lattice admin vcluster set default`, whatever its settings are.
    #[command(subcommand)]
    Vcluster(vcluster::VclusterCommand),
    /// Cluster-wide settings: the sensitive pool, and the limit policy.
    #[command(subcommand)]
    System(system::SystemCommand),
    /// Create a certificate for the web page and the API: `https.pem`, `https.key`, and `https-ca.pem` for clients to
    /// trust. Sites with their own CA use that instead.
    ///
    /// The certificate does not renew by itself: `--renew` replaces it, with the CA key `https-ca.key` in the same
    /// folder. The CA is valid for ten years. Its key is enough to impersonate the server: keep the folder on one
    /// machine, and copy only `https.pem` and `https.key` to the others.
    Https(https::HttpsArgs),
    /// Write a context file: the address of a server, its CA, and the caller's token.
    Context(ContextArgs),
}

/// Runs an administration command. A command that needs no cluster opens no connection.
pub async fn run(
    command: AdminCommand,
    context: Option<&Path>,
    format: Format,
) -> Result<(), Failure> {
    let open = || Connection::open(context, format);
    match command {
        AdminCommand::Ca(ca::CaCommand::Create(args)) => Ok(ca::create(&args, format)?),
        AdminCommand::Ca(ca::CaCommand::Issue(args)) => Ok(ca::issue(&args, format)?),
        AdminCommand::Ca(command) => ca::run(command, &open()?).await,
        AdminCommand::Https(args) => Ok(https::run(&args, format)?),
        AdminCommand::Context(args) => Ok(self::context(&args, format)?),
        AdminCommand::Certificate(certificate::CertificateCommand::Show(args)) => {
            certificate::show(&args, format)
        }
        AdminCommand::Certificate(command) => certificate::run(command, &open()?).await,
        AdminCommand::Quorum(quorum::QuorumCommand::Backup(args)) if args.verify => {
            quorum::verify(args.file(), format)
        }
        AdminCommand::Quorum(quorum::QuorumCommand::Restore(args)) => {
            quorum::restore(&args, format)
        }
        AdminCommand::Quorum(command) => quorum::run(command, &open()?).await,
        AdminCommand::Token(command) => token::run(command, &open()?).await,
        AdminCommand::Tenant(command) => tenant::run(command, &open()?).await,
        AdminCommand::Accounting(command) => accounting::run(command, &open()?).await,
        AdminCommand::Vcluster(command) => vcluster::run(command, &open()?).await,
        AdminCommand::System(command) => system::run(command, &open()?).await,
    }
}

/// Returns the first 12 characters of a pin or hash, which identify it in lists.
fn short_pin(pin: &str) -> &str {
    pin.get(..12).unwrap_or(pin)
}

#[derive(Args)]
pub struct ContextArgs {
    /// `https://host:port`.
    #[arg(long)]
    server: String,
    /// CA certificate that signed the server's certificate, PEM.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// File that contains only the token, mode 0600.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// New context file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Writes a context file.
pub fn context(args: &ContextArgs, format: Format) -> anyhow::Result<()> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let token = private_file::read_secret(&args.token_file).context("--token-file")?;
    let context = ContextFile {
        server: args.server.clone(),
        ca_pem: read(&args.ca)?,
        token: token.expose_secret().trim().to_owned(),
        demo_pid: None,
    };
    // A context that no client can use is not written.
    crate::connect::client(&context)?;
    write_new(&args.out, &serde_json::to_vec_pretty(&context)?, 0o600)?;
    let file = args.out.display().to_string();
    let sentence = format!("wrote {file}; use it with --context, or set LATTICE_CONTEXT");
    let written = json!({"file": file, "server": args.server});
    output::print_done(format, &written, &sentence)
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let mut file = open_new(path, mode)?;
    file.write_all(bytes)
        .with_context(|| path.display().to_string())
}

/// Creates a file. An existing file is not replaced.
fn open_new(path: &Path, mode: u32) -> anyhow::Result<File> {
    let open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    open.with_context(|| path.display().to_string())
}
