//! What a site is made of, and the hooks with which a test holds a job.

use std::{path::PathBuf, time::Duration};

/// What a site is made of.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Quorum members.
    pub voters: u64,
    /// Controls, with certificates made by hand.
    pub controls: usize,
    /// More controls, which enrol; see [`Site::start_joining`].
    pub joining: usize,
    /// Names of nodes.
    pub agents: Vec<String>,
    /// Each daemon on a host of its own.
    pub hosts: bool,
    /// Enrolments that one address may ask a member for at once, one more each second; many
    /// without it.
    pub enrol_burst: Option<u32>,
    /// More lines for each configuration of a quorum member, at the top level.
    pub quorum_lines: String,
    /// How long all certificates hold, those made by hand too; the usual time without it.
    pub lifetime: Option<Duration>,
    /// More lines for each control's configuration, at the top level.
    pub control_lines: String,
    /// More lines below each agent's `executor`, indented by two.
    pub executor_lines: String,
    /// More of each agent's `probe`, in one line: `key: value, key: value`.
    pub probe_lines: String,
    /// Folder of captured hosts: each agent probes a copy of the one of its name, in `hosts` of the
    /// site's folder. Without one they probe this machine.
    pub trees: Option<PathBuf>,
    /// More lines for each agent's configuration, at the top level.
    pub agent_lines: String,
    /// Agents ask a fake GPU driver, which says what `nvml.json` of their tree has, and does what a
    /// test asks it to: see [`super::Site::driver_control`]. Without it they ask none.
    pub drivers: bool,
    /// Nodes whose agent has its folder on a small disk of its own, where there may be such: see
    /// [`super::Site::disks`].
    pub disks: Vec<String>,
    /// Users besides the administrator, who show [`super::token`].
    pub users: Vec<String>,
    /// Seconds from asking a job to end until it is killed; 60 without it.
    pub grace_s: Option<u64>,
    /// A prolog and an epilog that a test can hold; see [`Site::hold`].
    pub hooks: bool,
}

/// A hook that can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Before a rank.
    Prolog,
    /// After it.
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

/// Says that it is there, and goes when it may.
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

    /// Who has a host, where there are some.
    pub(super) fn hosts_names(&self) -> impl Iterator<Item = String> {
        let services = self.quorum_names().chain(self.control_names());
        services.chain(self.agents.clone())
    }

    /// Three members, one control and these nodes.
    pub fn with_agents<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            voters: 3,
            controls: 1,
            agents: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}
