//! vClusters. Where REST says `null` for all tenants, a message has a field of its own.

use crate::{
    page::Page,
    scheduler::{
        AllReservations, ReservationsView, SchedulerChange, SchedulerView, WeightsChange,
        WeightsView,
    },
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
            scheduler,
            scheduled_by,
            scheduler_epoch,
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
            scheduler: Some(scheduler.into()),
            scheduled_by,
            scheduler_epoch,
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
        Self {
            description: r.description,
            tenants,
            expected_version: r.expected_version,
            scheduler: r.scheduler.map(Into::into),
        }
    }
}

impl From<SchedulerView> for v1::Scheduler {
    fn from(view: SchedulerView) -> Self {
        let SchedulerView {
            weights,
            weights_sum,
            reference_wait_s,
            reservations,
            checkpoint_gb_s,
        } = view;
        Self {
            weights: Some(weights.into()),
            weights_sum,
            reference_wait_s,
            reservations: Some(reservations.into()),
            checkpoint_gb_s,
        }
    }
}

impl From<WeightsView> for v1::Weights {
    fn from(view: WeightsView) -> Self {
        let WeightsView {
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        } = view;
        Self {
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        }
    }
}

impl From<ReservationsView> for v1::Reservations {
    fn from(view: ReservationsView) -> Self {
        match view {
            ReservationsView::First(first) => Self { all: false, first },
            ReservationsView::All(AllReservations::All) => Self {
                all: true,
                first: 0,
            },
        }
    }
}

impl From<v1::Reservations> for ReservationsView {
    fn from(r: v1::Reservations) -> Self {
        match r.all {
            true => Self::All(AllReservations::All),
            false => Self::First(r.first),
        }
    }
}

impl From<v1::SchedulerChange> for SchedulerChange {
    fn from(change: v1::SchedulerChange) -> Self {
        Self {
            profile: change.profile,
            weights: change.weights.map(|w| WeightsChange {
                priority: w.priority,
                wait_time: w.wait_time,
                fair_share: w.fair_share,
                topology: w.topology,
                data_ready: w.data_ready,
                backlog: w.backlog,
                energy: w.energy,
                checkpoint: w.checkpoint,
                conformance: w.conformance,
            }),
            reference_wait_s: change.reference_wait_s,
            reservations: change.reservations.map(Into::into),
            checkpoint_gb_s: change.checkpoint_gb_s,
        }
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
