//! Source of the GPU driver's report.

use super::SUBCOMMAND;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the GPU driver is queried. The query never runs in this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NvmlSource {
    /// Run this program, which must call [`super::main`].
    Child {
        /// The program, normally the running binary.
        program: PathBuf,
        /// Arguments, normally `__probe-gpu [--library PATH]`.
        args: Vec<OsString>,
        /// Environment variables to add.
        env: Vec<(OsString, OsString)>,
        /// Time after which the program is killed.
        deadline: Duration,
    },
    /// Read the report from a file that a [`crate::capture`] wrote.
    Recorded(PathBuf),
    /// Do not query the driver.
    Disabled,
}

impl NvmlSource {
    /// Deadline of an NVML query. NVML responds in milliseconds on a healthy node, and in a few seconds if the driver
    /// has to wake sixteen GPUs without persistence mode.
    pub const DEADLINE: Duration = Duration::from_secs(20);

    /// Runs `program` (normally the running executable) with the hidden subcommand. The subcommand loads `library`, or
    /// the system's `libnvidia-ml.so.1` for `None`.
    #[must_use]
    pub fn child(program: impl Into<PathBuf>, library: Option<&Path>) -> Self {
        let mut args = vec![OsString::from(SUBCOMMAND)];
        if let Some(library) = library {
            args.push("--library".into());
            args.push(library.into());
        }
        Self::Child {
            program: program.into(),
            args,
            env: Vec::new(),
            deadline: Self::DEADLINE,
        }
    }

    /// Adds an environment variable for the child.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        if let Self::Child { env, .. } = &mut self {
            env.push((name.into(), value.into()));
        }
        self
    }

    /// Replaces the deadline.
    #[must_use]
    pub fn with_deadline(mut self, limit: Duration) -> Self {
        if let Self::Child { deadline, .. } = &mut self {
            *deadline = limit;
        }
        self
    }
}
