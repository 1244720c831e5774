//! `lattice node health`: hardware faults of a node.

use super::node_args::single_node;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, time},
};
use clap::Args;
use lattice_api::health::{ClearRequest, NodeHealthView, ReasonView};

#[derive(Args)]
pub struct HealthArgs {
    /// Node name.
    node: String,
    /// Run the checks now instead of showing the last pass. For a node that does not answer, the last pass is shown in
    /// any case, with its time.
    #[arg(long)]
    fresh: bool,
    /// Clear the reasons with this code after a repair, of all parts or of one (`gpu.xid.79@gpu.3`). A fault that
    /// persists comes back with the next pass.
    #[arg(long, value_name = "CODE[@PART]", conflicts_with = "fresh")]
    clear: Option<String>,
}

fn row(reason: &ReasonView) -> Vec<String> {
    let severity = match reason.observe_only {
        true => format!("{} (watched)", reason.severity),
        false => reason.severity.clone(),
    };
    vec![
        severity,
        reason.code.clone(),
        reason.entity.clone(),
        reason.evidence.clone(),
        reason.action.replace('_', " "),
        reason.source.clone(),
        time(&reason.first_seen),
        time(&reason.last_seen),
        reason.count.to_string(),
    ]
}

/// Describes why nothing was cleared: there is no such reason, or only the BMC can end it.
fn not_cleared_failure(clear: &str, found: &NodeHealthView) -> Failure {
    let (code, part) = match clear.split_once('@') {
        Some((code, part)) => (code, Some(part)),
        None => (clear, None),
    };
    let mut same = found
        .reasons
        .iter()
        .filter(|reason| reason.code == code && part.is_none_or(|part| part == reason.entity));
    let why = match same.next() {
        Some(_) => "the BMC reports this reason, and only the BMC can clear it",
        None => "its agent reports no such reason",
    };
    Failure::refused(format!(
        "nothing is cleared on {} by --clear {clear}: {why}",
        found.node
    ))
}

/// Shows the hardware faults of a node, worst first. With `--clear`, first clears those with the given code.
pub async fn health(args: &HealthArgs, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    let node = single_node(&args.node, |list| {
        format!("`lattice node list '{list}' -o wide`")
    })?;
    let found = match &args.clear {
        Some(clear) => {
            let (code, entity) = match clear.split_once('@') {
                Some((code, entity)) => (code, Some(entity.to_owned())),
                None => (clear.as_str(), None),
            };
            let request = ClearRequest {
                code: code.to_owned(),
                entity,
            };
            client.clear_health(node, &request).await?
        }
        None => client.health(node, args.fresh).await?,
    };
    let columns = Columns {
        narrow: &[
            "severity",
            "code",
            "entity",
            "evidence",
            "action",
            "source",
            "first_seen",
        ],
        wide: &["last_seen", "count"],
    };
    let rows = found.reasons.iter().map(row);
    let dropped_first = &["source", "first_seen", "action"];
    output::print_fitted(
        connection.format,
        &found,
        columns,
        Fitting::Texts(dropped_first),
        rows,
    )?;
    match &args.clear {
        None => {}
        Some(clear) if found.cleared == 0 => return Err(not_cleared_failure(clear, &found)),
        Some(_) => output::message!("cleared: {}", found.cleared),
    }
    if let Some(error) = &found.agent_error {
        // An incomplete or old result must not exit with success.
        return Err(Failure::unreachable(match &found.as_of {
            Some(at) => format!(
                "last known state, from {} or before, and its BMC readings: {error}",
                time(at)
            ),
            None => format!("only its BMC readings are shown: {error}"),
        }));
    }
    if found.reasons.is_empty() {
        let bmc = match &found.bmc_read_at {
            Some(at) => format!("; BMC checked {}", time(at)),
            None => String::new(),
        };
        output::message!("healthy: no check failed (rules {}{bmc})", found.table);
    }
    Ok(())
}
