//! `lattice status ID`: one allocation with all details.

use super::{LIST, row, waits};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format, or_dash, time, until},
};
use lattice_api::allocation::{
    AllocationView, MetricBody, OutputPlaceView, ScaleBody, name_text, write_bandwidth,
};
use lattice_client::JobRef;

/// Runs `lattice status ID`.
pub(super) async fn show(id: JobRef, connection: &Connection) -> Result<(), Failure> {
    let a = connection.client.allocation(id).await?;
    let cells = row(&a);
    if !connection.format.is_for_reading() {
        return Ok(output::print_record(connection.format, &a, LIST, cells)?);
    }
    let headers: Vec<&str> = LIST.narrow.iter().chain(LIST.wide).copied().collect();
    let mut lines: Vec<Vec<String>> = headers
        .iter()
        .zip(cells)
        .map(|(key, value)| vec![(*key).to_owned(), value])
        .collect();
    for line in &mut lines {
        match line[0].as_str() {
            "attempt" => line[1] = attempts(&a),
            "reason" => line[1] = or_dash(a.reason.as_deref()),
            "ends_at" => line[1] = or_dash(ends_at(&a).as_deref()),
            _ => {}
        }
    }
    if let Some(stop) = &a.stop {
        let key = match a.state.as_str() {
            // Some elements were cancelled, and the others continue.
            _ if waits(&a) && a.element_counts.is_some() => "cancelled".to_owned(),
            "pending" | "held" | "blocked" => "requeued because".to_owned(),
            state => format!("{state} because"),
        };
        lines.push(vec![key, stop.clone()]);
    }
    lines.extend(condition(&a).map(|(key, value)| vec![key, value]));
    if waits(&a) && !a.nodelist.is_empty() {
        lines.push(vec!["last ran on".to_owned(), a.nodelist.clone()]);
    }
    if let Some(places) = &a.output {
        let workload = a.workload.as_ref();
        let folder = workload.and_then(|workload| workload.working_dir.as_deref());
        for (key, place) in [("output", &places.stdout), ("error", &places.stderr)] {
            lines.push(vec![key.to_owned(), output_place(place, folder)]);
        }
    }
    let more = demand(&a).chain(terms(&a)).chain(history_lines(&a));
    lines.extend(more.map(|(key, value)| vec![key.to_owned(), value]));
    output::print_details(connection.format, &a, ["key", "value"], lines)?;
    if a.ranks.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let ranks = a.ranks.iter().map(|rank| {
        vec![
            rank.rank.to_string(),
            rank.node.clone(),
            rank.phase.clone(),
            or_dash(rank.since.as_deref().map(time).as_deref()),
            or_dash(rank.exit.as_deref()),
        ]
    });
    let columns = Columns::only(&["rank", "node", "phase", "since", "exit"]);
    Ok(output::print(connection.format, &a, columns, ranks)?)
}

/// Returns the end of the walltime with its distance from now.
fn ends_at(a: &AllocationView) -> Option<String> {
    let at = a.ends_at.as_deref()?;
    Some(until(Format::Table, at))
}

/// Returns the lines about the due SIGKILL and about the nodes with problems.
fn condition(a: &AllocationView) -> impl Iterator<Item = (String, String)> {
    let kill_at = a.kill_at.as_deref();
    let kill_at = kill_at.map(|at| ("SIGKILL at".to_owned(), until(Format::Table, at)));
    let problems = a.node_problems.iter().map(|problem| {
        let nodes = match &problem.reason {
            Some(reason) => format!("{} ({reason})", problem.nodes),
            None => problem.nodes.clone(),
        };
        (problem.status.clone(), nodes)
    });
    kill_at.into_iter().chain(problems)
}

/// Returns the place of an output stream: a file, or the nodes and the time for which they keep it. `folder`: working
/// directory of the allocation, which contains a file with a relative path.
fn output_place(place: &OutputPlaceView, folder: Option<&str>) -> String {
    let nodes = place.nodes.as_ref();
    let on = nodes.map_or_else(String::new, |nodes| format!(" on {nodes}"));
    match (&place.file, &place.kept_until, &place.kept_for) {
        (Some(file), _, _) if file.starts_with('/') => format!("{file}{on}"),
        (Some(file), _, _) => match folder {
            Some(folder) => format!("{file} in {folder}{on}"),
            None => format!("{file} in its working directory{on}"),
        },
        (None, Some(until), _) => format!("kept{on} until {} (lattice logs)", time(until)),
        (None, None, Some(kept_for)) => {
            format!("kept{on}, for {kept_for} after the end (lattice logs)")
        }
        (None, None, None) => match nodes {
            Some(nodes) => format!("kept on {nodes} (lattice logs)"),
            None => "kept on its nodes (lattice logs)".to_owned(),
        },
    }
}

/// Returns the number of attempts, and the policy after the loss of a node.
fn attempts(a: &AllocationView) -> String {
    let again = match a.attempt {
        0 | 1 => String::new(),
        2 => ", requeued once".to_owned(),
        n => format!(", requeued {} times", n - 1),
    };
    format!(
        "{}{again}; requeue when a node is lost: {}",
        a.attempt, a.requeue
    )
}

