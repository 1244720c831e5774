//! Firmware change in the demo: one node drifts from its siblings, and Lattice reports the node, the key, the time and
//! the trigger.

use super::{
    bmcs::Bmcs,
    fixtures::{DemoNode, PLANTED},
    groups::GroupLine,
};
use crate::{
    progress::Progress,
    waiting::{NoticeTimes, noticed},
};
use anyhow::Context as _;
use lattice_api::{conformance::DriftView, history::HistoryEntryView};
use lattice_client::{Client, HistoryQuery};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Key and class that change.
const KEY: &str = "bmc.firmware";
const CLASS: &str = "bmc";
/// Host model with enough equal nodes for a majority in a demo of default size.
const MODEL: &str = "h100";
/// New firmware version of the BMC.
const VERSION: &str = "7.10.50.00";
/// Time limit of each step before the demo reports that it did not happen.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Result of the change.
#[derive(Debug, Clone, Serialize)]
pub struct ChangeResult {
    /// Node of the BMC.
    pub node: String,
    /// Changed key.
    pub key: String,
    /// Value before.
    pub from: String,
    /// Value after.
    pub to: String,
    /// Trigger of the reading by control.
    pub cause: String,
    /// Time of the history entry about the change, RFC 3339.
    pub at: String,
    /// Time from the flash until the change, read twice, was in the history; seconds.
    pub known_after_s: f64,
    /// Conformance groups of the class after the change.
    pub groups: Vec<GroupLine>,
    /// Drift from the cohort; `None` if the cohort is too small for a majority.
    pub drift: Option<DriftView>,
    /// Time from the flash until the drift was reported, seconds.
    pub drifted_after_s: Option<f64>,
}

/// Flashes one BMC and waits for the history entry and the drift. Returns `None` if no node has such a BMC.
pub async fn run_firmware_change(
    client: &Client,
    bmcs: &Bmcs,
    nodes: &[DemoNode],
    progress: &Progress,
) -> anyhow::Result<Option<ChangeResult>> {
    let Some((node, has_majority)) = choose(nodes) else {
        return Ok(None);
    };
    let name = node.name.as_str();
    with_timeout("its BMC to be read", wait_until_read(client, name)).await?;
    let before = last_change(client, name)
        .await?
        .map_or(0, |entry| entry.number);
    bmcs.flash(node, VERSION)?;
    let flashed_at = Instant::now();
    progress.print_line(&format!(
        "flashed the BMC of {name} with {VERSION}; probing the node again: lattice node reprobe {name}"
    ));
    client.reprobe(name).await?;
    let entry = with_timeout("the new firmware in the history", async {
        loop {
            if let Some(entry) = last_change(client, name).await?
                && entry.number > before
            {
                return Ok(entry);
            }
            sleep(POLL_INTERVAL).await;
        }
    });
    let entry = entry.await?;
    let known_after_s = flashed_at.elapsed().as_secs_f64();
    let drift = match has_majority {
        false => None,
        true => Some(with_timeout("the drift", wait_for_drift(client, name)).await?),
    };
    let drifted_after_s = drift.is_some().then(|| flashed_at.elapsed().as_secs_f64());
    let groups = client.conformance_groups(Some(CLASS)).await?.groups;
    let groups = groups.into_iter().map(GroupLine::from).collect();
    let mut changes = entry.changes.into_iter();
    let change = changes.find(|change| change.key == KEY);
    let change = change.context("an entry without the key that changed")?;
    progress.print_line(&format!(
        "detected after {known_after_s:.1} s and two readings; try: lattice conformance groups --class \
         {CLASS}; lattice conformance drift; lattice node history {name}"
    ));
    Ok(Some(ChangeResult {
        node: name.to_owned(),
        key: change.key,
        from: change.from,
        to: change.to,
        cause: entry.occasion,
        at: entry.at,
        known_after_s,
        groups,
        drift,
        drifted_after_s,
    }))
}

/// Chooses the third node without a planted difference or, in a smaller demo, the first node of the model; also returns
/// whether its cohort is large enough for a majority.
fn choose(nodes: &[DemoNode]) -> Option<(&DemoNode, bool)> {
    let alike: Vec<_> = nodes.iter().filter(|node| node.is_model(MODEL)).collect();
    let is_plain = |node: &&&DemoNode| !PLANTED.iter().any(|planted| planted.is_in(node));
    let chosen = alike.iter().filter(is_plain).nth(2).or(alike.first())?;
    Some((chosen, alike.len() >= lattice_conformance::COHORT_MIN))
}

async fn with_timeout<T>(
    what: &str,
    step: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut notices = NoticeTimes::new(Instant::now());
    let step = noticed(step, &mut notices, || what.to_owned());
    let done = timeout(STEP_TIMEOUT, step).await;
    done.with_context(|| format!("waited {} s for {what}", STEP_TIMEOUT.as_secs()))?
}

async fn wait_until_read(client: &Client, name: &str) -> anyhow::Result<()> {
    loop {
        let node = client.node(name).await?;
        let class = node.classes.get(CLASS);
        if class.is_some_and(|class| class.state == "complete") {
            return Ok(());
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns the newest history line in which the key changed.
async fn last_change(client: &Client, name: &str) -> anyhow::Result<Option<HistoryEntryView>> {
    let query = HistoryQuery {
        class: Some(CLASS.to_owned()),
        ..HistoryQuery::default()
    };
    let page = client.history(name, &query).await?;
    let has_key = |entry: &HistoryEntryView| entry.changes.iter().any(|c| c.key == KEY);
    Ok(page.items.into_iter().find(has_key))
}

async fn wait_for_drift(client: &Client, name: &str) -> anyhow::Result<DriftView> {
    loop {
        let mut drifted = client.drift().await?.drifted.into_iter();
        if let Some(drift) = drifted.find(|d| d.node == name && d.key == KEY) {
            return Ok(drift);
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::demo::fixtures::Fixtures;
    use lattice_quorum_types::NodeId;

    fn nodes(count: usize) -> Vec<DemoNode> {
        let here = NodeId::new("here").unwrap();
        Fixtures::of_checkout().nodes(count, here).unwrap()
    }

    fn chosen(count: usize) -> Option<(String, bool)> {
        let nodes = nodes(count);
        choose(&nodes).map(|(node, has_majority)| (node.name.to_string(), has_majority))
    }

    #[test]
    fn a_node_that_is_as_its_siblings_is_changed() {
        assert_eq!(chosen(24), Some(("gpu003".to_owned(), true)));
        assert_eq!(chosen(4), Some(("gpu003".to_owned(), false)));
        assert_eq!(chosen(2), Some(("gpu001".to_owned(), false)));
        assert_eq!(chosen(1), None, "this machine's own BMC is left alone");
    }
}
