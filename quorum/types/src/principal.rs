//! Principals: users and services that request changes, with their privilege.

use serde::{Deserialize, Serialize};

/// The requesting principal, authenticated by the service that received the request: the principal of a token, or the
/// name in a service's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Name: a user, or `service:control/c1`.
    pub name: String,
    /// Privilege of the principal.
    pub privilege: Privilege,
}

/// The strongest role a principal holds for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// User: may submit to projects, act on its own allocations, and claim nodes.
    User,
    /// Operator: may act on all allocations and nodes.
    Operator,
    /// Administrator: may do all that operators may, and change tenants, limits and trust.
    Admin,
    /// A Lattice service (control or a quorum member) that acts on its own.
    Service,
    /// An external accounting system with its own token: may set limits and budgets of tenants.
    Accounting,
}
