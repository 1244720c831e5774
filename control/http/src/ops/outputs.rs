//! Places of an allocation's output: a file of the user, or the nodes.

use super::{elements, time};
use lattice_agent_rpc::LogStream;
use lattice_api::{
    allocation::{OutputPlaceView, OutputView},
    duration,
    problem::Problem,
};
use lattice_engine::Core;
use lattice_quorum_types::{
    Allocation, hostlist,
    spec::{OutputFiles, Workload},
};
use lattice_view::View;
use std::sync::Arc;

/// Allocation with its workload. For an array element, the workload is in the record of the array.
pub(super) struct OutputSource<'a> {
    allocation: &'a Allocation,
    array: Option<Arc<Allocation>>,
}

impl<'a> OutputSource<'a> {
    pub(super) async fn of(core: &Core, allocation: &'a Allocation) -> Result<Self, Problem> {
        let array = match &allocation.progress.element {
            Some(element) => elements::find_record(core, element.array).await?,
            None => None,
        };
        Ok(Self { allocation, array })
    }

    pub(super) fn workload(&self) -> &Workload {
        let array = self.array.as_ref();
        array.map_or(&self.allocation.spec.workload, |array| &array.spec.workload)
    }

    /// Pattern of the file for a stream, with array and index filled in; `None`: the nodes keep the stream.
    pub(super) fn file(&self, stream: LogStream) -> Option<String> {
        let files = &self.workload().output;
        let pattern = match stream {
            LogStream::Stdout => &files.stdout,
            LogStream::Stderr => &files.stderr,
        };
        let element = self.allocation.progress.element;
        let array = element.map_or(self.allocation.id, |element| element.array);
        let index = element.map(|element| element.index);
        Some(OutputFiles::of_element(pattern.as_ref()?, array, index))
    }

    /// File of a stream for one rank, or, without a rank, for all of them. An array has no ranks, and its pattern
    /// applies to every element.
    pub(super) fn file_of_rank(&self, pattern: &str, rank: Option<u32>) -> String {
        let allocation = self.allocation;
        let rank = rank.or_else(|| (allocation.ranks.len() == 1).then_some(0));
        let place = rank.and_then(|rank| Some((rank, allocation.ranks.get(rank as usize)?)));
        match place {
            // Expanded as the node expands it; an invalid pattern was rejected at submission.
            Some((rank, place)) => OutputFiles::file_of(pattern, allocation.id, rank, &place.node)
                .unwrap_or_else(|_| pattern.to_owned()),
            None if allocation.spec.terms.array.is_some() => pattern.to_owned(),
            None => OutputFiles::of_allocation(pattern, allocation.id),
        }
    }
}

/// Returns the places of both streams.
pub(super) async fn places(
    core: &Core,
    view: &View,
    allocation: &Allocation,
) -> Result<OutputView, Problem> {
    let source = OutputSource::of(core, allocation).await?;
    let place = |stream| match source.file(stream) {
        Some(pattern) => OutputPlaceView {
            file: Some(source.file_of_rank(&pattern, None)),
            nodes: nodes(allocation),
            ..OutputPlaceView::default()
        },
        None => {
            let keep_ms = retention_ms(view, allocation);
            let until = keep_ms.and_then(|keep| Some(allocation.ended_at?.after(keep)));
            OutputPlaceView {
                file: None,
                nodes: nodes(allocation),
                kept_for: keep_ms.map(duration::format),
                kept_until: until.map(time),
            }
        }
    };
    Ok(OutputView {
        stdout: place(LogStream::Stdout),
        stderr: place(LogStream::Stderr),
    })
}

fn nodes(allocation: &Allocation) -> Option<String> {
    (!allocation.ranks.is_empty()).then(|| hostlist::fold(allocation.nodes()))
}

/// Shortest retention among the nodes of the last attempt, milliseconds; `None` before the first attempt, and while a
/// node does not report its retention.
fn retention_ms(view: &View, allocation: &Allocation) -> Option<u64> {
    let kept = allocation.nodes().map(|node| {
        let gossip = view.node(node)?.gossip.as_ref()?;
        Some(gossip.keep_output_s?.saturating_mul(1_000))
    });
    kept.collect::<Option<Vec<u64>>>()?.into_iter().min()
}
