//! A whole cluster as child processes, and what watches it: for the tests of this package, which
//! are about what spans crates. It must not decide anything a daemon decides; what it knows of the
//! cluster it reads where anybody could: the API, the quorum, `/proc`, files that jobs wrote.
//!
//! Begin with [`site::Site`].
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a harness of tests: what fails here fails the test"
)]

pub mod bless;
pub mod bmcs;
pub mod daemon;
pub mod disk;
pub mod matrix;
pub mod members;
pub mod monitor;
pub mod netns;
pub mod observer;
pub mod procs;
pub mod prometheus;
pub mod quota;
pub mod recorder;
pub mod script;
pub mod service;
pub mod site;
pub mod stopwatch;
pub mod wait;

use std::path::Path;

/// The programs under test. Only a test can name them: see [`programs!`].
#[derive(Debug, Clone, Copy)]
pub struct Programs {
    /// `lattice-quorum`.
    pub quorum: &'static str,
    /// `lattice-control`.
    pub control: &'static str,
    /// `lattice-agent`.
    pub agent: &'static str,
    /// `lattice`.
    pub cli: &'static str,
}

/// The programs that Cargo built for this test.
#[macro_export]
macro_rules! programs {
    () => {
        $crate::Programs {
            quorum: env!("CARGO_BIN_EXE_under-test-quorum"),
            control: env!("CARGO_BIN_EXE_under-test-control"),
            agent: env!("CARGO_BIN_EXE_under-test-agent"),
            cli: env!("CARGO_BIN_EXE_under-test-cli"),
        }
    };
}

/// Lets any user make files in `folder`: jobs run as somebody else where the test is root.
pub fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
}
