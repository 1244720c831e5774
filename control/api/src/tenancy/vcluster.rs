//! vClusters: sets of nodes with their own scheduler settings, for some tenants or for all.

use super::{
    movement::{MovementChange, MovementView},
    scheduler::{SchedulerChange, SchedulerView},
};
use crate::{notation::nullable::deserialize_present, problem::FieldError};
use lattice_quorum_types::{
    ProjectPath, Revision,
    vcluster::{TenantsPatch, VclusterPatch},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// vCluster as shown: its definition and its nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterView {
    /// vCluster name.
    pub name: String,
    /// Free-text description.
    pub description: String,
    /// Tenants that may use the vCluster, as far as the caller may see them; `null`: all.
    pub tenants: Option<Vec<String>>,
    /// Whether any tenant may use the vCluster. With empty `tenants`: true means that the caller may not see those
    /// tenants, false means that the vCluster is closed.
    pub usable: bool,
    /// Definition version; each change gets a new version, which is never reused. 0: the vCluster is not defined and
    /// is open to all tenants. A change of the scheduler settings alone does not define a vCluster.
    pub version: u32,
    /// Nodes that belong to the vCluster, as a hostlist.
    pub nodes: String,
    /// Number of nodes that belong to the vCluster.
    pub node_count: u32,
    /// Own nodes that another vCluster borrows, as a hostlist.
    pub lent: String,
    /// Nodes of other vClusters that this vCluster borrows, as a hostlist.
    pub borrowed: String,
    /// Scheduler settings.
    pub scheduler: SchedulerView,
    /// Movement settings.
    pub movement: MovementView,
    /// Control that schedules the vCluster; `null`: none at present.
    pub scheduled_by: Option<String>,
    /// Lease epoch of the scheduler, increased when another or a restarted control takes over; 0: never scheduled.
    pub scheduler_epoch: u64,
    /// Revision of the last change to the definition or the settings; 0: none.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// Definition or change of a vCluster. A field left out keeps its value. By default a new vCluster has no description,
/// and all tenants may use it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterRequest {
    /// Free-text description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tenants that may use the vCluster; `null`: all, `[]`: none.
    #[serde(
        default,
        deserialize_with = "deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Vec<crate::notation::schema::Name>>, inline, required = false)]
    pub tenants: Option<Option<Vec<String>>>,
    /// Version that this change is based on, 0 for none; the change is rejected if another version exists by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u32>,
    /// Change of the scheduler settings, in effect from the next plan on. Without other fields the vCluster must exist
    /// (defined, `default`, or with nodes), and the change does not define it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerChange>,
    /// Change of the movement settings, under the conditions of `scheduler`; rejected if the settings would be
    /// inconsistent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movement: Option<MovementChange>,
}

impl VclusterRequest {
    /// Converts the definition for the quorum, without the settings.
    ///
    /// # Errors
    /// An invalid name.
    pub fn change(self) -> Result<VclusterPatch, FieldError> {
        let path = |name: String| {
            ProjectPath::new(&name).map_err(|error| FieldError {
                field: "tenants".to_owned(),
                reason: error.to_string(),
            })
        };
        let tenants = match self.tenants {
            None => TenantsPatch::Unchanged,
            Some(None) => TenantsPatch::All,
            Some(Some(names)) => {
                let names: Result<_, _> = names.into_iter().map(path).collect();
                TenantsPatch::Only(names?)
            }
        };
        Ok(VclusterPatch {
            description: self.description,
            tenants,
        })
    }
}

/// Request to assign nodes to a vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterNodesRequest {
    /// Nodes, as a hostlist; all of them are assigned, or none.
    #[schema(example = "gpu[001-016]")]
    pub nodes: String,
    /// vCluster from which the nodes may be taken. Nodes of an undefined vCluster are taken in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$",
        min_length = 1,
        max_length = 253
    )]
    pub from: Option<String>,
}

/// Result of an assignment of nodes to a vCluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterNodes {
    /// vCluster name.
    pub vcluster: String,
    /// Assigned nodes, as a hostlist; they now belong to the vCluster, which uses them.
    pub nodes: String,
    /// Revision of the change.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn nothing_null_and_a_list_are_three_things() {
        let tenants = |text: &str| {
            let read: VclusterRequest = serde_json::from_str(text).unwrap();
            let written = serde_json::to_string(&read).unwrap();
            assert_eq!(written, text, "it is written as it was read");
            read.change().unwrap().tenants
        };
        assert_eq!(tenants("{}"), TenantsPatch::Unchanged);
        assert_eq!(tenants(r#"{"tenants":null}"#), TenantsPatch::All);
        let none = TenantsPatch::Only([].into());
        assert_eq!(tenants(r#"{"tenants":[]}"#), none);
        let one = TenantsPatch::Only([ProjectPath::new("physics").unwrap()].into());
        assert_eq!(tenants(r#"{"tenants":["physics"]}"#), one);
    }

    #[test]
    fn invalid_input_names_field() {
        let refused = |text: &str| {
            let read: VclusterRequest = serde_json::from_str(text).unwrap();
            read.change().unwrap_err().to_string()
        };
        let name = refused(r#"{"tenants": ["a b"]}"#);
        assert!(name.starts_with("tenants: "), "{name}");
        for text in [
            r#"{"tenant": []}"#,
            r#"{"tenants": "physics"}"#,
            r#"{"profile": "ml-training"}"#,
            r#"{"scheduler": {"weights": {"topologie": 1}}}"#,
        ] {
            assert!(
                serde_json::from_str::<VclusterRequest>(text).is_err(),
                "{text}"
            );
        }
        for wrong in [r#""many""#, "-1", "1.5", "true", "4294967296"] {
            let text = format!(r#"{{"scheduler": {{"reservations": {wrong}}}}}"#);
            let said = serde_json::from_str::<VclusterRequest>(&text).unwrap_err();
            let said = said.to_string();
            let words = "must be a whole number from 0 to 4294967295, or \"all\"";
            assert!(said.contains(words), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_checkpoint_bandwidth_is_left_set_or_taken_back() {
        for (text, asked) in [
            (r#"{"scheduler":{}}"#, None),
            (
                r#"{"scheduler":{"checkpoint_gb_s":200.0}}"#,
                Some(Some(200.0)),
            ),
            (r#"{"scheduler":{"checkpoint_gb_s":null}}"#, Some(None)),
        ] {
            let read: VclusterRequest = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            assert_eq!(read.scheduler.unwrap().checkpoint_gb_s, asked);
        }
    }
}
