//! Nodes in sensitive use, in solver input.

use crate::state::{BaseView, ViewNode};
use lattice_quorum_types::limit::SensitivePool;

/// Number of nodes in sensitive use in the cluster, with the limit. Without a limit, the nodes are not counted: each
/// job would change the number, and so cause another plan.
pub(super) fn pool<N: ViewNode>(view: &BaseView<N>) -> SensitivePool {
    let size = view.system.limits.sensitive_pool_size;
    if size.is_none() {
        return SensitivePool::default();
    }
    let nodes = view.nodes.values().filter_map(|n| n.record());
    let allocations = view.allocations.values().map(|a| &**a);
    SensitivePool::count(size, nodes, allocations)
}
