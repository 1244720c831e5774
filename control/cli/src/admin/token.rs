//! `lattice admin token`: join tokens.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, ResultList, or_dash, until},
};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use lattice_api::token::{TokenCreated, TokenRequest, TokenView};
use lattice_client::ClientError;
use lattice_host::error_text::with_causes;
use lattice_mesh::Role;
use lattice_quorum_types::{Revision, hostlist};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Join token subcommands.
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Create a join token for enrolment. The text of the token is shown once, or written to a file, and stored nowhere
    /// else.
    ///
    /// For a rack of nodes that are installed today, from their own network:
    ///   lattice admin token create --role agent --ttl 8h --uses 64 --nodes 'gpu[001-064]'
    ///   --cidr 10.1.0.0/16 --out join.token
    ///
    /// For a node that was reinstalled and comes back under its name:
    ///   lattice admin token create --role agent --nodes gpu007 --replace
    #[command(verbatim_doc_comment)]
    Create(CreateArgs),
    /// List the tokens that can still be used.
    List,
    /// Revoke tokens. Members that enrolled with them stay enrolled.
    Revoke {
        /// Token ids as lists show them: 8 characters or more.
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

#[derive(Args)]
pub struct CreateArgs {
    /// Role to enrol: agent, control or quorum.
    #[arg(long)]
    role: Role,
    /// Lifetime, a week at most: 30m, 1h, 7d.
    #[arg(long, default_value = "1h")]
    ttl: String,
    /// Number of enrolments, 100000 at most.
    #[arg(long, default_value_t = 1)]
    uses: u32,
    /// Names that may enrol: gpu[001-512].
    #[arg(long, value_name = "HOSTLIST")]
    nodes: Option<String>,
    /// Network from which the token may be used, by the client address of the connection to the quorum member:
    /// 10.1.0.0/16; repeat for several.
    #[arg(long = "cidr", value_name = "NETWORK")]
    cidrs: Vec<String>,
    /// Let the token take over a name that is already enrolled, if the process requests that too (join.replace).
    /// Earlier certificates of the name then become invalid.
    #[arg(long)]
    replace: bool,
    /// New file for the text of the token, mode 0600; an existing file is not replaced. Daemons refuse a token file that
    /// other users can read.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs a join token command.
pub async fn run(command: TokenCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(args) => create(args, connection).await,
        TokenCommand::List => list(connection).await,
        TokenCommand::Revoke { ids } => revoke(&ids, connection).await,
    }
}

async fn create(args: CreateArgs, connection: &Connection) -> Result<(), Failure> {
    let request = TokenRequest {
        role: args.role.to_string(),
        ttl: args.ttl,
        uses: args.uses,
        nodes: args.nodes,
        cidrs: args.cidrs,
        replace: args.replace,
    };
    // The server's rules are checked here, so that a mistake is reported before a request is sent.
    request.clone().into_terms().map_err(|error| {
        let flag = match error.field.split('[').next() {
            Some("cidrs") => "cidr",
            _ => error.field.as_str(),
        };
        Failure::usage(format!("--{flag}: {}", error.reason))
    })?;
    // The file is opened before the request: a token that could not be written would stay valid.
    let file = args
        .out
        .as_deref()
        .map(|path| (path, super::open_new(path, 0o600)));
    let file = match file {
        Some((path, opened)) => Some((path, opened.context("--out")?)),
        None => None,
    };
    let created = connection.client.create_token(&request).await;
    let created = match (created, file) {
        (Ok(created), Some((path, file))) => {
            if let Err(error) = write_token(file, &created.token) {
                let removed = std::fs::remove_file(path);
                let revoked = connection.client.revoke_token(&created.id, None).await;
                return Err(unwritten(path, &error, removed, &created.id, revoked.err()));
            }
            output::message!("wrote {}", path.display());
            TokenCreated {
                token: String::new(),
                ..created
            }
        }
        (Ok(created), None) => created,
        (Err(error), file) => {
            if let Some((path, _)) = file {
                // The file is empty.
                let _ = std::fs::remove_file(path);
            }
            return Err(error.into());
        }
    };
    if connection.format.is_for_reading() {
        // The token is the only text on standard output, so that it can be redirected into a file.
        output::message_lines(&in_words(&request, &created));
        return match created.token.is_empty() {
            true => Ok(()),
            false => Ok(output::line(&created.token)?),
        };
    }
    let row = vec![
        created.token.clone(),
        created.id.clone(),
        created.uses.to_string(),
        created.expires_at.clone(),
    ];
    let columns = Columns::only(&["token", "id", "uses", "expires_at"]);
    Ok(output::print_record(
        connection.format,
        &created,
        columns,
        row,
    )?)
}

fn write_token(mut file: File, token: &str) -> io::Result<()> {
    writeln!(file, "{token}")?;
    file.sync_all()
}

/// Failure for a token that could not be written to its file, and the state of the token and the file.
fn unwritten(
    path: &Path,
    error: &io::Error,
    removed: io::Result<()>,
    id: &str,
    unrevoked: Option<ClientError>,
) -> Failure {
    let path = path.display();
    let mut text = format!("{path}: {error}; ");
    match unrevoked {
        None => text.push_str("the token was revoked"),
        Some(reason) => {
            let reason = with_causes(&reason);
            text.push_str(&format!(
                "the token is still valid, because it could not be revoked ({reason}): run `lattice admin token revoke \
                 {id}`"
            ));
        }
    }
    if let Err(error) = removed {
        text.push_str(&format!(
            "; remove {path} before you repeat the command ({error})"
        ));
    }
    Failure::refused(text)
}

fn in_words(request: &TokenRequest, created: &TokenCreated) -> String {
    let TokenCreated {
        id,
        uses,
        expires_at,
        ..
    } = created;
    let enrolments = match uses {
        1 => "one enrolment".to_owned(),
        n => format!("{n} enrolments"),
    };
    let mut text = format!(
        "token {id}: {enrolments} of role {} until {}",
        request.role,
        until(Format::Table, expires_at)
    );
    if let Some(nodes) = &request.nodes {
        text.push_str(&format!(", for {nodes}"));
    }
    if !request.cidrs.is_empty() {
        text.push_str(&format!(", from {}", request.cidrs.join(", ")));
    }
    if request.replace {
        text.push_str("; it may take names that are enrolled (with join.replace)");
    }
    let names = request
        .nodes
        .as_deref()
        .and_then(|n| hostlist::expand(n).ok());
    let names = names.map_or(0, |names| names.len());
    if names > *uses as usize {
        text.push_str(&format!(
            "\nnote: the token covers {names} names but permits only {enrolments}; use --uses {names} to \
             enrol all of them"
        ));
    }
    text
}

const LIST: Columns<'_> = Columns::only(&[
    "id",
    "role",
    "nodes",
    "cidrs",
    "uses_left",
    "replace",
    "expires_at",
    "by",
]);

