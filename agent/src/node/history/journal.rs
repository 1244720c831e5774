//! History journal on disk: segments of lines, and the preimages that they reference.
//!
//! - `<data>/history/<number>.jsonl`: segments. Each begins with a checkpoint, so that the oldest can be removed at any
//!   time.
//! - `content/<digest>`: preimages.
//! - `journal`: id of the journal.
//! - `<number>.damaged`: a segment as found, if its content had been altered.

use super::line::{Scan, encode, scan};
use super::preimage_files::{PreimageStore, make_folder};
use crate::attempt::write_durably;
use bytes::Bytes;
use lattice_conformance::{
    Digest,
    history::{Checkpoint, HistoryRecord, Line},
};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Number of segments that share the event limit. A segment with its share of events is full: events are removed by
/// segments.
const EVENT_SEGMENTS: u64 = 8;

/// Limits of the journal.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of all segments. Beyond the limit, events are removed before entries.
    pub bytes: u64,
    /// Entries in all segments.
    pub entries: u64,
    /// Events in all segments. Events displace events only, never an entry.
    pub events: u64,
    /// Bytes of one segment: the unit of removal.
    pub segment_bytes: u64,
    /// Bytes of all preimages.
    pub content_bytes: u64,
    /// Lines kept in memory while the disk fails.
    pub waiting_lines: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 16 << 20,
            entries: 10_000,
            events: 2_000,
            segment_bytes: 1 << 20,
            content_bytes: 64 << 20,
            waiting_lines: 512,
        }
    }
}

/// Segment: a file of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    /// First and last record number in the segment, if it has any.
    pub(super) span: Option<(u64, u64)>,
    pub(super) entries: u64,
    pub(super) events: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    limits: Limits,
    /// Id of the journal.
    pub(super) id: u64,
    has_id_file: bool,
    pub(super) segments: Vec<Segment>,
    /// File of the last segment; `None` if the next line starts a new segment.
    open: Option<File>,
    /// State after all lines that were written, or dropped unwritten.
    pub(super) checkpoint: Checkpoint,
    pub(super) contents: PreimageStore,
    /// Number of segments found altered.
    pub(super) damaged: usize,
}

/// Journal with its newest records.
pub(super) struct OpenedJournal {
    pub(super) journal: Journal,
    /// Newest records, oldest first.
    pub(super) records: VecDeque<HistoryRecord>,
    most: usize,
}

impl Journal {
    /// Reads all segments, truncates a partial last line, and sets altered segments aside. `new_id` becomes the id of a
    /// journal without one. At most `newest` records are returned. Nothing is created if the folder does not exist.
    pub(super) fn open(
        folder: &Path,
        limits: Limits,
        new_id: u64,
        newest: usize,
    ) -> io::Result<OpenedJournal> {
        let id = read_id(&folder.join("journal"))?;
        let mut found = OpenedJournal {
            journal: Self {
                folder: folder.to_owned(),
                limits,
                id: id.unwrap_or(new_id),
                has_id_file: id.is_some(),
                segments: Vec::new(),
                open: None,
                checkpoint: Checkpoint::default(),
                contents: PreimageStore::new(folder),
                damaged: 0,
            },
            records: VecDeque::new(),
            most: newest,
        };
        for (number, path) in list_segments(folder)? {
            found.read_segment(number, path)?;
        }
        found.journal.contents.measure()?;
        found.journal.reopen();
        Ok(found)
    }

    /// Reopens the last segment for appending, if its size is as expected.
    fn reopen(&mut self) {
        self.open = self.segments.last().and_then(|last| {
            let mut options = OpenOptions::new();
            let file = options.append(true).open(&last.path).ok()?;
            let is_whole = file.metadata().is_ok_and(|meta| meta.len() == last.bytes);
            is_whole.then_some(file)
        });
    }

