//! Test harness: a whole cluster as child processes, and its observers, for tests that span crates. The harness takes
//! no decision of a daemon. It reads the state of the cluster from public sources: the API, the quorum, `/proc`, and
//! files that jobs wrote.
//!
//! Start with [`site::Site`].
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

/// Programs under test. Only a test can name them: see [`programs!`].
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

/// Lets any user create files in `folder`: jobs run as another user when the test is root.
pub fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
}
