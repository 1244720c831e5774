//! Conformance of a node: a fresh hardware reading, compared with those of its baselines that have a drain rule.

use super::{
    Answer, Freshness,
    bmc::{Bmc, BmcReadingOutcome},
};
use crate::{ReadingKind, core::Core, error::AgentError, tasks::class_merge};
use lattice_conformance::{Class, CohortKey, Inventory, baseline::BaselineVerdict};
use lattice_quorum_types::{NodeId, baseline::DriftPolicy};
use lattice_view::{
    NodeEntry, View,
    baselines::{BaselineChoice, ParsedBaseline},
    drift::differs,
};
use std::sync::Arc;

/// A class covered by a drain rule, with its baseline; `None` if several baselines apply.
type DrainingBaseline = (Class, Option<Arc<ParsedBaseline>>);

/// Requests a hardware reading from the node and compares it with its baselines. A node is queried only if a drain rule
/// applies to it, or may apply because its cohort is unknown. While its document is not available, such a node is not
/// queried, and the answer is unknown.
///
/// # Errors
/// The node does not answer or cannot read its hardware.
pub(crate) async fn ask(
    core: &Core,
    view: &View,
    entry: &NodeEntry,
    freshness: &Freshness,
    bmc: &Bmc<'_>,
) -> Result<Answer, AgentError> {
    let might_drain = view.baselines.might_drain();
    if entry.document.is_none() && might_drain {
        let why = "its document is not available yet, so its baselines are unknown";
        return Ok(Answer::Unknown(why.to_owned()));
    }
    let published = entry.cohort();
    let is_unknown = published.is_none() && might_drain;
    if !is_unknown && draining_baselines(view, &entry.id, published.as_ref()).is_empty() {
        return Ok(Answer::Healthy);
    }
    let by = freshness.by();
    let look = ReadingKind::Fresh { by };
    let inventory = core.agents.inventory(view, &entry.id, look).await?;
    // The published cohort may predate a reboot or the removal of a driver.
    let now = CohortKey::of(&inventory.identity);
    let mut unknown = Vec::new();
    if now.is_none() && might_drain {
        let why = "its cohort cannot be read, so its baselines are unknown";
        unknown.push(why.to_owned());
    }
    let asked = draining_baselines(view, &entry.id, now.or(published).as_ref());
    let last = bmc.last();
    let has_part = |class| {
        last.as_ref()
            .is_some_and(|last| last.records.contains_key(class))
    };
    let bmc_reading = match asked.iter().any(|(class, _)| has_part(class)) {
        true => bmc.current_reading().await,
        false => None,
    };
    Ok(judge(&asked, inventory, bmc_reading, unknown))
}

fn draining_baselines(
    view: &View,
    node: &NodeId,
    cohort: Option<&CohortKey>,
) -> Vec<DrainingBaseline> {
    let drains = |kept: &ParsedBaseline, class| {
        let rule = kept.classes().get(&class);
        rule.is_some_and(|rule| rule.policy == DriftPolicy::Drain)
    };
    let of_node = view.baselines.choose_for(node, cohort).into_iter();
    let asked = of_node.filter_map(|(class, chosen)| match chosen {
        BaselineChoice::One(kept) => drains(&kept, class).then_some((class, Some(kept))),
        BaselineChoice::Ambiguous(all) => all
            .iter()
            .any(|kept| drains(kept, class))
            .then_some((class, None)),
    });
    asked.collect()
}

fn judge(
    asked: &[DrainingBaseline],
    mut inventory: Inventory,
    bmc: Option<&BmcReadingOutcome>,
    mut unknown: Vec<String>,
) -> Answer {
    let mut differ = Vec::new();
    for (class, kept) in asked {
        let Some(kept) = kept else {
            unknown.push(format!("{class}: several baselines match it"));
            continue;
        };
        if let Some(why) = bmc.and_then(|bmc| bmc.unknown(*class)) {
            unknown.push(format!("{class}: {why}"));
            continue;
        }
        // A baseline that was taken from agent and BMC together is compared with both.
        let part = bmc.and_then(|bmc| Some((bmc, bmc.parts.records.get(class)?)));
        let agent_record = inventory.records.remove(class);
        let (record, age) = match part {
            None => (agent_record, String::new()),
            Some((bmc, part)) => match class_merge::merge_class(agent_record, part) {
                Some(record) => (Some(record), bmc.age()),
                None => {
                    let why = "agent and BMC have no schema version in common";
                    unknown.push(format!("{class}: {why}"));
                    continue;
                }
            },
        };
        let rule = kept.classes().get(class);
        let expectation = rule.and_then(|rule| rule.expectation.as_ref().ok());
        let (Some(expectation), Some(record)) = (expectation, &record) else {
            unknown.push(format!("{class}: not read on the node"));
            continue;
        };
        match expectation.verdict_for_record(record) {
            BaselineVerdict::Conforms => {}
            BaselineVerdict::Differs(found) => differ.push(format!(
                "differs from baseline {}: {}{age}",
                kept.label(),
                differs(&found)
            )),
            BaselineVerdict::Unknown { why } => unknown.push(format!("{class}: {why}{age}")),
        }
    }
    if !differ.is_empty() {
        Answer::Drains(differ.join("; "))
    } else if unknown.is_empty() {
        Answer::Healthy
    } else {
        Answer::Unknown(unknown.join("; "))
    }
}
