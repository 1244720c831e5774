//! vClusters: tenants' views of the nodes.

use crate::{
    movement::{MovementChange, MovementView},
    problem::FieldError,
    scheduler::{SchedulerChange, SchedulerView},
};
use lattice_quorum_types::{
    ProjectPath, Revision,
    vcluster::{TenantsPatch, VclusterPatch},
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A vCluster as shown: what was said of it, and the nodes it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterView {
    /// Its name.
    pub name: String,
    /// Text for people.
    pub description: String,
    /// The tenants that may use it, of those that the caller may know of; `null`: all.
    pub tenants: Option<Vec<String>>,
    /// Some tenant may use it. Where `tenants` is empty and this is so, it is for others than the caller
    /// may know of; where it is not, the vCluster is closed.
    pub usable: bool,
    /// Counts what was said of it, and never the same twice; 0: nobody has said what it is, and it is open
    /// to all. Settings of its scheduler alone do not say that.
    pub version: u32,
    /// The nodes that belong to it, as a hostlist.
    pub nodes: String,
    /// How many those are.
    pub node_count: u32,
    /// Those of them that another vCluster uses for now, as a hostlist.
    pub lent: String,
    /// Nodes of other vClusters that it uses for now, as a hostlist.
    pub borrowed: String,
    /// How its scheduler decides.
    pub scheduler: SchedulerView,
    /// How its work is moved.
    pub movement: MovementView,
    /// The control that schedules it; `null`: none does now.
    pub scheduled_by: Option<String>,
    /// Grows whenever another control, or another run of one, takes over; 0: nobody has scheduled it yet.
    pub scheduler_epoch: u64,
    /// When something was said of it last; 0: never.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// What is to be said of a vCluster, the first time too. A field left out stays; of a new one it is
/// empty, and its tenants are all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterRequest {
    /// Text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The tenants that may use it; `null`: all, `[]`: none.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Vec<crate::schema::Name>>, inline, required = false)]
    pub tenants: Option<Option<Vec<String>>>,
    /// The version this rests on, 0 for none; refused when there is another by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u32>,
    /// What is to be changed of its scheduler; from the next plan on it decides so. Where nothing else is
    /// said the vCluster must be there: defined, `default`, or with nodes. It is not defined by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerChange>,
    /// What is to be changed of how its work is moved; the same holds. It is refused where the whole would not
    /// fit together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movement: Option<MovementChange>,
}

/// `null` is another thing than nothing.
pub(crate) fn given<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

impl VclusterRequest {
    /// As the quorum is told, its settings apart.
    ///
    /// # Errors
    /// A name that is none.
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

/// Nodes that are to belong to a vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterNodesRequest {
    /// Which, as a hostlist: all of them or none.
    #[schema(example = "gpu[001-016]")]
    pub nodes: String,
    /// The vCluster they may be taken from. Nodes of one that nobody has defined are taken anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$",
        min_length = 1,
        max_length = 253
    )]
    pub from: Option<String>,
}

/// What became of nodes that were to belong to a vCluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VclusterNodes {
    /// Which vCluster.
    pub vcluster: String,
    /// The nodes that were named, as a hostlist: they belong to it and serve it.
    pub nodes: String,
    /// The revision the change made.
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
    fn what_cannot_be_said_is_named_by_its_field() {
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
