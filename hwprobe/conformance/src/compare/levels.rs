//! Schema levels: the schema in which nodes are compared while they write different ones.
//!
//! For each class, the level is the newest schema that every node with a digest of the class publishes. Without such a
//! schema, the level is the schema that most of these nodes publish, the newest one on a tie. The remaining nodes
//! follow the same rule among themselves. So each node is compared in exactly one schema, in any order of nodes, and
//! equality stays transitive: a group is the nodes that share a digest. A schema is part of its digest's context, so
//! digests of two schemas are never equal.

use crate::{Class, ClassMark, EarlierDigest};
use std::collections::BTreeMap;

/// The schemas in which a set of nodes is compared, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels(BTreeMap<Class, Vec<u16>>);

/// The schemas that one node publishes for a class: the schema it writes, and an earlier one in addition.
type PublishedSchemas = (u16, Option<u16>);

impl Levels {
    /// The levels of these nodes, given the marks and earlier digests of each.
    #[must_use]
    pub fn of<'a, N>(nodes: N) -> Self
    where
        N: IntoIterator<
            Item = (
                &'a BTreeMap<Class, ClassMark>,
                &'a BTreeMap<Class, EarlierDigest>,
            ),
        >,
    {
        let mut said: BTreeMap<Class, BTreeMap<PublishedSchemas, usize>> = BTreeMap::new();
        for (marks, earlier) in nodes {
            for (class, mark) in marks {
                if let ClassMark::Complete { schema, .. } = mark {
                    let beside = consistent_earlier(*mark, earlier.get(class)).map(|e| e.schema);
                    let of_class = said.entry(*class).or_default();
                    *of_class.entry((*schema, beside)).or_default() += 1;
                }
            }
        }
        let levels = said
            .into_iter()
            .map(|(class, said)| (class, schema_precedence(said)));
        Self(levels.collect())
    }

    /// The mark of a node in the schema in which it is compared.
    #[must_use]
    pub fn mark(
        &self,
        class: Class,
        mark: ClassMark,
        earlier: Option<&EarlierDigest>,
    ) -> ClassMark {
        let (ClassMark::Complete { schema, .. }, Some(beside)) =
            (mark, consistent_earlier(mark, earlier))
        else {
            return mark;
        };
        let levels = self.0.get(&class).map_or(&[][..], Vec::as_slice);
        let first = levels
            .iter()
            .find(|l| **l == schema || **l == beside.schema);
        match first {
            Some(level) if *level == beside.schema => ClassMark::Complete {
                schema: beside.schema,
                digest: beside.digest,
            },
            _ => mark,
        }
    }

    /// All marks of a node, in the schemas in which it is compared.
    #[must_use]
    pub fn marks(
        &self,
        marks: &BTreeMap<Class, ClassMark>,
        earlier: &BTreeMap<Class, EarlierDigest>,
    ) -> BTreeMap<Class, ClassMark> {
        let common = marks.iter().map(|(class, mark)| {
            let common = self.mark(*class, *mark, earlier.get(class));
            (*class, common)
        });
        common.collect()
    }
}

/// The earlier digest, if it is consistent with the mark.
fn consistent_earlier(mark: ClassMark, earlier: Option<&EarlierDigest>) -> Option<EarlierDigest> {
    earlier
        .copied()
        .filter(|earlier| earlier.is_consistent_with(&mark))
}

/// The schemas in order of precedence: each node uses the first that it publishes.
fn schema_precedence(mut said: BTreeMap<PublishedSchemas, usize>) -> Vec<u16> {
    let mut levels = Vec::new();
    loop {
        let mut sayers: BTreeMap<u16, usize> = BTreeMap::new();
        for ((own, beside), count) in &said {
            for schema in [Some(*own), *beside].into_iter().flatten() {
                *sayers.entry(schema).or_default() += count;
            }
        }
        // Iteration ascends by schema, and `max_by_key` returns the last of equals.
        let Some((level, _)) = sayers.into_iter().max_by_key(|(_, count)| *count) else {
            return levels;
        };
        levels.push(level);
        said.retain(|(own, beside), _| *own != level && *beside != Some(level));
    }
}
