//! Contents of a page, also with unusual names.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    compare::compare,
    generate::{GeneratorSettings, generate},
    run::{Machine, ReplayOptions, ReplayScheduler, run, terms},
    textbook::TextbookScheduler,
};

fn page_of(tenants: u32, name: &str) -> String {
    let mut workload = generate(GeneratorSettings {
        seed: 1,
        jobs: 300,
        nodes: 32,
        load: 1.1,
        largest: 16,
        tenants,
    });
    workload.tenants[0] = name.to_owned();
    let machine = Machine::Alike(32);
    let deciders =
        [TextbookScheduler::Easy, TextbookScheduler::Fcfs].map(ReplayScheduler::Textbook);
    let outcomes = deciders
        .map(|decider| run(&workload, &machine, &decider, &ReplayOptions::default()).unwrap());
    let rows = compare(
        &outcomes
            .each_ref()
            .map(|outcome| vec![outcome.metrics.clone()]),
    );
    let sides = outcomes.each_ref().map(|outcome| PolicySchedule {
        name,
        schedule: &outcome.schedule,
        classes: &outcome.metrics.starvation,
        order: outcome.order.description(),
    });
    page(&Page {
        title: name,
        workload: &workload,
        terms: &terms(&workload, &machine),
        policies: &sides,
        rows: &rows,
        seeds: 1,
        max_shift_s: 0,
        window: None,
    })
}

#[test]
fn names_are_text_and_nothing_else() {
    let html = page_of(3, "<script>alert(\"&\")</script>");
    assert!(!html.contains("<script"), "{html}");
    assert!(html.contains("&lt;script&gt;alert(&quot;&amp;&quot;)"));
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(
        !html.contains("NaN") && !html.contains("inf\""),
        "every number is one"
    );
}

#[test]
fn tenants_are_shown_where_there_are_some() {
    assert!(page_of(3, "a").contains("<h2>Tenants</h2>"));
    assert!(!page_of(1, "a").contains("<h2>Tenants</h2>"));
}

/// The mean over time of a drawn series equals the metric.
#[test]
fn what_is_drawn_is_what_was_measured() {
    let workload = generate(GeneratorSettings {
        seed: 2,
        jobs: 400,
        nodes: 32,
        load: 1.2,
        largest: 16,
        tenants: 2,
    });
    let machine = Machine::Alike(32);
    let outcome = run(
        &workload,
        &machine,
        &ReplayScheduler::Textbook(TextbookScheduler::Easy),
        &ReplayOptions::default(),
    )
    .unwrap();
    let page = Page {
        title: "",
        workload: &workload,
        terms: &terms(&workload, &machine),
        policies: &[],
        rows: &[],
        seeds: 1,
        max_shift_s: 0,
        window: None,
    };
    let mean = |series: Series| series.iter().map(|(_, y)| y).sum::<f64>() / series.len() as f64;
    let (waits, used) = (
        queue(&page, &outcome.schedule),
        utilization(&page, &outcome.schedule),
    );
    assert!((mean(waits) - outcome.metrics.mean_queue).abs() < 1e-6 * outcome.metrics.mean_queue);
    assert!((mean(used) - outcome.metrics.utilization).abs() < 1e-6);
}
