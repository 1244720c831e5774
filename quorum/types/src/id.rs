//! Identifiers. Each is a newtype, so that the compiler rejects a node name in place of a project.

use crate::name_order::compare_names;
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, fmt, str::FromStr, sync::Arc};

/// Reasons why a text is not a valid identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {text:?} is not valid: {reason}")]
pub struct InvalidId {
    /// Kind of identifier: "node name", "project path", ...
    pub kind: &'static str,
    /// Text as given.
    pub text: String,
    /// Description of the error, with the permitted form.
    pub reason: &'static str,
}

/// Longest name or path segment, bytes. A DNS label has at most 63, and a host name at most 253.
pub const MAX_NAME_BYTES: usize = 253;

/// Checks `[A-Za-z0-9][A-Za-z0-9._-]*`, at most [`MAX_NAME_BYTES`].
pub(crate) fn check_segment(kind: &'static str, text: &str) -> Result<(), InvalidId> {
    let fail = |reason| {
        Err(InvalidId {
            kind,
            text: text.to_owned(),
            reason,
        })
    };
    if text.is_empty() {
        return fail("it is empty");
    }
    if text.len() > MAX_NAME_BYTES {
        return fail("it is longer than 253 bytes");
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return fail("it must start with a letter or a digit");
    }
    if !text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        return fail("only letters, digits, '.', '_' and '-' are allowed");
    }
    Ok(())
}

