//! Which life of its cluster a data directory belongs to; kept in its marker.

use super::{OpenError, dir::write_marker};
use crate::ground::Files;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// The incarnation of one data directory.
pub struct Marked {
    files: Arc<dyn Files>,
    path: PathBuf,
    cluster: String,
    voter: VoterId,
    current: Mutex<Incarnation>,
}

impl std::fmt::Debug for Marked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Marked({})", self.current())
    }
}

impl Marked {
    pub(super) fn new(
        files: Arc<dyn Files>,
        path: PathBuf,
        cluster: &str,
        voter: VoterId,
        current: Incarnation,
    ) -> Self {
        Self {
            files,
            path,
            cluster: cluster.to_owned(),
            voter,
            current: Mutex::new(current),
        }
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Which one it is; [`Incarnation::NONE`] while the directory is blank.
    pub fn current(&self) -> Incarnation {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A blank directory belongs to this incarnation from now on, also after a crash. Does nothing
    /// to one that belongs to one already.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn join(&self, incarnation: Incarnation) -> Result<(), OpenError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !current.is_none() {
            return Ok(());
        }
        write_marker(
            &*self.files,
            &self.path,
            &self.cluster,
            self.voter,
            incarnation,
        )?;
        *current = incarnation;
        Ok(())
    }
}
