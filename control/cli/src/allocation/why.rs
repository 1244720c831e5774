//! `lattice why`: explanation of the state of an allocation, with its score.

use super::TenantMultiplier;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format, time, until},
};
use clap::Args;
use lattice_api::{
    allocation::name_text,
    explanation::{ExplanationView, ScoreView},
};
use lattice_client::JobRef;
use std::fmt::Write as _;

/// Explain the state of an allocation.
#[derive(Args)]
pub struct WhyArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
}

/// Runs `lattice why`.
pub async fn why(args: &WhyArgs, connection: &Connection) -> Result<(), Failure> {
    let why = connection.client.explanation(args.id).await?;
    match connection.format {
        Format::Table | Format::Wide => Ok(output::line(&in_words(&why))?),
        format => {
            let steps = why.steps.iter().map(|step| {
                vec![
                    step.constraint.clone(),
                    step.removed.to_string(),
                    step.left.to_string(),
                ]
            });
            let columns = Columns::only(&["constraint", "removed", "left"]);
            Ok(output::print(format, &why, columns, steps)?)
        }
    }
}

fn in_words(why: &ExplanationView) -> String {
    let summary = format!(
        "allocation {} is {}: {}",
        name_text(why.allocation, why.element.as_ref()),
        why.state,
        why.summary
    );
    with_details(summary, why)
}

/// Appends the details of the explanation to its summary.
pub(crate) fn with_details(summary: String, why: &ExplanationView) -> String {
    let mut text = summary;
    for step in &why.steps {
        let _ = write!(
            text,
            "\n  {}: {} removed, {} left",
            step.constraint, step.removed, step.left
        );
    }
    if let Some(start) = &why.estimated_start {
        let _ = write!(text, "\n  estimated start: {}", time(start));
    }
    if let Some(nodes) = &why.reserved {
        let _ = write!(
            text,
            "\n  nodes reserved from the estimated start on: {nodes}"
        );
    }
    if let Some(at) = &why.as_of {
        let _ = write!(text, "\n  as of: {}", time(at));
    }
    for (name, at) in [
        ("time limit ends at", &why.ends_at),
        ("SIGKILL at", &why.kill_at),
    ] {
        if let Some(at) = at {
            let _ = write!(text, "\n  {name}: {}", until(Format::Table, at));
        }
    }
    for problem in &why.node_problems {
        let _ = write!(text, "\n  {}: {}", problem.status, problem.nodes);
        if let Some(reason) = &problem.reason {
            let _ = write!(text, " ({reason})");
        }
    }
    if let Some(score) = &why.score {
        let _ = write!(text, "\n{}", score_text(score));
    }
    text
}

/// Formats the score: the total with the place in the queue, one line per factor, the sum, and the factors of the
/// tenant if one of them is below 1.
pub(crate) fn score_text(score: &ScoreView) -> String {
    let ahead = match score.ahead {
        0 => "first in its queue".to_owned(),
        1 => "1 allocation ahead in its queue".to_owned(),
        ahead => format!("{ahead} allocations ahead in its queue"),
    };
    let mut text = format!("  score {:.4}; {ahead}", score.total);
    let _ = write!(
        text,
        "\n    {:<12} {:>8} {:>8} {:>8}",
        "factor", "value", "weight", "product"
    );
    for factor in &score.factors {
        let product = factor.value * factor.weight;
        let (name, value, weight) = (&factor.name, factor.value, factor.weight);
        let _ = write!(
            text,
            "\n    {name:<12} {value:>8.4} {weight:>8.4} {product:>8.4}"
        );
    }
    let _ = write!(text, "\n    {:<12} {:>26.4}", "sum", score.sum);
    let tenant = TenantMultiplier::of_score(score);
    let acting = tenant.acting();
    if let Some(acting) = acting {
        let name = format!("x {}", acting.name);
        let _ = write!(
            text,
            "\n    {name:<12} {:>26.4}  multiplies the sum: {}",
            acting.value, acting.cause
        );
    }
    for other in tenant.others(acting) {
        let _ = write!(
            text,
            "\n    {:<12} {:>26.4}  no effect: only the lowest factor multiplies",
            other.name, other.value
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn why_shows_plan_time() {
        let sentences_at = |as_of: serde_json::Value| {
            let why = serde_json::json!({
                "allocation": 7, "state": "pending", "summary": "waits", "as_of": as_of,
            });
            in_words(&serde_json::from_value(why).unwrap())
        };
        let planned = sentences_at("2026-11-23T04:41:18.073Z".into());
        assert_eq!(
            planned,
            "allocation 7 is pending: waits\n  as of: 2026-11-23T04:41:18Z"
        );
        let unplanned = sentences_at(serde_json::Value::Null);
        assert_eq!(unplanned, "allocation 7 is pending: waits");
    }

    #[test]
    fn why_lists_problems_of_a_running_allocation() {
        let why = serde_json::json!({
            "allocation": 7, "state": "running", "summary": "runs; node gpu001 unreachable",
            "ends_at": "2020-01-01T00:00:00.000Z",
            "node_problems": [
                {"status": "unreachable", "nodes": "gpu001", "reason": "does not answer control"},
                {"status": "draining", "nodes": "gpu002"},
            ],
        });
        let text = in_words(&serde_json::from_value(why).unwrap());
        assert!(
            text.starts_with(
                "allocation 7 is running: runs; node gpu001 unreachable\n  time limit ends at: \
                 2020-01-01T00:00:00Z ("
            ),
            "{text}"
        );
        assert!(
            text.ends_with("\n  unreachable: gpu001 (does not answer control)\n  draining: gpu002"),
            "{text}"
        );
    }

    #[test]
    fn why_names_the_factor_that_multiplies() {
        let text = |factors: serde_json::Value| {
            let mut score = serde_json::json!({
                "factors": [{"name": "priority", "value": 0.5, "weight": 0.4}], "sum": 0.2,
                "budget": 1.0, "total": 0.2, "ahead": 1,
            });
            let all = score.as_object_mut().unwrap();
            all.extend(factors.as_object().unwrap().clone());
            score_text(&serde_json::from_value(score).unwrap())
        };
        let plain = text(serde_json::json!({"share": 1.0, "accounting": 1.0}));
        assert!(
            plain.ends_with("0.2000") && plain.contains("\n    sum "),
            "{plain}"
        );
        let share = serde_json::json!({"share": 0.05, "accounting": 1.0, "total": 0.01});
        let share = text(share);
        let lines: Vec<_> = share.lines().collect();
        let expected = [
            "  score 0.0100; 1 allocation ahead in its queue",
            "    factor          value   weight  product",
            "    priority       0.5000   0.4000   0.2000",
            "    sum                              0.2000",
            "    x share                          0.0500  multiplies the sum: the tenant is above its fair \
             share and holds its burst allowance of nodes or more",
            "    budget                           1.0000  no effect: only the lowest factor multiplies",
            "    accounting                       1.0000  no effect: only the lowest factor multiplies",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn element_is_named_by_array_and_index() {
        let element = serde_json::json!({"array": 232, "index": 50});
        let why = serde_json::json!({
            "allocation": 283, "element": element, "state": "pending", "summary": "waits",
        });
        let why = in_words(&serde_json::from_value(why).unwrap());
        assert_eq!(why, "allocation 232_50 is pending: waits");
    }
}
