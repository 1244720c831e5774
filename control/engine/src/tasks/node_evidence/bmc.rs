//! BMC answers about a node. Control reads the BMC itself: once for all checks of one query, and not at all if no check
//! depends on the BMC.

use super::{Answer, Freshness, NodeAccess};
use crate::{
    bmc::{Parts, RequestedReading},
    node_health,
};
use lattice_conformance::Class;
use lattice_quorum_types::NodeId;
use std::{sync::Arc, time::Duration};
use tokio::sync::OnceCell;

/// Timeout of a complete BMC reading; a slower BMC is checked again later.
const TIMEOUT: Duration = Duration::from_secs(50);
/// Age from which a BMC reading is reported with its age, milliseconds.
const AGED_MS: u64 = 60_000;
/// Prefix of every text that rests on a BMC reading, including written drain reasons.
const BMC_PREFIX: &str = "its BMC names ";

/// Separator between an earlier fault that still applies and the reason why its end is unknown.
const EARLIER_FAULT_NOTE: &str = " (by what is written of it); ";

/// Whether the text rests on a BMC reading.
pub fn is_from_bmc(said: &str) -> bool {
    named_in(said).is_some()
}

/// Fault that the BMC reported, extracted from a text with the prefix `BMC_PREFIX`.
pub(super) fn named_in(said: &str) -> Option<&str> {
    let (_, named) = said.split_once(BMC_PREFIX)?;
    Some(
        named
            .split_once(EARLIER_FAULT_NOTE)
            .map_or(named, |(named, _)| named),
    )
}

/// BMC of a queried node.
pub(crate) struct Bmc<'c> {
    nodes: &'c NodeAccess,
    node: &'c NodeId,
    freshness: &'c Freshness,
    /// Service named as requester in the BMC history if no operator is the requester.
    service: &'static str,
    current: OnceCell<Option<BmcReadingOutcome>>,
}

/// Result of a reading.
pub(super) struct BmcReadingOutcome {
    pub(super) parts: Arc<Parts>,
    /// Reason why the reading is not current.
    outdated: Option<String>,
    /// Classes that have just changed; a change counts once it has been read twice.
    unconfirmed: Vec<Class>,
    age_ms: u64,
}

impl<'c> Bmc<'c> {
    /// Creates the query without reading the BMC.
    pub(crate) fn new(
        nodes: &'c NodeAccess,
        node: &'c NodeId,
        freshness: &'c Freshness,
        service: &'static str,
    ) -> Self {
        Self {
            nodes,
            node,
            freshness,
            service,
            current: OnceCell::new(),
        }
    }

    /// Last reading, without a new request.
    pub(super) fn last(&self) -> Option<Arc<Parts>> {
        self.nodes.readings.parts(self.node)
    }

    /// Returns the reading. The BMC is read for this query, because the last periodic reading may be hours old. With
    /// [`Freshness::Recent`], for joining nodes, it is read only if this control has not tried to read it yet. `None`
    /// if this control reads no BMC for the node.
    pub(super) async fn current_reading(&self) -> Option<&BmcReadingOutcome> {
        let current = self.current.get_or_init(|| self.look());
        current.await.as_ref()
    }

    async fn look(&self) -> Option<BmcReadingOutcome> {
        let before = self.last()?;
        let looked = match self.freshness {
            Freshness::Recent if before.was_asked => Ok(Vec::new()),
            Freshness::Recent | Freshness::Now { .. } => self.asked().await,
        };
        let parts = self.last()?;
        let age_ms = self.nodes.core.now().since(parts.read_at);
        let (outdated, mut unconfirmed) = match looked {
            Ok(differs) => (None, differs),
            Err(why) => (Some(why), Vec::new()),
        };
        // Classes that this reading has confirmed are published already.
        unconfirmed.retain(|class| parts.records.get(class) == before.records.get(class));
        Some(BmcReadingOutcome {
            parts,
            outdated,
            unconfirmed,
            age_ms,
        })
    }

