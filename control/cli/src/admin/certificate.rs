//! `lattice admin certificate`: certificates of members and of controls' HTTPS ports.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, ResultList, or_dash, time, until},
};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use lattice_api::{
    certificate::{CertificateState, CertificateView},
    duration, text,
    x509::{self, CertificateFields},
};
use lattice_mesh::{BACKDATING, Clock as _, Role, SystemClock};
use lattice_quorum_types::{NodeId, Revision, hostlist};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Certificate subcommands.
#[derive(Subcommand)]
pub enum CertificateCommand {
    /// List members with their certificates: issue time, expiry, revocation. Rows with the role `https` are the
    /// certificates of the controls' HTTPS ports.
    ///
    /// Members renew by themselves after two thirds of a certificate's lifetime. A certificate near its expiry belongs
    /// to a member that has been unreachable for a long time. One from `lattice admin ca issue` is listed while its
    /// member is connected, and after its first renewal. HTTPS certificates do not renew by themselves:
    /// `lattice admin https --renew`.
    List(ListArgs),
    /// Revoke the certificates of members: their connections end at once, everywhere.
    ///
    /// To come back, a member must enrol again with a new token.
    Revoke(RevokeArgs),
    /// Show the contents of a certificate file, offline.
    Show(ShowArgs),
}

#[derive(Args)]
pub struct ListArgs {
    /// List this role only.
    #[arg(long, value_parser = ["agent", "control", "quorum", CertificateView::HTTPS])]
    role: Option<String>,
    /// List only certificates that have expired or will expire within this time: 7d.
    #[arg(long, value_name = "TIME")]
    ending_within: Option<String>,
}

#[derive(Args)]
pub struct RevokeArgs {
    /// Role and name: agent/gpu007, agent/gpu[001-004], control/c2.
    #[arg(required = true, value_name = "ROLE/NAMES")]
    members: Vec<String>,
    /// Reason; kept in the audit and shown with the member.
    #[arg(long)]
    reason: String,
}

#[derive(Args)]
pub struct ShowArgs {
    /// PEM file, or a folder with `identity.pem` (of a daemon) or `ca.pem` (of a CA).
    file: PathBuf,
}

/// Runs a certificate command; `show` uses only the output format of the connection.
pub async fn run(command: CertificateCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        CertificateCommand::List(args) => list(&args, connection).await,
        CertificateCommand::Revoke(args) => revoke(&args, connection).await,
        CertificateCommand::Show(args) => show(&args, connection.format),
    }
}

const LIST: Columns<'_> = Columns {
    narrow: &[
        "role",
        "name",
        "state",
        "issued_at",
        "expires_at",
        "revoked",
    ],
    wide: &["issued_before"],
};

/// Columns that a narrow terminal leaves out, in this order.
const DROPPED_FIRST: &[&str] = &["issued_at", "revoked"];

fn row(format: Format, c: &CertificateView) -> Vec<String> {
    let revoked = c.revoked.as_ref();
    let why = match (revoked, c.state) {
        (None, _) => "-".to_owned(),
        // The revoked certificate is no longer in use; the present one was issued later.
        (Some(r), CertificateState::Valid) => format!("an earlier one: {} ({})", r.reason, r.by),
        (Some(r), _) => format!("{} ({})", r.reason, r.by),
    };
    vec![
        c.role.clone(),
        c.name.clone(),
        c.state.as_str().to_owned(),
        or_dash(c.issued_at.as_deref().map(time).as_deref()),
        match &c.expires_at {
            Some(at) => until(format, at),
            None => "-".to_owned(),
        },
        why,
        or_dash(revoked.map(|r| time(&r.issued_before)).as_deref()),
    ]
}

async fn list(args: &ListArgs, connection: &Connection) -> Result<(), Failure> {
    let within = args.ending_within.as_deref().map(duration::parse);
    let within = within
        .transpose()
        .map_err(|e| Failure::usage(format!("--ending-within: {e}")))?;
    let last = within.map(|ms| SystemClock.now().after(ms));
    let mut all = connection.client.certificates().await?;
    all.retain(|c| {
        let ends_at = c.expires_at.as_deref().and_then(text::read_time);
        args.role.as_ref().is_none_or(|role| *role == c.role)
            && last.is_none_or(|last| ends_at.is_some_and(|end| end <= last))
    });
    let rows = all.iter().map(|c| row(connection.format, c));
    output::print_fitted(
        connection.format,
        &all,
        LIST,
        Fitting::Lines(DROPPED_FIRST),
        rows,
    )?;
    if all.is_empty() {
        let which = match (&args.role, within) {
            (None, None) => "",
            _ => "matching ",
        };
        output::message!("no {which}certificate");
    }
    Ok(())
}

/// Parses a role and a hostlist of names, such as `agent/gpu[001-004]`.
fn members(text: &str) -> Result<(Role, Vec<NodeId>), Failure> {
    let usage = |why: String| {
        Failure::usage(format!(
            "{text:?}: {why}; write role and names like agent/gpu007 or agent/gpu[001-004]"
        ))
    };
    let (role, names) = text
        .split_once('/')
        .ok_or_else(|| usage("there is no role before a '/'".to_owned()))?;
    let role: Role = role.parse().map_err(usage)?;
    let names = hostlist::expand(names).map_err(|e| usage(e.to_string()))?;
    match names.is_empty() {
        true => Err(usage("no name follows the role".to_owned())),
        false => Ok((role, names)),
    }
}

/// Member with revoked certificates, as a document.
#[derive(Debug, Serialize)]
struct RevokedCertificate {
    role: String,
    name: String,
    /// Revision of the change.
    revision: Revision,
}

