//! Judging commands: read-only functions from the state and a command to a refusal or to the changed records. One file
//! per kind of command.
//!
//! Rules that several allocation commands share are in `transition`, `array`, `admission`, `element`, `attempt` and
//! `ending`.

mod access;
mod accounting;
mod admission;
mod array;
mod assign;
mod attempt;
mod audit_records;
mod baseline;
mod dag;
mod element;
mod ending;
mod follow;
mod force;
mod job_checkpoint;
mod lease;
mod node_claim;
mod nodes;
mod preemption;
mod projects;
mod quorum;
mod report;
mod reserve;
mod resize;
mod sensitive;
mod signed_head;
mod submit;
mod system;
mod terms;
mod token;
mod transition;
mod trust;
mod unknown_attempt;
mod user_actions;
mod vcluster;

use crate::{
    State,
    change::{Change, Verdict},
};
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Envelope, Refusal, UnixMillis,
    allocation::RankExit,
    audit::AuditAction,
    command::{Principal, RequestedCheckpoint},
    text::{MAX_FREE_TEXT_BYTES, truncated},
};

/// Input of every judging function.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    state: &'a State,
    principal: &'a Principal,
    /// State time if the command takes effect.
    now: UnixMillis,
}

/// Judges a command. The caller has checked its schema and idempotency key.
pub(crate) fn judge(
    state: &State,
    envelope: &Envelope,
    now: UnixMillis,
) -> Result<Verdict, Refusal> {
    access::check(state, envelope)?;
    let case = Case {
        state,
        principal: &envelope.principal,
        now,
    };
    let mut verdict = dispatch(case, &envelope.command)?;
    let asked_for = verdict.changes.len();
    follow::add(case, &mut verdict.changes);
    audit_records::append_entries(case, &envelope.command, &mut verdict.changes, asked_for);
    Ok(verdict)
}

