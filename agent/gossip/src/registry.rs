//! Cells of one process, by name.

use crate::{CellName, admission::CellReceiver};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

type CellReceivers = Mutex<HashMap<String, Arc<CellReceiver>>>;

/// Receivers of the joined cells. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct CellRegistry {
    doors: Arc<CellReceivers>,
}

impl CellRegistry {
    /// Registers the receiver of a cell; `None` if the cell has one already.
    pub(crate) fn place(&self, door: Arc<CellReceiver>) -> Option<CellRegistration> {
        let mut doors = self.doors.lock();
        if doors.contains_key(door.name.as_str()) {
            return None;
        }
        doors.insert(door.name.as_str().to_owned(), door.clone());
        let doors = self.doors.clone();
        Some(CellRegistration { doors, door })
    }

    /// Receiver of the cell `name`.
    pub(crate) fn door(&self, name: &str) -> Option<Arc<CellReceiver>> {
        self.doors.lock().get(name).cloned()
    }

    /// Names of the joined cells.
    pub(crate) fn names(&self) -> Vec<CellName> {
        self.doors.lock().values().map(|d| d.name.clone()).collect()
    }
}

/// Registration of a cell in its process, removed on drop.
pub(crate) struct CellRegistration {
    doors: Arc<CellReceivers>,
    pub(crate) door: Arc<CellReceiver>,
}

impl Drop for CellRegistration {
    fn drop(&mut self) {
        self.door.close();
        self.doors.lock().remove(self.door.name.as_str());
    }
}
