//! One node: its record, what it gossips, how it answers, and what follows from all of it.

use crate::drift::Effect;
use lattice_gossip::HistoryMark;
use lattice_hwprobe::{
    Class, ClassMark, CohortKey, Digest, Earlier, Facts, NodeDocument, NodeView, fingerprint,
};
use lattice_placement::{ConformanceKey, Health, Liveness, NodeFacts};
use lattice_quorum_types::{NodeId, UnixMillis, node::Node};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::time::Instant;

/// How the reasons begin for which an agent takes no work, however sound its hardware is.
pub(crate) const EXECUTOR_REASONS: &str = "executor.";

/// That its agent does not answer.
pub(crate) const SILENT: &str = "agent.silent";

/// One node, from all sources.
#[derive(Debug, Clone)]
pub struct NodeEntry {
    /// Its name.
    pub id: NodeId,
    /// Its replicated record; `None` for one that gossips and is not registered.
    pub record: Option<Node>,
    /// What it gossips; `None` for one that was never seen since this control started.
    pub seen: Option<Seen>,
    /// Its document, once fetched and verified. While a newer one is being fetched, the last.
    pub document: Option<Arc<NodeDocument>>,
    /// Digest of that document.
    pub(crate) document_digest: Option<Digest>,
    /// Whether it answers pings.
    pub liveness: Liveness,
    /// Why it is not alive, in words; `None` while it is, or was not asked yet.
    pub liveness_reason: Option<String>,
    /// The boot its agent named when it last answered a ping of this control: confirmed, while
    /// [`Seen::boot_id`] is only said.
    pub boot: Option<String>,
    /// When it named that boot: an answer that came before says nothing any more.
    pub(crate) boot_heard_at: Option<Instant>,
    /// Classes of which its BMC tells a part, united with what its agent says.
    pub(crate) united: BTreeMap<Class, United>,
    /// What it says with those classes; `None` where there are none.
    pub(crate) effective: Option<Arc<Says>>,
    /// What its BMC names; nothing where none is read.
    pub(crate) named: Arc<Named>,
    /// Its marks as it is compared with all the others, where nodes write different schemas and
    /// that is another mark than its own.
    pub(crate) common: Option<Arc<BTreeMap<Class, ClassMark>>>,
    /// As it was known last, while it gossips nothing: to this control, or by what it keeps of it.
    pub(crate) was: Option<Arc<NodeEntry>>,
    /// What its own signed claim said against what it gossips, when it was last asked. It gets no
    /// sensitive work then.
    pub claim_refused: Option<String>,
    /// What follows from its baselines; `None` while there is none, or it was not judged yet.
    pub effect: Option<Arc<Effect>>,
    /// Each class's mark, with when this control first saw it, by that name or an earlier one.
    pub(crate) first_seen: BTreeMap<Class, (ClassMark, UnixMillis)>,
    /// Where it last answered a ping of this control.
    pub(crate) reached_at: Option<SocketAddr>,
    /// Shared with whoever pings, so that an answer alone makes no new view. 0: never.
    pub(crate) answered_at: Arc<AtomicU64>,
}

/// A class put together of what agent and BMC say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct United {
    /// What the agent said; `None` where it said nothing.
    pub(crate) base: Option<ClassMark>,
    /// Of the whole.
    pub(crate) mark: ClassMark,
    /// What is said of the whole beside that.
    pub(crate) earlier: Option<Earlier>,
}

impl United {
    /// Of a class of which the whole is not known.
    pub(crate) const fn unknown(base: Option<ClassMark>) -> Self {
        Self {
            base,
            mark: ClassMark::Incomplete,
            earlier: None,
        }
    }
}

/// What a BMC names of its node, without what is only watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// What follows from it for placement. That the BMC is silent is none of it: it says nothing of
    /// the node.
    pub(crate) health: Health,
    /// Everything, by code and part, silence as well.
    pub(crate) reasons: BTreeSet<(String, String)>,
}