    /// Writes the preimages, then the lines, and flushes them. On failure, none of the lines is written.
    pub(super) fn append(&mut self, lines: &[Line], new: &[(Digest, Bytes)]) -> io::Result<()> {
        make_folder(&self.folder)?;
        if !self.has_id_file {
            write_durably(
                &self.folder.join("journal"),
                format!("{:016x}\n", self.id).as_bytes(),
            )?;
            self.has_id_file = true;
        }
        for (digest, bytes) in new {
            self.contents.store(*digest, bytes)?;
        }
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(encode(line)?);
        }
        self.open_segment_for(bytes.len() as u64)?;
        let (Some(file), Some(segment)) = (&mut self.open, self.segments.last_mut()) else {
            return Err(io::Error::other("no segment is open"));
        };
        if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_data()) {
            // A partial write must not be read as a line, nor be written twice.
            if file.set_len(segment.bytes).is_err() {
                self.open = None;
            }
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        for line in lines {
            self.checkpoint.fold(line);
            count_line(segment, &mut self.contents, line);
        }
        self.prune();
        Ok(())
    }

    /// Accounts for lines that were dropped unwritten: the next line starts a new segment, and the checkpoint of that
    /// segment includes the dropped lines.
    pub(super) fn skip(&mut self, dropped: &[Line]) {
        dropped.iter().for_each(|line| self.checkpoint.fold(line));
        self.open = None;
    }

    /// Starts a new segment if none is open or the last one is full.
    fn open_segment_for(&mut self, more: u64) -> io::Result<()> {
        let last = self.segments.last();
        let is_full = |last: &Segment| {
            let holds = last.entries + last.events;
            holds > 0
                && (last.bytes + more > self.limits.segment_bytes
                    || last.events >= self.limits.events / EVENT_SEGMENTS)
        };
        if self.open.is_some() && !last.is_some_and(is_full) {
            return Ok(());
        }
        let number = last.map_or(1, |last| last.number + 1);
        let path = self.folder.join(format!("{number:010}.jsonl"));
        let line = encode(&Line::Checkpoint(self.checkpoint.clone()))?;
        write_durably(&path, &line)?;
        self.open = Some(OpenOptions::new().append(true).open(&path)?);
        self.segments.push(Segment {
            number,
            path,
            span: None,
            entries: 0,
            events: 0,
            bytes: line.len() as u64,
        });
        Ok(())
    }

    /// Applies the limits: removes events, then the oldest segments, then preimages without a reference.
    fn prune(&mut self) {
        self.prune_events();
        let mut gone = 0;
        while let Some(rest) = self.segments.get(gone..)
            && rest.len() > 1
            && (sum(rest, |segment| segment.bytes) > self.limits.bytes
                || sum(rest, |segment| segment.entries) > self.limits.entries)
        {
            gone += 1;
        }
        for segment in self.segments.drain(..gone) {
            if let Err(error) = std::fs::remove_file(&segment.path) {
                tracing::warn!(
                    path = %segment.path.display(),
                    %error,
                    "old history segment could not be removed"
                );
            }
        }
        let needed: Vec<Digest> = self.checkpoint.digests().collect();
        let first_kept = self.first_kept();
        self.contents
            .prune(first_kept, &needed, self.limits.content_bytes);
    }

    /// Removes the oldest events while they exceed their limit or the journal exceeds its size. Entries of the same
    /// segments stay.
    fn prune_events(&mut self) {
        loop {
            let is_too_much = sum(&self.segments, |segment| segment.events) > self.limits.events
                || sum(&self.segments, |segment| segment.bytes) > self.limits.bytes;
            let closed = self.segments.len().saturating_sub(1);
            let closed = self.segments.iter_mut().take(closed).enumerate();
            let mut with_events = closed.filter(|(_, segment)| segment.events > 0);
            let Some((at, segment)) = with_events.next().filter(|_| is_too_much) else {
                return;
            };
            match rewrite_without_events(segment, &self.limits) {
                Ok(true) => {}
                Ok(false) => {
                    self.segments.remove(at);
                }
                Err(error) => {
                    // The next write tries again.
                    tracing::warn!(
                        path = %segment.path.display(),
                        %error,
                        "old history events could not be removed"
                    );
                    return;
                }
            }
        }
    }

    /// Lowest record number on disk; 0 if there is none.
    pub(super) fn first_kept(&self) -> u64 {
        let mut spans = self.segments.iter().filter_map(|segment| segment.span);
        spans.next().map_or(0, |(first, _)| first)
    }

    /// Highest record number on disk; 0 if there is none.
    pub(super) fn last(&self) -> u64 {
        let mut spans = self
            .segments
            .iter()
            .rev()
            .filter_map(|segment| segment.span);
        spans.next().map_or(0, |(_, last)| last)
    }
}

impl OpenedJournal {
    /// Reads one segment.
    fn read_segment(&mut self, number: u64, path: PathBuf) -> io::Result<()> {
        let bytes = read_bounded(&path, &self.journal.limits)?;
        let scan = scan(&bytes);
        let mut segment = Segment {
            number,
            path,
            span: None,
            entries: 0,
            events: 0,
            bytes: scan.good_bytes,
        };
        if scan.damaged > 0 {
            self.journal.damaged += 1;
            let lengths = scan.lines.iter().map(|(_, at)| at.len() as u64);
            segment.bytes = lengths.sum();
            set_aside(&segment, &scan, &bytes);
        } else if scan.is_torn {
            let torn = bytes.len() as u64 - scan.good_bytes;
            tracing::warn!(
                path = %segment.path.display(),
                bytes = torn,
                "partial last line of the journal removed"
            );
            // If the truncation fails, the segment is not appended to.
            let file = OpenOptions::new().write(true).open(&segment.path);
            let _ = file.and_then(|file| file.set_len(scan.good_bytes));
        }
        for (line, _) in scan.lines {
            self.journal.checkpoint.fold(&line);
            count_line(&mut segment, &mut self.journal.contents, &line);
            if let Some(record) = record(line) {
                self.records.push_back(record);
                if self.records.len() > self.most {
                    self.records.pop_front();
                }
            }
        }
        self.journal.segments.push(segment);
        Ok(())
    }
}

