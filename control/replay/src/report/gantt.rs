//! Gantt charts of a short window. If nodes have names, each row is a node. Otherwise a job gets the lowest free rows,
//! because processors without names have no fixed row.

use super::{
    Page, PolicySchedule,
    series::{queue, span},
    svg::{Axis, Chart, colour, escaped},
};
use crate::schedule::NodeSets;
use std::fmt::Write as _;

/// Divisor of the length of the schedule that gives the length of the window.
const WINDOW_DIVISOR: u64 = 60;
/// Shortest window, milliseconds.
const SHORTEST_MS: u64 = 12 * 3_600_000;
/// Largest number of boxes in a chart; more boxes could not be distinguished.
const MAX_BOXES: usize = 6_000;

/// Renders a chart for each policy.
pub(super) fn charts(page: &Page<'_>) -> String {
    let (from, to) = page.window.unwrap_or_else(|| busiest(page));
    let begin = page.workload.jobs.first().map_or(0, |job| job.submit_ms);
    let hours = |ms: u64| ms.saturating_sub(begin) as f64 / 3_600_000.0;
    let mut html = format!(
        "<h2>A window</h2>\n<p>From {:.1} to {:.1} hours after the first submit: jobs on the nodes or \
         processors of the machine. The colour shows the tenant, or the job if there is one tenant; \
         the tooltip describes the job.</p>\n",
        hours(from),
        hours(to)
    );
    for side in page.policies {
        let chart = match &side.schedule.nodes {
            Some(nodes) => on_nodes(page, side, nodes, (from, to), &hours),
            None => on_free_rows(page, side, (from, to), &hours),
        };
        let _ = write!(
            html,
            "<h3>{}</h3>\n<div class=\"gantt\">{chart}</div>\n",
            escaped(side.name)
        );
    }
    html
}

/// Window around the longest queue of the first policy.
fn busiest(page: &Page<'_>) -> (u64, u64) {
    let Some(first) = page.policies.first() else {
        return (0, 1);
    };
    let (begin, end) = span(page, first.schedule);
    let series = queue(page, first.schedule);
    let most = series.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let middle = begin + most.map_or(0, |(at, _)| (at * 1000.0) as u64);
    let half = ((end - begin) / WINDOW_DIVISOR / 2).max(SHORTEST_MS / 2);
    let from = middle.saturating_sub(half).max(begin);
    (from, (from + 2 * half).min(end))
}

type Hours<'a> = &'a dyn Fn(u64) -> f64;

fn chart<'a>(
    page: &Page<'_>,
    (from, to): (u64, u64),
    hours: Hours<'_>,
    rows: &'a str,
) -> Chart<'a> {
    let x = Axis::linear(hours(from), hours(to), "hours after the first submit");
    Chart::new(x, Axis::linear(0.0, page.terms.size as f64, rows), 300.0)
}

/// Jobs that run in the window.
fn jobs_in_window<'a>(
    page: &'a Page<'_>,
    side: &'a PolicySchedule<'_>,
    (from, to): (u64, u64),
) -> impl Iterator<Item = usize> + 'a {
    let jobs = page
        .workload
        .jobs
        .iter()
        .zip(&side.schedule.served)
        .enumerate();
    let runs = jobs.filter(move |(_, (job, served))| {
        served.has_started() && served.start_ms < to && served.end_ms(job) > from
    });
    runs.map(|(place, _)| place)
}

fn title(page: &Page<'_>, side: &PolicySchedule<'_>, place: usize) -> String {
    let (job, served) = (&page.workload.jobs[place], &side.schedule.served[place]);
    let tenant = page
        .workload
        .tenants
        .get(job.tenant as usize)
        .map_or("", String::as_str);
    let how = if served.is_backfilled {
        ", backfilled"
    } else {
        ""
    };
    format!(
        "job {} of {tenant}: {} {}, ran {} s after {} s{how}",
        job.number,
        job.size,
        page.workload.unit.name(),
        job.run_ms / 1000,
        served.wait_ms(job) / 1000
    )
}

/// Color of a job: that of its tenant; with a single tenant, a color for each job.
fn job_colour(page: &Page<'_>, place: usize) -> &'static str {
    match page.workload.tenants.len() {
        0 | 1 => colour(place),
        _ => colour(page.workload.jobs[place].tenant as usize),
    }
}

fn on_nodes(
    page: &Page<'_>,
    side: &PolicySchedule<'_>,
    nodes: &NodeSets,
    window: (u64, u64),
    hours: Hours<'_>,
) -> String {
    let mut chart = chart(page, window, hours, "nodes, by name");
    let mut boxes = 0;
    for place in jobs_in_window(page, side, window) {
        let (job, served) = (&page.workload.jobs[place], &side.schedule.served[place]);
        let left = hours(served.start_ms.max(window.0));
        let right = hours(served.end_ms(job).min(window.1));
        let title = title(page, side, place);
        let mut set = nodes.of_job(place).to_vec();
        set.sort_unstable();
        // Adjacent nodes form one box.
        for run in set.chunk_by(|a, b| a + 1 == *b) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            boxes += 1;
            if boxes > MAX_BOXES {
                break;
            }
            let (bottom, top) = (f64::from(*first), f64::from(*last) + 1.0);
            chart.area(
                (left, bottom),
                (right, top),
                job_colour(page, place),
                &title,
            );
        }
    }
    with_omission_note(chart.done("jobs on nodes over time", true), boxes)
}

fn on_free_rows(
    page: &Page<'_>,
    side: &PolicySchedule<'_>,
    window: (u64, u64),
    hours: Hours<'_>,
) -> String {
    let mut chart = chart(page, window, hours, page.workload.unit.name());
    let mut places: Vec<usize> = jobs_in_window(page, side, window).collect();
    places.sort_by_key(|place| (side.schedule.served[*place].start_ms, *place));
    // Time until which each row is used. A job takes the lowest free rows, which need not be adjacent.
    let mut taken = vec![0_u64; usize::try_from(page.terms.size).unwrap_or(0).min(200_000)];
    let mut boxes = 0;
    for place in places {
        let (job, served) = (&page.workload.jobs[place], &side.schedule.served[place]);
        let (start, end) = (served.start_ms, served.end_ms(job));
        let free = (0..taken.len())
            .filter(|row| taken[*row] <= start)
            .take(job.size as usize);
        let rows: Vec<usize> = free.collect();
        let title = title(page, side, place);
        for run in rows.chunk_by(|a, b| a + 1 == *b) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            boxes += 1;
            if boxes > MAX_BOXES {
                break;
            }
            let left = (hours(start.max(window.0)), *first as f64);
            let right = (hours(end.min(window.1)), *last as f64 + 1.0);
            chart.area(left, right, job_colour(page, place), &title);
        }
        rows.iter().for_each(|row| taken[*row] = end);
    }
    with_omission_note(
        chart.done("parts of the machine in use over time", true),
        boxes,
    )
}

fn with_omission_note(svg: String, boxes: usize) -> String {
    match boxes > MAX_BOXES {
        true => {
            format!(
                "{svg}<p><small>Only the first {MAX_BOXES} of {boxes} boxes are drawn.</small></p>"
            )
        }
        false => svg,
    }
}
