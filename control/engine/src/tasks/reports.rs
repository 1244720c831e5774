//! Agent reports: committed first, then acknowledged. Reports that arrive together share a proposal, because the quorum
//! client groups them.

use crate::{core::Core, error::ProposeError, sanitize};
use lattice_agent_rpc::{Report, ReportAnswer};
use lattice_mesh::{Caller, HandlerFailed, Router};
use lattice_quorum_types::{Command, NodeId, Refusal, wire::Unavailable};
use lattice_view::View;
use std::sync::{Arc, Weak};

/// Adds the handler of [`Report`]. The handler holds the core weakly, because the router must not keep the core alive.
pub fn route(router: Router, core: &Arc<Core>) -> Router {
    let core = Arc::downgrade(core);
    router.rpc(move |caller: Caller, report: Report| answer(core.clone(), caller, report))
}

async fn answer(
    core: Weak<Core>,
    caller: Caller,
    report: Report,
) -> Result<Result<ReportAnswer, Unavailable>, HandlerFailed> {
    let core = core
        .upgrade()
        .ok_or_else(|| HandlerFailed::new("this control is shutting down"))?;
    // The certificate identifies the node, whatever the report contains.
    let node = NodeId::new(caller.identity.id()).map_err(HandlerFailed::new)?;
    Ok(commit(&core, node, report).await)
}

pub(crate) async fn commit(
    core: &Core,
    node: NodeId,
    report: Report,
) -> Result<ReportAnswer, Unavailable> {
    let Report { key, report } = report;
    let command = Command::Report {
        id: key.allocation,
        attempt: key.attempt,
        node,
        report: sanitize::shortened_report(report),
    };
    match core.propose_as_service(None, command).await {
        Ok(_) => Ok(ReportAnswer::Committed),
        Err(ProposeError::Unavailable(unavailable)) => Err(unavailable),
        Err(ProposeError::Refused(refusal)) => answer_refused(&core.view(), &refusal),
    }
}

/// Returns the answer for a rejected report. The agent may discard a report that no later state can accept; it must
/// send any other report again.
fn answer_refused(view: &View, refusal: &Refusal) -> Result<ReportAnswer, Unavailable> {
    match refusal {
        Refusal::StaleAttempt { .. }
        | Refusal::UnknownAllocation { .. }
        | Refusal::WrongState { .. }
        | Refusal::Invalid { .. } => Ok(ReportAnswer::Superseded {
            reason: refusal.text(&|id| view.name_of(id)),
        }),
        other => {
            tracing::error!(refusal = %other, "report refused because of a fault of this control");
            Err(Unavailable::Busy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{self, KEY};
    use lattice_quorum_types::{AllocationId, AllocationState, progress::ArrayElement};

    #[test]
    fn superseded_report_names_the_element() {
        let mut element = testing::allocation(AllocationState::Running, Vec::new());
        element.progress.element = Some(ArrayElement {
            array: AllocationId(3),
            index: 50,
        });
        let view = testing::view_of([], element);
        let refusal = Refusal::StaleAttempt {
            id: KEY.allocation,
            given: 1,
            current: 2,
        };
        let reason = "stale attempt 1 of allocation 3_50; current is 2".to_owned();
        let answer = answer_refused(&view, &refusal);
        assert_eq!(answer.ok(), Some(ReportAnswer::Superseded { reason }));
    }
}
