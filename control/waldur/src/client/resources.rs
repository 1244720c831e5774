//! Resources of this cluster in Waldur, with the state that each round compares and applies.

use super::{Objects, ResourceScope, Right, WaldurClient, WaldurError, credit::number};
use lattice_ledger::Month;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Fields of a resource that are read. All are columns of Waldur's own table of resources: a field of another object, such
/// as `plan_uuid`, costs Waldur a query for each resource, and seconds for a page.
const FIELDS: [&str; 7] = [
    "uuid",
    "backend_id",
    "state",
    "created",
    "limits",
    "paused",
    "downscaled",
];
/// Number of unknown resources with usage from which their scopes are read together.
const MIN_UNKNOWN_FOR_LIST: usize = 4;
/// State of a resource without an order in progress.
const OK: &str = "OK";
/// States of a resource that accepts usage now or may accept it later. `Terminated` resources are read by their usage
/// alone.
const USED_STATES: [&str; 5] = [OK, "Updating", "Creating", "Terminating", "Erred"];

/// Resource of this cluster.
#[derive(Debug, Clone)]
pub struct KnownResource {
    /// Project, vCluster and allocation of the resource.
    pub scope: ResourceScope,
    /// UUID of the resource.
    pub uuid: String,
    /// State in Waldur, such as `OK`.
    pub state: String,
    /// Last order that gave the resource another plan in this month; `None` if the plan is that of the month's begin.
    pub plan: Option<String>,
    pub(super) fields: Value,
}

impl KnownResource {
    /// Whether the resource accepts usage and its limits apply.
    pub fn is_ok(&self) -> bool {
        matches!(self.state.as_str(), OK | "Updating")
    }

    /// A resource that is ordered, as it will be when the order is done. A refusal that was interrupted leaves the
    /// resource Erred while its order waits.
    pub fn ordered(scope: ResourceScope, uuid: &str, max_nodes: Option<u64>) -> Self {
        let limits = max_nodes.map_or_else(|| json!({}), |nodes| json!({"max_nodes": nodes}));
        Self {
            scope,
            uuid: uuid.to_owned(),
            state: OK.to_owned(),
            plan: None,
            fields: json!({"limits": limits}),
        }
    }

    /// Whether the resource is older than a month.
    pub fn is_created_before(&self, month: Month) -> bool {
        let created = self.fields["created"].as_str().unwrap_or_default();
        !created.is_empty() && created < month.first_day().as_str()
    }

    /// Whether the resource has a limit above 0 of any component.
    pub fn has_limits(&self) -> bool {
        let limits = self.fields["limits"].as_object();
        let is_limit = |limit: &Value| number(limit).is_some_and(|limit| limit > 0.0);
        limits.is_some_and(|limits| limits.values().any(is_limit))
    }
}

impl WaldurClient {
    /// Resources of this cluster in the known offerings that accept usage or will accept it, oldest first. Their
    /// plans are not read.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn known(&self, objects: &Objects) -> Result<Vec<KnownResource>, WaldurError> {
        let mut known = Vec::new();
        for (_, offering) in objects.offerings() {
            let mut query = vec![("offering_uuid", offering)];
            query.extend(USED_STATES.map(|state| ("state", state)));
            query.extend(FIELDS.map(|field| ("field", field)));
            let found = self.list("marketplace-provider-resources/", &query).await?;
            known.extend(
                found
                    .into_iter()
                    .filter_map(|fields| self.of_cluster(fields)),
            );
        }
        known.sort_by_cached_key(|one| {
            let created = one.fields["created"].as_str().unwrap_or_default();
            (created.to_owned(), one.uuid.clone())
        });
        Ok(known)
    }

    /// The resource with these fields, if it is one of this cluster.
    fn of_cluster(&self, fields: Value) -> Option<KnownResource> {
        let text = |name: &str| fields[name].as_str().map(str::to_owned);
        let scope = ResourceScope::of_backend_id(fields["backend_id"].as_str()?, self.cluster())?;
        let state = text("state")?;
        // Some versions ignore the filter by state.
        if !USED_STATES.contains(&state.as_str()) {
            return None;
        }
        Some(KnownResource {
            scope,
            uuid: text("uuid")?,
            state,
            plan: None,
            fields,
        })
    }

    /// Reads the scopes of resources that have usage in a month and are not among the known ones, such as terminated ones,
    /// into `former`; `None` for resources that are not of this cluster. Scopes do not change, so each is read once. Many
    /// are read with one list of the offerings' resources that changed in that month or later: each report changes its
    /// resource. `sees_others`: whether other resources of the provider are visible: where none is, a hidden one means that
    /// the token's user has no role at the provider, and its usage would be reported to a second resource.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn read_former_scopes(
        &self,
        objects: &Objects,
        month: Month,
        unknown: &[String],
        sees_others: bool,
        former: &mut BTreeMap<String, Option<ResourceScope>>,
    ) -> Result<(), WaldurError> {
        let scope = |found: &Value| {
            let id = found["backend_id"].as_str()?;
            ResourceScope::of_backend_id(id, self.cluster())
        };
        if unknown.len() >= MIN_UNKNOWN_FOR_LIST {
            let since = month.first_day();
            for (_, offering) in objects.offerings() {
                let query = [
                    ("offering_uuid", offering),
                    ("modified", &since),
                    ("field", "uuid"),
                    ("field", "backend_id"),
                ];
                let found = match self.list("marketplace-provider-resources/", &query).await {
                    Ok(found) => found,
                    Err(error) if error.is_transient() => return Err(error),
                    // Each is read by itself.
                    Err(_) => Vec::new(),
                };
                for found in found {
                    let uuid = found["uuid"].as_str().map(str::to_owned);
                    former.extend(uuid.map(|uuid| (uuid, scope(&found))));
                }
            }
        }
        for uuid in unknown {
            if former.contains_key(uuid) {
                continue;
            }
            let path = format!("marketplace-provider-resources/{uuid}/");
            let of = match self.get(&path, &[("field", "backend_id")]).await {
                Ok(found) => scope(&found),
                Err(WaldurError::Refused { status: 404, .. }) if sees_others => None,
                Err(error) => return Err(error.hidden_without(Right::SeeProvider)),
            };
            former.insert(uuid.clone(), of);
        }
        Ok(())
    }
}
