//! How a cell is joined.

use lattice_mesh::Role;
use std::{fmt, net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

/// Longest cell name, bytes: it stands in front of every message.
const MAX_CELL_BYTES: usize = 64;
/// Quick enough to see a changed digest in seconds; measured cost grows with its inverse.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);
/// A dead member's entry weighs on every message until half of this has passed.
const DEFAULT_FORGET_AFTER: Duration = Duration::from_secs(600);

/// Why a text is not a cell name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a cell name: 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or a digit"
)]
pub struct InvalidCellName {
    /// As given.
    pub text: String,
}

/// A gossip cell's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellName(Arc<str>);

impl CellName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CellName {
    type Err = InvalidCellName;
    fn from_str(text: &str) -> Result<Self, InvalidCellName> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let good = text.len() <= MAX_CELL_BYTES
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(allowed);
        if good {
            Ok(Self(text.into()))
        } else {
            let text = text.chars().take(80).collect();
            Err(InvalidCellName { text })
        }
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A member known beforehand, from whom the others are learned. Its certificate must have the
/// role; its name need not be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    /// Its mesh address.
    pub addr: SocketAddr,
    /// Agent or control.
    pub role: Role,
}

/// How a cell is joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellConfig {
    /// The cell. Members of another cell of that name in another cluster are refused by the mesh.
    pub name: CellName,
    /// Whom to ask first. One that answers is enough.
    pub seeds: Vec<Seed>,
    /// Between two rounds; 50 ms to 60 s.
    pub interval: Duration,
    /// Tells this run of the process from earlier ones: must be higher than in any earlier run.
    /// Milliseconds since 1970 at the start of the process will do.
    pub generation: u64,
    /// Where others reach this process; `None` is where the mesh listens.
    pub advertise: Option<SocketAddr>,
    /// A member not heard of for this long is forgotten.
    pub forget_after: Duration,
}

impl CellConfig {
    /// Without seeds, at the usual pace.
    pub fn new(name: CellName, generation: u64) -> Self {
        Self {
            name,
            seeds: Vec::new(),
            interval: DEFAULT_INTERVAL,
            generation,
            advertise: None,
            forget_after: DEFAULT_FORGET_AFTER,
        }
    }
}
