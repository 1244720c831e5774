//! Job script as a sealed file in memory.
//!
//! A script without a path needs no access of the user to the agent's folders, cannot change after the agent has
//! recorded it, and leaves no file behind. The job opens the script as `/proc/self/fd/<n>`.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// Interpreter of scripts without a `#!` line.
const DEFAULT_INTERPRETER: &str = "/bin/sh";

/// Script that child processes can read.
pub(in crate::supervisor) struct Script {
    file: OwnedFd,
    interpreter: Vec<String>,
}

/// Creates the sealed file with this text.
pub(in crate::supervisor) fn create_sealed(text: &str) -> io::Result<Script> {
    // Without close-on-exec: the job's interpreter opens the file.
    let held = memfd_create("lattice-script", MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(held);
    file.write_all(text.as_bytes())?;
    let held = OwnedFd::from(file);
    fcntl_add_seals(
        &held,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(Script {
        file: held,
        interpreter: interpreter(text),
    })
}

impl Script {
    /// Command line that runs the script.
    pub(in crate::supervisor) fn argv(&self) -> Vec<String> {
        let mut argv = self.interpreter.clone();
        argv.push(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        argv
    }
}

/// Program of the `#!` line with at most one argument, parsed as by the kernel.
fn interpreter(text: &str) -> Vec<String> {
    let line = text.lines().next().unwrap_or_default();
    let Some(line) = line.strip_prefix("#!").map(str::trim) else {
        return vec![DEFAULT_INTERPRETER.to_owned()];
    };
    let parts = line.split_once([' ', '\t']);
    match parts {
        _ if line.is_empty() => vec![DEFAULT_INTERPRETER.to_owned()],
        None => vec![line.to_owned()],
        Some((program, argument)) => vec![program.to_owned(), argument.trim().to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_interpreter_with_at_most_one_argument() {
        assert_eq!(interpreter("echo hi"), ["/bin/sh"]);
        assert_eq!(interpreter("#!\necho"), ["/bin/sh"]);
        assert_eq!(interpreter("#! /bin/bash\n"), ["/bin/bash"]);
        assert_eq!(
            interpreter("#!/usr/bin/env  python3 -u\n"),
            ["/usr/bin/env", "python3 -u"]
        );
    }
}
