//! BMC fault publication: attaches the faults from the last BMC reading to each node.
//!
//! Placement uses these faults, and subscribers of nodes receive them. Publication waits for no agent, and the drain
//! brake does not apply to it.

use crate::{
    bmc::Readings,
    core::Core,
    observed_state,
    tasks::activation::{Activation, BmcWakeUp},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Longest time between two passes.
const PERIOD: Duration = Duration::from_secs(5);
/// Shortest time between two passes: nodes change all the time, and many BMCs answer at the same time.
const SPACING: Duration = Duration::from_millis(500);

/// BMC fault publication; see the module.
#[derive(Debug)]
pub struct BmcFaultPublisher {
    core: Arc<Core>,
    readings: Readings,
}

impl BmcFaultPublisher {
    /// New [`BmcFaultPublisher`]; it does nothing until it is run.
    pub const fn new(core: Arc<Core>, readings: Readings) -> Self {
        Self { core, readings }
    }

    /// Runs forever.
    pub async fn run(self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING);
        let mut news = BmcWakeUp::new(self.readings.changes(), SPACING);
        loop {
            tokio::select! {
                () = activation.next() => {}
                () = news.next() => {}
            }
            self.reconcile();
        }
    }

    /// Publishes changed faults. Returns the number of nodes with a change.
    pub fn reconcile(&self) -> usize {
        let view = self.core.view();
        let all = self.readings.all_parts().into_iter();
        let news = all.filter_map(|(id, parts)| {
            let (known, named) = (&view.node(&id)?.bmc_faults, parts.named());
            (**known != named).then_some((id, named))
        });
        let news: BTreeMap<_, _> = news.collect();
        match news.is_empty() {
            true => 0,
            false => observed_state::bmc_faults(&self.core, news),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bmc::Parts,
        tasks::testing::{id, world::World},
    };
    use tokio::time::{Instant, sleep};
    use tokio_util::task::AbortOnDropHandle;

    #[tokio::test(start_paused = true)]
    async fn batches_bmc_faults_into_few_views() {
        let world = World::new();
        let names: Vec<_> = (0..64).map(|n| id(&format!("b{n:03}"))).collect();
        let seen = |_| lattice_view::GossipedNode::before(BTreeMap::new());
        let cell = names.iter().map(|node| (node.clone(), seen(node)));
        observed_state::cell(&world.core, "c0", cell.collect());
        let running = BmcFaultPublisher::new(world.core.clone(), world.readings.clone()).run();
        let _running = AbortOnDropHandle::new(tokio::spawn(running));
        sleep(PERIOD * 3 / 2).await;
        let before = world.core.view().version;
        let began_at = Instant::now();
        let is_named = |node| {
            !world
                .core
                .view()
                .node(node)
                .is_none_or(|e| e.bmc_faults.reasons.is_empty())
        };
        for node in &names {
            world
                .readings
                .put_parts(node.clone(), Parts::naming([Parts::critical()]));
            sleep(Duration::from_millis(10)).await;
            if node == &names[0] {
                assert!(is_named(node), "at once");
            }
        }
        while !names.iter().all(is_named) {
            assert!(began_at.elapsed() < PERIOD / 2);
            sleep(Duration::from_millis(10)).await;
        }
        let views = world.core.view().version - before;
        assert!(views < 10, "{views} views of 64 nodes");
    }
}
