//! Access control: the privileges that each command requires, and fencing. Rules that depend on a record (its owner, a
//! project's administrators) are judged with that record.

use super::{Case, invalid};
use crate::State;
use lattice_quorum_types::{
    Allocation, Command, Envelope, Refusal,
    allocation::RankExit,
    command::{Principal, Privilege, RankReport},
    id::LeaseName,
};

/// Rejects a principal with insufficient privilege, and a missing or stale fence.
pub(super) fn check(state: &State, envelope: &Envelope) -> Result<(), Refusal> {
    let Envelope {
        principal,
        fence,
        command,
        ..
    } = envelope;
    let (allowed, needs): (&[Privilege], &str) = match command {
        // Judged with the record: by the project's administrators, by its owner, or without any further check.
        Command::CreateProject { .. }
        | Command::NewProject { .. }
        | Command::DeleteProject { .. }
        | Command::SetLimits { .. }
        | Command::Submit { .. }
        | Command::SubmitOnLimit { .. }
        | Command::SubmitDag { .. }
        | Command::CancelDag { .. }
        | Command::Requeue { .. }
        | Command::SuspendAfterCheckpoint { .. }
        | Command::SetWalltime { .. }
        | Command::Cancel { .. }
        | Command::Hold { .. }
        | Command::Release { .. } => match principal.privilege {
            Privilege::Accounting => return Err(forbidden(principal, "a person, or a service")),
            _ => return check_fence(state, envelope),
        },
        // As above, and also services under their lease.
        Command::Shrink { .. }
        | Command::Suspend { .. }
        | Command::Resume { .. }
        | Command::WriteCheckpoint { .. } => (
            &[
                Privilege::User,
                Privilege::Operator,
                Privilege::Admin,
                Privilege::Service,
            ],
            "a user, the role operator or admin, or a service",
        ),
        Command::Assign { .. }
        | Command::AssignSensitive { .. }
        | Command::Grow { .. }
        | Command::Stop { .. }
        | Command::RegisterNode { .. }
        | Command::SetLifecycle { .. }
        | Command::Drain { .. } => (
            &[Privilege::Operator, Privilege::Admin, Privilege::Service],
            "the role operator or admin, or a service",
        ),
        // Nodes claimed by a user are managed by persons, never by a service.
        Command::ClaimNodes { .. } | Command::ReleaseNodes { .. } => (
            &[Privilege::User, Privilege::Operator, Privilege::Admin],
            "a person: users claim and release nodes themselves",
        ),
        Command::RepeatWipe { .. }
        | Command::AcceptUnwiped { .. }
        | Command::SetTenant { .. }
        | Command::AcceptMonth { .. }
        | Command::SetVcluster { .. }
        | Command::SetScheduler { .. }
        | Command::DeleteVcluster { .. }
        | Command::AssignVcluster { .. } => (&[Privilege::Admin], "the role admin"),
        Command::UpdateTenant { .. } => (
            &[Privilege::Admin, Privilege::Accounting],
            "the role admin, or an accounting system's token",
        ),
        Command::NoteCredits { .. }
        | Command::AcknowledgeUsage { .. }
        | Command::NoteOpenMonth { .. }
        | Command::NoteUnknownAttempt { .. }
        | Command::ReportWipe { .. }
        | Command::LendNode { .. }
        | Command::ReturnNode { .. }
        | Command::ReclaimNode { .. }
        | Command::Expire { .. }
        | Command::ExtendCheckpoint { .. }
        | Command::GiveUpCheckpoint { .. }
        | Command::LeaveAfterCheckpoint { .. }
        | Command::Preempt { .. }
        | Command::WithdrawPromise { .. } => (&[Privilege::Service], "a service"),
        Command::MakeRoom { .. } => (
            &[Privilege::Operator, Privilege::Admin, Privilege::Service],
            "the role operator or admin, or a service",
        ),
        // A service proposes `Report` in the name of the reporting node.
        Command::Report { .. } | Command::HoldBrake { .. } => (&[Privilege::Service], "a service"),
        Command::AcquireLease { .. }
        | Command::ReleaseLease { .. }
        | Command::ConsumeToken { .. }
        | Command::RenewCertificate { .. }
        | Command::SignAudit { .. }
        | Command::AddAuthority { .. } => (
            &[Privilege::Admin, Privilege::Service],
            "the role admin, or a service",
        ),
        Command::CreateToken { .. }
        | Command::RevokeToken { .. }
        | Command::RevokeCertificates { .. }
        | Command::PromoteAuthority { .. }
        | Command::RetireAuthority { .. }
        | Command::NoteQuorum { .. }
        | Command::UndrainUnchecked { .. }
        | Command::SetSystemLimits { .. }
        | Command::ForceLimits { .. }
        | Command::SetLimitPolicy { .. } => (&[Privilege::Admin], "the role admin"),
        // These commands need an accountable person: a service never proposes them on its own.
        Command::ForceRelease { .. }
        | Command::SetReservation { .. }
        | Command::DeleteReservation { .. }
        | Command::SetBaseline { .. }
        | Command::DeleteBaseline { .. }
        | Command::ReleaseBrake { .. } => (
            &[Privilege::Operator, Privilege::Admin],
            "the role operator or admin",
        ),
    };
    if !allowed.contains(&principal.privilege) {
        return Err(forbidden(principal, needs));
    }
    // Commands that a service may propose only with a fence. They include a `NeverStarted` report: only the holder of
    // the dispatch lease can establish that a rank never started.
    let fenced = matches!(
        command,
        Command::Assign { .. }
            | Command::AssignSensitive { .. }
            | Command::Grow { .. }
            | Command::Shrink { .. }
            | Command::Suspend { .. }
            | Command::Resume { .. }
            | Command::Stop { .. }
            | Command::ReportWipe { .. }
            | Command::LendNode { .. }
            | Command::ReturnNode { .. }
            | Command::HoldBrake { .. }
            | Command::ReclaimNode { .. }
            | Command::Expire { .. }
            | Command::WriteCheckpoint { .. }
            | Command::ExtendCheckpoint { .. }
            | Command::GiveUpCheckpoint { .. }
            | Command::LeaveAfterCheckpoint { .. }
            | Command::MakeRoom { .. }
            | Command::Preempt { .. }
            | Command::WithdrawPromise { .. }
            | Command::NoteCredits { .. }
            | Command::AcknowledgeUsage { .. }
            | Command::NoteOpenMonth { .. }
            | Command::NoteUnknownAttempt { .. }
            | Command::Report {
                report: RankReport::Ended {
                    exit: RankExit::NeverStarted { .. },
                    ..
                },
                ..
            }
    );
    if fenced && principal.privilege == Privilege::Service && fence.is_none() {
        return Err(forbidden(
            principal,
            "a fence: the lease under which it acts",
        ));
    }
    check_fence(state, envelope)?;
    match principal.privilege == Privilege::Service {
        true => check_scheduler(state, envelope),
        false => Ok(()),
    }
}

