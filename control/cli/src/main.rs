//! `lattice`: what this cluster is, and how to use it.
#![forbid(unsafe_code)]

mod host;
mod output;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Know and use a GPU or HPC cluster.
#[derive(Parser)]
#[command(name = "lattice", version, arg_required_else_help = true)]
struct Cli {
    /// How results are printed.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: output::Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hosts and captured host trees, offline: no cluster is asked.
    #[command(subcommand)]
    Host(host::HostCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    // This binary is also the disposable child in which driver calls run.
    lattice_hwprobe::child::run_if_child();
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Host(command) => host::run(command, cli.output),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "lattice",
                &mut std::io::stdout(),
            );
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lattice: {error:#}");
            ExitCode::FAILURE
        }
    }
}
