//! Purchased limits and credits of tenants, and pauses that Waldur requests.

use super::{
    Objects, ResourceScope, WaldurClient, WaldurError,
    usage::{GPU_HOURS, NODE_HOURS},
};
use crate::decimal::decimal;
use lattice_ledger::{Month, hours::hundredths};
use lattice_quorum_types::{
    ProjectPath, UnixMillis,
    budget::{Credit, HOUR_MS, PausedProject, RemainingCredit},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Largest limit that is accepted, in hours or nodes; a larger value counts as no limit.
const MOST_HOURS: f64 = 1e9;

/// Purchased limits of a tenant, summed over its resources.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PurchasedLimits {
    /// Maximum number of nodes in use at the same time; `None` if a resource has no such limit.
    pub max_nodes: Option<u64>,
    /// Purchased and used GPU-hours; `None` if a resource has no such limit.
    pub gpu: Option<HoursLimit>,
    /// Purchased and used node-hours; `None` if a resource has no such limit.
    pub node: Option<HoursLimit>,
    /// Whether Waldur requests a lower priority for the tenant's allocations.
    pub downscaled: bool,
    /// Projects and vClusters in which Waldur requests that no allocation starts.
    pub paused: Vec<PausedProject>,
}

/// Purchased and used time of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoursLimit {
    /// Purchased time, in milliseconds.
    pub limit_ms: u64,
    /// Used time, in milliseconds.
    pub used_ms: u64,
}

impl PurchasedLimits {
    /// Credit in the form that the quorum stores.
    pub fn credit(&self, asked_at: UnixMillis, valid_ms: u64) -> Credit {
        let left = |limited: Option<HoursLimit>| {
            limited.map(|limited| RemainingCredit {
                limit_ms: limited.limit_ms,
                left_ms: limited.limit_ms.saturating_sub(limited.used_ms),
            })
        };
        Credit {
            asked_at,
            valid_until: asked_at.after(valid_ms),
            gpu: left(self.gpu),
            node: left(self.node),
            downscaled: self.downscaled,
            paused: self.paused.clone(),
        }
    }
}

/// Resource of a known offering.
#[derive(Debug, Clone)]
pub struct KnownResource {
    /// Project, vCluster and allocation of the resource.
    pub scope: ResourceScope,
    /// UUID of the resource.
    pub uuid: String,
    fields: Value,
}

impl WaldurClient {
    /// Resources of the known offerings that accept usage: those in state `OK`.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn known(&self, objects: &Objects) -> Result<Vec<KnownResource>, WaldurError> {
        let mut known = Vec::new();
        for (_, offering) in objects.offerings() {
            let fields = [
                "uuid",
                "backend_id",
                "state",
                "limits",
                "paused",
                "downscaled",
            ];
            let mut query = vec![("offering_uuid", offering)];
            query.extend(fields.map(|field| ("field", field)));
            for fields in self.list("marketplace-provider-resources/", &query).await? {
                let scope = fields["backend_id"]
                    .as_str()
                    .and_then(ResourceScope::of_backend_id);
                let uuid = fields["uuid"].as_str().map(str::to_owned);
                if let (Some(scope), Some(uuid), true) = (scope, uuid, fields["state"] == "OK") {
                    known.push(KnownResource {
                        scope,
                        uuid,
                        fields,
                    });
                }
            }
        }
        Ok(known)
    }

    /// Purchased limits by tenant, with the hours used in `month`, summed over the resources of the tenant's projects.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn purchased_limits(
        &self,
        known: &[KnownResource],
        month: Month,
    ) -> Result<BTreeMap<ProjectPath, PurchasedLimits>, WaldurError> {
        let mut tenants: BTreeMap<ProjectPath, PurchasedLimits> = BTreeMap::new();
        for KnownResource {
            scope,
            uuid,
            fields,
        } in known
        {
            let ResourceScope::Project(project, vcluster) = scope else {
                continue;
            };
            let limits = &fields["limits"];
            let has = |kind: &str| number(&limits[kind]).is_some();
            let used = match has(GPU_HOURS) || has(NODE_HOURS) {
                true => self.usages(uuid, month).await?,
                false => BTreeMap::new(),
            };
            let mut of_resource = PurchasedLimits {
                max_nodes: number(&limits["max_nodes"]).map(|n| n as u64),
                gpu: limited(fields, GPU_HOURS, &used),
                node: limited(fields, NODE_HOURS, &used),
                downscaled: fields["downscaled"] == true,
                paused: Vec::new(),
            };
            if fields["paused"] == true {
                let (project, vcluster) = (project.clone(), vcluster.clone());
                of_resource.paused.push(PausedProject { project, vcluster });
            }
            let sum = match tenants.remove(&project.tenant()) {
                None => of_resource,
                Some(sum) => self::sum(sum, of_resource),
            };
            tenants.insert(project.tenant(), sum);
        }
        Ok(tenants)
    }
}

fn limited(resource: &Value, kind: &str, used: &BTreeMap<String, i64>) -> Option<HoursLimit> {
    let hours = number(&resource["limits"][kind])?;
    let used = used.get(kind).copied().unwrap_or(0);
    Some(HoursLimit {
        limit_ms: (hours * HOUR_MS as f64) as u64,
        used_ms: u64::try_from(used)
            .unwrap_or(0)
            .saturating_mul(HOUR_MS / 100),
    })
}

/// A limit, given as a number or as a string with a number.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) => text.parse().ok()?,
        other => other.as_f64()?,
    };
    (0.0..=MOST_HOURS).contains(&number).then_some(number)
}

fn sum(one: PurchasedLimits, other: PurchasedLimits) -> PurchasedLimits {
    let limited = |a: Option<HoursLimit>, b: Option<HoursLimit>| {
        let (a, b) = a.zip(b)?;
        Some(HoursLimit {
            limit_ms: a.limit_ms.saturating_add(b.limit_ms),
            used_ms: a.used_ms.saturating_add(b.used_ms),
        })
    };
    PurchasedLimits {
        max_nodes: one.max_nodes.zip(other.max_nodes).map(|(a, b)| a + b),
        gpu: limited(one.gpu, other.gpu),
        node: limited(one.node, other.node),
        downscaled: one.downscaled || other.downscaled,
        paused: [one.paused, other.paused].concat(),
    }
}

impl PurchasedLimits {
    /// Description for the log.
    pub fn summary(&self) -> String {
        let hours = |limited: Option<HoursLimit>| match limited {
            None => "no limit".to_owned(),
            Some(HoursLimit { limit_ms, used_ms }) => {
                let of = |ms: u64| decimal(hundredths(ms));
                format!("{} of {}", of(used_ms), of(limit_ms))
            }
        };
        let nodes = self
            .max_nodes
            .map_or("no limit".to_owned(), |nodes| nodes.to_string());
        format!(
            "nodes: {nodes}, GPU-hours: {}, node-hours: {}",
            hours(self.gpu),
            hours(self.node)
        )
    }
}
