//! vClusters. Where REST uses `null` (for all tenants, or to remove a bandwidth), a message has a separate field.
//! Movement settings are converted where they are declared.

use crate::{
    page::Page,
    problem::FieldError,
    tenancy::{
        scheduler::{
            AllReservations, ReservationsView, SchedulerChange, SchedulerView, WeightsChange,
            WeightsView, setting_error,
        },
        vcluster::{VclusterNodes, VclusterNodesRequest, VclusterRequest, VclusterView},
    },
    v1::{self, reservations::Which},
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
            movement,
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
            movement: Some(movement.into()),
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

impl TryFrom<v1::SetVclusterRequest> for VclusterRequest {
    type Error = FieldError;

    fn try_from(r: v1::SetVclusterRequest) -> Result<Self, FieldError> {
        let tenants = r.tenants.map(|change| match change.all {
            true => None,
            false => Some(change.names),
        });
        Ok(Self {
            description: r.description,
            tenants,
            expected_version: r.expected_version,
            scheduler: r.scheduler.map(TryInto::try_into).transpose()?,
            movement: r.movement.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<SchedulerView> for v1::Scheduler {
    fn from(view: SchedulerView) -> Self {
        let SchedulerView {
            profile,
            weights,
            weights_sum,
            reference_wait_s,
            reservations,
            checkpoint_gb_s,
        } = view;
        Self {
            profile,
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
        let which = match view {
            ReservationsView::First(first) => Which::First(first),
            ReservationsView::All(AllReservations::All) => Which::All(true),
        };
        Self { which: Some(which) }
    }
}

impl TryFrom<v1::Reservations> for ReservationsView {
    type Error = FieldError;

    /// An empty message is rejected: it would mean no reservations at all.
    fn try_from(r: v1::Reservations) -> Result<Self, FieldError> {
        match r.which {
            Some(Which::All(true)) => Ok(Self::All(AllReservations::All)),
            Some(Which::First(first)) => Ok(Self::First(first)),
            Some(Which::All(false)) | None => {
                let reason = "give `first` with a number, or `all` as true";
                Err(setting_error("reservations", reason))
            }
        }
    }
}

impl TryFrom<v1::SchedulerChange> for SchedulerChange {
    type Error = FieldError;

    fn try_from(change: v1::SchedulerChange) -> Result<Self, FieldError> {
        let checkpoint_gb_s = match (change.checkpoint_gb_s, change.no_checkpoint_gb_s) {
            (Some(_), true) => {
                let reason =
                    "checkpoint_gb_s and no_checkpoint_gb_s are both given; give one of them";
                return Err(setting_error("checkpoint_gb_s", reason));
            }
            (None, true) => Some(None),
            (gb_s, false) => gb_s.map(Some),
        };
        Ok(Self {
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
            reservations: (change.reservations).map(TryInto::try_into).transpose()?,
            checkpoint_gb_s,
        })
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
