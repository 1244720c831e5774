//! Report of a comparison as one self-contained HTML page: table of differences, and charts of the schedules.

mod gantt;
mod series;
mod svg;
#[cfg(test)]
mod tests;

use crate::{
    compare::{ComparisonResult, Difference, Row},
    metrics::{CONVENTIONS, MetricInputs, SizeClass, intended_shares, work_within},
    schedule::Schedule,
    trace::Workload,
};
use series::{Series, queue, utilization};
use std::fmt::Write as _;
use svg::{Axis, Chart, colour, escaped, legend, number};

/// Largest number of tenants in the chart; those with the most work are shown.
const MAX_TENANTS: usize = 12;

/// Policy with its schedule.
#[derive(Debug, Clone, Copy)]
pub struct PolicySchedule<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Schedule of the workload with the recorded submits.
    pub schedule: &'a Schedule,
    /// Waits by size class.
    pub classes: &'a [SizeClass],
    /// Order in which events of one instant were taken.
    pub order: &'a str,
}

/// Contents of a page.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Title of the page: the name of the replayed workload.
    pub title: &'a str,
    /// Workload.
    pub workload: &'a Workload,
    /// Inputs with which the schedules were measured.
    pub terms: &'a MetricInputs,
    /// Policies with their schedules; the others are compared with the first.
    pub policies: &'a [PolicySchedule<'a>],
    /// Values of each measure, and differences between the policies.
    pub rows: &'a [Row],
    /// Number of seeds.
    pub seeds: usize,
    /// Largest shift of a submit, seconds.
    pub max_shift_s: u64,
    /// Period of the Gantt charts, milliseconds of the trace's own time; `None`: around the longest queue.
    pub window: Option<(u64, u64)>,
}

