//! File of a journal: `magic`, then records of `length`, `crc32` (both little-endian), `JSON`.

use super::JournalError;
use crate::{
    event::Event,
    step::{Step, StepObserver},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

const MAGIC: &[u8; 8] = b"LATACCT1";
const HEADER: usize = 8;
/// Longest record in bytes; a claim of every node of a large cluster is shorter.
const MOST_BYTES: usize = 16 << 20;

/// One file of the journal, open for appending.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    pub(super) bytes: u64,
    /// Number of the first event in the file, or a lower number.
    first: u64,
    /// Number of events in the file that are not acknowledged.
    pub(super) events: usize,
    /// Number of the last event in the file; for a file without events, a number below that of the next event.
    pub(super) last: u64,
    /// Number up to which the events of the file are acknowledged.
    pub(super) passed: u64,
}

/// Result of opening a file.
pub(super) struct OpenedFile {
    pub(super) segment: Segment,
    /// Number of bytes after the last valid record.
    pub(super) damaged_bytes: u64,
}

/// Files of a journal, oldest first.
pub(super) fn names(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(JournalError::at(folder))? {
        let path = entry.map_err(JournalError::at(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "wal") {
            names.push(path);
        }
    }
    names.sort();
    Ok(names)
}

impl Segment {
    pub(super) fn create(folder: &Path, first: u64) -> Result<Self, JournalError> {
        let path = folder.join(format!("{first:020}.wal"));
        let failed = JournalError::at(&path);
        let create = || {
            let mut options = OpenOptions::new();
            let mut file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)?;
            file.write_all(MAGIC)?;
            file.sync_all()?;
            // Syncs the folder too, so that the new entry survives a power failure.
            File::open(folder)?.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(failed)?;
        Ok(Self {
            path,
            file,
            bytes: HEADER as u64,
            first,
            events: 0,
            last: first.saturating_sub(1),
            passed: 0,
        })
    }

    /// Opens a file, and truncates it before its first record that is incomplete, damaged or out of order. The event
    /// numbers must ascend and be above `after`.
    pub(super) fn open(path: &Path, after: u64) -> Result<OpenedFile, JournalError> {
        let text = fs::read(path).map_err(JournalError::at(path))?;
        let (events, whole) = records(&text, after);
        let open = || {
            let mut file = OpenOptions::new().read(true).write(true).open(path)?;
            if whole < text.len() {
                file.set_len(whole as u64)?;
                if whole < HEADER {
                    file.set_len(0)?;
                    file.write_all(MAGIC)?;
                }
                file.sync_all()?;
            }
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(JournalError::at(path))?;
        let segment = Segment {
            path: path.to_owned(),
            file,
            bytes: whole.max(HEADER) as u64,
            first: events.first().map_or(after, |event| event.number),
            events: events.len(),
            last: events.last().map_or(after, |event| event.number),
            passed: 0,
        };
        Ok(OpenedFile {
            segment,
            damaged_bytes: (text.len() - whole.min(text.len())) as u64,
        })
    }

    /// Appends events, which are on disk when the call returns. A failed write is undone.
    pub(super) fn append(
        &mut self,
        events: &[Event],
        steps: &dyn StepObserver,
    ) -> Result<(), JournalError> {
        let mut bytes = Vec::new();
        for event in events {
            let failed = |error: serde_json::Error| io::Error::other(error);
            let text = serde_json::to_vec(event)
                .map_err(failed)
                .map_err(JournalError::at(&self.path))?;
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&crc32fast::hash(&text).to_le_bytes());
            bytes.extend_from_slice(&text);
        }
        let half = bytes.len() / 2;
        let written = (|| {
            self.file.write_all(&bytes[..half])?;
            steps.at(Step::InJournal);
            self.file.write_all(&bytes[half..])?;
            self.file.sync_data()
        })();
        if let Err(error) = written {
            let back = self.file.set_len(self.bytes);
            let _ = back.and_then(|()| self.file.seek(SeekFrom::End(0)));
            return Err(JournalError::at(&self.path)(error));
        }
        self.bytes += bytes.len() as u64;
        self.events += events.len();
        self.last = events.last().map_or(self.last, |event| event.number);
        Ok(())
    }

    /// Marks events up to this number as acknowledged, and returns the number of remaining events.
    pub(super) fn pass(&mut self, number: u64) -> Result<usize, JournalError> {
        if number >= self.last {
            self.events = 0;
            self.passed = self.passed.max(number);
        } else if number >= self.first && number > self.passed && self.events > 0 {
            let left = self
                .read()?
                .into_iter()
                .filter(|event| event.number > number);
            self.events = left.count();
            self.passed = number;
        }
        Ok(self.events)
    }

    pub(super) fn read(&self) -> Result<Vec<Event>, JournalError> {
        let text = fs::read(&self.path).map_err(JournalError::at(&self.path))?;
        Ok(records(&text, 0).0)
    }

    /// Removes the file. A missing file counts as removed.
    pub(super) fn remove(&self) -> Result<(), JournalError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(JournalError::at(&self.path)),
        }
    }
}

/// Writes the entries of the folder to disk, so that removed files do not exist again after a power failure.
pub(super) fn sync_folder(folder: &Path) -> Result<(), JournalError> {
    let sync = || File::open(folder)?.sync_all();
    sync().map_err(JournalError::at(folder))
}

/// Leading complete records of a file with ascending numbers above `after`, and the position in bytes after the last of
/// them.
fn records(text: &[u8], after: u64) -> (Vec<Event>, usize) {
    let Some(mut rest) = text.strip_prefix(MAGIC) else {
        return (Vec::new(), 0);
    };
    let (mut events, mut last): (Vec<Event>, u64) = (Vec::new(), after);
    while let Some((event, behind)) = record(rest).filter(|(event, _)| event.number > last) {
        last = event.number;
        events.push(event);
        rest = behind;
    }
    (events, text.len() - rest.len())
}

fn record(text: &[u8]) -> Option<(Event, &[u8])> {
    let (length, rest) = text.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let (body, behind) = rest.split_at_checked(length.min(MOST_BYTES + 1))?;
    let is_whole = body.len() == length && crc32fast::hash(body) == u32::from_le_bytes(*sum);
    let event = is_whole.then(|| serde_json::from_slice(body).ok())??;
    Some((event, behind))
}