    /// Reads the BMC now; returns the classes that changed.
    async fn asked(&self) -> Result<Vec<Class>, String> {
        let by = self.freshness.by();
        let requester = by.as_deref().unwrap_or(self.service);
        match self
            .nodes
            .readings
            .look(self.node, requester, TIMEOUT)
            .await
        {
            Some(RequestedReading::Read { differs }) => Ok(differs),
            Some(RequestedReading::Silent { why }) => Err(format!("BMC not readable now: {why}")),
            Some(RequestedReading::Late { within }) => {
                let seconds = within.as_secs();
                Err(format!(
                    "its BMC was not read within {seconds} s; reading continues"
                ))
            }
            None => Err("BMC reading stopped".to_owned()),
        }
    }

    /// Whether the last reading is a reason to drain the node.
    pub(super) fn is_suspect(&self) -> bool {
        self.last()
            .is_some_and(|parts| parts.drains_now().next().is_some())
    }

    /// Whether the BMC reports a fault that requires an empty node. The BMC is not read if no check of it can lead to a
    /// drain. A reported fault applies until the BMC reports its end. If the BMC reported no fault, its silence does
    /// not count: an absent BMC keeps no node out of service. `was_named` is the fault in the written drain reason,
    /// whatever this control has read since its start.
    pub(super) async fn health(&self, was_named: Option<&str>) -> Answer {
        if !self.last().is_some_and(|parts| parts.may_drain) {
            return Answer::Healthy;
        }
        let Some(outcome) = self.current_reading().await else {
            return Answer::Healthy;
        };
        let (now, stands) = (outcome.parts.drains_now(), outcome.parts.drains());
        let now = node_health::worst_reason_text(now).filter(|_| outcome.outdated.is_none());
        match (now, node_health::worst_reason_text(stands)) {
            (Some(now), _) if outcome.unconfirmed.is_empty() => Answer::Drains(format!(
                "{BMC_PREFIX}{now}{}{}",
                outcome.age(),
                outcome.doubt()
            )),
            (Some(now), _) => Answer::Unknown(format!(
                "{BMC_PREFIX}{now}; {}",
                BmcReadingOutcome::UNCONFIRMED
            )),
            (None, Some(stood)) => {
                let why = outcome.open_fault_reason();
                Answer::Unknown(format!("{BMC_PREFIX}{stood}; {why}{}", outcome.age()))
            }
            (None, None) => match was_named {
                Some(named) if !outcome.covers_fault(named) => {
                    let why = outcome.open_fault_reason();
                    Answer::Unknown(format!("{BMC_PREFIX}{named}{EARLIER_FAULT_NOTE}{why}"))
                }
                _ => Answer::Healthy,
            },
        }
    }
}

impl BmcReadingOutcome {
    const UNCONFIRMED: &str = "BMC reports a change; waiting for a second reading to confirm it";

    /// Whether the current reading covers the earlier fault `named`. A text names only the worst fault and the number
    /// of the others; if there are others, the reading must cover all checks.
    fn covers_fault(&self, named: &str) -> bool {
        let undecided = &self.parts.undecided;
        let is_one = !named.contains("; and ");
        let code = named.split(' ').next().unwrap_or_default();
        self.outdated.is_none() && !undecided.contains(code) && (is_one || undecided.is_empty())
    }

    /// Note that the BMC may belong to another machine, for readers of the drain reason.
    fn doubt(&self) -> String {
        let why = self.parts.of_another().map(node_health::plain);
        let why = why.map(|why| format!("; but it may be another machine's BMC: {why}"));
        why.unwrap_or_default()
    }

    /// Why an earlier fault is not over although the BMC no longer reports it.
    fn open_fault_reason(&self) -> &str {
        match &self.outdated {
            Some(why) => why,
            None if !self.unconfirmed.is_empty() => Self::UNCONFIRMED,
            None => "BMC does not report the current state of the fault",
        }
    }

    /// Why the BMC's reading of a class does not count as current.
    pub(super) fn unknown(&self, class: Class) -> Option<String> {
        if !self.parts.records.contains_key(&class) {
            return None;
        }
        if let Some(why) = &self.outdated {
            return Some(format!("{why}{}", self.age()));
        }
        self.unconfirmed
            .contains(&class)
            .then(|| Self::UNCONFIRMED.to_owned())
    }

    /// Age of the reading, if it is worth reporting.
    pub(super) fn age(&self) -> String {
        match self.age_ms {
            AGED_MS.. => format!(" (last read {} min ago)", self.age_ms / 60_000),
            _ => String::new(),
        }
    }
}
