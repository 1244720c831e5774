//! Who owns what, as schedulers hear of it.

use crate::cluster::Cluster;
use lattice_placement::{ClusterView, Delta, DomainView};
use lattice_quorum_types::{
    AllocationId, NodeId, Refusal, UnixMillis, VclusterName, command::ExpectedNode,
    spec::AllocationSpec,
};
use std::collections::{BTreeMap, BTreeSet};

/// What has changed, by vCluster.
pub(super) type News = BTreeMap<VclusterName, Delta>;

/// See the module.
pub(super) trait Ledger {
    /// Whether planners follow starts and ends by themselves: then these are not among the news.
    const ARE_FOLLOWED: bool;

    /// Work is submitted; under which number.
    ///
    /// # Errors
    /// The refusal.
    fn submit(
        &mut self,
        user: &str,
        spec: AllocationSpec,
        at: UnixMillis,
    ) -> Result<AllocationId, Refusal>;

    /// What waits is given nodes, and runs.
    ///
    /// # Errors
    /// The refusal.
    fn assign(
        &mut self,
        id: AllocationId,
        nodes: Vec<ExpectedNode>,
        vcluster: &VclusterName,
        at: UnixMillis,
    ) -> Result<(), Refusal>;

    /// What runs has ended on all of its nodes.
    ///
    /// # Errors
    /// The refusal.
    fn end(&mut self, id: AllocationId, at: UnixMillis) -> Result<(), Refusal>;

    /// All that a scheduler knows of its vCluster.
    fn view(&self, vcluster: &VclusterName) -> ClusterView;

    /// What has changed since this was asked last.
    fn take_news(&mut self) -> News;

    /// The time of the last thing that happened.
    fn now(&self) -> UnixMillis;

    /// Commands that were applied.
    fn commands(&self) -> u64;
}

/// What a scheduler is to hear next.
pub(super) fn delta_of<'n>(news: &'n mut News, vcluster: &VclusterName) -> &'n mut Delta {
    if !news.contains_key(vcluster) {
        news.insert(vcluster.clone(), Delta::default());
    }
    news.entry(vcluster.clone()).or_default()
}

/// What power domains have left.
pub(super) struct Power<'a> {
    cluster: &'a Cluster,
    /// What nodes that work draw of each domain, milliwatts.
    drawn: BTreeMap<&'a str, u64>,
    /// These nodes.
    drawing: BTreeSet<NodeId>,
}

impl<'a> Power<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            drawn: BTreeMap::new(),
            drawing: BTreeSet::new(),
        }
    }

    /// A node works, or does no more: its domain and those above pay.
    pub(super) fn draw(&mut self, id: &NodeId, works: bool, news: &mut News) {
        if self.cluster.power.is_empty() {
            return;
        }
        let host = self.cluster.nodes.get(id);
        let Some(charge) = host.and_then(|host| host.facts.charge.as_ref()) else {
            return;
        };
        let is_news = match works {
            true => self.drawing.insert(id.clone()),
            false => self.drawing.remove(id),
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
            *drawn = match works {
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

    /// As schedulers see them.
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
