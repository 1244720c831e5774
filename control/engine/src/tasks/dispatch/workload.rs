//! Workload of an attempt, and its environment.

use crate::checkpoint_storage::CheckpointStorage;
use lattice_agent_rpc::{CheckpointSetup, Restore};
use lattice_quorum_types::{
    Allocation,
    spec::{OutputFiles, Workload},
};
use lattice_view::View;

/// Workload of an allocation; an array element has that of its array. Array placeholders in the paths of its output
/// files are replaced. Environment variables that only the cluster can provide are added, and values set by the user
/// take precedence.
pub(super) fn workload(view: &View, allocation: &Allocation) -> Workload {
    let mut workload = view.workload(allocation).clone();
    let element = allocation.progress.element;
    let array = element.map_or(allocation.id, |element| element.array);
    let output = &mut workload.output;
    for file in [&mut output.stdout, &mut output.stderr]
        .into_iter()
        .flatten()
    {
        *file = OutputFiles::of_element(file, array, element.map(|element| element.index));
    }
    let mut say = |name: &str, value: String| {
        workload.env.entry(name.to_owned()).or_insert(value);
    };
    if allocation.attempt > 1 {
        say(
            "LATTICE_RESTART_COUNT",
            (allocation.attempt - 1).to_string(),
        );
    }
    if let Some(dag) = &allocation.progress.dag {
        say("LATTICE_DAG_ID", dag.dag.to_string());
        say("LATTICE_DAG_MEMBER", dag.member.clone());
    }
    let Some(element) = element else {
        return workload;
    };
    say("LATTICE_ARRAY_ID", element.array.to_string());
    say("LATTICE_ARRAY_INDEX", element.index.to_string());
    let array = view.allocation(element.array);
    let spec = array.and_then(|array| array.spec.terms.array.as_ref());
    if let Some(indices) = spec.map(|spec| spec.indices()) {
        say("LATTICE_ARRAY_COUNT", indices.len().to_string());
        let ends = [
            ("LATTICE_ARRAY_MIN", indices.first()),
            ("LATTICE_ARRAY_MAX", indices.last()),
        ];
        for (name, index) in ends {
            if let Some(index) = index {
                say(name, index.to_string());
            }
        }
    }
    workload
}

/// Checkpoint settings of the attempt, and the checkpoint it restores.
pub(super) fn checkpoint(
    storage: &CheckpointStorage,
    allocation: &Allocation,
) -> Option<CheckpointSetup> {
    let terms = allocation.spec.terms.checkpoint.as_ref()?;
    let kept = allocation.progress.kept.as_ref();
    Some(CheckpointSetup {
        mode: terms.mode,
        directory: storage.directory(allocation)?,
        restore: kept.map(|kept| Restore {
            number: kept.number,
            directory: kept.directory.clone(),
        }),
    })
}
