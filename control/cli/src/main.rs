//! `lattice`: command line for users and scripts; see the library of this package.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// With mimalloc a replay takes 8 % less time than with the C library's allocator; see `control/replay/FIGURES.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lattice_cli::main()
}
