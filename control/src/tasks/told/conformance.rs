//! What a node is: its hardware read now, held against those of its baselines that say to drain it.

use super::{
    Answer, Freshness,
    bmc::{Bmc, Told},
};
use crate::{
    Look,
    baselines::{Chosen, Kept},
    core::Core,
    drift::differs,
    error::AgentError,
    tasks::unite,
    view::{NodeEntry, View},
};
use lattice_hwprobe::{Class, CohortKey, Inventory, baseline::Standing};
use lattice_quorum_types::{NodeId, baseline::Policy};
use std::sync::Arc;

/// A class that a draining baseline speaks about, with the baseline; without where several do.
type Asked = (Class, Option<Arc<Kept>>);

/// Asks the node to read its hardware, and holds what it says against its baselines. A node for
/// which none says to drain it is not asked; one for which that is not known is.
///
/// # Errors
/// When it does not answer, or cannot read.
pub(crate) async fn ask(
    core: &Core,
    view: &View,
    entry: &NodeEntry,
    freshness: &Freshness,
    bmc: &Bmc<'_>,
) -> Result<Answer, AgentError> {
    let might_drain = view.baselines.might_drain();
    if entry.document.is_none() && might_drain {
        let why = "its document is not here yet, so neither is which baselines speak for it";
        return Ok(Answer::Unknown(why.to_owned()));
    }
    let published = entry.cohort();
    let is_unknown = published.is_none() && might_drain;
    if !is_unknown && asked(view, &entry.id, published.as_ref()).is_empty() {
        return Ok(Answer::Fine);
    }
    let by = freshness.by();
    let look = Look::Fresh { by };
    let inventory = core.agents.inventory(view, &entry.id, look).await?;
    // What was published may be of before a boot, and of a driver that is gone since.
    let now = CohortKey::of(&inventory.identity);
    let mut unknown = Vec::new();
    if now.is_none() && might_drain {
        let why = "its cohort cannot be read, so it is not known which baselines speak for it";
        unknown.push(why.to_owned());
    }
    let asked = asked(view, &entry.id, now.or(published).as_ref());
    let last = bmc.last();
    let has_part = |class| {
        last.as_ref()
            .is_some_and(|last| last.records.contains_key(class))
    };
    let told = match asked.iter().any(|(class, _)| has_part(class)) {
        true => bmc.told().await,
        false => None,
    };
    Ok(said(&asked, inventory, told, unknown))
}

fn asked(view: &View, node: &NodeId, cohort: Option<&CohortKey>) -> Vec<Asked> {
    let drains = |kept: &Kept, class| {
        let rule = kept.classes().get(&class);
        rule.is_some_and(|rule| rule.policy == Policy::Drain)
    };
    let of_node = view.baselines.of(node, cohort).into_iter();
    let asked = of_node.filter_map(|(class, chosen)| match chosen {
        Chosen::One(kept) => drains(&kept, class).then_some((class, Some(kept))),
        Chosen::Ambiguous(all) => all
            .iter()
            .any(|kept| drains(kept, class))
            .then_some((class, None)),
    });
    asked.collect()
}

fn said(
    asked: &[Asked],
    mut inventory: Inventory,
    bmc: Option<&Told>,
    mut unknown: Vec<String>,
) -> Answer {
    let mut differ = Vec::new();
    for (class, kept) in asked {
        let Some(kept) = kept else {
            unknown.push(format!("{class}: several baselines speak for it"));
            continue;
        };
        if let Some(why) = bmc.and_then(|bmc| bmc.unknown(*class)) {
            unknown.push(format!("{class}: {why}"));
            continue;
        }
        // A model that was taken of both is held against both.
        let part = bmc.and_then(|bmc| Some((bmc, bmc.parts.records.get(class)?)));
        let told = inventory.records.remove(class);
        let (record, age) = match part {
            None => (told, String::new()),
            Some((bmc, part)) => match unite::together(told, part) {
                Some(record) => (Some(record), bmc.age()),
                None => {
                    let why = "agent and BMC speak schemas that have nothing in common";
                    unknown.push(format!("{class}: {why}"));
                    continue;
                }
            },
        };
        let rule = kept.classes().get(class);
        let expectation = rule.and_then(|rule| rule.expectation.as_ref().ok());
        let (Some(expectation), Some(record)) = (expectation, &record) else {
            unknown.push(format!("{class}: the node does not read it itself"));
            continue;
        };
        match expectation.standing(record) {
            Standing::Conforms => {}
            Standing::Differs(found) => differ.push(format!(
                "differs from baseline {}: {}{age}",
                kept.label(),
                differs(&found)
            )),
            Standing::Unknown { why } => unknown.push(format!("{class}: {why}{age}")),
        }
    }
    if !differ.is_empty() {
        Answer::Drains(differ.join("; "))
    } else if unknown.is_empty() {
        Answer::Fine
    } else {
        Answer::Unknown(unknown.join("; "))
    }
}
