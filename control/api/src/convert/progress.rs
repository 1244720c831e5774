//! Dependency, checkpoint and scaling settings of requests, and allocation history.

use crate::{
    jobs::allocation::{
        CheckpointBody, CheckpointInProgressView, CheckpointsView, DagPlaceView, DependencyBody,
        DependencyView, ElementCountsView, ElementView, JobBody, MetricBody, SavedCheckpointView,
        ScaleBody, WaitsForView,
    },
    problem::FieldError,
    v1::{self, scale::Metric},
};

field_by_field! {
    CheckpointBody => CheckpointTerms { mode, trigger, directory }
    DagPlaceView => DagPlace { dag, member }
    SavedCheckpointView => SavedCheckpoint {
        number, directory, requested_at, written_at, duration, attempt, bytes, progress,
    }
    ElementCountsView => ElementCounts { elements, pending, blocked, running, completed, failed, cancelled }
    CheckpointInProgressView => CheckpointInProgress {
        number, directory, requested_at, times_out_at, extended, ranks_written, release_reason,
    }
}

impl From<v1::CheckpointTerms> for CheckpointBody {
    fn from(terms: v1::CheckpointTerms) -> Self {
        let v1::CheckpointTerms {
            mode,
            trigger,
            directory,
        } = terms;
        Self {
            mode,
            trigger,
            directory,
        }
    }
}

impl From<v1::Dependency> for DependencyBody {
    fn from(dependency: v1::Dependency) -> Self {
        Self {
            condition: dependency.condition,
            on: JobBody::Text(dependency.on),
        }
    }
}

impl TryFrom<v1::Scale> for ScaleBody {
    type Error = FieldError;

    fn try_from(scale: v1::Scale) -> Result<Self, FieldError> {
        let metric = match scale.metric {
            Some(Metric::Gpu(true)) => MetricBody::Gpu,
            Some(Metric::Cpu(true)) => MetricBody::Cpu,
            Some(Metric::Prometheus(query)) => MetricBody::Prometheus(query),
            Some(Metric::Gpu(false) | Metric::Cpu(false)) | None => {
                return Err(FieldError {
                    field: "scale.metric".to_owned(),
                    reason:
                        "no metric is given; set gpu or cpu to true, or give a prometheus query"
                            .to_owned(),
                });
            }
        };
        Ok(Self {
            min_nodes: scale.min_nodes,
            max_nodes: scale.max_nodes,
            metric,
            target: scale.target,
            up_window: scale.up_window,
            down_window: scale.down_window,
            cooldown: scale.cooldown,
            down_threshold: scale.down_threshold,
        })
    }
}

impl From<ScaleBody> for v1::Scale {
    fn from(body: ScaleBody) -> Self {
        let ScaleBody {
            min_nodes,
            max_nodes,
            metric,
            target,
            up_window,
            down_window,
            cooldown,
            down_threshold,
        } = body;
        Self {
            min_nodes,
            max_nodes,
            metric: Some(match metric {
                MetricBody::Gpu => Metric::Gpu(true),
                MetricBody::Cpu => Metric::Cpu(true),
                MetricBody::Prometheus(query) => Metric::Prometheus(query),
            }),
            target,
            up_window,
            down_window,
            cooldown,
            down_threshold,
        }
    }
}

impl From<DependencyView> for v1::WaitedFor {
    fn from(view: DependencyView) -> Self {
        let DependencyView {
            condition,
            on,
            element,
        } = view;
        Self {
            condition,
            on: on.0,
            element: element.map(Into::into),
        }
    }
}

impl From<ElementView> for v1::ArrayElement {
    fn from(view: ElementView) -> Self {
        let ElementView { array, index } = view;
        Self {
            array: array.0,
            index,
        }
    }
}

impl From<WaitsForView> for v1::WaitsFor {
    fn from(view: WaitsForView) -> Self {
        let WaitsForView { allocations, mutex } = view;
        Self {
            allocations: allocations.into_iter().map(|id| id.0).collect(),
            mutex: mutex.map(|id| id.0),
        }
    }
}

impl From<CheckpointsView> for v1::Checkpoints {
    fn from(view: CheckpointsView) -> Self {
        let CheckpointsView {
            requested,
            failed,
            last_error,
            last,
            in_progress,
        } = view;
        Self {
            requested,
            failed,
            last_error,
            last: last.map(Into::into),
            in_progress: in_progress.map(Into::into),
        }
    }
}
