//! Decision record files: writing, rotation, compression and retention.

use super::cut::RecordCut;
use lattice_host::durable::NewFile;
use lattice_placement::record::Line;
use lattice_quorum_types::UnixMillis;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Size in bytes at which the present file is full, if the limit of the total size is not smaller.
const MAX_FILE_BYTES: u64 = 32 << 20;
const PLAIN: &str = "jsonl";
const PACKED: &str = "jsonl.zst";
/// Fast compression level, because schedulers wait for it.
const ZSTD_LEVEL: i32 = 1;

/// Errors of recording and reading decisions.
#[derive(Debug, thiserror::Error)]
pub enum DecisionsError {
    /// The configuration disables the recording.
    #[error(
        "this control keeps no record of decisions: it has no data_dir, or decisions.keep_mib is 0"
    )]
    NotKept,
    /// A file cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        #[source]
        source: io::Error,
    },
}

/// Writer of the decision record files.
#[derive(Debug)]
pub(super) struct RecordWriter {
    folder: PathBuf,
    keep_bytes: u64,
    full: u64,
    /// First line of each file, with the time of the first file.
    begin: Line,
    number: u64,
    file: Option<BufWriter<File>>,
    bytes: u64,
    /// Whether a write failure was logged already.
    is_broken: bool,
}

impl RecordWriter {
    /// Opens the folder and begins a new file. Files of an earlier process are kept.
    pub(super) fn open(
        folder: &Path,
        keep_bytes: u64,
        begin: Line,
    ) -> Result<Self, DecisionsError> {
        fs::create_dir_all(folder).map_err(|source| file_error(folder, source))?;
        let mut book = Self {
            folder: folder.to_owned(),
            keep_bytes,
            full: MAX_FILE_BYTES.min(keep_bytes.max(1)),
            begin,
            number: 0,
            file: None,
            bytes: 0,
            is_broken: false,
        };
        let kept = book.existing_files()?;
        for (number, path) in &kept {
            book.number = book.number.max(*number);
            if path.extension().is_some_and(|extension| extension == PLAIN) {
                compress(path).map_err(|source| file_error(path, source))?;
            }
        }
        book.next(None)?;
        Ok(book)
    }

    /// Existing files, ordered by number.
    fn existing_files(&self) -> Result<Vec<(u64, PathBuf)>, DecisionsError> {
        let entries =
            fs::read_dir(&self.folder).map_err(|source| file_error(&self.folder, source))?;
        let mut kept = Vec::new();
        for entry in entries {
            let path = entry
                .map_err(|source| file_error(&self.folder, source))?
                .path();
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| {
                let (number, rest) = name.split_once('.')?;
                [PLAIN, PACKED]
                    .contains(&rest)
                    .then(|| number.parse().ok())?
            });
            kept.extend(number.map(|number: u64| (number, path)));
        }
        kept.sort();
        Ok(kept)
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.folder.join(format!("{number:010}.{extension}"))
    }

    /// Begins the next file. `at` is the time at which it begins; `None` for the first file of the process.
    fn next(&mut self, at: Option<UnixMillis>) -> Result<(), DecisionsError> {
        self.number += 1;
        let path = self.path(self.number, PLAIN);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options
            .open(&path)
            .map_err(|source| file_error(&path, source))?;
        self.file = Some(BufWriter::new(file));
        self.bytes = 0;
        let mut begin = self.begin.clone();
        if let (Line::Begin { at: begun_at, .. }, Some(at)) = (&mut begin, at) {
            *begun_at = at;
        }
        self.write(&begin);
        Ok(())
    }

    /// Begins the next file, at time `at`, if the present one is full. Returns whether it was full; the next file
    /// contains no scheduler's view yet.
    pub(super) fn rotate(&mut self, at: UnixMillis) -> bool {
        if self.bytes < self.full {
            return false;
        }
        let full = self.path(self.number, PLAIN);
        self.file = None;
        let turned = self.next(Some(at)).and_then(|()| {
            compress(&full).map_err(|source| file_error(&full, source))?;
            self.delete_oldest()
        });
        self.log_result(turned);
        true
    }

    /// Deletes the oldest files while the total exceeds the limit. The present file is kept.
    fn delete_oldest(&self) -> Result<(), DecisionsError> {
        let kept = self.existing_files()?;
        let size = |path: &Path| fs::metadata(path).map_or(0, |known| known.len());
        let mut total: u64 = kept.iter().map(|(_, path)| size(path)).sum();
        for (number, path) in kept {
            if total <= self.keep_bytes || number == self.number {
                break;
            }
            total -= size(&path);
            fs::remove_file(&path).map_err(|source| file_error(&path, source))?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, line: &Line) {
        let Some(file) = &mut self.file else {
            return;
        };
        let written = serde_json::to_vec(line)
            .map_err(io::Error::other)
            .and_then(|mut text| {
                text.push(b'\n');
                file.write_all(&text)?;
                Ok(text.len() as u64)
            });
        match written {
            Ok(bytes) => self.bytes += bytes,
            Err(source) => {
                let path = self.path(self.number, PLAIN);
                // The file may end with an incomplete line; the next file is begun.
                self.bytes = self.full;
                self.log_result(Err(file_error(&path, source)));
            }
        }
    }

    fn log_result(&mut self, done: Result<(), DecisionsError>) {
        match done {
            Ok(()) => self.is_broken = false,
            Err(error) if !self.is_broken => {
                self.is_broken = true;
                let source = std::error::Error::source(&error).map(ToString::to_string);
                let source = source.unwrap_or_default();
                tracing::warn!(%error, source, "scheduling decisions not written");
            }
            Err(_) => {}
        }
    }

    /// Lines from the time `since` on, or from the first file on if `since` is earlier; see [`RecordCut`].
    pub(super) fn since(&mut self, since: UnixMillis) -> Result<RecordLines, DecisionsError> {
        if let Some(file) = &mut self.file {
            let flushed = file.flush();
            let path = self.path(self.number, PLAIN);
            flushed.map_err(|source| file_error(&path, source))?;
        }
        let kept = self.existing_files()?;
        let (mut from, mut begun_at) = (0, None);
        for (place, (_, path)) in kept.iter().enumerate() {
            // All files of one process begin with the same time if an earlier version wrote them: the first one counts.
            let at = began_at(path).filter(|at| *at <= since);
            if at.is_some() && at != begun_at {
                (from, begun_at) = (place, at);
            }
        }
        let files = kept.into_iter().skip(from).map(|(_, path)| path);
        Ok(RecordLines {
            files: files.collect::<Vec<_>>().into_iter(),
            present: None,
            cut: (since > UnixMillis(0)).then(|| RecordCut::new(since)),
            line: Vec::new(),
        })
    }
}