/// Checks the lease under which a service assigns or promises nodes to an allocation, or withdraws a promise. It must
/// be the scheduler lease of the allocation's vCluster: only the holder of that lease plans the vCluster.
fn check_scheduler(state: &State, envelope: &Envelope) -> Result<(), Refusal> {
    let (Command::Assign { id, .. }
    | Command::AssignSensitive { id, .. }
    | Command::Grow { id, .. }
    | Command::Preempt { id, .. }
    | Command::WithdrawPromise { id }) = &envelope.command
    else {
        return Ok(());
    };
    // The rule for the command refuses an unknown allocation. An element has no record until it is placed.
    let known = state.hot.get(id);
    let known = known.or_else(|| state.hot.get(&state.order.array_of(*id)?));
    let (Some(allocation), Some(fence)) = (known, &envelope.fence) else {
        return Ok(());
    };
    let vcluster = &allocation.spec.vcluster;
    let own = LeaseName::of_scheduler(vcluster);
    if fence.lease == own {
        return Ok(());
    }
    let given = &fence.lease;
    let reason = format!("vCluster {vcluster} is scheduled under the lease {own}, not {given}");
    Err(invalid("fence", reason))
}

fn check_fence(state: &State, envelope: &Envelope) -> Result<(), Refusal> {
    envelope
        .fence
        .as_ref()
        .map_or(Ok(()), |fence| state.leases.check_fence(fence))
}

/// Rejects every principal but the allocation's owner, operators and administrators.
pub(super) fn check_owner(case: Case<'_>, allocation: &Allocation) -> Result<(), Refusal> {
    let Principal {
        name,
        privilege: power,
    } = case.principal;
    match power {
        Privilege::Operator | Privilege::Admin => Ok(()),
        Privilege::User if *name == allocation.user => Ok(()),
        Privilege::User | Privilege::Service | Privilege::Accounting => Err(forbidden(
            case.principal,
            "the user that submitted the allocation, or the role operator or admin",
        )),
    }
}

/// Like [`check_owner`], but also accepts a service. The lease of the service has already been checked.
pub(super) fn check_owner_or_service(
    case: Case<'_>,
    allocation: &Allocation,
) -> Result<(), Refusal> {
    match case.principal.privilege {
        Privilege::Service => Ok(()),
        Privilege::User | Privilege::Operator | Privilege::Admin | Privilege::Accounting => {
            check_owner(case, allocation)
        }
    }
}

pub(super) fn forbidden(principal: &Principal, needs: impl Into<String>) -> Refusal {
    Refusal::Forbidden {
        principal: principal.name.clone(),
        needs: needs.into(),
    }
}
