//! Who asks, and what that lets them do at this edge. The quorum judges every change again.
//!
//! A role is two things here: what may be asked at all ([`Role::covers`]), and with what power a change
//! is proposed ([`Caller::proposer`]), which is the least that the quorum takes for it.

use lattice_api::problem::{Kind, Problem};
use lattice_quorum_types::{
    ProjectPath, Refusal,
    command::{Command, Power, Principal},
};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt, sync::Arc};
use tokio::time::Instant;

/// What a token's holder may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// An accounting system: reads tenants and what was used, and sets what tenants may use.
    Service,
    /// Sees the cluster; changes nothing.
    Viewer,
    /// Submits to projects and acts on its own allocations.
    User,
    /// Looks after tenants that are named: acts on everybody's work in them, and on their projects.
    TenantAdmin,
    /// Acts on all allocations and nodes.
    Operator,
    /// Everything, tenants and limits included.
    Admin,
}

impl Role {
    /// All there are, each but the first covering those before it.
    pub const ALL: [Role; 6] = [
        Role::Service,
        Role::Viewer,
        Role::User,
        Role::TenantAdmin,
        Role::Operator,
        Role::Admin,
    ];

    /// Its name, as files have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Service => "service",
            Role::Viewer => "viewer",
            Role::User => "user",
            Role::TenantAdmin => "tenant-admin",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// Whether it may do what `needed` may. An accounting system is beside all others: it covers nobody,
    /// and nobody covers it.
    fn covers(self, needed: Role) -> bool {
        match (self, needed) {
            (Role::Service, _) | (_, Role::Service) => self == needed,
            (own, needed) => own as u8 >= needed as u8,
        }
    }

    /// With what power it asks the quorum for a change: the least that is taken for it there. `None`: it
    /// may not ask.
    fn power(self, command: &Command) -> Option<Power> {
        match self {
            Role::Viewer => None,
            Role::User => Some(Power::User),
            Role::TenantAdmin => power_in_tenant(command),
            Role::Operator => Some(Power::Operator),
            Role::Admin => Some(Power::Admin),
            Role::Service => match command {
                Command::UpdateTenant { force: false, .. } => Some(Power::Accounting),
                _ => None,
            },
        }
    }
}

