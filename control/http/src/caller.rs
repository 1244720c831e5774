//! Caller identity and its permissions at this interface. The quorum checks every change again.
//!
//! A role determines two things: which requests are allowed at all ([`Role::covers`]), and with which privilege a
//! change is proposed ([`Caller::proposer`]). A tenant administrator proposes each change with the least privilege that
//! the quorum accepts for it.

use lattice_api::problem::{Kind, Problem};
use lattice_quorum_types::{
    ProjectPath, Refusal,
    command::{Command, Principal, Privilege},
    id::MAX_NAME_BYTES,
};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt, sync::Arc};
use tokio::time::Instant;

/// Longest name of a principal, bytes.
pub(super) const MAX_NAME: usize = MAX_NAME_BYTES;

/// Whether the text is a valid name of a principal. Names of services contain a colon, so a person's name can never be
/// one of them.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(plain)
}

/// Role of a token's principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Accounting system: reads tenants and usage, and sets what tenants may use.
    Service,
    /// Reads the state of the cluster; changes nothing.
    Viewer,
    /// Submits to projects and acts on its own allocations.
    User,
    /// Administers named tenants: acts on all allocations in those tenants, and on their projects.
    TenantAdmin,
    /// Acts on all allocations and nodes.
    Operator,
    /// Full access, including tenants and limits.
    Admin,
}

impl Role {
    /// All roles; each covers those before it, except that the first is separate.
    pub const ALL: [Role; 6] = [
        Role::Service,
        Role::Viewer,
        Role::User,
        Role::TenantAdmin,
        Role::Operator,
        Role::Admin,
    ];

    /// Name of the role, as in configuration files.
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

    /// Whether the role includes the permissions of `needed`. An accounting system is separate: it covers no other
    /// role, and no other role covers it.
    fn covers(self, needed: Role) -> bool {
        match (self, needed) {
            (Role::Service, _) | (_, Role::Service) => self == needed,
            (own, needed) => own as u8 >= needed as u8,
        }
    }

    /// Privilege with which the change is proposed; `None` if the role may not propose this change.
    fn privilege_for(self, command: &Command) -> Option<Privilege> {
        match self {
            Role::Viewer => None,
            Role::User => Some(Privilege::User),
            Role::TenantAdmin => tenant_admin_privilege(command),
            Role::Operator => Some(Privilege::Operator),
            Role::Admin => Some(Privilege::Admin),
            Role::Service => match command {
                Command::UpdateTenant { force: false, .. } => Some(Privilege::Accounting),
                _ => None,
            },
        }
    }
}

