//! What a node says itself, on a direct question over a connection that its certificate names: what
//! it is ([`conformance`]) and how it is ([`health`]); and what its BMC says of both ([`bmc`]), which
//! control reads itself. Whoever drains a node or lets one back rests on this, never on gossip.
//!
//! It must not know what follows from an answer.

pub(crate) mod bmc;
pub(crate) mod conformance;
pub(crate) mod health;

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has no business in service, for this reason.
    Drains(String),
    /// Everything that was asked for is known and sound.
    Fine,
    /// Something of that is not known.
    Unknown(String),
}

/// How fresh an answer must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Of the last seconds, in the same run of the agent: for a node that was read just now because
    /// it starts. Ten thousand of them are asked together.
    Recent,
    /// Of a look that begins after this call, but for a full read of the last two seconds where no
    /// person asks: whoever waits for a repair has seen by gossip that there is news.
    Now {
        /// The person who asks. They have just changed something.
        by: Option<String>,
    },
}

impl Freshness {
    /// For a routine of our own.
    pub(crate) const NOW: Self = Self::Now { by: None };

    fn by(&self) -> Option<String> {
        match self {
            Self::Recent => None,
            Self::Now { by } => by.clone(),
        }
    }
}
