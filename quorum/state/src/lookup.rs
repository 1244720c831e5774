//! Look-ups that may need segments: the part in memory is copied under the caller's lock. Segments are read afterwards
//! without the lock, on a thread that the caller chooses.

use crate::{
    State,
    archive::ArchiveIndex,
    segment::{Row, Segment, SegmentFault, Segments},
    topics::Topic,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, ProjectPath, UnixMillis,
    audit::{AuditEntry, AuditHead, AuditOrder, AuditPageBuilder, AuditSearch, fits_on_page},
    dag::Dag,
    id::DagId,
    size::encoded_bytes,
    usage_record::{UsageRecord, UsageRecordsHead},
    view::Answer,
};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

/// Maximum number of rows in one answer. Callers request further rows with `after`.
const MAX_ROWS: u32 = 10_000;
/// Size at which a page is full, bytes: a record may have thousands of ranks.
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Maximum number of segments read for one page of allocations once a row is found. Such a page may be short; an empty
/// page is the last.
const MAX_READ_SEGMENTS: usize = 64;
/// Number of segments kept decoded while a page is filled: allocations submitted in sequence are in few segments.
const MAX_CACHED_SEGMENTS: usize = 8;

/// A query against the state of one moment.
#[derive(Debug)]
pub struct StateQuery(QueryKind);

#[derive(Debug)]
enum QueryKind {
    Known(Answer),
    Ended { id: AllocationId, segment: Segment },
    Dag { id: DagId, segments: Vec<Segment> },
    Page(AllocationPage),
    Entries(RowPage<AuditEntry>),
    UsageRecords(RowPage<UsageRecord>, UsageRecordsHead),
    Search(Box<Search>),
}

impl State {
    pub(crate) fn look_up_allocation(&self, id: AllocationId) -> StateQuery {
        let ended = self.archive.ended(id);
        match ended.and_then(|ended| self.archive.segment(ended)) {
            Some(segment) => StateQuery(QueryKind::Ended {
                id,
                segment: segment.clone(),
            }),
            None => {
                let found = self.allocation(id).cloned();
                StateQuery::known(Answer::Allocation(found.map(Box::new)))
            }
        }
    }

    /// Looks up a DAG. Of the ended DAGs, the last ones are in memory; the others are in one of few segments.
    pub(crate) fn look_up_dag(&self, id: DagId) -> StateQuery {
        let tail = self.dags.tail().iter();
        let mut known = self.dags.live(id).into_iter().chain(tail);
        if let Some(found) = known.find(|dag| dag.id == id) {
            return StateQuery::known(Answer::Dag(Some(Box::new(found.clone()))));
        }
        let sealed = self.dags.sealed().iter();
        let may_have = |segment: &&Segment| (segment.first..=segment.last).contains(&id.0);
        let segments: Vec<Segment> = sealed.filter(may_have).cloned().collect();
        match segments.is_empty() {
            true => StateQuery::known(Answer::Dag(None)),
            false => StateQuery(QueryKind::Dag { id, segments }),
        }
    }

    /// Running DAGs, and ended DAGs that are still in memory, in order of id.
    pub(crate) fn dags_after(
        &self,
        after: DagId,
        limit: u32,
        within: Option<&ProjectPath>,
    ) -> Vec<Dag> {
        let all = self.dags.running().chain(self.dags.tail());
        let wanted = |dag: &&Dag| {
            dag.id > after && within.is_none_or(|within| dag.project.is_within(within))
        };
        let mut found: Vec<&Dag> = all.filter(wanted).collect();
        found.sort_by_key(|dag| dag.id);
        found.truncate(limit.min(MAX_ROWS) as usize);
        found.into_iter().cloned().collect()
    }

    pub(crate) fn look_up_audit(&self, after: u64, limit: u32) -> StateQuery {
        StateQuery(QueryKind::Entries(RowPage {
            after,
            limit: limit.min(MAX_ROWS) as usize,
            since: UnixMillis(0),
            segments: self.audit.sealed().clone(),
            tail: self.audit.tail().to_vec(),
        }))
    }

