//! Consistency of usage records: they alone determine the nodes in use, and no node is used twice at a time. The total
//! of an allocation is the sum of its uses.

use super::*;
use lattice_quorum_types::usage_record::{
    NodeUser, OpenUse, UsagePeriod, UsageRecord, UsageRecordKind,
};

type Open = BTreeMap<(NodeUser, UnixMillis), BTreeSet<NodeId>>;

fn facts(state: &State) -> Vec<UsageRecord> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let (limit, since) = (7, UnixMillis(0));
        let Answer::UsageRecords(page, head) = state.query(&Query::UsageRecords {
            after,
            limit,
            since,
        }) else {
            panic!("facts")
        };
        let Some(last) = page.last() else {
            assert_eq!(head.last, after);
            return all;
        };
        after = last.number;
        all.extend(page);
    }
}

fn take_out(open: &mut Open, by: &NodeUser, uses: &[UsagePeriod]) {
    for used in uses {
        let key = (by.clone(), used.from);
        let nodes = open.get_mut(&key).expect("it was never begun");
        for node in &used.nodes {
            assert!(nodes.remove(node), "{node} of {by:?} was not used");
        }
        if nodes.is_empty() {
            open.remove(&key);
        }
    }
}

/// Present uses, derived from the usage records.
fn fold(all: &[UsageRecord]) -> Open {
    let mut open = Open::new();
    let mut used: BTreeMap<AllocationId, u64> = BTreeMap::new();
    let mut spans: BTreeMap<&NodeId, Vec<(UnixMillis, UnixMillis)>> = BTreeMap::new();
    for (number, fact) in (1..).zip(all) {
        assert_eq!(fact.number, number);
        let begin = |open: &mut Open, by: NodeUser, nodes: &[NodeId]| {
            let nodes = nodes.iter().cloned();
            open.entry((by, fact.at)).or_default().extend(nodes);
        };
        let (by, uses) = match &fact.kind {
            UsageRecordKind::Started { work, nodes, .. }
            | UsageRecordKind::Grew { work, nodes } => {
                begin(&mut open, NodeUser::Work(work.clone()), nodes);
                continue;
            }
            UsageRecordKind::Claimed { claim, nodes } | UsageRecordKind::Idles { claim, nodes } => {
                begin(&mut open, NodeUser::Claim(claim.clone()), nodes);
                continue;
            }
            UsageRecordKind::Used { work, uses }
            | UsageRecordKind::Completed { work, uses, .. } => {
                let ms: u64 = uses.iter().map(UsagePeriod::node_ms).sum();
                let total = used.entry(work.allocation).or_default();
                *total += ms;
                if let UsageRecordKind::Completed { node_ms, .. } = &fact.kind {
                    assert_eq!(node_ms, total, "{work:?}");
                }
                (NodeUser::Work(work.clone()), uses)
            }
            UsageRecordKind::Idled { claim, uses } => (NodeUser::Claim(claim.clone()), uses),
            _ => continue,
        };
        for used in uses {
            assert!(used.from <= used.until && used.until == fact.at);
            for node in &used.nodes {
                spans.entry(node).or_default().push((used.from, used.until));
            }
        }
        // A use that ended before the allocation was reported running has no start record.
        let begun: Vec<UsagePeriod> = uses
            .iter()
            .filter(|used| open.contains_key(&(by.clone(), used.from)))
            .cloned()
            .collect();
        take_out(&mut open, &by, &begun);
    }
    for (node, mut spans) in spans {
        spans.sort();
        let overlap = spans.windows(2).find(|pair| pair[0].1 > pair[1].0);
        assert_eq!(overlap, None, "{node} was used twice at once");
    }
    open
}

pub fn check(state: &State) {
    let Answer::OpenUses(uses, head) = state.query(&Query::OpenUses) else {
        panic!("open uses")
    };
    let all = facts(state);
    assert_eq!(head.last, all.len() as u64);
    let mut known = Open::new();
    for OpenUse { by, nodes, from } in uses {
        for node in nodes {
            assert!(known.entry((by.clone(), from)).or_default().insert(node));
        }
    }
    assert_eq!(fold(&all), known);
    let begun = |a: &&Allocation| {
        matches!(
            a.state,
            AllocationState::Running | AllocationState::Checkpointing
        )
    };
    for running in state.live_allocations().filter(begun) {
        let is_it = |(by, _): &&(NodeUser, UnixMillis)| matches!(by, NodeUser::Work(work) if work.allocation == running.id);
        assert!(
            known.keys().any(|key| is_it(&key)),
            "{} is not counted",
            running.id
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::common::cases(96), ..ProptestConfig::default() })]

    #[test]
    fn facts_tell_what_is_used_and_no_node_is_used_twice(steps in dependency_steps::sequences(1..200)) {
        let mut c = founded();
        for step in &steps {
            take(&mut c, step);
        }
        check(&c.state);
    }
}

/// The property is meaningful only if nodes are used at all.
#[test]
fn random_moves_make_every_kind_of_fact() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = dependency_steps::sequences(200..400);
    let mut made = BTreeSet::new();
    for _ in 0..60 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let mut c = founded();
        steps.iter().for_each(|step| take(&mut c, step));
        check(&c.state);
        let word = |record: UsageRecord| {
            let text = format!("{:?}", record.kind);
            let end = text
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(text.len());
            text[..end].to_owned()
        };
        made.extend(facts(&c.state).into_iter().map(word));
    }
    for wanted in ["Started", "Grew", "Used", "Completed", "Checkpointed"] {
        assert!(made.contains(wanted), "{wanted}: {made:?}");
    }
}