/// Columns that a narrow terminal leaves out, in this order.
const DROPPED_FIRST: &[&str] = &["by", "replace", "cidrs", "nodes"];

fn row(format: Format, token: &TokenView) -> Vec<String> {
    vec![
        token.id.clone(),
        token.role.clone(),
        token.nodes.clone().unwrap_or_else(|| "any".to_owned()),
        match token.cidrs.is_empty() {
            true => "anywhere".to_owned(),
            false => token.cidrs.join(" "),
        },
        token.uses_left.to_string(),
        match token.replace {
            true => "yes",
            false => "no",
        }
        .to_owned(),
        until(format, &token.expires_at),
        or_dash(Some(&token.by)),
    ]
}

async fn list(connection: &Connection) -> Result<(), Failure> {
    let tokens = connection.client.tokens().await?;
    let rows = tokens.iter().map(|token| row(connection.format, token));
    output::print_fitted(
        connection.format,
        &tokens,
        LIST,
        Fitting::Lines(DROPPED_FIRST),
        rows,
    )?;
    if tokens.is_empty() {
        output::message!("no token can be used now; `lattice admin token create` makes one");
    }
    Ok(())
}

/// Revoked token, as a document.
#[derive(Serialize)]
struct RevokedToken {
    id: String,
    /// Revision of the change.
    revision: Revision,
}

async fn revoke(ids: &[String], connection: &Connection) -> Result<(), Failure> {
    let mut all = ResultList::for_count(connection.format, ids.len());
    for id in ids {
        match connection.client.revoke_token(id, None).await {
            Ok(change) => {
                let sentence =
                    format!("{id}: revoked; members that enrolled with this token stay enrolled");
                let (id, revision) = (id.clone(), change.revision);
                all.add(RevokedToken { id, revision }, &sentence);
            }
            Err(error) => all.refuse(id, Failure::from(error)),
        }
    }
    let columns = Columns::only(&["id", "revision"]);
    all.finish(columns, |one| {
        vec![one.id.clone(), one.revision.to_string()]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_api::{Problem, problem::Kind};

    /// The error names the state of the token, and what is left to do.
    #[test]
    fn failed_write_names_the_state_of_the_token() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let path = Path::new("join.token");
        let failure = unwritten(path, &full(), Ok(()), "0123abcd", None);
        assert_eq!(
            failure.text,
            format!("join.token: {}; the token was revoked", full())
        );
        let problem = Problem::new(Kind::Unavailable, "no_majority", "no majority answers");
        let reason = ClientError::from_problem(problem);
        let removed = Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let failure = unwritten(path, &full(), removed, "0123abcd", Some(reason));
        for part in [
            "the token is still valid",
            "no majority answers",
            "`lattice admin token revoke 0123abcd`",
            "remove join.token before you repeat the command",
        ] {
            assert!(failure.text.contains(part), "{part}: {}", failure.text);
        }
        assert_eq!(failure.code, 1);
    }
}
