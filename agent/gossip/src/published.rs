//! Published state of a gossip member.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// Published state of a member. An absent value is unknown: it is never zero, healthy or equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedState {
    /// Mark of each conformance class, by class name: schema and digest as text, or the reason that there is no digest.
    /// The mark under an earlier schema has the name `<class>.<schema>`.
    pub fingerprints: BTreeMap<String, String>,
    /// Digest of the node's identity document.
    pub identity: Option<String>,
    /// Health verdict of the checks.
    pub health: Option<Health>,
    /// Load.
    pub load: Option<Load>,
    /// Power draw.
    pub power: Option<Power>,
    /// Boot of the host and run of the process.
    pub boot: Option<Boot>,
    /// Version of the program.
    pub version: Option<String>,
    /// Topology group.
    pub group: Option<String>,
    /// Last entry of the history: readers compare the mark to detect new entries.
    pub history: Option<HistoryMark>,
    /// Time between SIGTERM and SIGKILL of ranks on the node, milliseconds.
    pub grace_ms: Option<u64>,
    /// Validity period of the certificate of a control's TLS port.
    pub https: Option<CertificatePeriod>,
    /// Seconds for which the member keeps the output of an allocation after its end.
    pub keep_output_s: Option<u64>,
}

/// Verdict of a member's checks, in order of severity: the worst verdict prevails. An unknown state may be worse than a
/// fault that leaves the member usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// All checks pass.
    Healthy,
    /// The member works with a fault.
    Degraded,
    /// Some checks have not run, or an input of a check cannot be read.
    Unknown,
    /// The member must not be used.
    Faulty,
}

impl Verdict {
    const ALL: [Verdict; 4] = [
        Verdict::Healthy,
        Verdict::Degraded,
        Verdict::Unknown,
        Verdict::Faulty,
    ];

    /// Name in lower case.
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

/// Verdict with the reason codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Verdict.
    pub verdict: Verdict,
    /// Stable codes of failed checks, and informational codes: letters, digits, `.`, `_`, `-`.
    pub reasons: Vec<String>,
}

/// Load of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Number of running allocation ranks.
    pub running: u32,
    /// Load average over one minute, in hundredths.
    pub load1_hundredths: u32,
}

/// Power draw of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Power {
    /// Power draw, milliwatts.
    pub milliwatts: u64,
}

/// Boot of the host and run of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// Boot id of the host.
    pub boot_id: String,
    /// Incarnation: grows with each start of the process on this host.
    pub incarnation: u64,
}

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificatePeriod {
    /// Start of the validity, milliseconds since 1970.
    pub issued_at_ms: u64,
    /// End of the validity, milliseconds since 1970.
    pub expires_at_ms: u64,
}

/// Position of a member's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryMark {
    /// Id of the journal; a new journal starts a new sequence.
    pub journal: u64,
    /// Sequence number of the last entry on disk.
    pub seq: u64,
}
