//! Members of two incarnations of a cluster refuse each other: one of the two was restored from a
//! backup of the other, under the same name and with the same members.

use crate::store::{Marked, OpenError};
use lattice_mesh::Failed;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc};

/// Which incarnation this member belongs to, and whom it refused for it.
#[derive(Debug, Clone)]
pub(crate) struct Lineage {
    id: VoterId,
    marked: Arc<Marked>,
    /// Said once each.
    refused: Arc<Mutex<BTreeSet<(String, Incarnation)>>>,
}

impl Lineage {
    pub(crate) fn new(id: VoterId, marked: Arc<Marked>) -> Self {
        Self {
            id,
            marked,
            refused: Arc::default(),
        }
    }

    /// This member's.
    pub(crate) fn current(&self) -> Incarnation {
        self.marked.current()
    }

    /// The cluster's name.
    pub(crate) fn cluster(&self) -> &str {
        self.marked.cluster()
    }

    /// Whether the directory was made without a log and not brought up to date since.
    pub(crate) fn is_blank(&self) -> bool {
        self.marked.is_blank()
    }

    /// It was brought up to date.
    pub(crate) fn caught_up(&self) -> Result<bool, OpenError> {
        self.marked.caught_up()
    }

    /// This member founds the cluster.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub(crate) fn found(&self) -> Result<(), Failed> {
        self.marked.join(Incarnation::FIRST).map_err(Failed::new)
    }

    /// Whether who asks may be of the same cluster: of the same incarnation, or one of the two is
    /// blank.
    pub(crate) fn may_hear(&self, caller: &str, theirs: Incarnation) -> Result<(), Failed> {
        let ours = self.current();
        if ours == theirs || ours.is_none() || theirs.is_none() {
            return Ok(());
        }
        let (id, cluster) = (self.id, self.cluster());
        let other = match ours.number.cmp(&theirs.number) {
            std::cmp::Ordering::Greater => {
                "the cluster was restored from a backup since: stop the caller, and give it an \
                 empty data directory"
            }
            std::cmp::Ordering::Less => {
                "this member was left behind when the cluster was restored from a backup: it is \
                 to be stopped, and given an empty data directory"
            }
            std::cmp::Ordering::Equal => {
                "the two were restored from different backups, or with different members: restore \
                 one of them anew, from the same file and with the same `members`"
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
        Err(Failed::new(text))
    }

    /// [`Lineage::may_hear`]; a blank member belongs to the caller's incarnation from then on.
    ///
    /// # Errors
    /// When the caller is of another one, or that cannot be written down.
    pub(crate) fn admit(&self, caller: &str, theirs: Incarnation) -> Result<(), Failed> {
        self.may_hear(caller, theirs)?;
        if self.current().is_none() && !theirs.is_none() {
            self.marked.join(theirs).map_err(Failed::new)?;
            tracing::info!(member = self.id, incarnation = %theirs, "joined");
        }
        Ok(())
    }
}
