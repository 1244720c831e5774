//! A request as it was before it could have [`Terms`]: what logs, snapshots and segments of then hold.
//! Frozen: they are read for ever.

use super::{AllocationSpec, Constraints, Demand, Requeue, Workload};
use crate::{ProjectPath, VclusterName, terms::Terms};
use serde::{Deserialize, Serialize};

/// The fields of [`AllocationSpec`] without the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FifthSpec {
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
    demand: Demand,
}

impl From<FifthSpec> for AllocationSpec {
    fn from(old: FifthSpec) -> Self {
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
            demand: old.demand,
            terms: Terms::default(),
        }
    }
}

impl AllocationSpec {
    /// The request of then that asks for the same; `None` for one that has terms.
    pub fn to_fifth(&self) -> Option<FifthSpec> {
        let spec = self.clone();
        self.terms.is_empty().then_some(FifthSpec {
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
            demand: spec.demand,
        })
    }
}