/// Record of a line, if the line is visible to callers.
pub(super) fn record(line: Line) -> Option<HistoryRecord> {
    match line {
        Line::Entry(entry) => Some(HistoryRecord::Entry(entry)),
        Line::Event(event) => Some(HistoryRecord::Event(event)),
        Line::Checkpoint(_) | Line::Boot { .. } | Line::Other(_) => None,
    }
}

fn sum(segments: &[Segment], of: fn(&Segment) -> u64) -> u64 {
    segments.iter().map(of).sum()
}

/// Counts a line of a segment.
fn count_line(segment: &mut Segment, contents: &mut PreimageStore, line: &Line) {
    match line {
        Line::Entry(entry) => {
            segment.entries += 1;
            segment.extend_span(entry.seq);
            for mark in [entry.from, Some(entry.to)].into_iter().flatten() {
                if let Some(digest) = mark.digest() {
                    contents.add_reference(digest, entry.seq);
                }
            }
        }
        Line::Checkpoint(checkpoint) => {
            checkpoint
                .digests()
                .for_each(|d| contents.add_reference(d, checkpoint.seq));
        }
        Line::Event(event) => {
            segment.events += 1;
            segment.extend_span(event.seq);
        }
        // A line of a newer agent version is removed with its segment, as an entry is.
        Line::Other(_) => segment.entries += 1,
        Line::Boot { .. } => {}
    }
}

impl Segment {
    fn extend_span(&mut self, seq: u64) {
        let first = self.span.map_or(seq, |(first, _)| first);
        self.span = Some((first, seq));
    }
}

/// Rewrites a segment without its events. Removes the file and returns `false` if no entry is left.
fn rewrite_without_events(segment: &mut Segment, limits: &Limits) -> io::Result<bool> {
    let bytes = read_bounded(&segment.path, limits)?;
    let scan = scan(&bytes);
    let mut kept = Vec::new();
    let mut left = Segment {
        span: None,
        entries: 0,
        events: 0,
        bytes: 0,
        ..segment.clone()
    };
    for (line, at) in &scan.lines {
        match line {
            Line::Event(_) => continue,
            Line::Entry(entry) => left.extend_span(entry.seq),
            Line::Checkpoint(_) | Line::Boot { .. } | Line::Other(_) => {}
        }
        left.entries += u64::from(matches!(line, Line::Entry(_) | Line::Other(_)));
        kept.extend_from_slice(&bytes[at.clone()]);
    }
    if left.entries == 0 {
        std::fs::remove_file(&segment.path)?;
        return Ok(false);
    }
    write_durably(&segment.path, &kept)?;
    left.bytes = kept.len() as u64;
    *segment = left;
    Ok(true)
}

/// Keeps an altered segment as a `.damaged` file, and replaces the segment by its valid lines.
fn set_aside(segment: &Segment, scan: &Scan, bytes: &[u8]) {
    let aside = segment.path.with_extension("damaged");
    tracing::error!(
        path = %segment.path.display(),
        lines = scan.damaged,
        aside = %aside.display(),
        "corrupt lines found in a history segment; they are omitted"
    );
    let written = write_durably(&aside, bytes).and_then(|()| {
        let good = scan.lines.iter().map(|(_, at)| &bytes[at.clone()]);
        write_durably(&segment.path, &good.collect::<Vec<_>>().concat())
    });
    if let Err(error) = written {
        tracing::error!(%error, "damaged history segment could not be replaced");
    }
}

/// All segments, oldest first.
fn list_segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let listed = match std::fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for file in listed {
        let file = file?;
        let name = file.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        if let Some(number) = number.and_then(|digits| digits.parse().ok()) {
            all.push((number, file.path()));
        }
    }
    all.sort();
    Ok(all)
}

/// Reads a segment. Content beyond the size of any valid segment is ignored.
pub(super) fn read_bounded(path: &Path, limits: &Limits) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = limits.segment_bytes.saturating_mul(4).max(4 << 20);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_id(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(u64::from_str_radix(text.trim(), 16).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
