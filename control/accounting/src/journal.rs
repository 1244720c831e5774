//! Events that are not acknowledged yet, on the disk, so that a restart asks nobody for them again. It is a cache: what
//! is lost with it the quorum has.
//!
//! Files of records, each with its length and checksum. The last one may end in the middle of a record, where the
//! power went: that part is cut off. The first events are in memory too. When memory and disk are full the newest
//! events are dropped, and counted.

mod file;
#[cfg(test)]
mod tests;

use crate::{
    event::Event,
    site::{Step, Steps},
};
use file::Segment;
use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
};

/// A file is full with the record that reaches this, bytes.
const FILE_BYTES: u64 = 1 << 20;

/// How many events there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// In memory.
    pub memory: usize,
    /// On the disk alone, besides.
    pub disk: usize,
}

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct JournalError {
    /// Which file or folder.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl JournalError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        |source| Self { path, source }
    }
}

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Events that are there.
    pub events: usize,
    /// Bytes that were cut off at the end.
    pub torn_bytes: u64,
    /// Files that were damaged in the middle and set aside.
    pub damaged: Vec<PathBuf>,
}

/// See the module.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    bounds: Bounds,
    /// Oldest first; the last is written to.
    segments: VecDeque<Segment>,
    /// The first events.
    memory: VecDeque<Event>,
    /// Events in memory and on the disk.
    events: usize,
    /// Number of the last event that was offered and kept.
    last: u64,
    /// Numbers of events that were dropped and not passed yet, oldest first.
    dropped: VecDeque<u64>,
}

impl Journal {
    /// Opens the journal in `folder`, which is made where it is not there. Events up to `acknowledged` are forgotten.
    ///
    /// # Errors
    /// When the folder or a file cannot be read or written.
    pub fn open(
        folder: &Path,
        bounds: Bounds,
        acknowledged: u64,
    ) -> Result<(Self, Recovered), JournalError> {
        fs::create_dir_all(folder).map_err(JournalError::at(folder))?;
        let mut recovered = Recovered::default();
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
            // What follows is not what followed: the quorum has it.
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
        journal.forget(acknowledged, &crate::site::Unwatched)?;
        journal.refill()?;
        recovered.events = journal.events;
        Ok((journal, recovered))
    }

    /// Number of the last event that it has or had; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.events
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Events in memory.
    pub fn in_memory(&self) -> usize {
        self.memory.len()
    }

    /// Events on the disk alone.
    pub fn on_disk(&self) -> usize {
        self.events - self.memory.len()
    }

    /// Takes events, in the order of their numbers, as far as there is room; the others are dropped. They are on the
    /// disk when this returns. Gives how many were dropped.
    ///
    /// # Errors
    /// When they cannot be written: then none is taken, and they can be offered again.
    pub fn append(&mut self, events: &[Event], steps: &dyn Steps) -> Result<usize, JournalError> {
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

    fn write(&mut self, events: &[Event], steps: &dyn Steps) -> Result<(), JournalError> {
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

    /// The first events, `limit` at most.
    pub fn first(&self, limit: usize) -> Vec<Event> {
        self.memory.iter().take(limit).cloned().collect()
    }

    /// How many events up to this number were dropped and not passed yet.
    pub fn dropped_through(&self, number: u64) -> u64 {
        let passed = self
            .dropped
            .iter()
            .take_while(|dropped| **dropped <= number);
        passed.count() as u64
    }

    /// Events up to this number are acknowledged.
    ///
    /// # Errors
    /// When a file cannot be removed or read.
    pub fn acknowledge(&mut self, number: u64, steps: &dyn Steps) -> Result<(), JournalError> {
        self.forget(number, steps)?;
        while self.dropped.front().is_some_and(|first| *first <= number) {
            self.dropped.pop_front();
        }
        self.refill()
    }

    fn forget(&mut self, number: u64, steps: &dyn Steps) -> Result<(), JournalError> {
        while self
            .memory
            .front()
            .is_some_and(|event| event.number <= number)
        {
            self.memory.pop_front();
        }
        let mut left = 0;
        while self
            .segments
            .front()
            .is_some_and(|first| first.last <= number)
        {
            let Some(segment) = self.segments.pop_front() else {
                break;
            };
            steps.at(Step::InForget);
            segment.remove()?;
        }
        for segment in &mut self.segments {
            left += segment.pass(number)?;
        }
        self.events = left;
        Ok(())
    }

    /// Brings events from the disk into memory, where there is room.
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
