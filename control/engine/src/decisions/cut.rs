//! Start of a record at a requested time: the schedulers' views at that time replace all earlier lines.

use lattice_placement::{ClusterView, record::Line};
use lattice_quorum_types::{AllocationId, UnixMillis, VclusterName};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

/// First bytes of the line of an outcome.
const OUTCOME: &[u8] = b"{\"outcome\":";

/// Cut of a record at a requested time; see the module. The lines are given in order.
#[derive(Debug)]
pub(super) struct RecordCut {
    since: UnixMillis,
    /// First line of the file that is being read.
    begin: Option<Line>,
    /// Views of the schedulers after the lines read so far.
    views: BTreeMap<VclusterName, ClusterView>,
    /// Placements without an outcome in the last plan of each scheduler before the start, with the time of the plan.
    /// Their outcomes may follow after the start, but belong to a plan that is not in the record.
    unsettled: BTreeMap<VclusterName, (UnixMillis, BTreeSet<AllocationId>)>,
    has_started: bool,
}

impl RecordCut {
    /// Cut at the time `since`.
    pub(super) fn new(since: UnixMillis) -> Self {
        Self {
            since,
            begin: None,
            views: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            has_started: false,
        }
    }

    /// Reads a line, including its line end, and appends to `out` what the record contains in its place.
    ///
    /// # Errors
    /// When a line cannot be written.
    pub(super) fn line(&mut self, text: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.has_started {
            if !self.is_unsettled_outcome(text) {
                out.extend_from_slice(text);
            }
            return Ok(());
        }
        // A full disk may have left half a line. No plan follows such a line in its file.
        let Ok(line) = serde_json::from_slice::<Line>(text) else {
            return Ok(());
        };
        if line.at() >= self.since {
            self.start(out)?;
            out.extend_from_slice(text);
            return Ok(());
        }
        match line {
            Line::Begin { .. } => {
                self.views.clear();
                self.unsettled.clear();
                self.begin = Some(line);
            }
            Line::View { vcluster, view, .. } => drop(self.views.insert(vcluster, *view)),
            Line::Cycle(cycle) => {
                let cycle = *cycle;
                let view = self.views.get_mut(&cycle.vcluster);
                if let (Some(view), Some(delta)) = (view, cycle.delta) {
                    view.update(*delta);
                }
                let placed: BTreeSet<AllocationId> =
                    cycle.placed.iter().map(|placed| placed.id).collect();
                self.unsettled.insert(cycle.vcluster, (cycle.at, placed));
            }
            Line::Outcome {
                vcluster,
                planned_at,
                id,
                ..
            } => {
                if let Some((at, placed)) = self.unsettled.get_mut(&vcluster)
                    && *at == planned_at
                {
                    placed.remove(&id);
                }
            }
            Line::Allocation(_) | Line::RefusedSubmit { .. } => {}
        }
        Ok(())
    }

    /// Completes the record after the last line: without a line from the requested time on, the record has the views
    /// alone.
    ///
    /// # Errors
    /// When a line cannot be written.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match self.has_started {
            true => Ok(()),
            false => self.start(out),
        }
    }

    /// Writes the first lines of the record. Nothing is written if no line was read before: then the next line is the
    /// first one that is kept.
    fn start(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.has_started = true;
        self.unsettled.retain(|_, (_, placed)| !placed.is_empty());
        let Some(mut begin) = self.begin.take() else {
            return Ok(());
        };
        if let Line::Begin { at, .. } = &mut begin {
            *at = self.since;
        }
        write_line(&begin, out)?;
        for (vcluster, view) in std::mem::take(&mut self.views) {
            let at = self.since;
            let view = Box::new(view);
            write_line(&Line::View { vcluster, at, view }, out)?;
        }
        Ok(())
    }

    /// Whether the line is the outcome of a placement before the start.
    fn is_unsettled_outcome(&self, text: &[u8]) -> bool {
        if self.unsettled.is_empty() || !text.starts_with(OUTCOME) {
            return false;
        }
        let Ok(Line::Outcome {
            vcluster,
            planned_at,
            id,
            ..
        }) = serde_json::from_slice(text)
        else {
            return false;
        };
        let known = self.unsettled.get(&vcluster);
        known.is_some_and(|(at, placed)| *at == planned_at && placed.contains(&id))
    }
}

fn write_line(line: &Line, out: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.push(b'\n');
    Ok(())
}
