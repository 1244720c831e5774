//! Captured output: the first part of a stream in one file, the last part in segments.
//!
//! | file | content |
//! |---|---|
//! | `stdout` | the first part of the stream |
//! | `stdout.<position>` | a later part: from the byte at that position of the stream on |
//!
//! Invariant: once a segment exists, neither the first file nor an earlier segment grows. A reader therefore needs no
//! record besides the files: not while the supervisor writes and removes segments, and not after it was killed.

use bytes::Bytes;
use lattice_agent_rpc::left_out_line;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest piece that a reader returns, bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// Opens a file of captured output for appending, and creates it (mode 0600) if necessary.
pub fn open_output(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Files of one captured stream. They need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedOutput {
    head: PathBuf,
}

impl CapturedOutput {
    /// Captured output with the first part at `head`.
    pub fn at(head: impl Into<PathBuf>) -> Self {
        Self { head: head.into() }
    }

    /// File of the first part.
    pub fn head(&self) -> &Path {
        &self.head
    }

    /// File of the segment that begins at this position of the stream.
    pub fn segment(&self, start: u64) -> PathBuf {
        let mut path = self.head.clone().into_os_string();
        path.push(format!(".{start}"));
        path.into()
    }

    /// Positions at which the present segments begin, in ascending order.
    ///
    /// # Errors
    /// The folder cannot be read. A missing folder has no segments.
    pub fn segments(&self) -> io::Result<Vec<u64>> {
        let name = self.head.file_name().and_then(OsStr::to_str);
        let (Some(folder), Some(name)) = (self.head.parent(), name) else {
            return Ok(Vec::new());
        };
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut starts = Vec::new();
        for entry in entries {
            let file = entry?.file_name();
            let start = file.to_str().and_then(|file| {
                let start = file.strip_prefix(name)?.strip_prefix('.')?;
                start.parse::<u64>().ok()
            });
            starts.extend(start);
        }
        starts.sort_unstable();
        Ok(starts)
    }

    /// Appends to the end of the output, which no process captures any more.
    ///
    /// # Errors
    /// A file cannot be listed, opened or written.
    pub fn append(&self, text: &str) -> io::Result<()> {
        let last = match self.segments()?.last() {
            Some(start) => self.segment(*start),
            None => self.head.clone(),
        };
        open_output(&last)?.write_all(text.as_bytes())
    }

    /// Moves the segments into the first file, with a line wherever bytes are left out. No process may capture or read
    /// the output meanwhile.
    ///
    /// # Errors
    /// A file cannot be listed, read, written or removed.
    pub fn join(&self) -> io::Result<()> {
        let starts = self.segments()?;
        if starts.is_empty() {
            return Ok(());
        }
        let mut file = open_output(&self.head)?;
        let mut position = file.metadata()?.len();
        for start in starts {
            let path = self.segment(start);
            if let left_out @ 1.. = start.saturating_sub(position) {
                file.write_all(left_out_line(left_out).as_bytes())?;
            }
            let bytes = std::fs::read(&path)?;
            file.write_all(&bytes)?;
            position = start + bytes.len() as u64;
            std::fs::remove_file(&path)?;
        }
        Ok(())
    }
}

/// Reader of a captured output from a position of the stream on, also while the output grows.
#[derive(Debug)]
pub struct OutputReader {
    output: CapturedOutput,
    position: u64,
}

impl OutputReader {
    /// Reader from the byte at `position` on.
    pub fn new(output: CapturedOutput, position: u64) -> Self {
        Self { output, position }
    }

    /// Returns the next piece; `None` if there is nothing more at present. Where bytes of the stream are no longer
    /// kept, the piece is [`left_out_line`].
    ///
    /// # Errors
    /// A file cannot be listed or read.
    pub fn next_piece(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            // Listed before the files are read, so only the last one of the list can still grow.
            let starts = self.output.segments()?;
            let mut files = vec![(0, self.output.head.clone())];
            files.extend(
                starts
                    .iter()
                    .map(|start| (*start, self.output.segment(*start))),
            );
            let ends = starts.iter().copied().map(Some).chain([None]);
            let mut is_outdated = false;
            for ((start, path), end) in files.iter().zip(ends) {
                if end.is_some_and(|end| end <= self.position) {
                    continue;
                }
                let mut file = match File::open(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        // A segment that was removed after the list was made; a newer one exists.
                        is_outdated = *path != self.output.head;
                        if is_outdated {
                            break;
                        }
                        continue;
                    }
                    file => file?,
                };
                if let left_out @ 1.. = start.saturating_sub(self.position) {
                    self.position = *start;
                    return Ok(Some(left_out_line(left_out).into()));
                }
                file.seek(SeekFrom::Start(self.position - start))?;
                let mut piece = Vec::new();
                file.take(PIECE_BYTES).read_to_end(&mut piece)?;
                if !piece.is_empty() {
                    self.position += piece.len() as u64;
                    return Ok(Some(piece.into()));
                }
            }
            if !is_outdated {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rest(reader: &mut OutputReader) -> String {
        let mut text = String::new();
        while let Some(piece) = reader.next_piece().unwrap() {
            text += std::str::from_utf8(&piece).unwrap();
        }
        text
    }

    #[test]
    fn a_reader_follows_over_segments_and_counts_what_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let output = CapturedOutput::at(folder.path().join("stdout"));
        let mut reader = OutputReader::new(output.clone(), 0);
        assert_eq!(rest(&mut reader), "");
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        write(output.head(), "0123");
        assert_eq!(rest(&mut reader), "0123");
        write(&output.segment(4), "45");
        // Files of others are not segments of this stream.
        write(&folder.path().join("stdout.log"), "x");
        write(&folder.path().join("stderr.2"), "x");
        assert_eq!(output.segments().unwrap(), [4]);
        assert_eq!(rest(&mut reader), "45");
        // The segment at 6 was written and removed since the last read, and of the next one a part could not be written.
        write(&output.segment(100), "abcd");
        write(&output.segment(9), "9abc");
        std::fs::remove_file(output.segment(4)).unwrap();
        let line = left_out_line(3);
        let line_at_13 = left_out_line(87);
        assert_eq!(rest(&mut reader), format!("{line}9abc{line_at_13}abcd"));
        // A reader that begins in the middle counts from its own position.
        let mut late = OutputReader::new(output.clone(), 50);
        assert_eq!(rest(&mut late), format!("{}abcd", left_out_line(50)));
        let mut beyond = OutputReader::new(output, 1000);
        assert_eq!(rest(&mut beyond), "");
    }

    #[test]
    fn joined_output_is_one_file_and_a_note_is_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let output = CapturedOutput::at(folder.path().join("prolog.log"));
        output.append("01").unwrap();
        std::fs::write(output.segment(2), "23").unwrap();
        std::fs::write(output.segment(1000), "67").unwrap();
        output.append("!").unwrap();
        output.join().unwrap();
        let text = std::fs::read_to_string(output.head()).unwrap();
        assert_eq!(text, format!("0123{}67!", left_out_line(996)));
        assert!(output.segments().unwrap().is_empty());
        output.join().unwrap();
    }
}