impl Default for Named {
    fn default() -> Self {
        Self {
            health: Health::Healthy,
            reasons: BTreeSet::new(),
        }
    }
}

/// What is said of a node's classes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Says {
    pub(crate) marks: BTreeMap<Class, ClassMark>,
    pub(crate) earlier: BTreeMap<Class, Earlier>,
}

/// What one node says of itself in gossip. A hint: what drains, admits or moves power is confirmed
/// by a direct read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The cell it is a member of.
    pub cell: String,
    /// Its mesh address.
    pub addr: SocketAddr,
    /// One mark per class it published.
    pub marks: BTreeMap<Class, ClassMark>,
    /// What it says beside them while the cluster is upgraded.
    pub earlier: BTreeMap<Class, Earlier>,
    /// Digest of its document.
    pub document: Option<Digest>,
    /// Verdict of its checks.
    pub health: Health,
    /// Stable codes of what the verdict rests on.
    pub health_reasons: Vec<String>,
    /// The host's boot.
    pub boot_id: Option<String>,
    /// Which run of its agent.
    pub generation: u64,
    /// Version of its agent.
    pub agent_version: Option<String>,
    /// Its topology group, as it says.
    pub group: Option<String>,
    /// How far its own history goes.
    pub history: Option<HistoryMark>,
    /// Whether its cell hears of it. No more than that: see [`NodeEntry::liveness`].
    pub heard: bool,
}

impl Seen {
    /// Of a node that is down since before this control was started: what is kept of it, and no more.
    pub(crate) fn before(marks: BTreeMap<Class, ClassMark>) -> Self {
        Self {
            cell: String::new(),
            addr: SocketAddr::from(([0, 0, 0, 0], 0)),
            marks,
            earlier: BTreeMap::new(),
            document: None,
            health: Health::Unknown,
            health_reasons: Vec::new(),
            boot_id: None,
            generation: 0,
            agent_version: None,
            group: None,
            history: None,
            heard: false,
        }
    }
}

impl NodeEntry {
    /// It leaves gossip: what it was stays known.
    pub(crate) fn leave(&mut self) {
        if self.seen.is_some() {
            self.was = Some(Arc::new(self.clone()));
        }
        self.seen = None;
        self.unite_marks();
    }