    pub(crate) fn look_up_usage_records(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> StateQuery {
        let tail = self.usage_records.tail();
        let behind = tail.partition_point(|fact| fact.number <= after);
        let rows = RowPage {
            after,
            limit: limit.min(MAX_ROWS) as usize,
            since,
            segments: self.usage_records.sealed().clone(),
            tail: tail[behind..].to_vec(),
        };
        StateQuery(QueryKind::UsageRecords(rows, self.usage_records_head()))
    }

    pub(crate) fn search_audit(&self, search: &AuditSearch) -> StateQuery {
        StateQuery(QueryKind::Search(Box::new(Search {
            search: search.clone(),
            segments: self.audit.sealed().clone(),
            tail: self.audit.tail().to_vec(),
            head: self.audit_head(),
        })))
    }

    pub(crate) fn look_up_page(
        &self,
        after: AllocationId,
        limit: u32,
        states: &[AllocationState],
        within: Option<&ProjectPath>,
    ) -> StateQuery {
        let wanted = AllocationFilter {
            states: states.to_vec(),
            within: within.cloned(),
        };
        let limit = limit.min(MAX_ROWS) as usize;
        let hot = self.hot.range((Bound::Excluded(after), Bound::Unbounded));
        let hot = hot.map(|(_, record)| &**record);
        let mut known: Vec<&Allocation> = hot
            .filter(|record| wanted.has(record))
            .take(limit)
            .collect();
        let ended = self.archive.tail().iter();
        known.extend(ended.filter(|record| record.id > after && wanted.has(record)));
        known.sort_by_key(|record| record.id);
        known.truncate(limit);
        let mut segments = self.archive.sealed().clone();
        let is_terminal = |state: &AllocationState| state.is_terminal();
        let behind = segments.iter().any(|segment| segment.last > after.0);
        if !behind || !(states.is_empty() || states.iter().any(is_terminal)) {
            segments = Arc::default();
        }
        StateQuery(QueryKind::Page(AllocationPage {
            after,
            limit,
            wanted,
            known: known.into_iter().cloned().collect(),
            index: self.archive.index().clone(),
            segments,
        }))
    }
}

impl StateQuery {
    pub(crate) fn known(answer: Answer) -> Self {
        StateQuery(QueryKind::Known(answer))
    }

    /// Returns whether the answer is ready without reading a segment.
    pub fn is_in_memory(&self) -> bool {
        match &self.0 {
            QueryKind::Known(_) => true,
            QueryKind::Ended { .. } | QueryKind::Dag { .. } => false,
            QueryKind::Page(page) => page.segments.is_empty(),
            QueryKind::Entries(entries) => entries.needed().next().is_none(),
            QueryKind::UsageRecords(facts, _) => facts.needed().next().is_none(),
            QueryKind::Search(search) => search.segments.is_empty(),
        }
    }

    /// Returns the answer, reading segments if needed.
    ///
    /// # Errors
    /// [`SegmentFault`] if a segment that the answer needs cannot be read.
    pub fn finish(self, segments: &dyn Segments) -> Result<Answer, SegmentFault> {
        match self.0 {
            QueryKind::Known(answer) => Ok(answer),
            QueryKind::Ended { id, segment } => {
                let mut rows = segment.rows::<Allocation>(segments)?.into_iter();
                let record = rows.find(|record| record.id == id);
                let missing = || segment.id.fault(format!("allocation {id} is not in it"));
                let record = record.ok_or_else(missing)?;
                Ok(Answer::Allocation(Some(Box::new(record))))
            }
            QueryKind::Dag {
                id,
                segments: names,
            } => {
                for segment in names {
                    let mut rows = segment.rows::<Dag>(segments)?.into_iter();
                    if let Some(found) = rows.find(|dag| dag.id == id) {
                        return Ok(Answer::Dag(Some(Box::new(found))));
                    }
                }
                Ok(Answer::Dag(None))
            }
            QueryKind::Page(page) => page.fill(segments).map(Answer::Allocations),
            QueryKind::Entries(entries) => entries.read(segments).map(Answer::Audit),
            QueryKind::UsageRecords(facts, head) => {
                let facts = facts.read(segments)?;
                Ok(Answer::UsageRecords(facts, head))
            }
            QueryKind::Search(search) => search.run(segments),
        }
    }
}

/// Filter for allocations.
#[derive(Debug)]
struct AllocationFilter {
    /// Accepted states; any state if empty.
    states: Vec<AllocationState>,
    within: Option<ProjectPath>,
}

impl AllocationFilter {
    fn in_state(&self, state: AllocationState) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }
    fn has(&self, record: &Allocation) -> bool {
        let within = self.within.as_ref();
        self.in_state(record.state) && within.is_none_or(|top| record.spec.project.is_within(top))
    }
    fn may_be_in(&self, segment: &Segment) -> bool {
        let within = self.within.as_ref();
        within.is_none_or(|top| segment.topics.may_contain(Topic::Project(top.as_str())))
    }
}

/// Page of allocations, in order of id.
#[derive(Debug)]
struct AllocationPage {
    after: AllocationId,
    limit: usize,
    wanted: AllocationFilter,
    /// Matching records in memory.
    known: Vec<Allocation>,
    index: ArchiveIndex,
    segments: Arc<Vec<Segment>>,
}

