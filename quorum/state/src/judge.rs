//! Judging: read-only functions from the state and a command to a refusal, or to the records as
//! they will be. One file per kind of command.

mod access;
mod assign;
mod lease;
mod nodes;
mod people;
mod projects;
mod report;
mod submit;
mod token;

use crate::{State, change::Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Envelope, Refusal, UnixMillis, command::Principal,
};

/// What a judge looks at.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    state: &'a State,
    principal: &'a Principal,
    /// State time if the command takes effect.
    now: UnixMillis,
}

/// Judges a command whose schema and idempotency key were looked at already.
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
    match &envelope.command {
        Command::CreateProject {
            path,
            limits,
            admins,
            description,
        } => projects::create(case, path, *limits, admins, description),
        Command::DeleteProject { path } => projects::delete(case, path),
        Command::SetLimits { changes } => projects::set_limits(case, changes),
        Command::Submit { spec } => submit::submit(case, spec),
        Command::Cancel { id } => people::cancel(case, *id),
        Command::Hold { id } => people::hold(case, *id),
        Command::Release { id } => people::release(case, *id),
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
        Command::Drain { node, reason } => nodes::drain(case, node, reason.as_deref()),
        Command::AcquireLease {
            lease,
            holder,
            ttl_ms,
        } => lease::acquire(case, lease, holder, *ttl_ms),
        Command::ReleaseLease { lease, holder } => lease::release(case, lease, holder),
        Command::CreateToken {
            hash,
            role,
            names,
            uses,
            expires_at,
        } => token::create(case, hash, *role, names.as_deref(), *uses, *expires_at),
        Command::ConsumeToken { hash, name, role } => token::consume(case, hash, name, *role),
    }
}

impl<'a> Case<'a> {
    /// An allocation that is not terminal.
    fn live(self, id: AllocationId, action: &str) -> Result<&'a Allocation, Refusal> {
        match self.state.hot.get(&id) {
            Some(allocation) => Ok(allocation),
            None => match self.state.archive.get(id) {
                Some(ended) => Err(wrong_state(ended, action)),
                None => Err(Refusal::UnknownAllocation { id }),
            },
        }
    }
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