fn file_error(path: &Path, source: io::Error) -> DecisionsError {
    DecisionsError::File {
        path: path.to_owned(),
        source,
    }
}

/// Replaces a plain file by a compressed one. A crash leaves both files or the plain one, which is then compressed
/// again.
fn compress(plain: &Path) -> io::Result<()> {
    let packed = plain.with_extension(PACKED);
    let mut encoder = zstd::Encoder::new(NewFile::create(&packed, 0o600)?, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    // A crash may leave an incomplete last line, which is left out.
    let mut lines = BufReader::new(File::open(plain)?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            encoder.write_all(&line)?;
        }
        line.clear();
    }
    encoder.finish()?.commit()?;
    fs::remove_file(plain)
}

fn lines_of(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let file = File::open(path)?;
    let is_packed = path.extension().is_some_and(|extension| extension != PLAIN);
    Ok(match is_packed {
        true => Box::new(BufReader::new(zstd::Decoder::new(file)?)),
        false => Box::new(BufReader::new(file)),
    })
}

/// Start time of a file, from its first line.
fn began_at(path: &Path) -> Option<UnixMillis> {
    let mut line = String::new();
    let most = 64 << 10;
    lines_of(path).ok()?.take(most).read_line(&mut line).ok()?;
    match serde_json::from_str(&line) {
        Ok(Line::Begin { at, .. }) => Some(at),
        _ => None,
    }
}

/// Lines of successive files, as they are when read. Reading blocks.
pub struct RecordLines {
    files: std::vec::IntoIter<PathBuf>,
    present: Option<Box<dyn BufRead + Send>>,
    /// Replaces the lines before the requested start; `None`: all lines are requested.
    cut: Option<RecordCut>,
    /// Line that is read for the cut.
    line: Vec<u8>,
}

impl RecordLines {
    /// Returns complete lines of about `bytes` bytes; empty after the last line.
    ///
    /// # Errors
    /// Returns an error when a file cannot be read.
    pub fn next(&mut self, bytes: usize) -> Result<Vec<u8>, io::Error> {
        let mut lines = Vec::with_capacity(bytes);
        while lines.len() < bytes {
            let Some(present) = &mut self.present else {
                let Some(path) = self.files.next() else {
                    if let Some(mut cut) = self.cut.take() {
                        cut.finish(&mut lines)?;
                    }
                    break;
                };
                // A file that was compressed in the meantime has another name.
                let packed = path.with_extension(PACKED);
                let opened = lines_of(&path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => lines_of(&packed),
                    _ => Err(error),
                });
                match opened {
                    Ok(opened) => self.present = Some(opened),
                    // The oldest files may be deleted at any time.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
                continue;
            };
            let before = lines.len();
            let (read, is_complete) = match &mut self.cut {
                None => {
                    let read = present.read_until(b'\n', &mut lines)?;
                    (read, lines.ends_with(b"\n"))
                }
                Some(cut) => {
                    self.line.clear();
                    let read = present.read_until(b'\n', &mut self.line)?;
                    let is_complete = self.line.ends_with(b"\n");
                    if is_complete {
                        cut.line(&self.line, &mut lines)?;
                    }
                    (read, is_complete)
                }
            };
            if read == 0 {
                self.present = None;
            } else if !is_complete {
                // The last line of the present file is being written.
                lines.truncate(before);
                self.present = None;
            }
        }
        Ok(lines)
    }
}

impl std::fmt::Debug for RecordLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordLines")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
