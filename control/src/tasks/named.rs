//! Puts beside each node what its BMC names, as this control read it last: placement goes by it, and
//! whoever follows the nodes is told. It waits for no agent, and no brake holds it up: that is for
//! draining.

use crate::{core::Core, observe, tasks::activation::Activation};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Nodes come and change all the time.
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
        let mut news = self.core.bmc.changes();
        loop {
            tokio::select! {
                () = activation.next() => {}
                // The sender lives as long as the core.
                _ = news.changed() => {}
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
