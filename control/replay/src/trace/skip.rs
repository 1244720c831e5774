//! Skipped lines and jobs of a trace, with reasons.

use crate::swf;
use lattice_quorum_types::text::counted;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Reason why a line of a trace is not replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The line cannot be read.
    NotRead,
    /// The job has no submit time.
    NoSubmitTime,
    /// The job has neither a requested nor an allocated size.
    NoSize,
    /// The job has no run time: it never ran, or the run time was not recorded.
    NoRunTime,
    /// The run time is 0.
    ZeroRunTime,
    /// The job had not ended when the trace was written.
    StillRunning,
    /// The line is a part, such as a job step, of a job that has a line of its own.
    PartOfAJob,
    /// The line repeats an earlier line of the same run.
    Repeated,
    /// A time of the job is implausible.
    Implausible,
    /// The job requests more than the machine has.
    TooLarge,
    /// The machine does not have enough nodes that match the request.
    Impossible,
    /// The quorum refuses the job because of a limit or its request.
    Refused,
    /// The job still waits at the end of the replay.
    NeverStarted,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRead => "cannot be read",
            Self::NoSubmitTime => "has no submit time",
            Self::NoSize => "has no requested or allocated size",
            Self::NoRunTime => "has no run time: the job never ran, or its run time was not recorded",
            Self::ZeroRunTime => "ran for 0 s",
            Self::StillRunning => "had not ended when the trace was written",
            Self::PartOfAJob => "is a part of a job that has its own line",
            Self::Repeated => "is the same run as an earlier line",
            Self::Implausible => {
                "has an implausible time: submitted after 2200, run time above ten years, or estimate above a century"
            }
            Self::TooLarge => "requests more processors or nodes than the machine has",
            Self::Impossible => "requests more matching nodes than the machine has",
            Self::Refused => "is refused by the quorum",
            Self::NeverStarted => "never starts",
        })
    }
}

impl From<swf::SkipReason> for SkipReason {
    fn from(reason: swf::SkipReason) -> Self {
        match reason {
            swf::SkipReason::NoSubmitTime => Self::NoSubmitTime,
            swf::SkipReason::NoSize => Self::NoSize,
            swf::SkipReason::NoRunTime => Self::NoRunTime,
            swf::SkipReason::PartOfAJob => Self::PartOfAJob,
        }
    }
}

/// Number of lines that are stored with details for each reason.
const MAX_DETAILS: usize = 10;

impl SkipReason {
    /// Whether the job may have run, so that the workload lacks its work. Other jobs never ran, had not ended, are in
    /// another line, or do not fit the machine of the replay.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::NotRead | Self::NoSubmitTime | Self::Implausible)
    }

    /// Whether the job was submitted and refused, which is not a fault of the trace.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Refused | Self::Impossible)
    }
}

/// Skipped lines: for each reason, the number of lines and the first lines with details.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SkippedLines {
    counts: BTreeMap<SkipReason, u64>,
    #[serde(skip)]
    first: BTreeMap<SkipReason, Vec<(u64, String)>>,
}

impl SkippedLines {
    /// Adds a line.
    pub fn add(&mut self, line: u64, why: SkipReason, detail: impl FnOnce() -> String) {
        *self.counts.entry(why).or_default() += 1;
        let first = self.first.entry(why).or_default();
        if first.len() < MAX_DETAILS {
            first.push((line, detail()));
        }
    }

    /// Number of lines by reason.
    pub fn counts(&self) -> &BTreeMap<SkipReason, u64> {
        &self.counts
    }

    /// Number of jobs that were submitted and refused.
    pub fn refused(&self) -> u64 {
        let of = self.counts.iter().filter(|(why, _)| why.is_refusal());
        of.map(|(_, count)| count).sum()
    }

    /// Number of jobs that may have run and are missing from the workload.
    pub fn lost(&self) -> u64 {
        let of = self.counts.iter().filter(|(why, _)| why.is_loss());
        of.map(|(_, count)| count).sum()
    }

    /// Number of all skipped lines.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Adds the lines that a later step skipped.
    pub fn extend(&mut self, later: &Self) {
        for (why, count) in &later.counts {
            *self.counts.entry(*why).or_default() += count;
            let first = self.first.entry(*why).or_default();
            let more = later.first.get(why).into_iter().flatten();
            first.extend(
                more.take(MAX_DETAILS - first.len().min(MAX_DETAILS))
                    .cloned(),
            );
        }
    }

    /// Descriptions for reports: each reason with its first lines.
    pub fn descriptions(&self) -> Vec<String> {
        let mut descriptions = Vec::new();
        for (why, count) in &self.counts {
            let first = self.first.get(why).map_or(&[][..], Vec::as_slice);
            match why {
                // For these reasons, details differ from line to line.
                SkipReason::NotRead
                | SkipReason::Refused
                | SkipReason::Impossible
                | SkipReason::NeverStarted => {
                    descriptions.extend(group_by_detail(first).iter().map(
                        |(line, others, detail)| {
                            let likewise = match others[..] {
                                [] => String::new(),
                                [one] => format!(" (line {one} likewise)"),
                                _ => format!(" (lines {} likewise)", listed(others)),
                            };
                            format!("line {line} {why}: {detail}{likewise}")
                        },
                    ));
                    let more = count - first.len() as u64;
                    if more > 0 {
                        descriptions
                            .push(format!("and {}: each {why}", counted(more, "more line")));
                    }
                }
                _ => {
                    let lines: Vec<u64> = first.iter().map(|(line, _)| *line).collect();
                    let goes_on = if *count > first.len() as u64 {
                        ", …"
                    } else {
                        ""
                    };
                    let (jobs, lines) = (counted(*count, "job"), listed(&lines));
                    let each = if *count == 1 { "it" } else { "each" };
                    descriptions.push(format!(
                        "{jobs} skipped: {each} {why} (line {lines}{goes_on})"
                    ));
                }
            }
        }
        descriptions
    }
}

/// Groups equal details: the first line of each, and the other lines with the same detail.
fn group_by_detail(first: &[(u64, String)]) -> Vec<(u64, Vec<u64>, &str)> {
    let mut groups: Vec<(u64, Vec<u64>, &str)> = Vec::new();
    for (line, detail) in first {
        match groups.iter_mut().find(|(.., known)| known == detail) {
            Some((_, others, _)) => others.push(*line),
            None => groups.push((*line, Vec::new(), detail)),
        }
    }
    groups
}

fn listed(lines: &[u64]) -> String {
    let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
    lines.join(", ")
}
