//! Incarnation of a data directory, stored in its marker.

use super::{OpenError, marker::write_marker};
use crate::platform::Files;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use parking_lot::{Mutex, MutexGuard};
use std::{path::PathBuf, sync::Arc};

/// Incarnation of one data directory, and whether the directory is blank.
pub struct DirectoryIncarnation {
    files: Arc<dyn Files>,
    path: PathBuf,
    cluster: String,
    voter: VoterId,
    /// Incarnation, and whether the directory is blank.
    current: Mutex<(Incarnation, bool)>,
}

impl std::fmt::Debug for DirectoryIncarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Marked({})", self.current())
    }
}

impl DirectoryIncarnation {
    pub(super) fn new(
        files: Arc<dyn Files>,
        path: PathBuf,
        cluster: &str,
        voter: VoterId,
        current: (Incarnation, bool),
    ) -> Self {
        Self {
            files,
            path,
            cluster: cluster.to_owned(),
            voter,
            current: Mutex::new(current),
        }
    }

    /// Name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    fn lock(&self) -> MutexGuard<'_, (Incarnation, bool)> {
        self.current.lock()
    }

    /// Incarnation of the directory; [`Incarnation::NONE`] until the member founds or joins a cluster.
    pub fn current(&self) -> Incarnation {
        self.lock().0
    }

    /// Returns whether the directory was created without a log and has not caught up since.
    pub fn is_blank(&self) -> bool {
        self.lock().1
    }

    fn write(&self, now: (Incarnation, bool)) -> Result<(), OpenError> {
        write_marker(&*self.files, &self.path, &self.cluster, self.voter, now)
    }

    /// Assigns the incarnation to a directory without one, durably. Does nothing if the directory has an incarnation.
    ///
    /// # Errors
    /// The marker cannot be written.
    pub fn join(&self, incarnation: Incarnation) -> Result<(), OpenError> {
        let mut current = self.lock();
        if !current.0.is_none() {
            return Ok(());
        }
        let now = (incarnation, current.1);
        self.write(now)?;
        *current = now;
        Ok(())
    }

    /// Marks the directory as caught up, durably: it is no longer blank. Returns whether it was blank.
    ///
    /// # Errors
    /// The marker cannot be written; the directory stays blank.
    pub fn mark_caught_up(&self) -> Result<bool, OpenError> {
        let mut current = self.lock();
        if !current.1 {
            return Ok(false);
        }
        let now = (current.0, false);
        self.write(now)?;
        *current = now;
        Ok(true)
    }
}
