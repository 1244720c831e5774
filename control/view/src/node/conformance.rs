//! Conformance of one node: the marks of its classes from agent and BMC, its fingerprint, and the limits that
//! baselines and attestation put on placement.
//!
//! [`NodeConformance::derive`] is a pure function of its inputs, and [`View::settle`](crate::View::settle) is the only
//! writer of its result in a view.

use super::GossipedNode;
use crate::drift::BaselineEffect;
use lattice_conformance::{Class, ClassMark, Digest, EarlierDigest, Levels, fingerprint};
use lattice_placement::ConformanceKey;
use lattice_quorum_types::UnixMillis;
use std::collections::BTreeMap;

/// Class mark merged from agent and BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergedMark {
    /// Mark of the agent with which the records were merged; `None` if the agent published none.
    pub base: Option<ClassMark>,
    /// Mark of the merged record.
    pub mark: ClassMark,
    /// Mark of the merged record in an earlier schema.
    pub earlier: Option<EarlierDigest>,
}

impl MergedMark {
    /// A class with an unknown merged record.
    pub const fn unknown(base: Option<ClassMark>) -> Self {
        Self {
            base,
            mark: ClassMark::Incomplete,
            earlier: None,
        }
    }
}

/// Everything that the conformance of a node depends on.
#[derive(Debug, Clone, Copy)]
pub struct ConformanceInputs<'a> {
    /// Gossip of the node; `None` while it does not gossip.
    pub gossip: Option<&'a GossipedNode>,
    /// Marks of the classes to which the BMC contributes.
    pub merged: &'a BTreeMap<Class, MergedMark>,
    /// Result of the comparison with the baselines; `None` without baselines, or before the first comparison.
    pub baselines: Option<&'a BaselineEffect>,
    /// Contradiction between the node's signed attestation and its gossip.
    pub contradiction: Option<&'a str>,
    /// Schemas in which the nodes of the cluster are compared.
    pub levels: &'a Levels,
}

/// Conformance of a node, derived from [`ConformanceInputs`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeConformance {
    /// Mark of each class, from agent and BMC; empty for a node without any known mark.
    pub marks: BTreeMap<Class, ClassMark>,
    /// Marks in earlier schemas, published while the cluster is upgraded.
    pub earlier: BTreeMap<Class, EarlierDigest>,
    /// Marks used for comparison with other nodes; `None` where they equal `marks`.
    common: Option<BTreeMap<Class, ClassMark>>,
    /// Node fingerprint over the common marks; `None` while a class is incomplete or the node does not gossip.
    pub fingerprint: Option<Digest>,
    /// Reason why the node receives no sensitive allocations.
    pub no_sensitive: Option<String>,
    /// Whether the node receives new allocations only if no other node fits.
    pub deprioritised: bool,
}

impl NodeConformance {
    /// Derives the conformance of a node.
    ///
    /// A class that was merged with another mark of the agent than the present one is incomplete until it is merged
    /// again.
    pub fn derive(inputs: ConformanceInputs<'_>) -> Self {
        let gossip = inputs.gossip;
        let mut marks = gossip
            .map(|gossip| gossip.marks.clone())
            .unwrap_or_default();
        let mut earlier = gossip
            .map(|gossip| gossip.earlier.clone())
            .unwrap_or_default();
        for (class, merged) in inputs.merged {
            let published = gossip.and_then(|gossip| gossip.marks.get(class)).copied();
            earlier.remove(class);
            if published == merged.base {
                marks.insert(*class, merged.mark);
                earlier.extend(merged.earlier.map(|earlier| (*class, earlier)));
            } else {
                marks.insert(*class, ClassMark::Incomplete);
            }
        }
        // A node without earlier marks has only one form.
        let common = (gossip.is_some() && !earlier.is_empty())
            .then(|| inputs.levels.marks(&marks, &earlier))
            .filter(|common| *common != marks);
        let fingerprint = gossip.and(fingerprint(common.as_ref().unwrap_or(&marks)).digest());
        let by_baseline = inputs
            .baselines
            .and_then(|effect| effect.no_sensitive.as_deref());
        Self {
            fingerprint,
            common,
            marks,
            earlier,
            no_sensitive: inputs.contradiction.or(by_baseline).map(str::to_owned),
            deprioritised: inputs.baselines.is_some_and(|effect| effect.deprioritised),
        }
    }

    /// Marks used for comparison with all other nodes.
    pub fn common_marks(&self) -> &BTreeMap<Class, ClassMark> {
        self.common.as_ref().unwrap_or(&self.marks)
    }

    /// Whether the marks depend on the schemas that other nodes publish.
    pub(crate) fn depends_on_levels(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// Digests that name a record of the class: the mark and the earlier mark.
    pub fn digests(&self, class: Class) -> impl Iterator<Item = Digest> {
        let mark = self.marks.get(&class).and_then(ClassMark::digest);
        let earlier = self.earlier.get(&class).map(|earlier| earlier.digest);
        mark.into_iter().chain(earlier)
    }

    /// Key by which placement groups equal nodes. It is unknown for a node that receives no sensitive allocations: such
    /// allocations require a known key, and an unknown key equals no other.
    pub fn key(&self) -> ConformanceKey {
        match self.fingerprint {
            Some(digest) if self.no_sensitive.is_none() => ConformanceKey::Known(digest.0),
            _ => ConformanceKey::Unknown,
        }
    }
}

/// Time at which this control first saw each present mark of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FirstSeen(BTreeMap<Class, (ClassMark, UnixMillis)>);

impl FirstSeen {
    /// Records marks that are new at `now`. An equal record under a later schema keeps its time.
    pub(super) fn observe(&mut self, found: &NodeConformance, now: UnixMillis) {
        for (class, mark) in &found.marks {
            let as_before = found.earlier.get(class).map(EarlierDigest::mark);
            match self.0.get_mut(class) {
                Some((known, _)) if known == mark => {}
                Some((known, _)) if as_before == Some(*known) => *known = *mark,
                _ => {
                    self.0.insert(*class, (*mark, now));
                }
            }
        }
    }

    /// Time at which this control first saw this mark of the class.
    pub(super) fn of(&self, class: Class, mark: Option<&ClassMark>) -> Option<UnixMillis> {
        let (known, at) = self.0.get(&class)?;
        (mark == Some(known)).then_some(*at)
    }
}
