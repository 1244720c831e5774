//! `lattice conformance brake`: the brake on automatic draining.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, time},
};
use clap::{Args, Subcommand};

/// Brake subcommands.
#[derive(Subcommand)]
pub enum BrakeCommand {
    /// Show whether automatic draining is stopped, and why.
    Show,
    /// Resume automatic draining. For operators, after a check of the nodes; kept in the audit.
    Release(ReleaseArgs),
}

#[derive(Args)]
pub struct ReleaseArgs {
    /// Finding of the check.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Runs a brake command.
pub async fn run(command: BrakeCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        BrakeCommand::Show => {
            let state = connection.client.brake().await?;
            let rows = state
                .held
                .iter()
                .map(|held| vec![time(&held.since), held.by.clone(), held.reason.clone()]);
            let columns = Columns::only(&["since", "by", "reason"]);
            output::print_fitted(
                connection.format,
                &state,
                columns,
                Fitting::Texts(&[]),
                rows,
            )?;
            if state.held.is_none() {
                output::message!("automatic draining is active");
            }
        }
        BrakeCommand::Release(args) => {
            let done = connection.client.release_brake(&args.reason).await?;
            output::print_done(connection.format, &done, "automatic draining resumed")?;
        }
    }
    Ok(())
}
