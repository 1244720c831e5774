//! Limit invariants: usage never exceeds a limit, unless the limit was lowered below the usage. The counted usage
//! equals what the allocations hold.

use lattice_quorum_state::State;
use lattice_quorum_types::{
    ProjectPath,
    allocation::{Rank, RankPhase},
    limit::Resource,
};
use std::collections::BTreeMap;

/// Nodes and allocations held in each project, including the projects below it.
pub type Usage = BTreeMap<ProjectPath, (u64, u64)>;

/// Recounts the usage from the allocations that hold nodes, and compares it with the state's own sums.
pub fn usage(state: &State) -> Result<Usage, String> {
    let mut own: Usage = BTreeMap::new();
    for allocation in state.live_allocations().filter(|a| a.state.holds()) {
        let counted = own.entry(allocation.spec.project.clone()).or_default();
        // Ranks that were released before the others hold no node.
        let has_left = |rank: &&Rank| matches!(rank.phase, RankPhase::Left { .. });
        let left = allocation.ranks.iter().filter(has_left).count();
        counted.0 += (allocation.ranks.len() - left) as u64;
        counted.1 += 1;
    }
    let mut total: Usage = BTreeMap::new();
    for (path, (nodes, allocations)) in &own {
        for up in path.ancestors() {
            let counted = total.entry(up).or_default();
            counted.0 += nodes;
            counted.1 += allocations;
        }
    }
    for project in state.projects() {
        let counted = total.get(&project.path).copied().unwrap_or_default();
        let kept = project.total();
        let kept = (kept.get(Resource::Nodes), kept.get(Resource::Allocations));
        if counted != kept {
            return Err(format!(
                "{}: recorded usage {kept:?}, recounted {counted:?}",
                project.path
            ));
        }
    }
    Ok(total)
}

/// Usage after the previous command.
#[derive(Default)]
pub struct LimitCheck(Usage);

impl LimitCheck {
    /// Checks that usage above a limit does not grow: it is above the limit only because the limit was lowered.
    pub fn check(&mut self, state: &State, usage: Usage) -> Result<(), String> {
        for project in state.projects() {
            let is = usage.get(&project.path).copied().unwrap_or_default();
            let was = self.0.get(&project.path).copied().unwrap_or_default();
            let both = [
                (Resource::Nodes, is.0, was.0),
                (Resource::Allocations, is.1, was.1),
            ];
            for (resource, is, was) in both {
                if let Some(limit) = project.limits.get(resource)
                    && is > limit
                    && is > was
                {
                    return Err(format!(
                        "{} grew from {was} to {is} {resource:?}, above its limit of {limit}",
                        project.path
                    ));
                }
            }
        }
        self.0 = usage;
        Ok(())
    }
}
