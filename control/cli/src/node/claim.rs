//! `lattice node claim` and `release`: node claims.

use super::node_args::expand;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, time},
};
use clap::Args;
use lattice_api::claim::{ClaimRequest, ClaimView, ReleaseRequest, Wipe};
use lattice_quorum_types::hostlist;

#[derive(Args)]
pub struct ClaimArgs {
    /// Nodes: gpu007, gpu[001-004]. All of them are claimed, or none.
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
    /// Project for limits and usage of the nodes. The nodes take sensitive allocations of this project.
    #[arg(long, value_name = "PATH")]
    project: String,
    /// Free-text purpose; kept in the audit.
    #[arg(long, default_value = "")]
    purpose: String,
}

#[derive(Args)]
pub struct ReleaseArgs {
    /// Nodes: gpu007, gpu[001-004]. All of them are released, or none.
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
    /// Reason; required to release the claim of another user, and for --wipe-again and --unwiped; kept in the audit.
    #[arg(long)]
    reason: Option<String>,
    /// Repeat a wipe that failed or hangs. For administrators.
    #[arg(long, requires = "reason", conflicts_with = "unwiped")]
    wipe_again: bool,
    /// Treat the nodes as clean although they were not wiped; you take responsibility. The nodes stay drained until an
    /// undrain, which runs their health gate. For administrators.
    #[arg(long, requires = "reason")]
    unwiped: bool,
}

impl ReleaseArgs {
    fn wipe(&self) -> Wipe {
        match (self.wipe_again, self.unwiped) {
            (true, _) => Wipe::Again,
            (false, true) => Wipe::Waive,
            (false, false) => Wipe::Once,
        }
    }
}

/// Claims all of the nodes or none.
pub async fn claim(args: ClaimArgs, connection: &Connection) -> Result<(), Failure> {
    let nodes = hostlist::fold(&expand(&args.nodes)?);
    let (project, purpose) = (args.project, args.purpose);
    let request = ClaimRequest { project, purpose };
    let done = connection.client.claim_nodes(&nodes, &request).await?;
    let row = vec![done.nodes.clone(), done.revision.to_string()];
    let columns = Columns::only(&["nodes", "revision"]);
    if connection.format.is_for_reading() {
        let text = format!("{} claimed for {}", done.nodes, request.project);
        return Ok(output::line(&text)?);
    }
    Ok(output::print_record(
        connection.format,
        &done,
        columns,
        row,
    )?)
}

/// Releases all of the nodes or none.
pub async fn release(args: ReleaseArgs, connection: &Connection) -> Result<(), Failure> {
    let nodes = hostlist::fold(&expand(&args.nodes)?);
    let wipe = args.wipe();
    let reason = args.reason;
    let request = ReleaseRequest { reason, wipe };
    let done = connection.client.release_nodes(&nodes, &request).await?;
    let row = vec![done.nodes.clone(), done.revision.to_string()];
    let columns = Columns::only(&["nodes", "revision"]);
    if connection.format.is_for_reading() {
        let what = match wipe {
            Wipe::Once => "released; each is free once its wipe is confirmed",
            Wipe::Again => "will be wiped again",
            Wipe::Waive => "released unwiped; undrain them when they are fit for service",
        };
        return Ok(output::line(&format!("{} {what}", done.nodes))?);
    }
    Ok(output::print_record(
        connection.format,
        &done,
        columns,
        row,
    )?)
}

/// Describes a node claim in one line.
pub fn in_words(claim: &ClaimView) -> String {
    let ClaimView {
        user,
        project,
        purpose,
        since,
        state,
        reason,
    } = claim;
    let mut words = format!("{user} for {project} since {}", time(since));
    if let Some(purpose) = purpose {
        words = format!("{words} ({purpose})");
    }
    match (state.as_str(), reason) {
        ("claimed", _) => words,
        (state, Some(reason)) => format!("{words}; {state}: {reason}"),
        (state, None) => format!("{words}; {state}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ownership_fits_one_line() {
        let mut claim = ClaimView {
            user: "alice".to_owned(),
            project: "t/a".to_owned(),
            purpose: Some("genomes".to_owned()),
            since: "2026-11-22T02:12:01Z".to_owned(),
            state: "claimed".to_owned(),
            reason: None,
        };
        let words = in_words(&claim);
        assert!(
            words.starts_with("alice for t/a since 2026-11-22"),
            "{words}"
        );
        assert!(words.ends_with("(genomes)"), "{words}");
        claim.state = "unclean".to_owned();
        claim.reason = Some("exit code 1".to_owned());
        assert!(in_words(&claim).ends_with("; unclean: exit code 1"));
    }
}