    /// A node of which nothing is known yet.
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            record: None,
            seen: None,
            document: None,
            document_digest: None,
            liveness: Liveness::Unknown,
            liveness_reason: None,
            boot: None,
            boot_heard_at: None,
            united: BTreeMap::new(),
            effective: None,
            named: Arc::default(),
            common: None,
            was: None,
            claim_refused: None,
            effect: None,
            first_seen: BTreeMap::new(),
            reached_at: None,
            answered_at: Arc::default(),
        }
    }

    /// When it last answered a ping, by this control's clock.
    pub fn answered_at(&self) -> Option<UnixMillis> {
        match self.answered_at.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(UnixMillis(millis)),
        }
    }

    /// Where its agent is called: where it last answered, else where it gossips to be.
    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        self.reached_at.or(self.seen.as_ref().map(|seen| seen.addr))
    }

    /// Its class marks, from all sources; empty while nothing is known of it.
    pub fn marks(&self) -> &BTreeMap<Class, ClassMark> {
        static NONE: BTreeMap<Class, ClassMark> = BTreeMap::new();
        let said = self.seen.as_ref().map_or(&NONE, |seen| &seen.marks);
        self.effective.as_ref().map_or(said, |says| &says.marks)
    }

    /// What is said of it beside its marks, from all sources.
    pub fn earlier(&self) -> &BTreeMap<Class, Earlier> {
        static NONE: BTreeMap<Class, Earlier> = BTreeMap::new();
        let said = self.seen.as_ref().map_or(&NONE, |seen| &seen.earlier);
        self.effective.as_ref().map_or(said, |says| &says.earlier)
    }

    /// Its marks as it is compared with all the others.
    pub fn common_marks(&self) -> &BTreeMap<Class, ClassMark> {
        self.common.as_deref().unwrap_or_else(|| self.marks())
    }

    /// What names one of its records: its mark, or what it says beside that.
    pub(crate) fn names(&self, class: Class) -> impl Iterator<Item = Digest> {
        let mark = self.marks().get(&class).and_then(ClassMark::digest);
        let earlier = self.earlier().get(&class).map(|earlier| earlier.digest);
        mark.into_iter().chain(earlier)
    }

    /// What its agent says of a class, without what its BMC says.
    pub(crate) fn said(&self, class: Class) -> Option<ClassMark> {
        self.seen.as_ref()?.marks.get(&class).copied()
    }

    /// Puts together what its agent and its BMC say, after one of them changed. A class that is
    /// united with an older word of the agent is unknown until it is united anew.
    pub(crate) fn unite_marks(&mut self) {
        if self.united.is_empty() {
            self.effective = None;
            return;
        }
        let said = self.seen.as_ref().map(|seen| Says {
            marks: seen.marks.clone(),
            earlier: seen.earlier.clone(),
        });
        let mut says = said.unwrap_or_default();
        for (class, united) in &self.united {
            says.earlier.remove(class);
            let is_current = self.said(*class) == united.base;
            let mark = match is_current {
                true => united.mark,
                false => ClassMark::Incomplete,
            };
            if is_current && let Some(earlier) = united.earlier {
                says.earlier.insert(*class, earlier);
            }
            says.marks.insert(*class, mark);
        }
        self.effective = Some(Arc::new(says));
    }

    /// The node fingerprint, by which it is compared with all the others; `None` while a class is
    /// incomplete or none was seen.
    pub fn fingerprint(&self) -> Option<Digest> {
        self.seen.as_ref()?;
        fingerprint(self.common_marks()).digest()
    }

    /// Its verdict, by its agent's word; unknown while it was not seen.
    pub fn health(&self) -> Health {
        self.seen
            .as_ref()
            .map_or(Health::Unknown, |seen| seen.health)
    }

    /// Whether it does not answer: what is known of it is of before.
    pub fn is_silent(&self) -> bool {
        let is_silent = matches!(self.liveness, Liveness::Suspect | Liveness::Unreachable);
        self.seen.is_none() || is_silent
    }

    /// Its verdict as shown, with the reasons: where it does not answer, or its BMC should tell of a
    /// class and does not, it is unknown at best. Placement goes by [`NodeEntry::facts`]: a BMC that
    /// is silent stops no work but that which asks for the classes it tells of.
    pub fn shown_health(&self) -> (Health, Vec<String>) {
        let Some(seen) = &self.seen else {
            return (Health::Unknown, Vec::new());
        };
        let mut reasons = seen.health_reasons.clone();
        let is_untold = |class: &&Class| self.marks().get(class) == Some(&ClassMark::Incomplete);
        for class in self.united.keys().filter(is_untold) {
            let reason = format!("{class}.incomplete");
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if self.is_silent() {
            reasons.push(SILENT.to_owned());
        }
        let is_told = reasons.len() == seen.health_reasons.len();
        let verdict = match is_told {
            true => seen.health,
            false => seen.health.max(Health::Unknown),
        };
        (verdict, reasons)
    }

    /// Whether it said itself that its executor takes no work: [`EXECUTOR_REASONS`].
    pub(crate) fn takes_no_work(&self) -> bool {
        let mut reasons = self.seen.iter().flat_map(|seen| &seen.health_reasons);
        reasons.any(|reason| reason.starts_with(EXECUTOR_REASONS))
    }

    /// Its topology group, by its verified document, else by what it gossips.
    pub fn group(&self) -> Option<&str> {
        let told = self.document.as_ref().map(|d| &d.topology_group);
        let said = self.seen.as_ref().map(|s| &s.group);
        told.or(said)?.as_deref()
    }

    /// Its cohort, where its document is at hand and says enough.
    pub fn cohort(&self) -> Option<CohortKey> {
        CohortKey::of(&self.document.as_ref()?.identity)
    }

    /// As drift and groups see it.
    pub fn conformance(&self) -> NodeView {
        NodeView {
            node: self.id.to_string(),
            cohort: self.cohort(),
            classes: self.marks().clone(),
            earlier: self.earlier().clone(),
        }
    }

    /// Since when it is known to have its present record of a class: when this control first saw
    /// that. A control that started since then says when it started.
    pub fn since(&self, class: Class) -> Option<UnixMillis> {
        let (mark, at) = self.first_seen.get(&class)?;
        (self.marks().get(&class) == Some(mark)).then_some(*at)
    }

    /// Takes down when its marks were first seen. What is the same under a later schema is as old.
    pub(crate) fn note_marks(&mut self, now: UnixMillis) {
        for (class, mark) in self.marks().clone() {
            let as_before = self.earlier().get(&class).map(Earlier::mark);
            match self.first_seen.get_mut(&class) {
                Some((known, _)) if *known == mark => {}
                Some((known, _)) if as_before == Some(*known) => *known = mark,
                _ => {
                    self.first_seen.insert(class, (mark, now));
                }
            }
        }
    }

    /// Why it gets no sensitive work, by its own claim or by its baseline.
    pub fn no_sensitive(&self) -> Option<&str> {
        let by_baseline = self.effect.as_ref().and_then(|e| e.no_sensitive.as_deref());
        self.claim_refused.as_deref().or(by_baseline)
    }

    /// As placement sees it, by the worse word of its agent and its BMC, which nothing brakes. A node
    /// that gets no sensitive work is equal to no other: that is what sensitive work asks for.
    pub fn facts(&self) -> NodeFacts {
        let conformance = match self.fingerprint() {
            Some(digest) if self.no_sensitive().is_none() => ConformanceKey::Known(digest.0),
            _ => ConformanceKey::Unknown,
        };
        let by_agent = match self.takes_no_work() {
            true => Health::Faulty,
            false => self.health(),
        };
        let mut facts = NodeFacts {
            liveness: self.liveness,
            health: by_agent.max(self.named.health),
            conformance,
            deprioritised: self.effect.as_ref().is_some_and(|e| e.deprioritised),
            ..NodeFacts::default()
        };
        facts.group = self.group().map(str::to_owned);
        if let Some(document) = &self.document {
            facts.gpu_model = document.facts.gpu_model.present().cloned();
            facts.gpu_count = document.facts.gpus();
            facts.gpu_memory_bytes = gpu_memory(&document.facts);
            facts.memory_bytes = document.facts.memory_bytes.present().copied();
            facts.features.clone_from(&document.facts.features);
        }
        facts
    }
}

