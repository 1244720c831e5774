//! Plan of a site, and hooks that a test can hold.

use std::{path::PathBuf, time::Duration};

/// Plan of a site.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Number of quorum members.
    pub voters: u64,
    /// Number of controls with certificates from the command line.
    pub controls: usize,
    /// Number of further controls, which enrol; see [`super::Site::start_joining`].
    pub joining: usize,
    /// Names of nodes.
    pub agents: Vec<String>,
    /// Run each daemon on a host of its own.
    pub hosts: bool,
    /// Burst of enrolments that one address may request from a member, with one more each second; default 1000.
    pub enrol_burst: Option<u32>,
    /// Additional top-level lines of each member's configuration.
    pub quorum_lines: String,
    /// Lifetime of all certificates; default: the usual lifetime.
    pub lifetime: Option<Duration>,
    /// Additional top-level lines of each control's configuration.
    pub control_lines: String,
    /// Additional lines below each agent's `executor`, indented by two spaces.
    pub executor_lines: String,
    /// Additional fields of each agent's `probe`, in one line: `key: value, key: value`.
    pub probe_lines: String,
    /// Folder of captured hosts: each agent probes a copy of the host of its name, in `hosts` of the site's folder.
    /// Without it agents probe this machine.
    pub trees: Option<PathBuf>,
    /// Additional top-level lines of each agent's configuration.
    pub agent_lines: String,
    /// Agents use a fake GPU driver with the contents of `nvml.json` of their tree. Tests control the driver: see
    /// [`super::Site::driver_control`]. Without it agents use no driver.
    pub drivers: bool,
    /// Nodes with the agent's folder on a small disk of its own, where one can be mounted: see [`super::Site::disks`].
    pub disks: Vec<String>,
    /// Users in addition to the administrator, with the token [`super::token`].
    pub users: Vec<String>,
    /// Seconds from the request to end a job until it is killed; default 60.
    pub grace_s: Option<u64>,
    /// Configure a prolog and an epilog that a test can hold; see [`super::Site::hold`].
    pub hooks: bool,
}

/// Hook that a test can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Runs before a rank.
    Prolog,
    /// Runs after a rank.
    Epilog,
}

impl Hook {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
        }
    }
}

/// Script of a hook: records its run, and waits while the test holds it.
pub(super) const HOOK: &str = r#"#!/bin/sh
at="$1/$LATTICE_NODE.$LATTICE_HOOK"
echo "$LATTICE_ALLOCATION_ID.$LATTICE_ATTEMPT" >> "$at.ran"
touch "$at.here"
while [ -e "$at.hold" ]; do sleep 0.05; done
rm -f "$at.here"
"#;

impl Plan {
    pub(super) fn quorum_names(&self) -> impl Iterator<Item = String> {
        (1..=self.voters).map(super::quorum_name)
    }

    pub(super) fn control_names(&self) -> impl Iterator<Item = String> {
        (1..=self.controls + self.joining).map(super::control_name)
    }

    /// Names of all hosts.
    pub(super) fn hosts_names(&self) -> impl Iterator<Item = String> {
        let services = self.quorum_names().chain(self.control_names());
        services.chain(self.agents.clone())
    }

    /// Plan with three members, one control and these nodes.
    pub fn with_agents<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            voters: 3,
            controls: 1,
            agents: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}
