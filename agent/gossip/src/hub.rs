//! Gossip of one process: its cells, and the dispatch of messages to them.

use crate::{
    Cell, CellConfig, JoinError, PublishedState,
    admission::CellReceiver,
    frame::{MESSAGE_KIND, split},
    registry::{CellRegistration, CellRegistry},
    run, text,
};
use bytes::Bytes;
use lattice_mesh::{Caller, Mesh, Role, Router};
use std::{fmt, sync::Arc, time::Duration};

/// Roles that may gossip. Quorum members are excluded: gossip must add no load to them.
const GOSSIP_ROLES: &[Role] = &[Role::Agent, Role::Control];
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Gossip of one process. Clones share it.
#[derive(Clone, Default)]
pub struct Gossip {
    cells: CellRegistry,
}

impl fmt::Debug for Gossip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gossip({:?})", self.cells.names())
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
        let cells = self.cells.clone();
        router.messages(MESSAGE_KIND, GOSSIP_ROLES, move |caller, bytes| {
            deliver(&cells, caller, bytes);
        })
    }

    /// Joins a cell over `mesh`, which must serve the router of this value. Returns as soon as gossip runs;
    /// [`Cell::changes`] shows whether members answer.
    pub async fn join(
        &self,
        mesh: &Mesh,
        config: CellConfig,
        published: &PublishedState,
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
        let door = Arc::new(CellReceiver::new(config.name.clone(), config.interval));
        // Dropping the registration leaves the cell if the start fails or this future is dropped.
        let Some(place) = self.register(door) else {
            return Err(JoinError::AlreadyJoined { cell: config.name });
        };
        run::start(place, mesh.clone(), config, addr, texts).await
    }

    /// Registers the receiver of a cell; `None` if the cell has one already.
    pub(crate) fn register(&self, receiver: Arc<CellReceiver>) -> Option<CellRegistration> {
        self.cells.register(receiver)
    }
}

fn deliver(cells: &CellRegistry, caller: Caller, message: Bytes) {
    let Some((name, bytes)) = split(&message) else {
        tracing::debug!(peer = %caller.identity, "gossip message without a cell dropped");
        return;
    };
    match cells.receiver(name) {
        Some(door) => door.deliver(caller, bytes),
        None => tracing::debug!(peer = %caller.identity, "gossip message of another cell dropped"),
    }
}
