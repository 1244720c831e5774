//! Rows are read through segments as if all were in memory, wherever the state was restored and wherever the segments
//! are stored.

use super::*;
use lattice_quorum_state::{SealedSegment, SegmentFault, SegmentId, SegmentLimits, Segments};
use lattice_quorum_types::{
    Applied, Refusal,
    audit::{AuditFilter, AuditOrder, AuditSearch},
    dag::Dag,
    event::EventKind,
    id::DagId,
};

const BOUNDS: [SegmentLimits; 3] = [
    SegmentLimits {
        rows: 1,
        bytes: 1 << 20,
    },
    SegmentLimits {
        rows: 2,
        bytes: 1 << 20,
    },
    // A record has some 150 bytes, one with ranks more.
    SegmentLimits {
        rows: 1000,
        bytes: 200,
    },
];

/// Stored segments.
#[derive(Default)]
struct StoredSegments(BTreeMap<SegmentId, Bytes>);

impl StoredSegments {
    fn keep(&mut self, sealed: Vec<SealedSegment>) {
        for SealedSegment { id, bytes } in sealed {
            assert!(id.names(&bytes));
            assert_eq!(id.to_string().parse(), Ok(id));
            self.0.insert(id, bytes);
        }
    }
}

impl Segments for StoredSegments {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        let bytes = self.0.get(id).cloned();
        bytes.ok_or_else(|| id.fault("nobody has it"))
    }
}

/// Expected content, from events only.
#[derive(Default)]
struct Truth {
    allocations: BTreeMap<AllocationId, Allocation>,
    dags: BTreeMap<DagId, Dag>,
    audit: Vec<AuditEntry>,
}

impl Truth {
    fn note(&mut self, result: &Result<Applied, Refusal>) {
        for event in result.iter().flat_map(|applied| &applied.events) {
            match &event.kind {
                EventKind::Allocation { record, .. } => {
                    self.allocations.insert(record.id, (**record).clone());
                }
                EventKind::Dag { record } => {
                    self.dags.insert(record.id, (**record).clone());
                }
                EventKind::DagProgressed { id, progress } => {
                    let dag = self.dags.get_mut(id).unwrap();
                    dag.advance(progress.clone(), event.revision);
                }
                EventKind::ArrayCounted { id, tally, stop } => {
                    let array = self.allocations.get_mut(id).unwrap();
                    array.progress.tally = Some(tally.clone());
                    array.stop.clone_from(stop);
                    array.revision = event.revision;
                }
                EventKind::Audit { entry } => self.audit.push(entry.clone()),
                _ => {}
            }
        }
    }

    fn check(&self, ask: &dyn Fn(&Query) -> Answer) {
        // Ids of elements that were never placed, and of DAGs, are not allocations.
        let last = self.allocations.keys().next_back().map_or(0, |id| id.0);
        for number in 0..=last + 6 {
            let id = AllocationId(number);
            let expected = self.allocations.get(&id).cloned().map(Box::new);
            assert_eq!(ask(&Query::Allocation { id }), Answer::Allocation(expected));
            let id = DagId(number);
            let expected = self.dags.get(&id).cloned().map(Box::new);
            assert_eq!(ask(&Query::Dag { id }), Answer::Dag(expected));
        }
        use AllocationState::{Completed, Failed, Pending, Running};
        for states in [vec![], vec![Completed, Failed], vec![Pending, Running]] {
            for within in [None, Some("t"), Some("t/a"), Some("u")] {
                self.check_pages(ask, &states, within.map(path));
            }
        }
        self.check_audit(ask);
    }

    fn check_pages(
        &self,
        ask: &dyn Fn(&Query) -> Answer,
        states: &[AllocationState],
        within: Option<ProjectPath>,
    ) {
        let is_asked = |a: &&Allocation| {
            (states.is_empty() || states.contains(&a.state))
                && (within.as_ref()).is_none_or(|top| a.spec.project.is_within(top))
        };
        let expected: Vec<&Allocation> = self.allocations.values().filter(is_asked).collect();
        for limit in [1, 3, u32::MAX] {
            let (mut found, mut after) = (Vec::new(), AllocationId(0));
            loop {
                let (states, within) = (states.to_vec(), within.clone());
                let query = Query::Allocations {
                    after,
                    limit,
                    states,
                    within,
                };
                let Answer::Allocations(page) = ask(&query) else {
                    panic!("allocations")
                };
                assert!(page.len() <= limit as usize);
                let Some(last) = page.last() else { break };
                after = last.id;
                found.extend(page);
            }
            assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        }
    }

