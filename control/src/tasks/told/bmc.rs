//! What a node's BMC says, which this control reads itself: looked at once for everything that is
//! asked of the node together, and not at all where nothing of that is the BMC's.

use super::{Answer, Freshness};
use crate::{
    bmc::{Looked, Parts},
    core::Core,
    node_health,
};
use lattice_hwprobe::Class;
use lattice_quorum_types::NodeId;
use std::{sync::Arc, time::Duration};
use tokio::sync::OnceCell;

/// It is waited this long for a BMC to tell everything; a slower one is asked about again later.
const TIMEOUT: Duration = Duration::from_secs(50);
/// What a BMC told longer ago is told with its age, milliseconds.
const AGED_MS: u64 = 60_000;
/// What rests on a BMC is told with these words, also where it is written down.
const NAMES: &str = "its BMC names ";

/// What was named stands; here follows why nobody knows whether it is over.
const LATER: &str = " (by what is written of it); ";

/// Whether that was said, or written down, because of what a BMC tells.
pub(crate) fn is_bmcs(said: &str) -> bool {
    named_in(said).is_some()
}

/// What it named, in what was said or written down then.
pub(super) fn named_in(said: &str) -> Option<&str> {
    let (_, named) = said.split_once(NAMES)?;
    Some(named.split_once(LATER).map_or(named, |(named, _)| named))
}

/// The BMC of a node that is asked about.
pub(crate) struct Bmc<'c> {
    core: &'c Core,
    node: &'c NodeId,
    freshness: &'c Freshness,
    /// Who asks where no person does, as the BMC's history has it.
    service: &'static str,
    told: OnceCell<Option<Told>>,
}

/// What came of the look.
pub(super) struct Told {
    pub(super) parts: Arc<Parts>,
    /// Why that is not how it is now.
    outdated: Option<String>,
    /// Classes that it told otherwise just now; they count once read twice.
    unconfirmed: Vec<Class>,
    age_ms: u64,
}

impl<'c> Bmc<'c> {
    /// Nothing is asked of it yet.
    pub(crate) fn new(
        core: &'c Core,
        node: &'c NodeId,
        freshness: &'c Freshness,
        service: &'static str,
    ) -> Self {
        Self {
            core,
            node,
            freshness,
            service,
            told: OnceCell::new(),
        }
    }

    /// As the BMC told it last, without asking.
    pub(super) fn last(&self) -> Option<Arc<Parts>> {
        self.core.bmc.parts(self.node)
    }

    /// What it says. Unless the node joins it is looked at for this question: the usual look may be
    /// hours old. None where this control reads no BMC of the node.
    pub(super) async fn told(&self) -> Option<&Told> {
        let told = self.told.get_or_init(|| self.look());
        told.await.as_ref()
    }

    async fn look(&self) -> Option<Told> {
        let before = self.last()?;
        let looked = match self.freshness {
            Freshness::Recent if before.was_asked => Ok(Vec::new()),
            Freshness::Recent | Freshness::Now { .. } => self.asked().await,
        };
        let parts = self.last()?;
        let age_ms = self.core.now().since(parts.read_at);
        let (outdated, mut unconfirmed) = match looked {
            Ok(differs) => (None, differs),
            Err(why) => (Some(why), Vec::new()),
        };
        // What this very look has confirmed is in place by now.
        unconfirmed.retain(|class| parts.records.get(class) == before.records.get(class));
        Some(Told {
            parts,
            outdated,
            unconfirmed,
            age_ms,
        })
    }

    /// What it tells otherwise than before.
    async fn asked(&self) -> Result<Vec<Class>, String> {
        let by = self.freshness.by();
        let who = by.as_deref().unwrap_or(self.service);
        match self.core.bmc.look(self.node, who, TIMEOUT).await {
            Some(Looked::Read { differs }) => Ok(differs),
            Some(Looked::Silent { why }) => Err(format!("its BMC tells nothing now: {why}")),
            Some(Looked::Late { within }) => {
                let seconds = within.as_secs();
                Err(format!(
                    "its BMC was not read within {seconds} s; the look goes on"
                ))
            }
            None => Err("its BMC is not read any more".to_owned()),
        }
    }

    /// Whether by its last look the node is to be drained.
    pub(super) fn is_suspect(&self) -> bool {
        self.last()
            .is_some_and(|parts| parts.drains_now().next().is_some())
    }

    /// Whether it names what needs the node empty. Where no check can come to that it is not asked.
    /// What it named stands until it says that it is over; while it named nothing, its silence does
    /// not count: a BMC keeps no node out by being gone. `was_named`: what it named by what is
    /// written down, whatever this control has heard of it since its start.
    pub(super) async fn health(&self, was_named: Option<&str>) -> Answer {
        if !self.last().is_some_and(|parts| parts.may_drain) {
            return Answer::Fine;
        }
        let Some(told) = self.told().await else {
            return Answer::Fine;
        };
        let (now, stands) = (told.parts.drains_now(), told.parts.drains());
        let now = node_health::named(now).filter(|_| told.outdated.is_none());
        match (now, node_health::named(stands)) {
            (Some(now), _) if told.unconfirmed.is_empty() => {
                Answer::Drains(format!("{NAMES}{now}{}{}", told.age(), told.doubt()))
            }
            (Some(now), _) => Answer::Unknown(format!("{NAMES}{now}; {}", Told::ONCE)),
            (None, Some(stood)) => {
                let why = told.why_not_over();
                Answer::Unknown(format!("{NAMES}{stood}; {why}{}", told.age()))
            }
            (None, None) => match was_named {
                Some(named) if !told.tells_of(named) => {
                    let why = told.why_not_over();
                    Answer::Unknown(format!("{NAMES}{named}{LATER}{why}"))
                }
                _ => Answer::Fine,
            },
        }
    }
}

impl Told {
    const ONCE: &str = "its BMC tells otherwise than before, and that counts once it is read twice";

    /// Whether it tells now how it is with what it named once. Of the checks behind the worst one only
    /// their number is written down: then it must tell of all.
    fn tells_of(&self, named: &str) -> bool {
        let untold = &self.parts.untold;
        let is_one = !named.contains("; and ");
        let code = named.split(' ').next().unwrap_or_default();
        self.outdated.is_none() && !untold.contains(code) && (is_one || untold.is_empty())
    }

    /// That it may not be this node's, for who reads why the node was drained.
    fn doubt(&self) -> String {
        let why = self.parts.of_another().map(node_health::plain);
        let why = why.map(|why| format!("; but it may be another machine's BMC: {why}"));
        why.unwrap_or_default()
    }

    /// Why what it named is not over, though it does not name it now.
    fn why_not_over(&self) -> &str {
        match &self.outdated {
            Some(why) => why,
            None if !self.unconfirmed.is_empty() => Self::ONCE,
            None => "it does not tell now whether that is over",
        }
    }

    /// Why what it says of a class does not count as how it is.
    pub(super) fn unknown(&self, class: Class) -> Option<String> {
        if !self.parts.records.contains_key(&class) {
            return None;
        }
        if let Some(why) = &self.outdated {
            return Some(format!("{why}{}", self.age()));
        }
        self.unconfirmed
            .contains(&class)
            .then(|| Self::ONCE.to_owned())
    }

    /// How old it is, where that is worth a word.
    pub(super) fn age(&self) -> String {
        match self.age_ms {
            AGED_MS.. => format!(" (last read {} min ago)", self.age_ms / 60_000),
            _ => String::new(),
        }
    }
}
