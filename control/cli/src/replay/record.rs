//! `lattice replay record`: a file that is whole or not there.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
};
use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use lattice_host::durable::NewFile;
use serde::Serialize;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Level of zstd: records are read seldom and kept for long.
const LEVEL: i32 = 9;

/// Fetch what a control's schedulers were told and what they decided, for `lattice replay verify`.
///
/// Submits, ends, limits, weights, what nodes are, the instants of plans and what they placed are in it; programs and
/// environments are not. A control keeps what it scheduled itself, as long as decisions.keep_mib of its configuration
/// allows.
#[derive(Args)]
pub struct RecordArgs {
    /// From which moment on: a time, a date, or how long ago, such as 2h. All that is kept when not given.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// The new file: packed with zstd where its name ends in .zst, plain otherwise. One that exists is not replaced.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Recorded<'a> {
    file: &'a Path,
    lines: u64,
    bytes: u64,
}

/// Runs it.
pub async fn run(args: &RecordArgs, connection: &Connection) -> Result<(), Failure> {
    let file = &args.output;
    let there = || {
        let file = file.display();
        Failure::refused(format!(
            "{file} is there already: a record replaces nothing; name another"
        ))
    };
    if file.exists() {
        return Err(there());
    }
    let about = || file.display().to_string();
    let new = NewFile::create(file, 0o600).with_context(about)?;
    let mut pieces = connection.client.decisions(args.since.as_deref()).await?;
    let is_packed = file.extension().is_some_and(|extension| extension == "zst");
    let mut written = Written::new(new.file(), is_packed).with_context(about)?;
    let (mut lines, mut bytes, mut is_whole) = (0, 0, true);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        bytes += piece.len() as u64;
        is_whole = piece.last().map_or(is_whole, |last| *last == b'\n');
        written.write_all(&piece).with_context(about)?;
    }
    if !is_whole {
        return Err(Failure::unreachable(
            "the answer ended in the middle of a line; ask again",
        ));
    }
    written.finish().with_context(about)?;
    new.commit_new().map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => there(),
        _ => Failure::refused(format!("{}: {error}", file.display())),
    })?;
    let recorded = Recorded { file, lines, bytes };
    let row = vec![
        file.display().to_string(),
        lines.to_string(),
        bytes.to_string(),
    ];
    let columns = Columns::only(&["file", "lines", "bytes"]);
    Ok(output::print(connection.format, &recorded, columns, [row])?)
}

/// A file, packed or not.
enum Written<'f> {
    Plain(&'f std::fs::File),
    Packed(zstd::Encoder<'static, &'f std::fs::File>),
}

impl<'f> Written<'f> {
    fn new(file: &'f std::fs::File, is_packed: bool) -> io::Result<Self> {
        if !is_packed {
            return Ok(Self::Plain(file));
        }
        let mut encoder = zstd::Encoder::new(file, LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Self::Packed(encoder))
    }

    fn write_all(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(piece),
            Self::Packed(encoder) => encoder.write_all(piece),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Packed(encoder) => encoder.finish().map(drop),
        }
    }
}
