//! Accounting buffer: journal of events that are not acknowledged yet. The journal is on disk, so that the events need
//! not be read from the quorum again after a restart. It is only a cache: the quorum has the usage record of each
//! event.
//!
//! The journal consists of files of records, each with its length and checksum. The last file may end within a record
//! after a power failure; the incomplete record is cut off. The first events are also kept in memory. When memory and
//! disk are full, the newest events are dropped and counted.

mod file;
#[cfg(test)]
mod tests;

use crate::{
    event::Event,
    step::{Step, StepObserver},
};
use file::Segment;
use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
};

/// Size in bytes from which a file is full.
const FILE_BYTES: u64 = 1 << 20;

/// Maximum numbers of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of events in memory.
    pub memory: usize,
    /// Maximum number of events on disk beyond those in memory.
    pub disk: usize,
}

/// Error of reading or writing the journal.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct JournalError {
    /// File or folder of the failed operation.
    pub path: PathBuf,
    /// I/O error.
    pub source: io::Error,
}

impl JournalError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        |source| Self { path, source }
    }
}

/// Result of opening a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalRecovery {
    /// Number of events in the journal.
    pub events: usize,
    /// Bytes cut off at the end of the last file.
    pub torn_bytes: u64,
    /// Files set aside because they follow a damaged file.
    pub damaged: Vec<PathBuf>,
}

/// Journal of unacknowledged events. See the module documentation.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    bounds: Bounds,
    /// Files of the journal, oldest first; the last one is written to.
    segments: VecDeque<Segment>,
    /// First events of the journal, which are also on disk.
    memory: VecDeque<Event>,
    /// Number of events in memory and on disk.
    events: usize,
    /// Number of the last event that was appended.
    last: u64,
    /// Numbers of dropped events that are not acknowledged yet, oldest first.
    dropped: VecDeque<u64>,
}

impl Journal {
    /// Opens the journal in `folder`, which is created if missing. Events up to `acknowledged` are removed.
    ///
    /// # Errors
    /// Returns an error when the folder or a file cannot be read or written.
    pub fn open(
        folder: &Path,
        bounds: Bounds,
        acknowledged: u64,
    ) -> Result<(Self, JournalRecovery), JournalError> {
        fs::create_dir_all(folder).map_err(JournalError::at(folder))?;
        let mut recovered = JournalRecovery::default();
        let mut segments = VecDeque::new();
        let mut last = 0;
        let names = file::names(folder)?;
        let count = names.len();
        for (place, path) in names.into_iter().enumerate() {
            let found = Segment::open(&path, last)?;
            last = found.segment.last.max(last);
            recovered.events += found.segment.events;
            segments.push_back(found.segment);
            if found.damaged_bytes == 0 {
                continue;
            }
            if place + 1 == count {
                recovered.torn_bytes = found.damaged_bytes;
                continue;
            }
            // After a damaged file, events are missing, so the later files cannot be used. The quorum has the events.
            for behind in file::names(folder)?
                .into_iter()
                .filter(|other| *other > path)
            {
                let aside = behind.with_extension("damaged");
                fs::rename(&behind, &aside).map_err(JournalError::at(&behind))?;
                recovered.damaged.push(aside);
            }
            break;
        }
        let mut journal = Self {
            folder: folder.to_owned(),
            bounds,
            events: recovered.events,
            segments,
            memory: VecDeque::new(),
            last,
            dropped: VecDeque::new(),
        };
        journal.drop_through(acknowledged, &crate::step::NoObserver)?;
        journal.refill()?;
        recovered.events = journal.events;
        Ok((journal, recovered))
    }

