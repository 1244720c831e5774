//! Puts beside each node what its BMC names, as this control read it last: placement goes by it, and
//! whoever follows the nodes is told. It waits for no agent, and no brake holds it up: that is for
//! draining.

use crate::{
    core::Core,
    observe,
    tasks::activation::{Activation, News},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Nodes come and change all the time, and many BMCs answer at a time.
const SPACING: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(crate) struct NameFaults {
    core: Arc<Core>,
}

impl NameFaults {
    pub(crate) const fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Runs for ever.
    pub(crate) async fn run(self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING);
        let mut news = News::new(self.core.bmc.changes(), SPACING);
        loop {
            tokio::select! {
                () = activation.next() => {}
                () = news.next() => {}
            }
            self.reconcile();
        }
    }

    /// Takes over what is named now. Of how many nodes that is news.
    pub(crate) fn reconcile(&self) -> usize {
        let view = self.core.view();
        let all = self.core.bmc.all_parts().into_iter();
        let news = all.filter_map(|(id, parts)| {
            let (known, named) = (&view.node(&id)?.named, parts.named());
            (**known != named).then_some((id, named))
        });
        let news: BTreeMap<_, _> = news.collect();
        match news.is_empty() {
            true => 0,
            false => observe::named(&self.core, news),
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
    async fn the_first_fault_is_named_at_once_and_what_many_bmcs_name_then_in_few_views() {
        let world = World::new();
        let names: Vec<_> = (0..64).map(|n| id(&format!("b{n:03}"))).collect();
        let seen = |_| crate::view::Seen::before(BTreeMap::new());
        let cell = names.iter().map(|node| (node.clone(), seen(node)));
        observe::cell(&world.core, "c0", cell.collect());
        let running = NameFaults::new(world.core.clone()).run();
        let _running = AbortOnDropHandle::new(tokio::spawn(running));
        sleep(PERIOD * 3 / 2).await;
        let before = world.core.view().version;
        let began_at = Instant::now();
        let is_named = |node| {
            !world
                .core
                .view()
                .node(node)
                .is_none_or(|e| e.named.reasons.is_empty())
        };
        for node in &names {
            world
                .core
                .bmc
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
