//! `lattice replay record`: writes a complete file or none.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
    waiting::{NoticeTimes, next_item},
};
use anyhow::Context as _;
use clap::Args;
use lattice_host::durable::NewFile;
use serde::Serialize;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    time::Instant,
};

/// Compression level of zstd: records are read seldom and kept for long.
const LEVEL: i32 = 9;

/// Fetch the inputs and decisions of a control's schedulers, for `lattice replay verify`.
///
/// The record has submits, ends, limits, weights, node properties, and the times and placements of plans; programs and
/// environments are not in it. A control keeps the record of what it scheduled itself, up to decisions.keep_mib of its
/// configuration.
#[derive(Args)]
pub struct RecordArgs {
    /// Start of the record: a time, a date, or an age, such as 2h. The record begins with the complete inputs of the
    /// schedulers at that time, so it can be verified by itself. Left out: everything that the control keeps.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// New file: compressed with zstd if its name ends in .zst, plain otherwise. An existing file is not replaced.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Recorded<'a> {
    file: &'a Path,
    lines: u64,
    bytes: u64,
}

/// Runs `lattice replay record`.
pub async fn run(args: &RecordArgs, connection: &Connection) -> Result<(), Failure> {
    let file = &args.output;
    let there = || {
        let file = file.display();
        Failure::refused(format!(
            "{file} exists already, and records never overwrite a file; give another name"
        ))
    };
    if file.exists() {
        return Err(there());
    }
    let about = || file.display().to_string();
    let new = NewFile::create(file, 0o600).with_context(about)?;
    let mut pieces = connection.client.decisions(args.since.as_deref()).await?;
    let is_packed = file.extension().is_some_and(|extension| extension == "zst");
    let mut written = OutputFile::new(new.file(), is_packed).with_context(about)?;
    let (mut lines, mut bytes, mut is_whole) = (0, 0, true);
    let mut notices = NoticeTimes::new(Instant::now());
    let rest = |bytes: u64| format!("the rest of the record; {} MiB received", bytes >> 20);
    while let Some(piece) = next_item(&mut pieces, &mut notices, || rest(bytes)).await {
        let piece = piece?;
        lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        bytes += piece.len() as u64;
        is_whole = piece.last().map_or(is_whole, |last| *last == b'\n');
        written.write_all(&piece).with_context(about)?;
    }
    if !is_whole {
        return Err(Failure::unreachable(
            "the response ended in the middle of a line; repeat the command",
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
    Ok(output::print_record(
        connection.format,
        &recorded,
        columns,
        row,
    )?)
}

/// Output file, compressed or not.
enum OutputFile<'f> {
    Plain(&'f std::fs::File),
    Packed(zstd::Encoder<'static, &'f std::fs::File>),
}

impl<'f> OutputFile<'f> {
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