/// Memory of all GPUs of a node, bytes: so many times that of the smallest, which is what a node says
/// of theirs. `None` where it is not known, and where there is none: what such a node writes as a
/// checkpoint does not follow from it.
fn gpu_memory(facts: &Facts) -> Option<u64> {
    let (count, smallest) = (facts.gpus()?, facts.gpu_memory_bytes.present()?);
    let all = u64::from(count).checked_mul(*smallest);
    all.filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_hwprobe::Reading;

    #[test]
    fn the_memory_of_all_gpus_is_known_where_their_number_and_their_memory_are() {
        let of = |count, memory| {
            let (gpu_count, gpu_memory_bytes) = (count, memory);
            gpu_memory(&Facts {
                gpu_count,
                gpu_memory_bytes,
                ..Facts::default()
            })
        };
        let memory = || Reading::Present(80_000_000_000);
        assert_eq!(of(Reading::Present(4), memory()), Some(320_000_000_000));
        assert_eq!(of(Reading::Absent, Reading::Absent), None);
        assert_eq!(of(Reading::Present(0), memory()), None);
        assert_eq!(of(Reading::Present(4), Reading::Unsupported), None);
        assert_eq!(of(Reading::failed("no driver"), memory()), None);
        let broken = Reading::Present(u64::MAX);
        assert_eq!(of(Reading::Present(4), broken), None);
    }
}
