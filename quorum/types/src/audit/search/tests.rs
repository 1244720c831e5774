#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    NodeId, Revision, UnixMillis,
    audit::AuditAction,
    command::{Principal, Privilege},
};
use proptest::prelude::*;

/// Two entries a second, from 1 s on; each third one is about `gpu1`.
fn chain(length: u64) -> Vec<AuditEntry> {
    let mut all: Vec<AuditEntry> = Vec::new();
    for n in 1..=length {
        let node = if n % 3 == 0 { "gpu1" } else { "gpu2" };
        let action = AuditAction::Drained {
            node: NodeId::new(node).unwrap(),
            reason: "fan".to_owned(),
        };
        let by = Principal {
            name: "op".to_owned(),
            privilege: Privilege::Operator,
        };
        let at = UnixMillis(1_000 * n.div_ceil(2));
        all.push(AuditEntry::following(
            all.last(),
            Revision(n),
            at,
            by,
            action,
        ));
    }
    all
}

/// All pages, over segments of `run` entries.
fn all_pages(all: &[AuditEntry], run: usize, mut search: AuditSearch) -> (Vec<u64>, usize) {
    let mut runs: Vec<&[AuditEntry]> = all.chunks(run).collect();
    if search.order == AuditOrder::NewestFirst {
        runs.reverse();
    }
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let mut finder = AuditPageBuilder::new(&search);
        for run in &runs {
            if finder.needs(&SegmentBounds::of(run).unwrap()) && !finder.examine(run) {
                break;
            }
        }
        let page = finder.finish(AuditHead::default());
        assert!(page.entries.len() <= search.limit as usize);
        found.extend(page.entries.iter().map(|entry| entry.number));
        pages += 1;
        match page.next {
            Some(next) => search.cursor = Some(next),
            None => return (found, pages),
        }
    }
}

proptest! {
    #[test]
    fn pages_together_are_what_the_filter_passes_each_once(
        length in 1u64..60,
        run in 1usize..20,
        limit in 1u32..10,
        newest in any::<bool>(),
        named in any::<bool>(),
        since in proptest::option::of(0u64..32_000),
        until in proptest::option::of(0u64..32_000),
    ) {
        let all = chain(length);
        let mut filter = AuditFilter {
            since: since.map(UnixMillis),
            until: until.map(UnixMillis),
            ..AuditFilter::default()
        };
        if named {
            filter.nodes.insert(NodeId::new("gpu1").unwrap());
        }
        let passing = all.iter().filter(|entry| filter.matches(entry));
        let mut expected: Vec<u64> = passing.map(|entry| entry.number).collect();
        let order = match newest {
            true => AuditOrder::NewestFirst,
            false => AuditOrder::OldestFirst,
        };
        if newest {
            expected.reverse();
        }
        let search = AuditSearch { filter, order, cursor: None, limit };
        let (found, pages) = all_pages(&all, run, search);
        prop_assert_eq!(&found, &expected);
        prop_assert!(pages <= expected.len().div_ceil(limit as usize) + 1);
    }
}

/// Four entries of about `bytes` bytes each.
fn large(bytes: usize) -> (Vec<AuditEntry>, AuditSearch) {
    let mut all = chain(4);
    for entry in &mut all {
        entry.by.name = "x".repeat(bytes);
    }
    let limit = 1_000;
    let search = AuditSearch {
        limit,
        ..AuditSearch::default()
    };
    (all, search)
}

#[test]
fn a_page_is_bounded_in_bytes_too() {
    let (all, mut search) = large(MAX_PAGE_BYTES / 2 - 200);
    let mut finder = AuditPageBuilder::new(&search);
    assert!(!finder.examine(&all));
    let page = finder.finish(AuditHead::default());
    assert_eq!((page.entries.len(), page.next), (2, Some(2)));
    assert!(encoded_bytes(&page.entries) <= MAX_PAGE_BYTES);
    assert_eq!(all_pages(&all, 4, search.clone()), (vec![1, 2, 3, 4], 2));
    search.order = AuditOrder::NewestFirst;
    assert_eq!(all_pages(&all, 3, search), (vec![4, 3, 2, 1], 2));
    // Two entries do not fit on one page, so the second one is not started.
    let (all, search) = large(MAX_PAGE_BYTES / 2);
    assert_eq!(all_pages(&all, 4, search), (vec![1, 2, 3, 4], 4));
}

#[test]
fn what_is_larger_than_a_page_has_one_of_its_own() {
    for order in [AuditOrder::OldestFirst, AuditOrder::NewestFirst] {
        let (all, search) = large(MAX_PAGE_BYTES + 1);
        let search = AuditSearch { order, ..search };
        let (mut found, pages) = all_pages(&all, 2, search);
        found.sort_unstable();
        assert_eq!((found, pages), (vec![1, 2, 3, 4], 4));
    }
}
