//! Ledger: committed allocations, holders and usage of a replay, from which schedulers get their updates.

use crate::cluster::Cluster;
use lattice_placement::{ClusterView, Delta, DomainView};
use lattice_quorum_types::{
    AllocationId, NodeId, Refusal, UnixMillis, VclusterName, command::ExpectedNode,
    spec::AllocationSpec,
};
use std::collections::{BTreeMap, BTreeSet};

/// Changes by vCluster.
pub(super) type VclusterChanges = BTreeMap<VclusterName, Delta>;

/// Ledger of allocations.
pub(super) trait Ledger {
    /// Whether the replay passes starts and ends to the planners itself; the changes then do not contain these.
    const PLANNERS_FOLLOW: bool;

    /// Submits an allocation and returns its id.
    ///
    /// # Errors
    /// The ledger refuses the change.
    fn submit(
        &mut self,
        user: &str,
        spec: AllocationSpec,
        at: UnixMillis,
    ) -> Result<AllocationId, Refusal>;

    /// Assigns nodes to a waiting allocation, which starts at once.
    ///
    /// # Errors
    /// The ledger refuses the change.
    fn assign(
        &mut self,
        id: AllocationId,
        nodes: Vec<ExpectedNode>,
        vcluster: &VclusterName,
        at: UnixMillis,
    ) -> Result<(), Refusal>;

    /// Ends a running allocation on all of its nodes.
    ///
    /// # Errors
    /// The ledger refuses the change.
    fn end(&mut self, id: AllocationId, at: UnixMillis) -> Result<(), Refusal>;

    /// View of a vCluster's scheduler.
    fn view(&self, vcluster: &VclusterName) -> ClusterView;

    /// Takes the changes since the last call, by vCluster.
    fn take_changes(&mut self) -> VclusterChanges;

    /// Time of the last event.
    fn now(&self) -> UnixMillis;

    /// Number of applied commands.
    fn commands(&self) -> u64;
}

/// Delta for a vCluster's scheduler, created on first use.
pub(super) fn delta_of<'n>(
    news: &'n mut VclusterChanges,
    vcluster: &VclusterName,
) -> &'n mut Delta {
    if !news.contains_key(vcluster) {
        news.insert(vcluster.clone(), Delta::default());
    }
    news.entry(vcluster.clone()).or_default()
}

/// Power headroom of the domains.
pub(super) struct Power<'a> {
    cluster: &'a Cluster,
    /// Power drawn by busy nodes of each domain, milliwatts.
    drawn: BTreeMap<&'a str, u64>,
    /// Busy nodes.
    busy: BTreeSet<NodeId>,
}

impl<'a> Power<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            drawn: BTreeMap::new(),
            busy: BTreeSet::new(),
        }
    }

    /// Adds (`is_busy`) or removes the power of a busy node in its domain and all parent domains.
    pub(super) fn draw(&mut self, id: &NodeId, is_busy: bool, news: &mut VclusterChanges) {
        if self.cluster.power.is_empty() {
            return;
        }
        let host = self.cluster.nodes.get(id);
        let Some(charge) = host.and_then(|host| host.facts.charge.as_ref()) else {
            return;
        };
        let is_news = match is_busy {
            true => self.busy.insert(id.clone()),
            false => self.busy.remove(id),
        };
        if !is_news {
            return;
        }
        let power = &self.cluster.power;
        let domains = std::iter::successors(Some(&charge.domain), |name| {
            power.get(*name)?.parent.as_ref()
        });
        for name in domains {
            let drawn = self.drawn.entry(name).or_default();
            *drawn = match is_busy {
                true => drawn.saturating_add(charge.mw),
                false => drawn.saturating_sub(charge.mw),
            };
        }
        for vcluster in self.cluster.vclusters.keys() {
            let domains = self.domains();
            let domains = domains.map(|(name, domain)| (name, Some(domain)));
            delta_of(news, vcluster).power.extend(domains);
        }
    }

    /// Domains with their headroom, as in a scheduler's view.
    pub(super) fn domains(&self) -> impl Iterator<Item = (String, DomainView)> {
        self.cluster.power.iter().map(|(name, domain)| {
            let drawn = self.drawn.get(name.as_str()).copied().unwrap_or(0);
            let signed = |mw: u64| i64::try_from(mw).unwrap_or(i64::MAX);
            let view = DomainView {
                parent: domain.parent.clone(),
                headroom_mw: signed(domain.budget_mw).saturating_sub(signed(drawn)),
            };
            (name.clone(), view)
        })
    }
}
