//! `lattice replay verify`.

use super::{print_message, run::time};
use crate::{
    failure::Failure,
    output::{self, Format},
};
use clap::Args;
use lattice_api::text;
use lattice_replay::verify::{self, VerificationResult};
use std::{path::PathBuf, process::ExitCode};

/// Repeat the decisions of a recorded live system, and compare the results.
///
/// First each plan is repeated on the inputs that its scheduler had; the first plan with a different placement is
/// reported with the cause and with the inputs that preceded it. Then all plans are repeated in sequence, so that each builds on the replayed placements,
/// and starts, nodes, makespan and waits are compared. The command fails if anything differs, or if the record is cut
/// off.
#[derive(Args)]
pub struct VerifyArgs {
    /// Record, as written by `lattice replay record`.
    file: PathBuf,
}

/// Runs `lattice replay verify`.
pub fn run(args: &VerifyArgs, format: Format) -> Result<ExitCode, Failure> {
    let verdict = verify::verify(|| verify::open(&args.file)).map_err(anyhow::Error::from)?;
    print(&verdict, format)?;
    if let Some(cut_off) = &verdict.cut_off {
        print_message(format!("{}: {cut_off}", args.file.display()));
    }
    if let Some(first) = &verdict.first_divergence {
        let at = text::time(first.at);
        print_message(format!(
            "plan {} (line {}, vCluster {}, {at}) differs: {}",
            first.cycle, first.line, first.vcluster, first.what
        ));
        print_message(format!("cause: {}", first.cause));
        if !first.inputs.is_empty() {
            let inputs = first.inputs.join("; ");
            print_message(format!("inputs since the plan before it: {inputs}"));
        }
    }
    match verdict.is_same() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Failure::refused(difference(&verdict))),
    }
}

/// Describes the differences in one sentence, with the first one.
fn difference(verdict: &VerificationResult) -> String {
    let v = verdict;
    let starts = v.allocations - v.same_nodes;
    let Some(first) = &v.first_divergence else {
        return match v.cut_off {
            Some(_) => {
                "the record is cut off; all that precedes the cut is decided as recorded".to_owned()
            }
            None => format!(
                "every plan is equal, but {starts} of {} allocations did not start in the plan that placed them; the \
                 largest difference is {}",
                v.allocations,
                time(v.max_start_difference_s)
            ),
        };
    };
    let plans = v.cycles - v.cycles_equal;
    let of = match first.id {
        Some(id) => format!("allocation {id}"),
        None => "a reservation".to_owned(),
    };
    format!(
        "the replay differs from the record in {plans} of {} plans and in the starts of {starts} of {} allocations; \
         first: {of} in plan {} at {}",
        v.cycles,
        v.allocations,
        first.cycle,
        text::time(first.at)
    )
}

fn print(verdict: &VerificationResult, format: Format) -> Result<(), Failure> {
    let v = verdict;
    let title = format!(
        "{} by control {} ({}), {} to {}",
        v.cluster,
        v.control,
        v.recorded_by,
        output::time(&text::time(v.from)),
        output::time(&text::time(v.until))
    );
    output::title(format, &title)?;
    let of = |part: u64, whole: u64| format!("{part} of {whole}");
    let rows = [
        ("plans that place the same", of(v.cycles_equal, v.cycles)),
        ("started in the same plan", of(v.same_start, v.allocations)),
        (
            "started in the same plan, same nodes",
            of(v.same_nodes, v.allocations),
        ),
        ("start difference, mean", time(v.mean_start_difference_s)),
        ("start difference, largest", time(v.max_start_difference_s)),
        ("makespan, recorded", time(v.makespan_recorded_s)),
        ("makespan, replayed", time(v.makespan_replayed_s)),
        (
            "distance of waits (Kolmogorov-Smirnov)",
            format!("{:.4}", v.wait_distance),
        ),
        ("submits refused then", v.refused_submits.to_string()),
        ("placements refused then", v.refused.to_string()),
        ("placements held back then", v.held_back.to_string()),
    ];
    let rows = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value]);
    output::print_details(format, verdict, ["what", "value"], rows)?;
    Ok(())
}
