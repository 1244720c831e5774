//! Metric readings of services.

use crate::{
    core::Core,
    metrics_source::{Metrics, UnknownMetricReason},
};
use futures::future::join_all;
use lattice_agent_rpc::{GetUsage, Part};
use lattice_quorum_types::{Allocation, NodeId, allocation::RankPhase, scale::Metric};
use lattice_view::View;
use std::{collections::BTreeMap, time::Duration};

/// Timeout of a usage request; an agent may have to read its GPUs first.
const USAGE_TIMEOUT: Duration = Duration::from_secs(30);
const MILLION: f64 = 1e6;

/// Reading for one evaluation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) value: Result<f64, UnknownMetricReason>,
    /// Load of each node, if nodes were queried.
    pub(super) loads: BTreeMap<NodeId, f64>,
}

/// Reads the metric, within the timeout of its source.
pub(super) async fn read(
    core: &Core,
    source: Option<&Metrics>,
    view: &View,
    service: &Allocation,
) -> Reading {
    let alone = |value| Reading {
        value,
        loads: BTreeMap::new(),
    };
    let Some(scale) = &service.spec.terms.scale else {
        return alone(Err(UnknownMetricReason::NoNodes));
    };
    match &scale.metric {
        Metric::Prometheus { query } => alone(match source {
            Some(metrics) => metrics.query(query, service.id).await,
            None => Err(UnknownMetricReason::NoSource),
        }),
        Metric::Gpu => mean_of_nodes(core, view, service, Part::Gpus).await,
        Metric::Cpu => mean_of_nodes(core, view, service, Part::Processors).await,
    }
}

/// Mean over the nodes with a running rank, without nodes being released. A node that does not answer makes the mean
/// unknown: it may be the one that carries the load.
async fn mean_of_nodes(core: &Core, view: &View, service: &Allocation, of: Part) -> Reading {
    let runs = |phase: &RankPhase| matches!(phase, RankPhase::Running { .. });
    let nodes = service.ranks.iter().filter(|rank| runs(&rank.phase));
    let ask = |node: NodeId| async move {
        let wanted = GetUsage { of };
        let asked = core.agents.call(view, &node, &wanted, USAGE_TIMEOUT);
        let said = asked.await.unwrap_or_else(|error| Err(error.to_string()));
        (node, said)
    };
    let said = join_all(nodes.map(|rank| ask(rank.node.clone()))).await;
    mean(said)
}

fn mean(said: Vec<(NodeId, Result<u32, String>)>) -> Reading {
    let (mut loads, mut unsaid) = (BTreeMap::new(), Vec::new());
    for (node, said) in said {
        match said {
            Ok(ppm) => _ = loads.insert(node, f64::from(ppm) / MILLION),
            Err(why) => unsaid.push((node.to_string(), why)),
        }
    }
    let value = match (unsaid.is_empty(), loads.is_empty()) {
        (false, _) => Err(UnknownMetricReason::Nodes { missing: unsaid }),
        (true, true) => Err(UnknownMetricReason::NoNodes),
        (true, false) => Ok(loads.values().sum::<f64>() / loads.len() as f64),
    };
    Reading { value, loads }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::id;

    #[test]
    fn it_is_the_mean_of_all_its_nodes_or_unknown() {
        let both = mean(vec![(id("a"), Ok(500_000)), (id("b"), Ok(1_000_000))]);
        assert_eq!(both.value, Ok(0.75));
        assert_eq!(both.loads, BTreeMap::from([(id("a"), 0.5), (id("b"), 1.0)]));
        let one = mean(vec![
            (id("a"), Ok(500_000)),
            (id("b"), Err("it has no GPUs".to_owned())),
        ]);
        let result = one.value.map_err(|why| why.to_string());
        assert_eq!(result, Err("node b: it has no GPUs".to_owned()));
        assert_eq!(mean(Vec::new()).value, Err(UnknownMetricReason::NoNodes));
    }
}
