//! Brake on automatic draining: its state, and its release by an operator.

use super::time;
use crate::caller::{Caller, Role};
use lattice_api::{
    baseline::{BrakeState, BrakeView, ReleaseRequest},
    problem::Problem,
    project::ChangeResult,
};
use lattice_engine::Core;
use lattice_quorum_types::{Command, baseline::Brake};

/// Returns whether automatic draining is stopped.
pub(crate) fn state(core: &Core) -> BrakeState {
    BrakeState {
        held: core.view().brake.as_deref().map(view),
    }
}

pub(super) fn view(held: &Brake) -> BrakeView {
    BrakeView {
        reason: held.reason.clone(),
        since: time(held.since),
        by: held.by.clone(),
    }
}

/// Releases the brake.
pub(crate) async fn release(
    core: &Core,
    caller: &Caller,
    request: ReleaseRequest,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Operator, "releasing the brake on automatic draining")?;
    let ReleaseRequest { reason } = request;
    super::change(core, caller, key, Command::ReleaseBrake { reason }).await
}
