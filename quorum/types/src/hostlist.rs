//! Hostlists: `gpu[001-064,100],login1`, the text form of node sets everywhere in Lattice.
//!
//! The syntax is that of Slurm and clush, with at most one bracket group per name. Leading zeros are significant:
//! `gpu[001-010]` is not `gpu[1-10]`. Folding is canonical: names with the same prefix form one item with ascending
//! numbers, `n[8-11]`. Names with another number of leading zeros form an item of their own. The items are in the order
//! of their first names, see [`crate::name_order`].

use crate::{NodeId, id::InvalidId};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// Largest number of names in one hostlist, including repeated ones. The limit bounds the work for a typo such as
/// `n[1-999999999]` or `n[1-9999,1-9999,…]`.
pub const MAX_HOSTS: usize = 200_000;

/// Reasons why a text is not a valid hostlist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// Brackets or ranges are malformed, or a name is missing.
    #[error("hostlist {text:?} at byte {at}: {reason}; write it like gpu[001-064,100]")]
    Syntax {
        /// Text as given.
        text: String,
        /// Byte offset of the invalid item or bracket.
        at: usize,
        /// Description of the error.
        reason: &'static str,
    },
    /// The hostlist has too many names.
    #[error("hostlist {text:?} names more than {MAX_HOSTS} nodes")]
    TooMany {
        /// Text as given.
        text: String,
    },
    /// A name that must be unique occurs twice.
    #[error("node {node} is named twice; name it once")]
    Repeated {
        /// Repeated name.
        node: NodeId,
    },
    /// An expanded name is not a valid node name.
    #[error(transparent)]
    Name(#[from] InvalidId),
}

/// Expands a hostlist in the order written. A repeated name is kept once, at its first position.
pub fn expand(text: &str) -> Result<Vec<NodeId>, HostlistError> {
    expand_with(text, |_| Ok(()))
}

/// Expands a hostlist as [`expand`] does, and rejects repeated names.
pub fn expand_distinct(text: &str) -> Result<Vec<NodeId>, HostlistError> {
    expand_with(text, |node| Err(HostlistError::Repeated { node }))
}

/// Expands a hostlist. `repeated` decides whether a repeated name is an error.
fn expand_with(
    text: &str,
    repeated: impl Fn(NodeId) -> Result<(), HostlistError>,
) -> Result<Vec<NodeId>, HostlistError> {
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    let mut named = 0;
    for (at, item) in split_items(text)? {
        let mut push = |name: String| -> Result<(), HostlistError> {
            named += 1;
            if named > MAX_HOSTS {
                return Err(HostlistError::TooMany {
                    text: text.to_owned(),
                });
            }
            let id = NodeId::new(name)?;
            if !seen.insert(id.clone()) {
                return repeated(id);
            }
            out.push(id);
            Ok(())
        };
        let syntax = |reason| HostlistError::Syntax {
            text: text.to_owned(),
            at,
            reason,
        };
        let Some((prefix, rest)) = item.split_once('[') else {
            push(item.to_owned())?;
            continue;
        };
        let (ranges, suffix) = rest
            .split_once(']')
            .ok_or_else(|| syntax("']' is missing"))?;
        if suffix.contains(['[', ']']) {
            return Err(syntax("only one bracket group per name is supported"));
        }
        for range in ranges.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (parse(low), parse(high));
            let (Some(first), Some(last)) = (first, last) else {
                return Err(syntax("a range has only digits, at most 18 of them"));
            };
            if last < first {
                return Err(syntax("a range must be ascending"));
            }
            if last - first >= MAX_HOSTS as u64 {
                return Err(HostlistError::TooMany {
                    text: text.to_owned(),
                });
            }
            for n in first..=last {
                push(format!("{prefix}{n:0width$}{suffix}", width = low.len()))?;
            }
        }
    }
    Ok(out)
}

fn parse(digits: &str) -> Option<u64> {
    let plain =
        !digits.is_empty() && digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Splits at commas outside brackets. Each item has its byte offset.
fn split_items(text: &str) -> Result<Vec<(usize, &str)>, HostlistError> {
    let syntax = |at, reason| HostlistError::Syntax {
        text: text.to_owned(),
        at,
        reason,
    };
    let mut items = Vec::new();
    let (mut start, mut open) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            '[' if open => return Err(syntax(i, "'[' inside brackets")),
            '[' => open = true,
            ']' if !open => return Err(syntax(i, "']' without '['")),
            ']' => open = false,
            ',' if !open => {
                items.push((start, text[start..i].trim()));
                start = i + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(syntax(start, "']' is missing"));
    }
    items.push((start, text[start..].trim()));
    if let Some((at, _)) = items.iter().find(|(_, item)| item.is_empty()) {
        return Err(syntax(*at, "a name is missing"));
    }
    Ok(items)
}

/// Splits a name that ends with a number into prefix, number width and number.
fn numbered(name: &str) -> Option<(&str, usize, u64)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[prefix.len()..];
    let number = parse(digits).filter(|_| !prefix.is_empty())?;
    Some((prefix, digits.len(), number))
}

