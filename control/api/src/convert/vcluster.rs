//! vClusters. Where REST says `null` for all tenants, a message has a field of its own.

use crate::{
    page::Page,
    v1,
    vcluster::{VclusterNodes, VclusterNodesRequest, VclusterRequest, VclusterView},
};

impl From<VclusterView> for v1::Vcluster {
    fn from(view: VclusterView) -> Self {
        let VclusterView {
            name,
            description,
            tenants,
            usable,
            version,
            nodes,
            node_count,
            lent,
            borrowed,
            revision,
        } = view;
        Self {
            name,
            description,
            all_tenants: tenants.is_none(),
            tenants: tenants.unwrap_or_default(),
            usable,
            version,
            nodes,
            node_count,
            lent,
            borrowed,
            revision: revision.0,
        }
    }
}

impl From<Page<VclusterView>> for v1::ListVclustersResponse {
    fn from(page: Page<VclusterView>) -> Self {
        Self {
            items: page.items.into_iter().map(Into::into).collect(),
            next_cursor: page.next_cursor,
        }
    }
}

impl From<v1::SetVclusterRequest> for VclusterRequest {
    fn from(r: v1::SetVclusterRequest) -> Self {
        let tenants = r.tenants.map(|change| match change.all {
            true => None,
            false => Some(change.names),
        });
        Self::new(r.description, tenants, r.expected_version)
    }
}

impl From<v1::AssignVclusterRequest> for VclusterNodesRequest {
    fn from(r: v1::AssignVclusterRequest) -> Self {
        Self {
            nodes: r.nodes,
            from: r.from,
        }
    }
}

impl From<VclusterNodes> for v1::AssignVclusterResponse {
    fn from(done: VclusterNodes) -> Self {
        let VclusterNodes {
            vcluster,
            nodes,
            revision,
        } = done;
        Self {
            vcluster,
            nodes,
            revision: revision.0,
        }
    }
}