type Line = (&'static str, String);

fn present_lines<const N: usize>(
    lines: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = Line> {
    lines
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
}

/// Returns the lines about data readiness, checkpoint time and storage bandwidth.
fn demand(a: &AllocationView) -> impl Iterator<Item = Line> {
    let rates = a.storage_gb_s.iter();
    let rates: Vec<_> = rates
        .map(|(system, gb_s)| format!("{system}={}", write_bandwidth(*gb_s)))
        .collect();
    present_lines([
        ("data ready", a.data_ready.map(|part| part.to_string())),
        ("checkpoint time", a.checkpoint_time.clone()),
        ("storage", (!rates.is_empty()).then(|| rates.join(" "))),
    ])
}

/// Returns the lines about array, dependencies, mutex, times, checkpoints, scaling and reservation of the request.
fn terms(a: &AllocationView) -> impl Iterator<Item = Line> {
    let after = a.dependencies.iter();
    let after: Vec<_> = after
        .map(|one| {
            let name = name_text(one.on, one.element.as_ref());
            format!("{name} ({})", one.condition)
        })
        .collect();
    let checkpoint = a.checkpoint.as_ref().map(|terms| {
        let trigger = terms.trigger.as_deref().unwrap_or("automatic");
        match &terms.directory {
            Some(directory) => format!("{}, {trigger}, to {directory}", terms.mode),
            None => format!("{}, {trigger}", terms.mode),
        }
    });
    present_lines([
        ("array", a.array.clone()),
        ("after", (!after.is_empty()).then(|| after.join(", "))),
        ("mutex", a.mutex.clone()),
        ("begins at", a.begin_at.as_deref().map(time)),
        ("deadline", a.deadline_at.as_deref().map(time)),
        ("checkpoints", checkpoint),
        ("scales", a.scale.as_ref().map(scale)),
        ("reservation", a.reservation.clone()),
    ])
}

fn scale(scale: &ScaleBody) -> String {
    let metric = match &scale.metric {
        MetricBody::Gpu => "GPU use",
        MetricBody::Cpu => "processor use",
        MetricBody::Prometheus(query) => query,
    };
    format!(
        "{} to {}, by {metric} with target {}",
        scale.min_nodes,
        output::counted(scale.max_nodes, "node"),
        scale.target
    )
}

/// Returns the lines about array elements, DAG, preemptions and written checkpoints.
fn history_lines(a: &AllocationView) -> impl Iterator<Item = Line> {
    let tally = a.element_counts.as_ref().map(|tally| {
        format!(
            "{}: {} pending, {} blocked, {} running, {} completed, {} failed, {} cancelled",
            tally.elements,
            tally.pending,
            tally.blocked,
            tally.running,
            tally.completed,
            tally.failed,
            tally.cancelled
        )
    });
    let dag = a.dag.as_ref();
    let checkpoints = a.checkpoints.as_ref();
    let kept = checkpoints.and_then(|all| all.last.as_ref());
    let writing = checkpoints.and_then(|all| all.in_progress.as_ref());
    present_lines([
        ("elements", tally),
        ("dag", dag.map(|of| format!("{}, as {}", of.dag, of.member))),
        (
            "preempted",
            (a.preempted > 0).then(|| a.preempted.to_string()),
        ),
        (
            "checkpoints requested",
            checkpoints.map(|all| {
                let because = all.last_error.as_ref();
                let because = because.map_or_else(String::new, |why| format!("; the last: {why}"));
                format!("{}, {} of them failed{because}", all.requested, all.failed)
            }),
        ),
        (
            "last checkpoint",
            kept.map(|kept| {
                format!(
                    "{} of {}, in {}; took {}; contains {} of run time",
                    kept.number,
                    time(&kept.written_at),
                    kept.directory,
                    kept.duration,
                    kept.progress
                )
            }),
        ),
        (
            "writes checkpoint",
            writing.map(|writing| {
                format!(
                    "{} to {}, until {}; written by {}",
                    writing.number,
                    writing.directory,
                    time(&writing.times_out_at),
                    output::counted(writing.ranks_written, "rank")
                )
            }),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_output_is_a_file_or_nodes_with_a_date() {
        let mut kept = OutputPlaceView::default();
        let shown = |place: &OutputPlaceView| output_place(place, Some("/home/ada"));
        assert_eq!(shown(&kept), "kept on its nodes (lattice logs)");
        kept.nodes = Some("gpu[001-002]".to_owned());
        assert_eq!(shown(&kept), "kept on gpu[001-002] (lattice logs)");
        kept.kept_for = Some("7d".to_owned());
        assert_eq!(
            shown(&kept),
            "kept on gpu[001-002], for 7d after the end (lattice logs)"
        );
        kept.kept_until = Some("2026-11-30T04:41:18.073Z".to_owned());
        assert_eq!(
            shown(&kept),
            "kept on gpu[001-002] until 2026-11-30T04:41:18Z (lattice logs)"
        );
    }

    #[test]
    fn relative_output_file_is_shown_with_its_folder() {
        let shown = |file: &str, folder| {
            let place = OutputPlaceView {
                file: Some(file.to_owned()),
                nodes: Some("gpu001".to_owned()),
                ..OutputPlaceView::default()
            };
            output_place(&place, folder)
        };
        let folder = Some("/home/ada");
        assert_eq!(
            shown("lattice-12.out", folder),
            "lattice-12.out in /home/ada on gpu001"
        );
        assert_eq!(
            shown("lattice-12.out", None),
            "lattice-12.out in its working directory on gpu001"
        );
        assert_eq!(shown("/scratch/a.out", folder), "/scratch/a.out on gpu001");
    }
}