/// Compact set of nodes: consecutive numbers are stored as ranges, and a look-up expands nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Runs of numbers (first and last) in ascending order, by prefix and width.
    numbered: BTreeMap<String, BTreeMap<usize, Vec<(u64, u64)>>>,
    plain: BTreeSet<String>,
    count: usize,
}

impl Hosts {
    /// Creates the set of these nodes.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> Self {
        let mut hosts = Self::default();
        let mut all: BTreeMap<(&str, usize), BTreeSet<u64>> = BTreeMap::new();
        for node in nodes {
            match numbered(node.as_str()) {
                Some((prefix, width, number)) => {
                    all.entry((prefix, width)).or_default().insert(number);
                }
                None => drop(hosts.plain.insert(node.as_str().to_owned())),
            }
        }
        hosts.count = hosts.plain.len() + all.values().map(BTreeSet::len).sum::<usize>();
        for ((prefix, width), numbers) in all {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for number in numbers {
                match runs.last_mut() {
                    Some((_, last)) if *last + 1 == number => *last = number,
                    _ => runs.push((number, number)),
                }
            }
            let widths = hosts.numbered.entry(prefix.to_owned()).or_default();
            widths.insert(width, runs);
        }
        hosts
    }

    /// Checks whether the set contains a node.
    pub fn contains(&self, node: &NodeId) -> bool {
        let Some((prefix, width, number)) = numbered(node.as_str()) else {
            return self.plain.contains(node.as_str());
        };
        let widths = self.numbered.get(prefix);
        let Some(runs) = widths.and_then(|widths| widths.get(&width)) else {
            return false;
        };
        let after = runs.partition_point(|(first, _)| *first <= number);
        runs[..after]
            .last()
            .is_some_and(|(_, last)| number <= *last)
    }

    /// Number of nodes.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Checks whether the set is empty.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Folds names into one sorted hostlist without repeats: `gpu[001-003,007],login1`, `n[8-11]`.
pub fn fold<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
    let nodes: BTreeSet<&NodeId> = nodes.into_iter().collect();
    let mut widths: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let all_numbered = nodes.iter().copied();
    for (prefix, width, number) in all_numbered.filter_map(|node| numbered(node.as_str())) {
        if width > digits(number) {
            widths.entry(prefix).or_default().insert(width);
        }
    }
    // Names that one printf format can produce form a group: `%03d` for 001, 100 and 1000, `%d` for 8 and 10. The
    // number is formed by the trailing digits.
    let mut groups: BTreeMap<(&str, usize), (&NodeId, Vec<u64>)> = BTreeMap::new();
    let mut items: Vec<(&NodeId, String)> = Vec::new();
    for node in nodes {
        let Some((prefix, width, number)) = numbered(node.as_str()) else {
            items.push((node, node.to_string()));
            continue;
        };
        let padded = widths.get(prefix);
        let padded = padded.and_then(|widths| widths.range(..=width).next_back().copied());
        let group = groups.entry((prefix, padded.unwrap_or(1)));
        let (_, numbers) = group.or_insert_with(|| (node, Vec::new()));
        numbers.push(number);
    }
    let folded = groups
        .into_iter()
        .map(|((prefix, width), (first, numbers))| (first, fold_numbers(prefix, width, &numbers)));
    items.extend(folded);
    items.sort_by_key(|(first, _)| *first);
    let items: Vec<String> = items.into_iter().map(|(_, item)| item).collect();
    items.join(",")
}

