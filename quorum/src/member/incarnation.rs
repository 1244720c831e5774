//! Incarnation check between members: members of two incarnations of a cluster reject each other. At least one of the
//! two was restored from a backup, usually under the same name and with the same members.

use crate::store::{DirectoryIncarnation, OpenError};
use lattice_mesh::HandlerFailed;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc};

/// Incarnation of this member, and the callers that it rejected.
#[derive(Debug, Clone)]
pub(crate) struct MemberIncarnation {
    id: VoterId,
    directory: Arc<DirectoryIncarnation>,
    /// Callers with their incarnation, each logged once.
    refused: Arc<Mutex<BTreeSet<(String, Incarnation)>>>,
}

impl MemberIncarnation {
    pub(crate) fn new(id: VoterId, marked: Arc<DirectoryIncarnation>) -> Self {
        Self {
            id,
            directory: marked,
            refused: Arc::default(),
        }
    }

    /// Incarnation of this member; [`Incarnation::NONE`] while it has none.
    pub(crate) fn current(&self) -> Incarnation {
        self.directory.current()
    }

    /// Name of the cluster.
    pub(crate) fn cluster(&self) -> &str {
        self.directory.cluster()
    }

    /// Returns whether the data directory was created without a log and has not caught up since.
    pub(crate) fn is_blank(&self) -> bool {
        self.directory.is_blank()
    }

    /// Records that this member has caught up. Returns whether it counted as started without a log before.
    pub(crate) fn caught_up(&self) -> Result<bool, OpenError> {
        self.directory.mark_caught_up()
    }

    /// Records that this member founds the cluster.
    ///
    /// # Errors
    /// The marker cannot be written.
    pub(crate) fn mark_founded(&self) -> Result<(), HandlerFailed> {
        self.directory
            .join(Incarnation::FIRST)
            .map_err(HandlerFailed::new)
    }

    /// Checks that a caller may belong to this cluster: both members have the same incarnation, or one of them has none
    /// yet.
    ///
    /// # Errors
    /// The caller belongs to another incarnation.
    pub(crate) fn check_caller(
        &self,
        caller: &str,
        theirs: Incarnation,
    ) -> Result<(), HandlerFailed> {
        let ours = self.current();
        if ours == theirs || ours.is_none() || theirs.is_none() {
            return Ok(());
        }
        let (id, cluster) = (self.id, self.cluster());
        let other = match ours.number.cmp(&theirs.number) {
            std::cmp::Ordering::Greater => {
                "the cluster was restored from a backup after the caller's incarnation: stop the \
                 caller, and give it an empty data directory"
            }
            std::cmp::Ordering::Less => {
                "the cluster was restored from a backup without this member: stop this member, and \
                 give it an empty data directory"
            }
            std::cmp::Ordering::Equal => {
                "the two were restored from different backups, or with different members: restore \
                 one of them again, from the same file and with the same `members`"
            }
        };
        let text = format!(
            "member {id} belongs to incarnation {ours} of cluster {cluster:?}, the caller to \
             incarnation {theirs}; {other}"
        );
        let mut refused = self.refused.lock();
        if refused.insert((caller.to_owned(), theirs)) {
            tracing::error!(peer = caller, "refused: {text}");
        }
        Err(HandlerFailed::new(text))
    }

    /// As [`MemberIncarnation::check_caller`]; a member without an incarnation adopts the caller's.
    ///
    /// # Errors
    /// The caller belongs to another incarnation, or the marker cannot be written.
    pub(crate) fn admit(&self, caller: &str, theirs: Incarnation) -> Result<(), HandlerFailed> {
        self.check_caller(caller, theirs)?;
        if self.current().is_none() && !theirs.is_none() {
            self.directory.join(theirs).map_err(HandlerFailed::new)?;
            tracing::info!(member = self.id, incarnation = %theirs, "joined");
        }
        Ok(())
    }
}
