//! Configuration of a gossip cell.

use lattice_mesh::Role;
use std::{fmt, net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

/// Longest cell name, bytes: each message begins with the name.
const MAX_CELL_BYTES: usize = 64;
/// Default interval: a changed digest spreads in seconds. The measured cost grows with the inverse of the interval.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);
/// Default of [`CellConfig::forget_after`]. The entry of a dead member adds to every message until half of this time
/// has passed.
const DEFAULT_FORGET_AFTER: Duration = Duration::from_secs(600);

/// Text that is not a valid cell name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a cell name: 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or a digit"
)]
pub struct InvalidCellName {
    /// Rejected text, at most 80 characters.
    pub text: String,
}

/// Name of a gossip cell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellName(Arc<str>);

impl CellName {
    /// Name as text.
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

/// Configured member through which this process finds the other members. Its certificate must have the role; its name
/// need not be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    /// Mesh address.
    pub addr: SocketAddr,
    /// Role: agent or control.
    pub role: Role,
}

/// Configuration of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellConfig {
    /// Name of the cell. The mesh rejects members of a cell with the same name in another cluster.
    pub name: CellName,
    /// First members to contact. One that answers is enough.
    pub seeds: Vec<Seed>,
    /// Time between two rounds; 50 ms to 60 s.
    pub interval: Duration,
    /// Generation of this process: must be higher than in any earlier run. Milliseconds since 1970 at the start of the
    /// process are suitable.
    pub generation: u64,
    /// Address that peers use for this process; `None`: the listening address of the mesh.
    pub advertise: Option<SocketAddr>,
    /// Time of silence after which a member is forgotten.
    pub forget_after: Duration,
}

impl CellConfig {
    /// Configuration without seeds, with default times.
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
