//! Folding of repeated events, so that a storm does not fill a journal. Pure.

use std::collections::{BTreeMap, VecDeque};

/// Maximum number of keys tracked per share. Events of further keys are only counted. Each share has its own limit, as
/// it has its own lines.
const MAX_KEYS: usize = 256;
const HOUR_MS: u64 = 3_600_000;

/// Rate limit for recording events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingLimit {
    /// Name of the share: all events of a share have a common hourly limit.
    pub share: &'static str,
    /// Maximum lines per hour for all events of the share.
    pub hourly: usize,
    /// Number of events of one key that get their own line, before repeats are folded.
    pub burst: u32,
    /// Folding window, in milliseconds. One line is written at the end of the window, and the window doubles while the
    /// repeats continue.
    pub window_ms: u64,
    /// Maximum of the doubled window, in milliseconds.
    pub longest_ms: u64,
}

/// A line to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedLine<W> {
    /// The last folded event.
    pub what: W,
    /// Time of the last event, in Unix milliseconds.
    pub at: u64,
    /// Time of the first event, in Unix milliseconds.
    pub first_at: u64,
    /// Number of folded events.
    pub count: u32,
    /// Number of earlier events of the same share that were not recorded.
    pub left_out: u32,
}

/// The tracked events. Times are Unix milliseconds. If the clock is set back, some repeats lose their own lines;
/// nothing else is lost.
#[derive(Clone, Debug)]
pub struct EventFold<W> {
    /// By share and key: the same event with a higher severity has another share, and must not wait with the rest.
    open: BTreeMap<(&'static str, String), OpenWindow<W>>,
    /// Times of the lines written in the last hour, by share.
    line_times: BTreeMap<&'static str, VecDeque<u64>>,
    left_out: BTreeMap<&'static str, u32>,
}

#[derive(Clone, Debug)]
struct OpenWindow<W> {
    rule: RecordingLimit,
    /// Number of own lines in this window.
    lines: u32,
    waiting: Option<PendingRepeats<W>>,
    window_ms: u64,
    ends_at: u64,
}

#[derive(Clone, Debug)]
struct PendingRepeats<W> {
    what: W,
    count: u32,
    first_at: u64,
    last_at: u64,
}

impl<W> Default for EventFold<W> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            line_times: BTreeMap::new(),
            left_out: BTreeMap::new(),
        }
    }
}

impl<W> EventFold<W> {
    /// Counts a line written at `at` against the hourly limit, also a line of an earlier process.
    pub fn count_line(&mut self, rule: RecordingLimit, at: u64) {
        self.line_times.entry(rule.share).or_default().push_back(at);
    }

    /// Takes an event that happened at `at`. A returned line must be recorded now. Any other event is folded, and
    /// [`EventFold::take_due_lines`] or [`EventFold::drain`] returns it later. Above `MAX_KEYS` keys in the share, an
    /// event with a new key is only counted in [`FoldedLine::left_out`].
    pub fn add_event(
        &mut self,
        now: u64,
        at: u64,
        key: String,
        rule: RecordingLimit,
        what: W,
    ) -> Option<FoldedLine<W>> {
        let key = (rule.share, key);
        if !self.open.contains_key(&key) && self.tracked_keys(rule) >= MAX_KEYS {
            self.leave_out(rule, 1);
            return None;
        }
        let may = self.is_within_limit(now, rule);
        let open = self.open.entry(key).or_insert(OpenWindow {
            rule,
            lines: 0,
            waiting: None,
            window_ms: rule.window_ms,
            ends_at: now.saturating_add(rule.window_ms),
        });
        if may && open.lines < rule.burst && open.waiting.is_none() {
            open.lines += 1;
            let waiting = PendingRepeats::new(at, what);
            return Some(self.write(now, rule, waiting));
        }
        match &mut open.waiting {
            Some(waiting) => waiting.add(at, what),
            none => *none = Some(PendingRepeats::new(at, what)),
        }
        None
    }

    /// Returns the folded lines that are due, the longest waiting first, so that frequent repeats do not starve events
    /// without a line. Call this about once a minute.
    pub fn take_due_lines(&mut self, now: u64) -> Vec<FoldedLine<W>> {
        let mut due = Vec::new();
        let since = |open: &OpenWindow<W>| open.waiting.as_ref().map(|waiting| waiting.first_at);
        let keys = self
            .open
            .iter()
            .map(|(key, open)| (since(open), key.clone()));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        for (_, key) in keys {
            let Some(open) = self.open.get_mut(&key) else {
                continue;
            };
            // If the clock was set back, the window still ends.
            open.ends_at = open.ends_at.min(now.saturating_add(open.window_ms));
            if open.ends_at > now {
                continue;
            }
            let rule = open.rule;
            if open.waiting.is_none() {
                // No repeat in the whole window.
                self.open.remove(&key);
            } else if self.is_within_limit(now, rule)
                && let Some(open) = self.open.get_mut(&key)
                && let Some(waiting) = open.waiting.take()
            {
                open.window_ms = (open.window_ms * 2).min(rule.longest_ms);
                open.ends_at = now.saturating_add(open.window_ms);
                open.lines = rule.burst;
                due.push(self.write(now, rule, waiting));
            }
        }
        due
    }

    /// Returns the remaining folded lines at the end of the process, within the hourly limit.
    pub fn drain(&mut self, now: u64) -> Vec<FoldedLine<W>> {
        let mut rest = Vec::new();
        for (_, mut open) in std::mem::take(&mut self.open) {
            if let Some(waiting) = open.waiting.take() {
                if self.is_within_limit(now, open.rule) {
                    rest.push(self.write(now, open.rule, waiting));
                } else {
                    self.leave_out(open.rule, waiting.count);
                }
            }
        }
        rest
    }

    fn is_within_limit(&mut self, now: u64, rule: RecordingLimit) -> bool {
        let spent = self.line_times.entry(rule.share).or_default();
        // A time in the future comes from a clock that was set back.
        spent.retain(|at| *at <= now && now - at < HOUR_MS);
        spent.len() < rule.hourly
    }

    /// Number of tracked keys of the rule's share.
    fn tracked_keys(&self, rule: RecordingLimit) -> usize {
        let first = (rule.share, String::new());
        let of_share = self.open.range(first..);
        of_share
            .take_while(|((share, _), _)| *share == rule.share)
            .count()
    }

    fn leave_out(&mut self, rule: RecordingLimit, count: u32) {
        let left_out = self.left_out.entry(rule.share).or_default();
        *left_out = left_out.saturating_add(count);
    }

    fn write(
        &mut self,
        now: u64,
        rule: RecordingLimit,
        waiting: PendingRepeats<W>,
    ) -> FoldedLine<W> {
        self.count_line(rule, now);
        FoldedLine {
            what: waiting.what,
            at: waiting.last_at,
            first_at: waiting.first_at,
            count: waiting.count,
            left_out: self.left_out.remove(rule.share).unwrap_or_default(),
        }
    }
}

impl<W> PendingRepeats<W> {
    const fn new(at: u64, what: W) -> Self {
        Self {
            what,
            count: 1,
            first_at: at,
            last_at: at,
        }
    }

    fn add(&mut self, at: u64, what: W) {
        self.what = what;
        self.count = self.count.saturating_add(1);
        self.first_at = self.first_at.min(at);
        self.last_at = self.last_at.max(at);
    }
}

#[cfg(test)]
mod tests;
