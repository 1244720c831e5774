//! What the event stream carries.

use crate::{
    allocation::AllocationView, baseline::BrakeView, node::NodeView, project::ProjectView,
};
use lattice_quorum_types::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// SSE event name of [`Changes`]; its id is the revision to resume from.
pub const CHANGES: &str = "changes";
/// SSE event name of [`Observed`]; it has no id, since nothing of it is replicated. Resuming at
/// another control does not bring back what was seen in between: read the nodes again.
pub const OBSERVED: &str = "observed";
/// SSE event name of [`Compacted`].
pub const COMPACTED: &str = "compacted";

/// One record after a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// An allocation.
    Allocation {
        /// What happened: `submitted`, `assigned`, `started`, `stopping`, `ended`, …
        change: String,
        /// As it is now, without its workload, which never changes.
        record: Box<AllocationView>,
    },
    /// A node.
    Node {
        /// As it is now.
        record: Box<NodeView>,
    },
    /// A project.
    Project {
        /// As it is now.
        record: ProjectView,
    },
    /// A project was deleted.
    ProjectDeleted {
        /// Which.
        path: String,
    },
    /// A baseline has a new version, or is gone.
    Baseline {
        /// Which.
        name: String,
        /// Its version; left out when it is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
    },
    /// Automatic draining stands still, or goes on.
    Brake {
        /// Why it stands still; left out when it goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<BrakeView>,
    },
}

/// Everything one revision changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// The revision; resume with `since` set to it.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// State time.
    pub at: String,
    /// In order.
    pub changes: Vec<Change>,
}

/// Nodes whose liveness, health, facts or digests are seen to be different, and allocations whose
/// reason to wait is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Observed {
    /// As they are now.
    #[serde(default)]
    pub nodes: Vec<NodeView>,
    /// Allocations with their reason to wait.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// Tenants that have used up a budget: their pending work waits behind the others' from now on, and what runs goes
    /// on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exhausted: Vec<Exhausted>,
}

/// A tenant that has used up a budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exhausted {
    /// Which.
    pub tenant: String,
    /// The part used, 1 or more.
    pub budget_used: f64,
    /// Who may see to it.
    pub admins: Vec<String>,
}

/// Why one allocation waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// Which.
    pub id: u64,
    /// Why.
    pub reason: String,
}

/// The revision asked for is no longer kept: read the lists again and resume from `oldest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Compacted {
    /// Oldest revision that can be resumed from.
    #[schema(value_type = u64)]
    pub oldest: Revision,
}

/// One item of the event stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// A revision.
    Changes(Changes),
    /// Something seen.
    Observed(Observed),
    /// Start over.
    Compacted(Compacted),
}

impl StreamEvent {
    /// Its SSE event name, its id (the revision to resume from, where it has one) and its data.
    ///
    /// # Errors
    /// Never for the fields there are today: none of them can refuse to be written as JSON.
    pub fn write(&self) -> Result<(&'static str, Option<Revision>, String), serde_json::Error> {
        Ok(match self {
            Self::Changes(c) => (CHANGES, Some(c.revision), serde_json::to_string(c)?),
            Self::Observed(o) => (OBSERVED, None, serde_json::to_string(o)?),
            Self::Compacted(c) => (COMPACTED, Some(c.oldest), serde_json::to_string(c)?),
        })
    }

    /// Reads an item by its SSE event name; `None` for a name this build does not know.
    ///
    /// # Errors
    /// Data that is not what the name says.
    pub fn read(name: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
        Ok(Some(match name {
            CHANGES => Self::Changes(serde_json::from_str(data)?),
            OBSERVED => Self::Observed(serde_json::from_str(data)?),
            COMPACTED => Self::Compacted(serde_json::from_str(data)?),
            _ => return Ok(None),
        }))
    }
}
