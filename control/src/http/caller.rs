//! Who asks, and what that lets them do at this edge. The quorum judges every change again.

use lattice_api::problem::{Kind, Problem};
use lattice_quorum_types::{
    ProjectPath, Refusal,
    command::{Power, Principal},
};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt, sync::Arc};

/// What a token's holder may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees the cluster; changes nothing.
    Viewer,
    /// Submits to projects and acts on its own allocations.
    User,
    /// Acts on all allocations and nodes.
    Operator,
    /// Everything, tenants and limits included.
    Admin,
}

impl Role {
    /// Lower-case name as written in the token file.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::User => "user",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
    /// What it may ask of the quorum; `None` for nothing.
    fn power(self) -> Option<Power> {
        match self {
            Role::Viewer => None,
            Role::User => Some(Power::User),
            Role::Operator => Some(Power::Operator),
            Role::Admin => Some(Power::Admin),
        }
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
}

impl Caller {
    /// As the quorum knows it, for a change.
    pub(crate) fn writer(&self) -> Result<Principal, Problem> {
        let power = self.role.power().ok_or_else(|| {
            let detail = format!(
                "{} is a viewer and may change nothing; use the token of a user or operator",
                self.name
            );
            Problem::new(Kind::Forbidden, "forbidden", detail)
        })?;
        Ok(Principal {
            name: self.name.to_string(),
            power,
        })
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

    /// What a role below `role` may not do.
    pub(crate) fn check_role(&self, role: Role, what: &str) -> Result<(), Problem> {
        if self.role >= role {
            return Ok(());
        }
        let detail = format!(
            "{what} needs the role {role}; {} has the role {}",
            self.name, self.role
        );
        Err(Problem::new(Kind::Forbidden, "forbidden", detail))
    }

    /// As [`Caller::check_role`], for what concerns every tenant at once.
    pub(crate) fn check_whole(&self, role: Role, what: &str) -> Result<(), Problem> {
        self.check_role(role, what)?;
        if self.tenants.is_none() {
            return Ok(());
        }
        let detail = format!(
            "{what} concerns the whole cluster; {} has the role {} in some tenants only",
            self.name, self.role
        );
        Err(Problem::new(Kind::Forbidden, "forbidden", detail))
    }

    /// Sees what anybody runs.
    pub(crate) fn sees_all(&self) -> bool {
        self.role >= Role::Operator
    }
}