fn dispatch(case: Case<'_>, command: &Command) -> Result<Verdict, Refusal> {
    match command {
        Command::CreateProject {
            path,
            limits,
            admins,
            description,
        } => projects::create(case, path, *limits, admins, description),
        Command::DeleteProject { path } => projects::delete(case, path),
        Command::SetLimits { changes } => {
            projects::set_limits(case, changes, projects::OvercommitMode::No)
        }
        Command::ForceLimits { changes } => {
            projects::set_limits(case, changes, projects::OvercommitMode::ByForce)
        }
        Command::Submit { spec } => submit::submit(case, spec, None),
        Command::SubmitOnLimit { spec, on_limit } => submit::submit(case, spec, Some(*on_limit)),
        Command::SubmitDag { dag } => dag::submit(case, dag),
        Command::CancelDag { id } => dag::cancel(case, *id),
        Command::Requeue { id } => user_actions::requeue(case, *id),
        Command::SetWalltime { id, walltime_ms } => {
            user_actions::set_walltime(case, *id, *walltime_ms)
        }
        Command::Expire { id } => user_actions::expire(case, *id),
        Command::WriteCheckpoint {
            id,
            directory,
            timeout_ms,
        } => {
            let asked = RequestedCheckpoint {
                directory: directory.clone(),
                timeout_ms: *timeout_ms,
            };
            user_actions::write_checkpoint(case, *id, &asked)
        }
        Command::ExtendCheckpoint { id, number, by_ms } => {
            job_checkpoint::extend(case, *id, *number, *by_ms)
        }
        Command::GiveUpCheckpoint { id, number } => job_checkpoint::give_up(case, *id, *number),
        Command::LeaveAfterCheckpoint {
            id,
            number,
            home,
            timeout_ms,
        } => preemption::leave_after(case, (*id, *number), home, *timeout_ms),
        Command::MakeRoom { victim, reason } => preemption::make_room(case, victim, reason),
        Command::Preempt { id, nodes, victims } => preemption::preempt(case, *id, nodes, victims),
        Command::WithdrawPromise { id } => Ok(preemption::withdraw(case, *id)),
        Command::ReclaimNode {
            node,
            wanted,
            version,
        } => preemption::reclaim(case, node, *wanted, *version),
        Command::SetReservation {
            name,
            spec,
            expected,
        } => reserve::set(case, name, spec, *expected),
        Command::DeleteReservation { name } => reserve::delete(case, name),
        Command::Cancel { id } => user_actions::cancel(case, *id),
        Command::Hold { id } => user_actions::hold(case, *id),
        Command::Release { id } => user_actions::release(case, *id),
        Command::Assign { id, nodes } => assign::assign(case, *id, nodes),
        Command::Stop { id, cause } => assign::stop(case, *id, cause),
        Command::Report {
            id,
            attempt,
            node,
            report,
        } => report::report(case, *id, *attempt, node, report),
        Command::RegisterNode { node, vcluster } => nodes::register(case, node, vcluster),
        Command::SetLifecycle { node, lifecycle } => nodes::set_lifecycle(case, node, *lifecycle),
        Command::Drain {
            node,
            reason,
            expected,
        } => nodes::drain(case, node, reason.as_deref(), *expected),
        Command::AcquireLease {
            lease,
            holder,
            ttl_ms,
        } => lease::acquire(case, lease, holder, *ttl_ms),
        Command::ReleaseLease { lease, holder } => lease::release(case, lease, holder),
        Command::CreateToken { grant } => token::create(case, grant),
        Command::RevokeToken { id } => token::revoke(case, id),
        command @ Command::ConsumeToken { .. } => match token::Enrolment::of(command) {
            Some(asked) => token::consume(case, &asked),
            None => Ok(Verdict::unchanged()),
        },
        Command::RenewCertificate {
            name,
            role,
            shown_issued_at,
            certificate,
        } => trust::renew(case, *role, name, *shown_issued_at, *certificate),
        Command::RevokeCertificates { name, role, reason } => {
            trust::revoke(case, *role, name, reason)
        }
        Command::AddAuthority { certificate } => trust::add(case, certificate),
        Command::PromoteAuthority { pin } => trust::promote(case, pin),
        Command::RetireAuthority { pin } => trust::retire(case, pin),
        Command::ForceRelease {
            node,
            reason,
            expected,
        } => force::release(case, node, reason, *expected),
        Command::UndrainUnchecked { node, expected } => {
            nodes::undrain_unchecked(case, node, *expected)
        }
        Command::SetBaseline {
            name,
            definition,
            expected_version,
        } => baseline::set(case, name, definition, *expected_version),
        Command::DeleteBaseline {
            name,
            expected_version,
        } => baseline::delete(case, name, *expected_version),
        Command::HoldBrake { reason } => baseline::hold_brake(case, reason),
        Command::ReleaseBrake { reason } => baseline::release_brake(case, reason),
        Command::AssignSensitive { id, nodes } => assign::assign_sensitive(case, *id, nodes),
        Command::ClaimNodes {
            project,
            nodes,
            purpose,
        } => node_claim::claim(case, project, nodes, purpose),
        Command::ReleaseNodes { nodes, reason } => {
            node_claim::release(case, nodes, reason.as_deref())
        }
        Command::ReportWipe {
            node,
            wipe,
            outcome,
        } => node_claim::report_wipe(case, node, *wipe, outcome),
        Command::RepeatWipe { node, reason } => node_claim::repeat_wipe(case, node, reason),
        Command::AcceptUnwiped { node, reason } => node_claim::accept_unwiped(case, node, reason),
        Command::SetVcluster {
            vcluster,
            change,
            expected_version,
        } => vcluster::set(case, vcluster, change, *expected_version),
        Command::SetScheduler {
            vcluster,
            change,
            settings,
            expected_version,
        } => vcluster::set_scheduler(case, vcluster, change, settings, *expected_version),
        Command::DeleteVcluster {
            vcluster,
            expected_version,
        } => vcluster::delete(case, vcluster, *expected_version),
        Command::AssignVcluster {
            nodes,
            vcluster,
            from,
        } => vcluster::assign(case, nodes, vcluster, from.as_ref()),
        Command::LendNode { node, to, version } => vcluster::lend(case, node, to, *version),
        Command::ReturnNode { node, version } => vcluster::give_back(case, node, *version),
        Command::Grow { id, nodes } => resize::grow(case, *id, nodes),
        Command::Shrink { id, nodes } => resize::shrink(case, *id, nodes),
        Command::Suspend { id } => user_actions::suspend(case, *id),
        Command::SuspendAfterCheckpoint { id, checkpoint } => {
            user_actions::suspend_after(case, *id, checkpoint)
        }
        Command::Resume { id } => user_actions::resume(case, *id),
        Command::SetSystemLimits { patch } => system::set_limits(case, patch),
        Command::NewProject {
            path,
            limits,
            admins,
            description,
        } => {
            let limits = case.state.default_limits(path).patched(limits);
            projects::create(case, path, Some(limits), admins, description)
        }
        Command::SetLimitPolicy { policy } => system::set_policy(case, *policy),
        Command::NoteQuorum { action } => quorum::note(case, action),
        Command::SignAudit {
            signed_head: checkpoint,
        } => signed_head::sign(case, checkpoint),
        Command::UpdateTenant {
            tenant,
            limits,
            soft,
            force,
        } => accounting::update_tenant(case, tenant, limits, soft, *force),
        Command::SetTenant {
            tenant,
            limits,
            soft,
            force,
            on_limit,
        } => accounting::set_tenant(case, (tenant, limits, soft, *force), *on_limit),
        Command::NoteCredits { credits } => accounting::note_credits(case, credits),
        Command::AcknowledgeUsage { through, dropped } => {
            accounting::acknowledge(case, *through, *dropped)
        }
        Command::AcceptMonth { month, differences } => {
            accounting::accept_month(case, *month, *differences)
        }
        Command::NoteOpenMonth { month, is_open } => {
            Ok(accounting::note_open_month(case, *month, *is_open))
        }
        Command::NoteUnknownAttempt {
            node,
            allocation,
            attempt,
            origin,
        } => unknown_attempt::note(case, node, (*allocation, *attempt), origin.as_ref()),
    }
}

