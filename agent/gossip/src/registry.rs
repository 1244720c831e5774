//! Cells of one process, by name.

use crate::{CellName, admission::CellReceiver};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

type CellReceivers = Mutex<HashMap<String, Arc<CellReceiver>>>;

/// Receivers of the joined cells. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct CellRegistry {
    receivers: Arc<CellReceivers>,
}

impl CellRegistry {
    /// Registers the receiver of a cell; `None` if the cell has one already.
    pub(crate) fn register(&self, receiver: Arc<CellReceiver>) -> Option<CellRegistration> {
        let mut doors = self.receivers.lock();
        if doors.contains_key(receiver.name.as_str()) {
            return None;
        }
        doors.insert(receiver.name.as_str().to_owned(), receiver.clone());
        let doors = self.receivers.clone();
        Some(CellRegistration {
            receivers: doors,
            receiver,
        })
    }

    /// Receiver of the cell `name`.
    pub(crate) fn receiver(&self, name: &str) -> Option<Arc<CellReceiver>> {
        self.receivers.lock().get(name).cloned()
    }

    /// Names of the joined cells.
    pub(crate) fn names(&self) -> Vec<CellName> {
        self.receivers
            .lock()
            .values()
            .map(|d| d.name.clone())
            .collect()
    }
}

/// Registration of a cell in its process, removed on drop.
pub(crate) struct CellRegistration {
    receivers: Arc<CellReceivers>,
    pub(crate) receiver: Arc<CellReceiver>,
}

impl Drop for CellRegistration {
    fn drop(&mut self) {
        self.receiver.close();
        self.receivers.lock().remove(self.receiver.name.as_str());
    }
}
