//! Which life of its cluster a data directory belongs to; kept in its marker.

use super::{OpenError, dir::write_marker};
use crate::ground::Files;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use parking_lot::{Mutex, MutexGuard};
use std::{path::PathBuf, sync::Arc};

/// The incarnation of one data directory.
pub struct Marked {
    files: Arc<dyn Files>,
    path: PathBuf,
    cluster: String,
    voter: VoterId,
    /// And whether it is blank.
    current: Mutex<(Incarnation, bool)>,
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

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    fn lock(&self) -> MutexGuard<'_, (Incarnation, bool)> {
        self.current.lock()
    }

    /// Which one it is; [`Incarnation::NONE`] before its first leader.
    pub fn current(&self) -> Incarnation {
        self.lock().0
    }

    /// Whether it was made without a log and not brought up to date since.
    pub fn is_blank(&self) -> bool {
        self.lock().1
    }

    fn write(&self, now: (Incarnation, bool)) -> Result<(), OpenError> {
        write_marker(&*self.files, &self.path, &self.cluster, self.voter, now)
    }

    /// A directory of none belongs to this incarnation from now on, also after a crash. Does nothing
    /// to one that belongs to one already.
    ///
    /// # Errors
    /// When the marker cannot be written.
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

    /// It was brought up to date: it is blank no more, also after a crash. Says whether it was.
    ///
    /// # Errors
    /// When the marker cannot be written; it stays blank.
    pub fn caught_up(&self) -> Result<bool, OpenError> {
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