impl<'a> Case<'a> {
    /// Returns an allocation that has not ended; otherwise a refusal.
    fn live(self, id: AllocationId, action: &str) -> Result<&'a Allocation, Refusal> {
        match self.state.hot.get(&id) {
            Some(allocation) => Ok(allocation),
            None => match self.state.archive.ended(id) {
                Some(ended) => Err(Refusal::WrongState {
                    id,
                    state: ended.state(),
                    action: action.to_owned(),
                }),
                None => Err(match element::array_of_unplaced(self, id) {
                    Some(array) => {
                        let (array, index) = (array.id, array::index_of(array, id));
                        let reason = format!(
                            "cannot {action} array element {array}_{} by itself: it never had \
                             nodes and has no allocation of its own; name its array, {array}",
                            index.unwrap_or_default()
                        );
                        invalid("id", reason)
                    }
                    None => Refusal::UnknownAllocation { id },
                }),
            },
        }
    }
}

/// The first [`MAX_FREE_TEXT_BYTES`] bytes of a text that the state keeps for ever.
fn truncated_text(text: &str) -> String {
    truncated(text, MAX_FREE_TEXT_BYTES).to_owned()
}

/// The exit with its free text truncated by [`truncated_text`].
fn with_truncated_text(exit: &RankExit) -> RankExit {
    match exit {
        RankExit::SpawnFailed { reason } => RankExit::SpawnFailed {
            reason: truncated_text(reason),
        },
        RankExit::Lost { evidence } => RankExit::Lost {
            evidence: truncated_text(evidence),
        },
        RankExit::NeverStarted { evidence } => RankExit::NeverStarted {
            evidence: truncated_text(evidence),
        },
        other => other.clone(),
    }
}

/// Appends the audit entry of `action` to these changes.
fn audited(case: Case<'_>, action: AuditAction, mut changes: Vec<Change>) -> Vec<Change> {
    let by = case.principal.clone();
    changes.push(Change::Audit { by, action });
    changes
}

fn wrong_state(allocation: &Allocation, action: &str) -> Refusal {
    Refusal::WrongState {
        id: allocation.id,
        state: allocation.state,
        action: action.to_owned(),
    }
}

fn invalid(field: &str, reason: impl Into<String>) -> Refusal {
    Refusal::Invalid {
        field: field.to_owned(),
        reason: reason.into(),
    }
}
