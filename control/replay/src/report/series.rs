//! Time series for charts.

use super::{Page, svg::Axis};
use crate::schedule::Schedule;

/// Number of points of a series; each covers an equal part of the time.
const POINTS: usize = 400;
const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 24.0 * HOUR_S;

/// Points of (seconds after the first submit, value).
pub(super) type Series = Vec<(f64, f64)>;

/// First submit and last end, milliseconds.
pub(super) fn span(page: &Page<'_>, schedule: &Schedule) -> (u64, u64) {
    let jobs = &page.workload.jobs;
    let begin = jobs.first().map_or(0, |job| job.submit_ms);
    let ends = jobs.iter().zip(&schedule.served);
    let ends = ends
        .filter(|(_, served)| served.has_started())
        .map(|(job, served)| served.end_ms(job));
    (begin, ends.max().unwrap_or(begin).max(begin + 1))
}

/// Period from first submit to last end without its first and last twentieth.
pub(super) fn window(page: &Page<'_>, schedule: &Schedule) -> (u64, u64) {
    let (begin, end) = span(page, schedule);
    let dropped = (end - begin) / 20;
    (begin + dropped, end - dropped)
}

/// Time axis up to `last_s` seconds in days or hours, and the length of that unit in seconds.
pub(super) fn time_axis(last_s: f64) -> (Axis<'static>, f64) {
    let (unit, title) = match last_s > 4.0 * DAY_S {
        true => (DAY_S, "days after the first submit"),
        false => (HOUR_S, "hours after the first submit"),
    };
    (Axis::linear(0.0, last_s / unit, title), unit)
}

/// Number of waiting jobs.
pub(super) fn queue(page: &Page<'_>, schedule: &Schedule) -> Series {
    let span = span(page, schedule);
    let jobs = page.workload.jobs.iter().zip(&schedule.served);
    let waits = jobs.map(|(job, served)| (job.submit_ms, served.start_ms.min(span.1), 1.0));
    means(span, waits, 1.0)
}

/// Fraction of the machine in use.
pub(super) fn utilization(page: &Page<'_>, schedule: &Schedule) -> Series {
    let span = span(page, schedule);
    let jobs = page.workload.jobs.iter().zip(&schedule.served);
    let runs = jobs
        .filter(|(_, served)| served.has_started())
        .map(|(job, served)| (served.start_ms, served.end_ms(job), f64::from(job.size)));
    means(span, runs, page.terms.size as f64)
}

/// Mean sum of values in each of [`POINTS`] equal intervals, divided by `whole`. `of` yields periods with their values.
fn means(
    (begin, end): (u64, u64),
    of: impl Iterator<Item = (u64, u64, f64)>,
    whole: f64,
) -> Series {
    let width = ((end - begin) as f64 / POINTS as f64).max(1.0);
    // `sums` collects periods that partly cover an interval; `steps` the changes of the sum over those that fully cover
    // it.
    let mut sums = vec![0.0; POINTS + 1];
    let mut steps = vec![0.0; POINTS + 2];
    for (from, to, value) in of {
        let at = |ms: u64| ((ms.max(begin) - begin) as f64 / width).min(POINTS as f64);
        let (from, to) = (at(from), at(to));
        let (first, last) = (from.floor() as usize, to.floor() as usize);
        if first == last {
            sums[first] += value * (to - from);
            continue;
        }
        sums[first] += value * (1.0 - from.fract());
        sums[last] += value * to.fract();
        steps[first + 1] += value;
        steps[last] -= value;
    }
    let mut covering = 0.0;
    let point = |place: usize| {
        covering += steps[place];
        let middle_s = (place as f64 + 0.5) * width / 1000.0;
        (middle_s, (sums[place] + covering) / whole)
    };
    (0..POINTS).map(point).collect()
}

/// Waits in ascending order, seconds.
pub(super) fn waits(page: &Page<'_>, schedule: &Schedule) -> Vec<f64> {
    let jobs = page.workload.jobs.iter().zip(&schedule.served);
    let started = jobs.filter(|(_, served)| served.has_started());
    let mut waits: Vec<u64> = started.map(|(job, served)| served.wait_ms(job)).collect();
    waits.sort_unstable();
    waits.into_iter().map(|ms| ms as f64 / 1000.0).collect()
}
