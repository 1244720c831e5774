//! Events of the event stream.

use crate::{
    jobs::allocation::AllocationView,
    nodes::{baseline::BrakeView, node::NodeView},
    tenancy::project::ProjectView,
};
use lattice_quorum_types::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// SSE event name of [`Changes`]; the SSE id is the revision to resume from.
pub const CHANGES: &str = "changes";
/// SSE event name of [`ObservedChanges`], which have no id, since observations are not replicated. After a switch to
/// another control, read the lists again: observations in between are lost.
pub const OBSERVED: &str = "observed";
/// SSE event name of [`CompactedEvents`].
pub const COMPACTED: &str = "compacted";

/// Change of one record, with the record after the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// Change of an allocation.
    Allocation {
        /// Kind of change: `submitted`, `assigned`, `started`, `stopping`, `ended`, …
        change: String,
        /// Record after the change, without the workload, which never changes.
        record: Box<AllocationView>,
    },
    /// Change of a node.
    Node {
        /// Record after the change.
        record: Box<NodeView>,
    },
    /// Change of a project.
    Project {
        /// Record after the change.
        record: ProjectView,
    },
    /// Deletion of a project.
    ProjectDeleted {
        /// Project path.
        path: String,
    },
    /// New version, or deletion, of a baseline.
    Baseline {
        /// Baseline name.
        name: String,
        /// Baseline version; left out after a deletion.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
    },
    /// Stop or resumption of automatic draining.
    Brake {
        /// Why automatic draining is stopped; left out after it has resumed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<BrakeView>,
    },
}

/// All changes of one revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// Revision of the changes; pass it as `since` to resume after them.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// State time of the revision.
    pub at: String,
    /// Changes in order.
    pub changes: Vec<Change>,
}

/// Nodes with a change of observed data, such as liveness, health, digests or drift; allocations with a changed reason
/// to wait; and tenants that have used up a budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObservedChanges {
    /// Nodes as observed now.
    #[serde(default)]
    pub nodes: Vec<NodeView>,
    /// Allocations with their reason to wait.
    #[serde(default)]
    pub waiting: Vec<WaitingAllocation>,
    /// Tenants that have used up a budget: their pending allocations now rank behind those of other tenants, and
    /// running allocations continue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exhausted: Vec<ExhaustedBudget>,
}

/// Tenant that has used up a budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExhaustedBudget {
    /// Tenant name.
    pub tenant: String,
    /// Fraction of the budget used, 1 or more.
    pub budget_used: f64,
    /// Administrators of the tenant, for notification.
    pub admins: Vec<String>,
}

/// Reason why one allocation waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingAllocation {
    /// Allocation number.
    pub id: u64,
    /// Reason to wait.
    pub reason: String,
}

/// The requested revision is no longer kept: read the lists again and resume from `oldest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompactedEvents {
    /// Oldest revision to resume from.
    #[schema(value_type = u64)]
    pub oldest: Revision,
}

/// Item of the event stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// Changes of one revision.
    Changes(Changes),
    /// Observations.
    Observed(ObservedChanges),
    /// The requested revision is gone; start over.
    Compacted(CompactedEvents),
}

impl StreamEvent {
    /// Returns the SSE event name, the SSE id (the revision to resume from, if there is one) and the data.
    ///
    /// # Errors
    /// None with the present fields: each of them can be written as JSON.
    pub fn write(&self) -> Result<(&'static str, Option<Revision>, String), serde_json::Error> {
        Ok(match self {
            Self::Changes(c) => (CHANGES, Some(c.revision), serde_json::to_string(c)?),
            Self::Observed(o) => (OBSERVED, None, serde_json::to_string(o)?),
            Self::Compacted(c) => (COMPACTED, Some(c.oldest), serde_json::to_string(c)?),
        })
    }

    /// Reads an item by its SSE event name; `None` for a name that this build does not support.
    ///
    /// # Errors
    /// Data that does not match the name.
    pub fn read(name: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
        Ok(Some(match name {
            CHANGES => Self::Changes(serde_json::from_str(data)?),
            OBSERVED => Self::Observed(serde_json::from_str(data)?),
            COMPACTED => Self::Compacted(serde_json::from_str(data)?),
            _ => return Ok(None),
        }))
    }
}
