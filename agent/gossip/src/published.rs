//! What a member says of itself.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// Everything a member says of itself. What is not said is not known: absent is never zero,
/// healthy or equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// The mark of each conformance class, by class name: a digest's text, or why there is none.
    pub fingerprints: BTreeMap<String, String>,
    /// Digest of the node's identity document.
    pub identity: Option<String>,
    /// What its checks say.
    pub health: Option<Health>,
    /// How busy it is.
    pub load: Option<Load>,
    /// What it draws.
    pub power: Option<Power>,
    /// Which boot and which run of the process.
    pub boot: Option<Boot>,
    /// The program's version.
    pub version: Option<String>,
    /// Its topology group.
    pub group: Option<String>,
    /// How far its history goes, so that others know when there is more to fetch.
    pub history: Option<HistoryMark>,
}

/// The verdict of a member's checks, the better before the worse: of several the greatest counts.
/// What is not known may be worse than a fault that leaves the member usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// All checks pass.
    Healthy,
    /// It works with a fault.
    Degraded,
    /// Not all checks have run, or something that they look at cannot be read.
    Unknown,
    /// It must not be used.
    Faulty,
}

impl Verdict {
    const ALL: [Verdict; 4] = [
        Verdict::Healthy,
        Verdict::Degraded,
        Verdict::Unknown,
        Verdict::Faulty,
    ];

    /// Lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Unknown => "unknown",
            Verdict::Healthy => "healthy",
            Verdict::Degraded => "degraded",
            Verdict::Faulty => "faulty",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Verdict {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|v| v.as_str() == text).ok_or(())
    }
}

/// A verdict with the codes of the checks behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The verdict.
    pub verdict: Verdict,
    /// Stable codes of the checks that do not pass: letters, digits, `.`, `_`, `-`.
    pub reasons: Vec<String>,
}

/// How busy a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Allocation ranks running on it.
    pub running: u32,
    /// Load average over one minute, in hundredths.
    pub load1_hundredths: u32,
}

/// What a member draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Power {
    /// Milliwatts.
    pub milliwatts: u64,
}

/// Which boot of the host and which run of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The host's boot id.
    pub boot_id: String,
    /// Grows with each start of the process on this host.
    pub incarnation: u64,
}

/// How far a member's history goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryMark {
    /// Names the journal; another one begins anew.
    pub journal: u64,
    /// Number of the last entry that is on its disk.
    pub seq: u64,
}