    /// Number of the last event that was appended; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The last event on disk, acknowledged or not; `None` if there is none.
    ///
    /// # Errors
    /// Returns an error when a file cannot be read.
    pub fn last_event(&self) -> Result<Option<Event>, JournalError> {
        for segment in self.segments.iter().rev() {
            if let Some(event) = segment.read()?.pop() {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Number of unacknowledged events.
    pub fn len(&self) -> usize {
        self.events
    }

    /// Whether there are no unacknowledged events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Number of events in memory.
    pub fn in_memory(&self) -> usize {
        self.memory.len()
    }

    /// Number of events only on disk.
    pub fn on_disk(&self) -> usize {
        self.events - self.memory.len()
    }

    /// Appends events in the order of their numbers while there is room, and drops the others. The events are on disk
    /// when the call returns. Returns the number of dropped events. Events up to [`Journal::last`] were appended
    /// before, and are skipped.
    ///
    /// # Errors
    /// Returns an error when events cannot be written. Events are written in chunks of 1,000; events of a failed chunk
    /// and later ones are not in the journal. The caller can append all events again.
    pub fn append(
        &mut self,
        events: &[Event],
        steps: &dyn StepObserver,
    ) -> Result<usize, JournalError> {
        let known = events.partition_point(|event| event.number <= self.last);
        let events = &events[known..];
        let room = (self.bounds.memory + self.bounds.disk).saturating_sub(self.events);
        let kept = &events[..events.len().min(room)];
        steps.at(Step::BeforeJournal);
        for some in kept.chunks(1_000) {
            self.write(some, steps)?;
        }
        steps.at(Step::AfterJournal);
        let dropped = &events[kept.len()..];
        self.dropped
            .extend(dropped.iter().map(|event| event.number));
        Ok(dropped.len())
    }

    fn write(&mut self, events: &[Event], steps: &dyn StepObserver) -> Result<(), JournalError> {
        let is_full = |segment: &Segment| segment.bytes >= FILE_BYTES;
        if self.segments.back().is_none_or(is_full) {
            steps.at(Step::BeforeRotate);
            let segment = Segment::create(&self.folder, events.first().map_or(0, |e| e.number))?;
            self.segments.push_back(segment);
            steps.at(Step::AfterRotate);
        }
        let Some(segment) = self.segments.back_mut() else {
            return Ok(());
        };
        segment.append(events, steps)?;
        let was_on_disk = self.events > self.memory.len();
        self.events += events.len();
        self.last = events.last().map_or(self.last, |event| event.number);
        if !was_on_disk {
            let room = self.bounds.memory.saturating_sub(self.memory.len());
            self.memory.extend(events.iter().take(room).cloned());
        }
        Ok(())
    }

    /// Removes all events, whether they are acknowledged or not.
    ///
    /// # Errors
    /// Returns an error when a file cannot be removed or the folder cannot be written to disk. The call can be repeated.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        self.memory.clear();
        self.dropped.clear();
        (self.events, self.last) = (0, 0);
        // A file stays in the list until it is removed, so that a repeated call removes it.
        while let Some(segment) = self.segments.front() {
            segment.remove()?;
            self.segments.pop_front();
        }
        file::sync_folder(&self.folder)
    }

    /// The first events in memory, at most `limit`.
    pub fn first(&self, limit: usize) -> Vec<Event> {
        self.memory.iter().take(limit).cloned().collect()
    }

    /// Number of dropped events that are not acknowledged yet.
    pub fn dropped(&self) -> usize {
        self.dropped.len()
    }

    /// Number of dropped events up to this number that are not acknowledged yet.
    pub fn dropped_through(&self, number: u64) -> u64 {
        let passed = self
            .dropped
            .iter()
            .take_while(|dropped| **dropped <= number);
        passed.count() as u64
    }

    /// Removes events up to this number, which are acknowledged.
    ///
    /// # Errors
    /// Returns an error when a file cannot be removed or read.
    pub fn acknowledge(
        &mut self,
        number: u64,
        steps: &dyn StepObserver,
    ) -> Result<(), JournalError> {
        let removed = self.drop_through(number, steps);
        while self.dropped.front().is_some_and(|first| *first <= number) {
            self.dropped.pop_front();
        }
        // Also after an error: without events in memory, those on disk would count as sent.
        self.refill()?;
        removed
    }

    fn drop_through(&mut self, number: u64, steps: &dyn StepObserver) -> Result<(), JournalError> {
        while self
            .memory
            .front()
            .is_some_and(|event| event.number <= number)
        {
            self.memory.pop_front();
        }
        // Events are counted first, so that their number is right even if a file cannot be removed.
        let mut left = 0;
        for segment in &mut self.segments {
            left += segment.pass(number)?;
        }
        self.events = left;
        // A file stays in the list until it is removed, so that the next call removes it.
        while let Some(segment) = self.segments.front() {
            if segment.last > number {
                break;
            }
            steps.at(Step::InForget);
            segment.remove()?;
            self.segments.pop_front();
        }
        Ok(())
    }

    /// Loads events from disk until the bound of memory is reached, unless more than half of the bound is in use.
    fn refill(&mut self) -> Result<(), JournalError> {
        if self.memory.len() * 2 > self.bounds.memory || self.on_disk() == 0 {
            return Ok(());
        }
        let known = self.memory.back().map_or(0, |event| event.number);
        let mut room = self.bounds.memory - self.memory.len();
        for segment in &self.segments {
            if room == 0 {
                break;
            }
            let after = known.max(segment.passed);
            let events = segment
                .read()?
                .into_iter()
                .filter(|event| event.number > after);
            let events: Vec<Event> = events.take(room).collect();
            room -= events.len();
            self.memory.extend(events);
        }
        Ok(())
    }
}