/// What may be asked for by whoever looks after a tenant. That it is theirs is judged where the project is
/// known; that it is below the tenant is judged here too, for the quorum cannot: it knows of nobody that
/// they administer some tenants alone.
fn power_in_tenant(command: &Command) -> Option<Power> {
    let below = |path: &ProjectPath| !path.is_tenant();
    match command {
        Command::NewProject { path, .. } | Command::DeleteProject { path } => {
            below(path).then_some(Power::Admin)
        }
        Command::SetLimits { changes } => changes
            .iter()
            .all(|change| below(&change.path))
            .then_some(Power::Admin),
        Command::Cancel { .. }
        | Command::Hold { .. }
        | Command::Release { .. }
        | Command::Requeue { .. }
        | Command::SetWalltime { .. }
        | Command::Suspend { .. }
        | Command::SuspendAfterCheckpoint { .. }
        | Command::Resume { .. }
        | Command::WriteCheckpoint { .. }
        | Command::CancelDag { .. } => Some(Power::Operator),
        // As every user may.
        Command::Submit { .. }
        | Command::SubmitDag { .. }
        | Command::ClaimNodes { .. }
        | Command::ReleaseNodes { .. } => Some(Power::User),
        _ => None,
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The principal a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    /// The only tenants whose projects and allocations it is told of; `None` for all.
    pub(crate) tenants: Option<Arc<BTreeSet<ProjectPath>>>,
    /// When its token ends, and with it what it still reads; `None`: not by itself.
    pub(crate) ends_at: Option<Instant>,
}

impl Caller {
    fn forbidden(detail: String) -> Problem {
        Problem::new(Kind::Forbidden, "forbidden", detail)
    }

    fn writes_nothing(&self) -> Problem {
        Self::forbidden(match self.role {
            Role::Viewer => format!(
                "{} is a viewer and may change nothing; use the token of a user or operator",
                self.name
            ),
            role => format!("{} has the role {role}, which may not do that", self.name),
        })
    }

    /// As the quorum knows it, for this change.
    pub(crate) fn proposer(&self, command: &Command) -> Result<Principal, Problem> {
        match self.role.power(command) {
            Some(power) => Ok(self.with(power)),
            None => Err(self.writes_nothing()),
        }
    }

    /// As the quorum knows it, for `what` is no command and done by administrators of the whole cluster.
    pub(crate) fn administrator(&self, what: &str) -> Result<Principal, Problem> {
        self.check_whole(Role::Admin, what)?;
        Ok(self.with(Power::Admin))
    }

    fn with(&self, power: Power) -> Principal {
        Principal {
            name: self.name.to_string(),
            power,
        }
    }

    /// Who may change nothing is told that, before what there is.
    pub(crate) fn check_writes(&self) -> Result<(), Problem> {
        match self.role.covers(Role::User) {
            true => Ok(()),
            false => Err(self.writes_nothing()),
        }
    }

    /// Keeps an accounting system out: what it may do says so itself (`extract::AlsoAccounting`).
    pub(crate) fn check_person(self) -> Result<Self, Problem> {
        match self.is_accounting() {
            false => Ok(self),
            true => Err(Self::forbidden(format!(
                "{} has the role service: it reads tenants and what was used, and sets what tenants may \
                 use, and nothing else",
                self.name
            ))),
        }
    }

    /// Whether it is an accounting system.
    pub(crate) fn is_accounting(&self) -> bool {
        self.role == Role::Service
    }

    /// Whether a project, and what runs in it, exists for this caller.
    pub(crate) fn sees(&self, project: &ProjectPath) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_none_or(|tenants| tenants.contains(&project.tenant()))
    }

    /// What is not seen is not there.
    pub(crate) fn check_sees(&self, project: &ProjectPath) -> Result<(), Problem> {
        match self.sees(project) {
            true => Ok(()),
            false => Err(Problem::from(&Refusal::UnknownProject {
                path: project.clone(),
            })),
        }
    }

    /// What a role that does not cover `role` may not do.
    pub(crate) fn check_role(&self, role: Role, what: &str) -> Result<(), Problem> {
        if self.role.covers(role) {
            return Ok(());
        }
        Err(Self::forbidden(format!(
            "{what} needs the role {role}; {} has the role {}",
            self.name, self.role
        )))
    }

    /// As [`Caller::check_role`], for what concerns every tenant at once.
    pub(crate) fn check_whole(&self, role: Role, what: &str) -> Result<(), Problem> {
        self.check_role(role, what)?;
        if self.tenants.is_none() {
            return Ok(());
        }
        Err(Self::forbidden(format!(
            "{what} concerns the whole cluster; {} has the role {} in some tenants only",
            self.name, self.role
        )))
    }

    /// Whether it looks after the whole cluster, and may be told of what is no tenant's.
    pub(crate) fn operates_whole(&self) -> bool {
        self.role.covers(Role::Operator) && self.tenants.is_none()
    }

    /// Sees what anybody runs, of those that it sees.
    pub(crate) fn sees_all(&self) -> bool {
        self.role.covers(Role::TenantAdmin)
    }

    /// Resolves when its token has ended.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let at = self.ends_at;
        async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_quorum_types::{AllocationId, command::LimitChange, limit::LimitPatch};

    fn path(text: &str) -> ProjectPath {
        ProjectPath::new(text).unwrap()
    }

    #[test]
    fn each_role_covers_those_before_it_and_an_accounting_system_nobody() {
        for (place, role) in Role::ALL.into_iter().enumerate() {
            for (other_place, other) in Role::ALL.into_iter().enumerate() {
                let covers = place >= other_place && (place == other_place || other_place > 0);
                assert_eq!(role.covers(other), covers, "{role} and {other}");
            }
        }
    }

    #[test]
    fn a_tenants_administrator_asks_for_no_more_than_each_change_needs() {
        let limits = |paths: &[&str]| Command::SetLimits {
            changes: paths
                .iter()
                .map(|text| LimitChange {
                    path: path(text),
                    patch: LimitPatch::default(),
                })
                .collect(),
        };
        let id = AllocationId(1);
        for (command, power) in [
            (Command::Cancel { id }, Some(Power::Operator)),
            (limits(&["t/a", "t/b/c"]), Some(Power::Admin)),
            (limits(&["t/a", "t"]), None),
            (
                Command::DeleteProject { path: path("t/a") },
                Some(Power::Admin),
            ),
            (Command::DeleteProject { path: path("t") }, None),
            (
                Command::ForceLimits {
                    changes: Vec::new(),
                },
                None,
            ),
        ] {
            assert_eq!(Role::TenantAdmin.power(&command), power, "{command:?}");
        }
    }
}
