//! `lattice logs`: output of one rank, as it is or as a document.

use crate::{connect::Connection, failure::Failure, output};
use clap::Args;
use futures::StreamExt as _;
use lattice_client::{JobRef, LogOptions, LogOutput};
use serde::Serialize;
use std::{
    borrow::Cow,
    io::{self, Write as _},
};

/// Print the output of an allocation's processes.
#[derive(Args)]
pub struct LogsArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
    /// Rank, from 0.
    #[arg(short, long, default_value_t = 0)]
    rank: u32,
    /// Print standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Keep printing until the rank ends.
    #[arg(short, long)]
    follow: bool,
}

/// Runs `lattice logs`.
pub async fn logs(args: &LogsArgs, connection: &Connection) -> Result<(), Failure> {
    let options = LogOptions {
        rank: args.rank,
        output: match args.stderr {
            true => LogOutput::Stderr,
            false => LogOutput::Stdout,
        },
        offset: 0,
        follow: args.follow,
    };
    if !connection.format.is_for_reading() {
        return logs_document(args, options, connection).await;
    }
    let mut chunks = connection.client.logs(args.id, options).await?;
    let mut out = output::job_output();
    while let Some(chunk) = chunks.next().await {
        let written = out.write_all(&chunk?).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(anyhow::Error::from)?,
        }
    }
    Ok(())
}

/// Largest output that is printed as a document, bytes.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// Output of one rank, as a document.
#[derive(Serialize)]
struct LogsDocument {
    allocation: String,
    rank: u32,
    /// `stdout` or `stderr`.
    stream: &'static str,
    /// Output; bytes that are not UTF-8 are replaced.
    text: String,
    /// Whether `text` is the output exactly.
    is_exact: bool,
}

/// Prints the output of one rank as a document.
async fn logs_document(
    args: &LogsArgs,
    options: LogOptions,
    connection: &Connection,
) -> Result<(), Failure> {
    if args.follow {
        return Err(Failure::usage(
            "--follow prints the output while it is written, which is not one document: leave out --follow or -o",
        ));
    }
    let mut chunks = connection.client.logs(args.id, options).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk?);
        if bytes.len() > MAX_DOCUMENT_BYTES {
            return Err(Failure::refused(format!(
                "the output is larger than {MAX_DOCUMENT_BYTES} bytes, the limit of a document: leave out -o"
            )));
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let document = LogsDocument {
        allocation: args.id.to_string(),
        rank: args.rank,
        stream: if args.stderr { "stderr" } else { "stdout" },
        is_exact: matches!(text, Cow::Borrowed(_)),
        text: text.into_owned(),
    };
    Ok(output::print_done(connection.format, &document, "")?)
}
