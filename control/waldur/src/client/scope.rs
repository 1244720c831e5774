//! Subject of a resource in Waldur, and the id under which Waldur stores it.

use lattice_quorum_types::{ProjectPath, VclusterName};
use std::fmt;

/// Subject of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceScope {
    /// A project in a vCluster.
    Project(ProjectPath, VclusterName),
    /// One allocation of a project in a vCluster.
    Allocation(ProjectPath, VclusterName, u64),
}

impl ResourceScope {
    /// Project of the scope.
    pub fn project(&self) -> &ProjectPath {
        match self {
            Self::Project(project, _) | Self::Allocation(project, _, _) => project,
        }
    }

    /// vCluster of the scope.
    pub fn vcluster(&self) -> &VclusterName {
        match self {
            Self::Project(_, vcluster) | Self::Allocation(_, vcluster, _) => vcluster,
        }
    }

    /// Id that Waldur stores, such as `lattice:alps:physics/higgs@batch`. It contains the cluster, because several
    /// clusters may report to one Waldur, even with one offering.
    pub fn backend_id(&self, cluster: &str) -> String {
        format!("lattice:{cluster}:{self}")
    }

    /// Parses an id in the form of [`Self::backend_id`]; `None` for any other text, also for an id of another cluster.
    pub fn of_backend_id(text: &str, cluster: &str) -> Option<Self> {
        let of_cluster = text.strip_prefix("lattice:")?.strip_prefix(cluster)?;
        let (project, vcluster) = of_cluster.strip_prefix(':')?.split_once('@')?;
        let project = ProjectPath::new(project).ok()?;
        let (vcluster, allocation) = match vcluster.split_once('#') {
            Some((vcluster, id)) => (vcluster, Some(id.parse().ok()?)),
            None => (vcluster, None),
        };
        let vcluster = VclusterName::new(vcluster).ok()?;
        Some(match allocation {
            Some(id) => Self::Allocation(project, vcluster, id),
            None => Self::Project(project, vcluster),
        })
    }
}

impl fmt::Display for ResourceScope {
    /// Formats the scope as `physics/higgs@batch`, or `physics/higgs@batch#7` for an allocation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(project, vcluster) => write!(f, "{project}@{vcluster}"),
            Self::Allocation(project, vcluster, id) => write!(f, "{project}@{vcluster}#{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_id_names_its_cluster() {
        let project = ProjectPath::new("physics/higgs").unwrap();
        let vcluster = VclusterName::new("batch").unwrap();
        for scope in [
            ResourceScope::Project(project.clone(), vcluster.clone()),
            ResourceScope::Allocation(project, vcluster, 7),
        ] {
            let id = scope.backend_id("alps");
            assert_eq!(ResourceScope::of_backend_id(&id, "alps"), Some(scope));
            for other in ["eiger", "alp", "alps:physics", ""] {
                assert_eq!(ResourceScope::of_backend_id(&id, other), None, "{other}");
            }
        }
        assert_eq!(
            ResourceScope::of_backend_id("lattice:tenant:physics", "tenant"),
            None
        );
    }
}