/// Defines a name. Its order is either derived, which is that of the text, or implemented after the definition.
macro_rules! name_type {
    ($(#[$attribute:meta])* $name:ident, $kind:literal) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and creates the identifier.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                check_segment($kind, text.as_ref())?;
                Ok(Self(Arc::from(text.as_ref())))
            }
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(s: &str) -> Result<Self, InvalidId> {
                Self::new(s)
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(s: String) -> Result<Self, InvalidId> {
                Self::new(s)
            }
        }
        impl From<$name> for String {
            fn from(v: $name) -> String {
                v.0.as_ref().to_owned()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(/// A compute node's name, unique in the cluster; usually its short host name. Names are ordered by their
    /// numbers, `n9` before `n10`, and so are lists and ranks.
    NodeId, "node name");

impl Ord for NodeId {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_names(&self.0, &other.0)
    }
}

impl PartialOrd for NodeId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

name_type!(/// Name of a vCluster: a set of nodes with its own scheduler settings.
    #[derive(PartialOrd, Ord)]
    VclusterName, "vCluster name");
name_type!(/// A lease's name, one per reconciler and scope, e.g. `schedule.default`.
    #[derive(PartialOrd, Ord)]
    LeaseName, "lease name");
impl LeaseName {
    /// Longest part of a vCluster's name, in bytes, that fits behind the prefix.
    const MAX_VCLUSTER_BYTES: usize = MAX_NAME_BYTES - "schedule.".len();

    /// Lease for scheduling a vCluster: `schedule.` and the vCluster's name. A name that is too long is cut and gets
    /// another prefix. Long names with the same beginning thus share a lease, and one control schedules all these
    /// vClusters.
    pub fn of_scheduler(vcluster: &VclusterName) -> Self {
        let name = vcluster.as_str();
        let text = match name.get(..Self::MAX_VCLUSTER_BYTES) {
            Some(cut) if cut.len() < name.len() => format!("schedule-{cut}"),
            _ => format!("schedule.{name}"),
        };
        Self(Arc::from(text))
    }

    /// vCluster that is scheduled under this lease. `None` for other leases, and for a cut name, which may stand for
    /// several vClusters.
    pub fn scheduled(&self) -> Option<VclusterName> {
        VclusterName::new(self.0.strip_prefix("schedule.")?).ok()
    }
}

name_type!(/// The last segment of a project path, or a tenant's name.
    #[derive(PartialOrd, Ord)]
    ProjectName, "project name");
name_type!(/// A baseline's name.
    #[derive(PartialOrd, Ord)]
    BaselineName, "baseline name");
name_type!(/// A reservation's name.
    #[derive(PartialOrd, Ord)]
    ReservationName, "reservation name");

/// Path in the project tree: `tenant` or `tenant/a/b`. The first segment is the tenant, the root of its tree. Paths are
/// compared as text. A parent sorts before its descendants; other paths may be in between (`a`, `a-b`, `a/b`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProjectPath(Arc<str>);

impl ProjectPath {
    /// Checks `text` and creates the path.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
        let text = text.as_ref();
        for segment in text.split('/') {
            check_segment("project path", segment).map_err(|e| InvalidId {
                text: text.to_owned(),
                ..e
            })?;
        }
        Ok(Self(Arc::from(text)))
    }
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The tenant: the first segment, as a path.
    pub fn tenant(&self) -> ProjectPath {
        Self(Arc::from(self.0.split('/').next().unwrap_or_default()))
    }
    /// Checks whether this is a tenant, the root of a tree.
    pub fn is_tenant(&self) -> bool {
        !self.0.contains('/')
    }
    /// The parent project; `None` for a tenant.
    pub fn parent(&self) -> Option<ProjectPath> {
        self.0.rsplit_once('/').map(|(up, _)| Self(Arc::from(up)))
    }
    /// The last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
    /// Number of segments: 1 for a tenant.
    pub fn depth(&self) -> usize {
        self.0.split('/').count()
    }
    /// This project, its parent, and so on up to the tenant, as text without copies.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.as_str()), |path| {
            path.rsplit_once('/').map(|(up, _)| up)
        })
    }
    /// This project, its parent, and so on up to the tenant.
    pub fn ancestors(&self) -> impl Iterator<Item = ProjectPath> {
        std::iter::successors(Some(self.clone()), ProjectPath::parent)
    }
    /// Checks whether `self` is `other` or lies below it.
    pub fn is_within(&self, other: &ProjectPath) -> bool {
        self.0
            .strip_prefix(other.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for ProjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
impl FromStr for ProjectPath {
    type Err = InvalidId;
    fn from_str(s: &str) -> Result<Self, InvalidId> {
        Self::new(s)
    }
}
/// `Borrow<str>` is permitted because paths compare and hash as their text does.
impl std::borrow::Borrow<str> for ProjectPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}
impl TryFrom<String> for ProjectPath {
    type Error = InvalidId;
    fn try_from(s: String) -> Result<Self, InvalidId> {
        Self::new(s)
    }
}
impl From<ProjectPath> for String {
    fn from(v: ProjectPath) -> String {
        v.0.as_ref().to_owned()
    }
}

/// Number of an allocation, assigned by the state machine in the order of submission, starting at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllocationId(pub u64);

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
impl FromStr for AllocationId {
    type Err = InvalidId;
    fn from_str(s: &str) -> Result<Self, InvalidId> {
        s.parse().map(Self).map_err(|_| InvalidId {
            kind: "allocation id",
            text: s.to_owned(),
            reason: "it must be a whole number, as printed by `lattice submit`",
        })
    }
}

/// Number of a DAG, from the same sequence as allocation numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DagId(pub u64);

impl fmt::Display for DagId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
impl FromStr for DagId {
    type Err = InvalidId;
    fn from_str(s: &str) -> Result<Self, InvalidId> {
        s.parse().map(Self).map_err(|_| InvalidId {
            kind: "DAG id",
            text: s.to_owned(),
            reason: "it must be a whole number, as printed by `lattice dag submit`",
        })
    }
}

/// Position in the replicated history, increased by each command that changes the state. Revision 0 is the empty
/// cluster.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Number of a quorum member.
pub type VoterId = u64;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn lease(vcluster: &str) -> LeaseName {
        LeaseName::of_scheduler(&VclusterName::new(vcluster).unwrap())
    }

    #[test]
    fn every_vcluster_has_a_name_for_its_lease_and_no_two_the_same_that_fit() {
        assert_eq!(lease("default").as_str(), "schedule.default");
        let fits = "a".repeat(244);
        let long = [&fits, "b"].concat();
        let longest = "a".repeat(MAX_NAME_BYTES);
        for vcluster in [&fits, &long, &longest] {
            let name = lease(vcluster);
            assert_eq!(LeaseName::new(name.as_str()).unwrap(), name);
            assert_eq!(name.as_str().len(), MAX_NAME_BYTES);
        }
        assert_ne!(lease(&fits), lease(&long));
        for vcluster in ["default", &fits] {
            let vcluster_of_lease = lease(vcluster).scheduled().unwrap();
            assert_eq!(vcluster_of_lease.as_str(), vcluster);
        }
        for other in [lease(&long), LeaseName::new("dispatch").unwrap()] {
            assert_eq!(other.scheduled(), None);
        }
        // Names with the same beginning are scheduled by one control.
        assert_eq!(lease(&long), lease(&longest));
    }
}
