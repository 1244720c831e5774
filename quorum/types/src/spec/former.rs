//! A request as it was before it could say its [`Demand`]: what logs, snapshots and segments of then
//! hold. Frozen: they are read for ever.

use super::{AllocationSpec, Constraints, Demand, Requeue, Workload};
use crate::{ProjectPath, VclusterName, terms::Terms};
use serde::{Deserialize, Serialize};

/// The fields of [`AllocationSpec`] without the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerSpec {
    name: Option<String>,
    project: ProjectPath,
    vcluster: VclusterName,
    nodes: u32,
    workload: Workload,
    walltime_ms: Option<u64>,
    class: u8,
    sensitive: bool,
    constraints: Constraints,
    requeue: Requeue,
    hold: bool,
}

impl From<FormerSpec> for AllocationSpec {
    fn from(old: FormerSpec) -> Self {
        Self {
            name: old.name,
            project: old.project,
            vcluster: old.vcluster,
            nodes: old.nodes,
            workload: old.workload,
            walltime_ms: old.walltime_ms,
            class: old.class,
            sensitive: old.sensitive,
            constraints: old.constraints,
            requeue: old.requeue,
            hold: old.hold,
            demand: Demand::default(),
            terms: Terms::default(),
        }
    }
}

impl AllocationSpec {
    /// The request of then that asks for the same; `None` for one that says its demand, or has terms.
    pub fn to_former(&self) -> Option<FormerSpec> {
        let spec = self.clone();
        let is_plain = self.demand.is_empty() && self.terms.is_empty();
        is_plain.then_some(FormerSpec {
            name: spec.name,
            project: spec.project,
            vcluster: spec.vcluster,
            nodes: spec.nodes,
            workload: spec.workload,
            walltime_ms: spec.walltime_ms,
            class: spec.class,
            sensitive: spec.sensitive,
            constraints: spec.constraints,
            requeue: spec.requeue,
            hold: spec.hold,
        })
    }
}