    fn check_audit(&self, ask: &dyn Fn(&Query) -> Answer) {
        for after in 0..=self.audit.len() {
            for limit in [1, 4, usize::MAX] {
                let behind = self.audit.iter().skip(after).take(limit).cloned();
                let query = Query::Audit {
                    after: after as u64,
                    limit: u32::try_from(limit).unwrap_or(u32::MAX),
                };
                assert_eq!(ask(&query), Answer::Audit(behind.collect()));
            }
        }
        let nobody = AuditFilter::default;
        let middle = self.audit.get(self.audit.len() / 2).map(|entry| entry.at);
        let (since, until) = (middle, middle);
        let filters = [
            nobody(),
            AuditFilter {
                user: Some("olga".to_owned()),
                ..nobody()
            },
            AuditFilter {
                by: Some("nobody".to_owned()),
                ..nobody()
            },
            AuditFilter {
                nodes: [node("n003")].into(),
                ..nobody()
            },
            AuditFilter {
                allocation: Some(AllocationId(1)),
                ..nobody()
            },
            AuditFilter {
                within: Some(path("t/a")),
                ..nobody()
            },
            AuditFilter { since, ..nobody() },
            AuditFilter { until, ..nobody() },
        ];
        for filter in filters {
            for order in [AuditOrder::OldestFirst, AuditOrder::NewestFirst] {
                self.check_search(ask, &filter, order);
            }
        }
    }

    fn check_search(
        &self,
        ask: &dyn Fn(&Query) -> Answer,
        filter: &AuditFilter,
        order: AuditOrder,
    ) {
        let mut expected: Vec<_> = self.audit.iter().filter(|e| filter.matches(e)).collect();
        if order == AuditOrder::NewestFirst {
            expected.reverse();
        }
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let search = AuditSearch {
                filter: filter.clone(),
                order,
                cursor,
                limit: 3,
            };
            let search = Box::new(search);
            let Answer::AuditSearch(page) = ask(&Query::AuditSearch { search }) else {
                panic!("audit")
            };
            assert_eq!(page.head.number, self.audit.len() as u64);
            found.extend(page.entries);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::common::cases(48), ..ProptestConfig::default() })]

    #[test]
    fn what_is_in_segments_is_answered_as_if_it_were_in_memory(
        steps in dependency_steps::sequences(1..300),
        bounds in 0..BOUNDS.len(),
        restarts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut c = founded();
        steps.iter().for_each(|step| take(&mut c, step));
        let begun = State::with_bounds(lattice_quorum_state::Policy::default(), BOUNDS[bounds]);
        let restarts: BTreeSet<usize> = restarts.iter().map(|at| at.index(c.log.len())).collect();
        // One state keeps all segments; the other gives them away and is restored at times.
        let (mut whole, mut member, mut kept) = (begun.clone(), begun, StoredSegments::default());
        let mut truth = Truth::default();
        for (i, envelope) in c.log.iter().enumerate() {
            let result = whole.apply(i as u64 + 1, envelope);
            prop_assert_eq!(&result, &member.apply(i as u64 + 1, envelope));
            kept.keep(member.take_sealed());
            truth.note(&result);
            if restarts.contains(&i) {
                let bytes = member.snapshot();
                prop_assert_eq!(&bytes, &whole.snapshot());
                member = State::restore(&bytes).unwrap();
                prop_assert!(member.take_sealed().is_empty());
            }
        }
        prop_assert_eq!(whole.digest(), member.digest());
        let named: BTreeSet<SegmentId> = member.segments().map(|segment| segment.id).collect();
        prop_assert_eq!(&named, &kept.0.keys().copied().collect());
        for segment in member.segments() {
            prop_assert_eq!(segment.bytes, kept.0[&segment.id].len() as u64);
        }
        truth.check(&|query| member.look_up(query).finish(&kept).unwrap());
        truth.check(&|query| whole.query(query));
    }
}

/// The property is meaningful only if segments are sealed at all.
#[test]
fn random_moves_seal_every_table_in_each_way() {
    use lattice_quorum_state::Table;
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(dependency_steps::busy(), 700);
    let mut most: BTreeMap<(usize, Table), u32> = BTreeMap::new();
    for _ in 0..20 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let mut c = founded();
        steps.iter().for_each(|step| take(&mut c, step));
        for (i, bounds) in BOUNDS.into_iter().enumerate() {
            let state = replay(
                &c.log,
                State::with_bounds(lattice_quorum_state::Policy::default(), bounds),
                0,
            );
            for segment in state.segments() {
                let most = most.entry((i, segment.id.table)).or_default();
                *most = (*most).max(segment.id.number + 1);
            }
        }
    }
    for i in 0..BOUNDS.len() {
        for table in Table::ALL {
            assert!(most.get(&(i, table)) >= Some(&1), "{i} {table:?}: {most:?}");
        }
    }
}