/// Privilege of a tenant administrator for a change: the least that the quorum accepts. The caller's tenants are
/// checked where the project is known. This function checks that the project is below a tenant, because the quorum has
/// no record of administrators limited to some tenants.
fn tenant_admin_privilege(command: &Command) -> Option<Privilege> {
    let below = |path: &ProjectPath| !path.is_tenant();
    match command {
        Command::NewProject { path, .. } | Command::DeleteProject { path } => {
            below(path).then_some(Privilege::Admin)
        }
        Command::SetLimits { changes } => changes
            .iter()
            .all(|change| below(&change.path))
            .then_some(Privilege::Admin),
        Command::Cancel { .. }
        | Command::Hold { .. }
        | Command::Release { .. }
        | Command::Requeue { .. }
        | Command::SetWalltime { .. }
        | Command::Suspend { .. }
        | Command::SuspendAfterCheckpoint { .. }
        | Command::Resume { .. }
        | Command::WriteCheckpoint { .. }
        | Command::CancelDag { .. } => Some(Privilege::Operator),
        // Allowed to every user.
        Command::Submit { .. }
        | Command::SubmitOnLimit { .. }
        | Command::SubmitDag { .. }
        | Command::ClaimNodes { .. }
        | Command::ReleaseNodes { .. } => Some(Privilege::User),
        _ => None,
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Principal of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    /// Tenants with projects and allocations visible to the caller; `None` for all tenants.
    pub(crate) tenants: Option<Arc<BTreeSet<ProjectPath>>>,
    /// Expiry of the token, which also ends the open streams of the caller; `None` if the token does not expire.
    pub(crate) expires_at: Option<Instant>,
}

impl Caller {
    fn forbidden(detail: String) -> Problem {
        Problem::new(Kind::Forbidden, "forbidden", detail)
    }

    fn forbidden_write(&self) -> Problem {
        Self::forbidden(match self.role {
            Role::Viewer => format!(
                "{} has the role viewer, which may not change anything; use the token of a user or \
                 operator",
                self.name
            ),
            role => format!("{} has the role {role}, which may not do that", self.name),
        })
    }

    /// Principal for proposing this change to the quorum.
    pub(crate) fn proposer(&self, command: &Command) -> Result<Principal, Problem> {
        match self.role.privilege_for(command) {
            Some(power) => Ok(self.principal_with(power)),
            None => Err(self.forbidden_write()),
        }
    }

    /// Principal for an action that is not a command and requires an administrator of the whole cluster. `what` names
    /// the action in the error.
    pub(crate) fn administrator(&self, what: &str) -> Result<Principal, Problem> {
        self.check_cluster_role(Role::Admin, what)?;
        Ok(self.principal_with(Privilege::Admin))
    }

    fn principal_with(&self, power: Privilege) -> Principal {
        Principal {
            name: self.name.to_string(),
            privilege: power,
        }
    }

    /// Rejects a caller without write permission, before any existence check could reveal objects.
    pub(crate) fn check_writes(&self) -> Result<(), Problem> {
        match self.role.covers(Role::User) {
            true => Ok(()),
            false => Err(self.forbidden_write()),
        }
    }

    /// Rejects an accounting system. Routes open to accounting systems use `extract::CallerOrAccounting` instead.
    pub(crate) fn check_not_accounting(self) -> Result<Self, Problem> {
        match self.is_accounting() {
            false => Ok(self),
            true => Err(Self::forbidden(format!(
                "{} has the role service: it may read tenants and usage, set the limits of \
                 tenants, and nothing else",
                self.name
            ))),
        }
    }

    /// Whether the caller is an accounting system.
    pub(crate) fn is_accounting(&self) -> bool {
        self.role == Role::Service
    }

    /// Whether a project and its contents are visible to the caller.
    pub(crate) fn sees(&self, project: &ProjectPath) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_none_or(|tenants| tenants.contains(&project.tenant()))
    }

    /// Rejects an invisible project as unknown.
    pub(crate) fn check_sees(&self, project: &ProjectPath) -> Result<(), Problem> {
        match self.sees(project) {
            true => Ok(()),
            false => Err(Problem::from(&Refusal::UnknownProject {
                path: project.clone(),
            })),
        }
    }

    /// Rejects the action `what` unless the caller's role covers `role`.
    pub(crate) fn check_role(&self, role: Role, what: &str) -> Result<(), Problem> {
        if self.role.covers(role) {
            return Ok(());
        }
        Err(Self::forbidden(format!(
            "{what} needs the role {role}; {} has the role {}",
            self.name, self.role
        )))
    }

    /// Like [`Caller::check_role`], for actions that concern every tenant.
    pub(crate) fn check_cluster_role(&self, role: Role, what: &str) -> Result<(), Problem> {
        self.check_role(role, what)?;
        if self.tenants.is_none() {
            return Ok(());
        }
        Err(Self::forbidden(format!(
            "{what} concerns the whole cluster; {} has the role {} in some tenants only",
            self.name, self.role
        )))
    }

    /// Whether the caller operates the whole cluster and may see data that belongs to no tenant.
    pub(crate) fn is_cluster_operator(&self) -> bool {
        self.role.covers(Role::Operator) && self.tenants.is_none()
    }

    /// Whether the caller sees all allocations in the tenants visible to it.
    pub(crate) fn sees_all(&self) -> bool {
        self.role.covers(Role::TenantAdmin)
    }

    /// Resolves when the token expires; never for a token that does not expire.
    pub(crate) fn expired(&self) -> impl Future<Output = ()> + Send + use<> {
        let at = self.expires_at;
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
    fn roles_are_ordered_except_accounting() {
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
            (Command::Cancel { id }, Some(Privilege::Operator)),
            (limits(&["t/a", "t/b/c"]), Some(Privilege::Admin)),
            (limits(&["t/a", "t"]), None),
            (
                Command::DeleteProject { path: path("t/a") },
                Some(Privilege::Admin),
            ),
            (Command::DeleteProject { path: path("t") }, None),
            (
                Command::ForceLimits {
                    changes: Vec::new(),
                },
                None,
            ),
        ] {
            assert_eq!(
                Role::TenantAdmin.privilege_for(&command),
                power,
                "{command:?}"
            );
        }
    }
}