impl AllocationPage {
    fn fill(self, source: &dyn Segments) -> Result<Vec<Allocation>, SegmentFault> {
        let mut found = Vec::new();
        let mut known = self.known.into_iter().peekable();
        let mut decoded = SegmentCache::new(&self.segments, source);
        let (mut bytes, wanted) = (0, &self.wanted);
        let may: Vec<bool> = (self.segments.iter().map(|s| wanted.may_be_in(s))).collect();
        let mut stored = self.index.after(self.after).filter(|(_, ended)| {
            wanted.in_state(ended.state()) && may.get(ended.segment() as usize) == Some(&true)
        });
        let mut next = stored.next();
        loop {
            let is_full = found.len() >= self.limit
                || bytes >= MAX_PAGE_BYTES
                || (decoded.read >= MAX_READ_SEGMENTS && !found.is_empty());
            if is_full {
                return Ok(found);
            }
            let first = known.peek().map(|record| record.id);
            let record = match next.filter(|(id, _)| first.is_none_or(|first| *id < first)) {
                Some((id, ended)) => {
                    next = stored.next();
                    let record = decoded.record(id, ended.segment())?;
                    record.filter(|record| wanted.has(record)).cloned()
                }
                None => match known.next() {
                    Some(record) => Some(record),
                    None => return Ok(found),
                },
            };
            if let Some(record) = record {
                bytes += encoded_bytes(&record);
                found.push(record);
            }
        }
    }
}

/// Cache of the segments read last.
struct SegmentCache<'a> {
    segments: &'a [Segment],
    source: &'a dyn Segments,
    rows: BTreeMap<u32, BTreeMap<AllocationId, Allocation>>,
    order: VecDeque<u32>,
    read: usize,
}

impl<'a> SegmentCache<'a> {
    fn new(segments: &'a [Segment], source: &'a dyn Segments) -> Self {
        Self {
            segments,
            source,
            rows: BTreeMap::new(),
            order: VecDeque::new(),
            read: 0,
        }
    }

    fn record(
        &mut self,
        id: AllocationId,
        number: u32,
    ) -> Result<Option<&Allocation>, SegmentFault> {
        if !self.rows.contains_key(&number) {
            let Some(segment) = self.segments.get(number as usize) else {
                return Ok(None);
            };
            let rows = segment.rows::<Allocation>(self.source)?.into_iter();
            let rows = rows.map(|record| (record.id, record)).collect();
            self.read += 1;
            if self.order.len() >= MAX_CACHED_SEGMENTS {
                let oldest = self.order.pop_front();
                oldest.and_then(|oldest| self.rows.remove(&oldest));
            }
            self.order.push_back(number);
            self.rows.insert(number, rows);
        }
        Ok(self.rows.get(&number).and_then(|rows| rows.get(&id)))
    }
}

/// Rows after a number. A page ends at its row limit or maximum size; an empty page is the last.
#[derive(Debug)]
struct RowPage<R> {
    after: u64,
    limit: usize,
    /// Rows before this time are skipped.
    since: UnixMillis,
    segments: Arc<Vec<Segment>>,
    tail: Vec<R>,
}

impl<R: Row> RowPage<R> {
    fn needed(&self) -> impl Iterator<Item = &Segment> {
        let wanted = |segment: &&Segment| {
            segment.last > self.after && segment.to >= self.since && self.limit > 0
        };
        self.segments.iter().filter(wanted)
    }

    fn read(self, source: &dyn Segments) -> Result<Vec<R>, SegmentFault> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        // Returns `false` if the row does not fit into the page.
        let mut take = |row: R| {
            if row.key() <= self.after || row.at() < self.since {
                return true;
            }
            let more = encoded_bytes(&row);
            if found.len() >= self.limit || !(found.is_empty() || fits_on_page(bytes, more)) {
                return false;
            }
            bytes = bytes.saturating_add(more);
            found.push(row);
            true
        };
        let mut goes_on = true;
        for segment in self.needed() {
            goes_on = goes_on && segment.rows(source)?.into_iter().all(&mut take);
            if !goes_on {
                break;
            }
        }
        if goes_on {
            self.tail.iter().cloned().all(&mut take);
        }
        Ok(found)
    }
}

/// Input of an audit search.
#[derive(Debug)]
struct Search {
    search: AuditSearch,
    segments: Arc<Vec<Segment>>,
    tail: Vec<AuditEntry>,
    head: AuditHead,
}

impl Search {
    fn run(self, source: &dyn Segments) -> Result<Answer, SegmentFault> {
        let mut finder = AuditPageBuilder::new(&self.search);
        let oldest_first = self.search.order == AuditOrder::OldestFirst;
        let mut goes_on = oldest_first || finder.examine(&self.tail);
        let mut segments: Vec<&Segment> = self.segments.iter().collect();
        if !oldest_first {
            segments.reverse();
        }
        for segment in segments {
            let wants =
                finder.needs(&segment.audit_bounds()) && segment.may_match(&self.search.filter);
            if goes_on && wants {
                goes_on = finder.examine(&segment.rows::<AuditEntry>(source)?);
            }
        }
        if goes_on && oldest_first {
            finder.examine(&self.tail);
        }
        Ok(Answer::AuditSearch(Box::new(finder.finish(self.head))))
    }
}