async fn revoke(args: &RevokeArgs, connection: &Connection) -> Result<(), Failure> {
    if args.reason.trim().is_empty() {
        return Err(Failure::usage("--reason: give the reason, for the audit"));
    }
    let wanted: Result<Vec<_>, _> = args.members.iter().map(|text| members(text)).collect();
    let mut all = ResultList::new(connection.format);
    let mut done: BTreeMap<Role, Vec<NodeId>> = BTreeMap::new();
    for (role, name) in wanted?
        .into_iter()
        .flat_map(|(role, names)| names.into_iter().map(move |name| (role, name)))
    {
        let revoked = connection
            .client
            .revoke_certificates(role.as_str(), name.as_str(), &args.reason, None)
            .await;
        match revoked {
            Ok(change) => {
                // The sentences below cover all names of a role.
                all.add_silently(RevokedCertificate {
                    role: role.to_string(),
                    name: name.to_string(),
                    revision: change.revision,
                });
                done.entry(role).or_default().push(name);
            }
            Err(error) => {
                let mut failure = Failure::from(error);
                let target = format!("{role}/{name}");
                failure.text = format!("{target}: {}", failure.text);
                all.refuse(&target, failure);
            }
        }
    }
    for (role, names) in done {
        let names = hostlist::fold(&names);
        output::message!(
            "{role}/{names}: revoked; connections end now, running allocations continue"
        );
        output::message!("  {}", reenrolment_hint(role, &names));
    }
    let columns = Columns::only(&["role", "name", "revision"]);
    all.finish(columns, |one| {
        vec![one.role.clone(), one.name.clone(), one.revision.to_string()]
    })
}

/// Describes how a member can enrol again.
fn reenrolment_hint(role: Role, names: &str) -> String {
    let uses = hostlist::expand(names).map_or(1, |names| names.len());
    let uses = match uses {
        1 => String::new(),
        n => format!(" --uses {n}"),
    };
    format!(
        "to enrol it again: lattice admin token create --role {role} --nodes '{names}'{uses} \
         --replace, and join.replace in its configuration"
    )
}

/// Contents of a certificate file, as a document.
#[derive(Debug, Serialize)]
struct CertificateDocument {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    subject: String,
    is_authority: bool,
    pin: String,
    issued_at: String,
    expires_at: String,
    issuer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer_pin: Option<String>,
}

/// Returns the certificate file for a path: in a folder, `identity.pem` or else `ca.pem`; otherwise the path itself.
fn file_in(path: &Path) -> PathBuf {
    let inside = ["identity.pem", "ca.pem"].map(|name| path.join(name));
    let found = inside
        .into_iter()
        .find(|file| path.is_dir() && file.exists());
    found.unwrap_or_else(|| path.to_owned())
}

fn read_certificates(path: &Path) -> anyhow::Result<Vec<CertificateFields>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let about = || format!("{}: not a certificate file", path.display());
    let all = x509::read_pem(&text)
        .map_err(anyhow::Error::msg)
        .with_context(about)?;
    all.iter()
        .map(|der| x509::parse_certificate(der).map_err(anyhow::Error::msg))
        .collect::<anyhow::Result<_>>()
        .with_context(about)
}

/// Shows the contents of a certificate file.
pub fn show(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    let file = file_in(&args.file);
    let mut all = read_certificates(&file)?;
    let leaf = all.remove(0);
    // The issuers' certificates are in the same file, or in `roots.pem` in the same folder.
    if let Some(beside) = file.parent().map(|folder| folder.join("roots.pem"))
        && beside.exists()
    {
        all.extend(read_certificates(&beside)?);
    }
    let issuer = match leaf.is_authority && leaf.subject == leaf.issuer {
        true => Some(&leaf),
        false => all
            .iter()
            .find(|other| other.is_authority && leaf.names_as_issuer(other)),
    };
    let backdating = u64::try_from(BACKDATING.as_millis()).unwrap_or(0);
    let shown = CertificateDocument {
        file: file.display().to_string(),
        identity: leaf.uri.clone(),
        subject: leaf.subject.clone(),
        is_authority: leaf.is_authority,
        pin: leaf.pin.clone(),
        issued_at: text::time(leaf.not_before.after(backdating)),
        expires_at: text::time(leaf.not_after),
        issuer: leaf.issuer.clone(),
        issuer_pin: issuer.map(|issuer| issuer.pin.clone()),
    };
    output::print_details(format, &shown, ["key", "value"], rows(&shown, format))?;
    if leaf.not_after < SystemClock.now() {
        output::message!("the certificate has expired and is not accepted");
    }
    Ok(())
}

fn rows(shown: &CertificateDocument, format: Format) -> Vec<Vec<String>> {
    let line = |key: &str, value: String| vec![key.to_owned(), value];
    let what = match (&shown.identity, shown.is_authority) {
        (Some(identity), _) => line("identity", identity.clone()),
        (None, true) => line("authority", shown.subject.clone()),
        (None, false) => line("subject", shown.subject.clone()),
    };
    let unknown = "unknown (not in the file, nor in roots.pem of its folder)";
    let mut rows = vec![
        line("file", shown.file.clone()),
        what,
        line("issued", time(&shown.issued_at)),
        line("expires", until(format, &shown.expires_at)),
    ];
    if shown.is_authority {
        rows.push(line("pin", shown.pin.clone()));
    }
    if !shown.is_authority || shown.issuer != shown.subject {
        rows.push(line("issuer", shown.issuer.clone()));
        let pin = shown.issuer_pin.as_deref().unwrap_or(unknown);
        rows.push(line("issuer pin", pin.to_owned()));
    }
    rows
}
