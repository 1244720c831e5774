//! Gossip of one process: its cells, and the dispatch of messages to them.

use crate::{Cell, CellConfig, CellName, JoinError, Published, admission::Door, run, text};
use bytes::Bytes;
use lattice_mesh::{Caller, Mesh, Role, Router};
use parking_lot::Mutex;
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

/// Mesh message kind of gossip: `[length of cell name u8][cell name][chitchat's bytes]`.
pub const MESSAGE_KIND: u16 = 1;
/// Roles that take part. Quorum members do not: gossip must add no load to them.
const MEMBERS: &[Role] = &[Role::Agent, Role::Control];
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) type Doors = Mutex<HashMap<String, Arc<Door>>>;

/// Gossip of one process. Clones share it.
#[derive(Clone, Default)]
pub struct Gossip {
    doors: Arc<Doors>,
}

impl fmt::Debug for Gossip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<CellName> = self.doors.lock().values().map(|d| d.name.clone()).collect();
        write!(f, "Gossip({cells:?})")
    }
}

impl Gossip {
    /// Gossip without cells.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the handler of gossip messages, which accepts agents and controls of this cluster only. Call it before the
    /// mesh serves; cells may be joined at any time after.
    #[must_use]
    pub fn route(&self, router: Router) -> Router {
        let doors = self.doors.clone();
        router.messages(MESSAGE_KIND, MEMBERS, move |caller, bytes| {
            deliver(&doors, caller, bytes);
        })
    }

    /// Joins a cell over `mesh`, which must serve the router of this value. Returns as soon as gossip runs;
    /// [`Cell::changes`] shows whether members answer.
    pub async fn join(
        &self,
        mesh: &Mesh,
        config: CellConfig,
        published: &Published,
    ) -> Result<Cell, JoinError> {
        if config.interval < SHORTEST_INTERVAL || config.interval > LONGEST_INTERVAL {
            let given_ms = config.interval.as_millis();
            return Err(JoinError::Interval { given_ms });
        }
        let addr = config.advertise.unwrap_or_else(|| mesh.local_addr());
        if addr.ip().is_unspecified() || addr.port() == 0 {
            return Err(JoinError::NoAddress { addr });
        }
        let texts = text::to_texts(published)?;
        let door = Arc::new(Door::new(config.name.clone(), config.interval));
        // Dropping the place leaves the cell if the start fails or this future is dropped.
        let Some(place) = self.place(door) else {
            return Err(JoinError::AlreadyJoined { cell: config.name });
        };
        run::start(place, mesh.clone(), config, addr, texts).await
    }

    /// Registers a door; `None` if its cell has one already.
    pub(crate) fn place(&self, door: Arc<Door>) -> Option<CellRegistration> {
        let mut doors = self.doors.lock();
        if doors.contains_key(door.name.as_str()) {
            return None;
        }
        doors.insert(door.name.as_str().to_owned(), door.clone());
        let doors = self.doors.clone();
        Some(CellRegistration { doors, door })
    }
}

/// Registration of a cell in its process, removed on drop.
pub(crate) struct CellRegistration {
    doors: Arc<Doors>,
    pub(crate) door: Arc<Door>,
}

impl Drop for CellRegistration {
    fn drop(&mut self) {
        self.door.close();
        self.doors.lock().remove(self.door.name.as_str());
    }
}

fn deliver(doors: &Doors, caller: Caller, message: Bytes) {
    let Some((name, bytes)) = split(&message) else {
        tracing::debug!(peer = %caller.identity, "gossip message without a cell dropped");
        return;
    };
    let door = doors.lock().get(name).cloned();
    match door {
        Some(door) => door.deliver(caller, bytes),
        None => tracing::debug!(peer = %caller.identity, "gossip message of another cell dropped"),
    }
}

fn split(message: &Bytes) -> Option<(&str, Bytes)> {
    let (&length, rest) = message.split_first()?;
    let name = rest.get(..usize::from(length))?;
    let bytes = message.slice(1 + name.len()..);
    Some((std::str::from_utf8(name).ok()?, bytes))
}

/// Prefix of every message of a cell.
pub(crate) fn header(cell: &CellName) -> Vec<u8> {
    // A cell name has at most 64 bytes.
    let mut header = vec![u8::try_from(cell.as_str().len()).unwrap_or(u8::MAX)];
    header.extend_from_slice(cell.as_str().as_bytes());
    header
}