const STYLE: &str = "
body{font:15px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:960px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .5rem;text-align:right;border-bottom:1px solid #ddd;vertical-align:top}th:first-child,td:first-child{text-align:left}
thead th{border-bottom:2px solid #888}small{color:#666}
.better{color:#00664b;font-weight:600}.worse{color:#a33f00;font-weight:600}.noise,.same,.one{color:#666}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:#333}
.gantt rect{stroke:#fff;stroke-width:.5}.grid{stroke:#e4e4e4}.axis{stroke:#555}
.legend span{margin-right:1.2rem}.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
li{margin:.15rem 0}
";

/// Renders the page.
pub fn page(page: &Page<'_>) -> String {
    let mut html = String::new();
    let title = escaped(page.title);
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1>\n"
    );
    html.push_str(&table(page));
    let names: Vec<&str> = page.policies.iter().map(|side| side.name).collect();
    let legend = legend(&names);
    let mut section = |heading: &str, text: &str, picture: String| {
        let _ = write!(
            html,
            "<h2>{heading}</h2>\n<p>{text}</p>\n{legend}{picture}\n"
        );
    };
    section(
        "Jobs that wait",
        "Number of waiting jobs, mean of each interval.",
        over_time(page, queue, "jobs", None),
    );
    section(
        "Utilization",
        "Part of the machine in use, mean of each interval.",
        over_time(page, utilization, "part in use", Some(1.0)),
    );
    section(
        "Wait by size",
        "Mean wait of jobs of about the same size; the longest of each is in the tooltip.",
        by_size(page),
    );
    section(
        "Distribution of waits",
        "Part of all jobs that waited at most this long. Waits below one second are at the left end.",
        distribution(page),
    );
    if intended_shares(page.workload, page.terms).len() > 1 {
        section(
            "Tenants",
            "Used share of the work divided by the intended share, in the window: 1 is as intended. Only the largest \
             tenants are shown.",
            tenants(page),
        );
    }
    html.push_str(&gantt::charts(page));
    html.push_str("<h2>What the numbers mean</h2>\n<ul>\n");
    let mut orders: Vec<String> = page
        .policies
        .iter()
        .map(|side| format!("{}: {}", side.name, side.order))
        .collect();
    orders.extend(page.workload.notes.iter().cloned());
    for line in CONVENTIONS
        .iter()
        .map(|line| (*line).to_owned())
        .chain(orders)
    {
        let _ = writeln!(html, "<li>{}</li>", escaped(&line));
    }
    html.push_str("</ul>\n</body></html>\n");
    html
}

fn table(page: &Page<'_>) -> String {
    let mut html = String::new();
    let first = page.policies.first().map_or("", |side| side.name);
    let jobs = page.workload.jobs.len();
    let seeds = match page.seeds {
        0 | 1 => "one replay of each policy: noise is unknown (use more --seeds)".to_owned(),
        seeds => format!(
            "means of {seeds} replays of each policy; all but one have submits shifted by up to {} s; differences are \
             relative to {}, and noise if their 95 % confidence interval contains 0",
            page.max_shift_s,
            escaped(first)
        ),
    };
    let _ = write!(
        html,
        "<p>{jobs} jobs on {} {}; {seeds}.</p>\n<table><thead><tr><th>",
        page.terms.size,
        page.workload.unit.name()
    );
    for side in page.policies {
        let _ = write!(html, "</th><th>{}", escaped(side.name));
    }
    html.push_str("</th></tr></thead>\n<tbody>\n");
    for row in page.rows {
        let unit = if row.unit.is_empty() {
            String::new()
        } else {
            format!(" <small>{}</small>", row.unit)
        };
        let _ = write!(html, "<tr><td>{}{unit}", escaped(row.title));
        for (place, value) in row.values.iter().enumerate() {
            let _ = write!(html, "</td><td>{}", number(value.mean));
            if page.seeds > 1 && value.deviation > 0.0 {
                let _ = write!(html, " <small>± {}</small>", number(value.deviation));
            }
            if let Some(difference) = place
                .checked_sub(1)
                .and_then(|place| row.differences.get(place))
            {
                let _ = write!(html, "<br>{}", difference_html(difference));
            }
        }
        html.push_str("</td></tr>\n");
    }
    html.push_str("</tbody></table>\n");
    html
}

fn difference_html(difference: &Difference) -> String {
    let relative = difference.relative.map_or_else(
        || format!("{:+.3}", difference.mean),
        |relative| format!("{:+.1} %", 100.0 * relative),
    );
    let (class, words) = match difference.verdict {
        ComparisonResult::Same => return "<span class=\"same\">the same</span>".to_owned(),
        ComparisonResult::OtherJobs => ("noise", format!("{relative}, other jobs")),
        ComparisonResult::Other => ("one", relative),
        ComparisonResult::Noise => ("noise", format!("{relative}, noise")),
        ComparisonResult::OneSeed => ("one", relative),
        ComparisonResult::Better => ("better", format!("{relative}, better")),
        ComparisonResult::Worse => ("worse", format!("{relative}, worse")),
    };
    format!("<span class=\"{class}\">{words}</span>")
}

fn over_time(
    page: &Page<'_>,
    of: fn(&Page<'_>, &Schedule) -> Series,
    title: &str,
    most: Option<f64>,
) -> String {
    let all: Vec<Series> = page
        .policies
        .iter()
        .map(|side| of(page, side.schedule))
        .collect();
    let last = all
        .iter()
        .flat_map(|series| series.last())
        .map(|(x, _)| *x)
        .fold(0.0, f64::max);
    let highest = all.iter().flatten().map(|(_, y)| *y).fold(0.0, f64::max);
    let (x, unit) = series::time_axis(last);
    let mut chart = Chart::new(x, Axis::linear(0.0, most.unwrap_or(highest), title), 240.0);
    for (n, series) in all.into_iter().enumerate() {
        chart.line(series.into_iter().map(|(x, y)| (x / unit, y)), n);
    }
    chart.done(title, true)
}

fn by_size(page: &Page<'_>) -> String {
    let mut sizes: Vec<(u32, u32)> = page
        .policies
        .iter()
        .flat_map(|side| side.classes)
        .map(|class| (class.from, class.to))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let highest = page
        .policies
        .iter()
        .flat_map(|side| side.classes)
        .map(|class| class.mean_wait_s)
        .fold(0.0, f64::max);
    let x = Axis::linear(0.0, sizes.len() as f64, page.workload.unit.name());
    let mut chart = Chart::new(x, Axis::linear(0.0, highest, "mean wait, s"), 240.0);
    let width = 0.8 / page.policies.len().max(1) as f64;
    for (place, (from, to)) in sizes.iter().enumerate() {
        let size = if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        };
        chart.label(place as f64 + 0.5, &size);
        for (n, side) in page.policies.iter().enumerate() {
            let Some(class) = side.classes.iter().find(|class| class.from == *from) else {
                continue;
            };
            let left = place as f64 + 0.1 + width * n as f64;
            let title = format!(
                "{}, size {size}: {} jobs, mean {} s, longest {} s",
                side.name,
                class.jobs,
                number(class.mean_wait_s),
                number(class.max_wait_s)
            );
            chart.area(
                (left, 0.0),
                (left + width * 0.92, class.mean_wait_s),
                colour(n),
                &title,
            );
        }
    }
    chart.done("mean wait by size", false)
}

fn distribution(page: &Page<'_>) -> String {
    let all: Vec<Vec<f64>> = page
        .policies
        .iter()
        .map(|side| series::waits(page, side.schedule))
        .collect();
    let longest = all
        .iter()
        .filter_map(|waits| waits.last())
        .copied()
        .fold(10.0, f64::max);
    let mut chart = Chart::new(
        Axis::log(1.0, longest, "wait, s (logarithmic)"),
        Axis::linear(0.0, 1.0, "part of jobs"),
        240.0,
    );
    for (n, waits) in all.iter().enumerate() {
        let count = waits.len().max(1) as f64;
        let steps = 400.min(waits.len());
        let points = (0..=steps).filter_map(|step| {
            let place = (waits.len() * step / steps.max(1)).min(waits.len().checked_sub(1)?);
            Some((waits[place].max(1.0), (place + 1) as f64 / count))
        });
        chart.line(points, n);
    }
    chart.done("distribution of waits", true)
}

fn tenants(page: &Page<'_>) -> String {
    let shares = intended_shares(page.workload, page.terms);
    let used: Vec<Vec<f64>> = page
        .policies
        .iter()
        .map(|side| {
            work_within(
                page.workload,
                &side.schedule.served,
                page.terms,
                series::window(page, side.schedule),
            )
        })
        .collect();
    let total = |used: &[f64]| used.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mut largest: Vec<usize> = (0..shares.len())
        .filter(|party| shares[*party] > 0.0)
        .collect();
    let first = used.first().map_or(&[][..], Vec::as_slice);
    largest.sort_by(|a, b| first[*b].total_cmp(&first[*a]).then(a.cmp(b)));
    largest.truncate(MAX_TENANTS);
    let ratio = |side: &[f64], party: usize| side[party] / total(side) / shares[party];
    let highest = largest
        .iter()
        .flat_map(|party| used.iter().map(|side| ratio(side, *party)))
        .fold(1.0, f64::max);
    let x = Axis::linear(0.0, largest.len() as f64, "tenant");
    let mut chart = Chart::new(x, Axis::linear(0.0, highest, "used / meant"), 240.0);
    let width = 0.8 / used.len().max(1) as f64;
    for (place, party) in largest.iter().enumerate() {
        let named = page.terms.parties.get(*party).map(|party| &party.name);
        let name = named
            .or_else(|| page.workload.tenants.get(*party))
            .map_or("", String::as_str);
        chart.label(
            place as f64 + 0.5,
            &name.chars().take(10).collect::<String>(),
        );
        for (n, side) in used.iter().enumerate() {
            let (left, ratio) = (place as f64 + 0.1 + width * n as f64, ratio(side, *party));
            let share = 100.0 * side[*party] / total(side);
            let title = format!(
                "{}, {name}: {share:.2} % of the work, meant {:.2} %",
                page.policies[n].name,
                100.0 * shares[*party]
            );
            chart.area((left, 0.0), (left + width * 0.92, ratio), colour(n), &title);
        }
    }
    chart.done("tenants", false)
}