/// Number of digits without leading zeros.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Writes ascending numbers of one prefix, each with at least `width` digits.
fn fold_numbers(prefix: &str, width: usize, numbers: &[u64]) -> String {
    if let [only] = numbers {
        return format!("{prefix}{only:0width$}");
    }
    let mut out = format!("{prefix}[");
    let runs = numbers.chunk_by(|a, b| *b == a + 1);
    for (i, run) in runs.enumerate() {
        if i > 0 {
            out.push(',');
        }
        // Writing to a String cannot fail.
        let _ = match run {
            [one] => write!(out, "{one:0width$}"),
            [first, .., last] => write!(out, "{first:0width$}-{last:0width$}"),
            [] => Ok(()),
        };
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        expand(text)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn ranges_lists_and_widths() {
        assert_eq!(
            names("gpu[008-010,12],login1"),
            ["gpu008", "gpu009", "gpu010", "gpu12", "login1"]
        );
        assert_eq!(names("a[1-2]-ib"), ["a1-ib", "a2-ib"]);
        assert_eq!(names("n1,n1"), ["n1"]);
    }

    #[test]
    fn a_list_of_distinct_names_refuses_one_that_is_there_twice() {
        assert_eq!(expand_distinct("n[1-2],n3").unwrap().len(), 3);
        for (text, twice) in [("n1,n1", "n1"), ("n[1-3],n02,n2", "n2")] {
            let error = expand_distinct(text).unwrap_err();
            let node = NodeId::new(twice).unwrap();
            assert_eq!(error, HostlistError::Repeated { node });
        }
    }

    #[test]
    fn folding_keeps_widths_apart() {
        let nodes = expand("gpu[001-003],gpu[7-8],gpu100,login,gpu001").unwrap();
        assert_eq!(fold(&nodes), "gpu[001-003,100],gpu[7-8],login");
    }

    #[test]
    fn folds_by_number_across_widths() {
        for (list, folded) in [
            ("n10,n11,n8,n9", "n[8-11]"),
            ("n[8-11]", "n[8-11]"),
            ("gpu10,gpu9", "gpu[9-10]"),
            ("n[98-102,1000]", "n[98-102,1000]"),
            ("n[0-12]", "n[0-12]"),
            // Prefixes with numbers are in numerical order as well.
            ("rack10n[1-2],rack9n[9-10]", "rack9n[9-10],rack10n[1-2]"),
            ("a10-ib,a9-ib,a1", "a1,a9-ib,a10-ib"),
            ("10,9,n10,n9", "9,10,n[9-10]"),
            // Names with leading zeros keep them, and larger numbers continue their range.
            ("gpu[01-99],gpu[100-110]", "gpu[01-110]"),
            ("gpu[1-2],gpu[01-02]", "gpu[01-02],gpu[1-2]"),
            ("gpu[1-12],gpu[001-012]", "gpu[001-012],gpu[1-12]"),
            ("gpu[098-102],gpu[08-11]", "gpu[08-11],gpu[098-102]"),
        ] {
            let nodes = expand(list).unwrap();
            assert_eq!(fold(&nodes), folded, "{list}");
            assert_eq!(fold(&expand(folded).unwrap()), folded, "{list}");
        }
    }

    #[test]
    fn folded_list_expands_in_node_order() {
        for list in [
            "n[8-11,99-101]",
            "gpu[001-012,100-102,1000]",
            "r9n[1-2],r10n1",
        ] {
            let mut nodes = expand(list).unwrap();
            nodes.reverse();
            let listed = expand(&fold(&nodes)).unwrap();
            assert!(listed.is_sorted(), "{listed:?}");
        }
    }

    #[test]
    fn a_number_of_another_width_is_another_node() {
        let hosts = Hosts::of(&expand("gpu[001-003,007],gpu[7-8],login,12").unwrap());
        let has = |name: &str| hosts.contains(&NodeId::new(name).unwrap());
        assert_eq!(hosts.len(), 8);
        for name in ["gpu001", "gpu003", "gpu007", "gpu7", "gpu8", "login", "12"] {
            assert!(has(name), "{name}");
        }
        for name in [
            "gpu000", "gpu004", "gpu008", "gpu1", "gpu9", "gpu", "012", "login1",
        ] {
            assert!(!has(name), "{name}");
        }
    }

    #[test]
    fn malformed_lists_say_where() {
        for bad in [
            "",
            "a,",
            "a[1-",
            "a]1",
            "a[1-2][3]",
            "a[2-1]",
            "a[x]",
            "a[[1]]",
            "a[1-2,]",
        ] {
            assert!(
                matches!(expand(bad), Err(HostlistError::Syntax { .. })),
                "{bad}"
            );
        }
        assert!(matches!(
            expand("n[1-150000,1-150000]"),
            Err(HostlistError::TooMany { .. })
        ));
        assert!(matches!(
            expand("n[1-999999999]"),
            Err(HostlistError::TooMany { .. })
        ));
        assert!(matches!(expand("_x"), Err(HostlistError::Name(_))));
    }

    proptest! {
        #[test]
        fn folding_and_expanding_return_the_same_set(
            set in proptest::collection::btree_set("[a-z]{1,3}[0-9]{0,4}(-[a-z])?", 1..40)
        ) {
            let mut nodes: Vec<NodeId> = set.iter().map(|n| NodeId::new(n).unwrap()).collect();
            nodes.sort();
            let mut back = expand(&fold(&nodes)).unwrap();
            back.sort();
            prop_assert_eq!(back, nodes);
        }

        #[test]
        fn a_set_has_exactly_what_it_was_made_of(
            within in proptest::collection::btree_set("[a-z]?[0-9]{0,3}(-[a-z])?[0-9]{0,2}", 0..40),
            without in proptest::collection::btree_set("[a-z]?[0-9]{0,3}(-[a-z])?[0-9]{0,2}", 0..40),
        ) {
            let ids = |names: &BTreeSet<String>| -> BTreeSet<NodeId> {
                names.iter().filter_map(|n| NodeId::new(n.as_str()).ok()).collect()
            };
            let (within, without) = (ids(&within), ids(&without));
            let hosts = Hosts::of(&within);
            prop_assert_eq!(hosts.len(), within.len());
            for node in within.union(&without) {
                prop_assert_eq!(hosts.contains(node), within.contains(node), "{}", node);
            }
        }
    }
}
