//! Purchased limits and credits of tenants, and pauses that Waldur requests.

use super::{
    Amounts, KnownResource, MonthUsage, ResourceScope,
    usage::{GPU_HOURS, NODE_HOURS},
};
use crate::decimal::decimal;
use lattice_ledger::hours::hundredths;
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

/// Purchased limits by tenant, with the hours in `usage`, summed over the resources of the tenant's projects.
pub fn purchased_limits(
    known: &[KnownResource],
    usage: &MonthUsage,
) -> BTreeMap<ProjectPath, PurchasedLimits> {
    let mut tenants: BTreeMap<ProjectPath, PurchasedLimits> = BTreeMap::new();
    for resource in known.iter().filter(|resource| resource.is_ok()) {
        let ResourceScope::Project(project, vcluster) = &resource.scope else {
            continue;
        };
        let fields = &resource.fields;
        let used = usage.of(&resource.uuid);
        let mut of_resource = PurchasedLimits {
            max_nodes: number(&fields["limits"]["max_nodes"]).map(|nodes| nodes as u64),
            gpu: limited(fields, GPU_HOURS, used),
            node: limited(fields, NODE_HOURS, used),
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
    tenants
}

fn limited(resource: &Value, kind: &str, used: Amounts) -> Option<HoursLimit> {
    let hours = number(&resource["limits"][kind])?;
    let of_kind = |(named, amount): (&str, u64)| (named == kind).then_some(amount);
    let used = used.named().into_iter().find_map(of_kind).unwrap_or(0);
    Some(HoursLimit {
        limit_ms: (hours * HOUR_MS as f64) as u64,
        used_ms: used.saturating_mul(HOUR_MS / 100),
    })
}

/// A limit, given as a number or as a string with a number.
pub(super) fn number(value: &Value) -> Option<f64> {
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
