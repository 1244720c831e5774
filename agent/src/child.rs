//! Hidden subcommands of a binary that contains agents.

use std::process::ExitCode;

/// Runs the probe child or a supervisor and exits, if this process was started as one; returns otherwise. This call
/// must come first in `main` of every binary that builds an agent, tests included.
pub fn run_if_child() {
    lattice_hwprobe::child::run_if_child();
    let mut args = std::env::args_os().skip(1);
    if args
        .next()
        .is_some_and(|arg| arg == crate::supervisor::SUBCOMMAND)
    {
        let code = match (args.next(), args.next()) {
            (Some(dir), None) => crate::supervisor::main(dir.as_ref()),
            _ => {
                eprintln!("usage: {} <attempt folder>", crate::supervisor::SUBCOMMAND);
                ExitCode::from(2)
            }
        };
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}
