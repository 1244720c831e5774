//! Scheduler settings of a vCluster, as the quorum stores them and as the planner takes them.

use crate::{BaseView, movement};
use lattice_placement::{Policy, Profile, Reservations, Weights};
use lattice_quorum_types::{VclusterName, vcluster::settings};
use std::{collections::BTreeMap, str::FromStr};

/// Stored name of the reference wait.
pub const REFERENCE_WAIT: &str = "reference_wait_ms";
/// Stored name of the number of reservations.
pub const RESERVATIONS: &str = "reservations";
/// Stored name of the checkpoint bandwidth.
pub const CHECKPOINT: &str = "checkpoint_bytes_s";
/// Stored value for any number of reservations.
pub const ALL: &str = "all";
/// Stored name of the kind of work that gave the weights last.
pub const PROFILE: &str = "profile";

/// Stored name of a weight.
pub fn weight_setting(name: &str) -> String {
    format!("weights.{name}")
}

/// Whether a vCluster is for sensitive work: it was given the weights of that kind last. Where only single
/// weights were set, it is one that has exactly those.
pub fn is_for_sensitive(said: &BTreeMap<&str, &str>) -> bool {
    let sensitive = Profile::Sensitive;
    match said.get(PROFILE) {
        Some(kind) => *kind == sensitive.name(),
        None => policy_of(said, &mut Vec::new()).weights == sensitive.weights(),
    }
}

/// Whether a vCluster is for services: it was given the weights of that kind last.
pub fn is_for_services(said: &BTreeMap<&str, &str>) -> bool {
    said.get(PROFILE) == Some(&Profile::Service.name())
}

/// What a text of settings stands for.
#[derive(Debug, Default)]
pub struct Read {
    /// A setting that is absent or cannot be read has its default: a queue must be served by some policy.
    pub policy: Policy,
    /// Settings that cannot be read, and why: a newer control may have written them.
    pub unread: Vec<String>,
}

/// The policy that a text of settings stands for.
pub fn policy(profile: &str) -> Policy {
    read(profile).policy
}

/// Reads a text of settings.
pub fn read(profile: &str) -> Read {
    let mut unread = Vec::new();
    let policy = policy_of(&settings(profile), &mut unread);
    Read { policy, unread }
}

fn policy_of(said: &BTreeMap<&str, &str>, unread: &mut Vec<String>) -> Policy {
    let mut policy = Policy::default();
    let mut row = policy.weights.to_array();
    for (weight, name) in row.iter_mut().zip(Weights::NAMES) {
        read_into(said, &weight_setting(name), weight, unread);
    }
    match Weights::new(row.into()) {
        Ok(weights) => policy.weights = weights,
        Err(error) => unread.push(error.to_string()),
    }
    let wait = &mut policy.reference_wait_ms;
    read_into(said, REFERENCE_WAIT, wait, unread);
    policy.reservations = match said.get(RESERVATIONS) {
        Some(&ALL) => Reservations::All,
        _ => match read_one(said, RESERVATIONS, unread) {
            Some(depth) => Reservations::First(depth),
            None => policy.reservations,
        },
    };
    policy.checkpoint_bytes_s = read_one(said, CHECKPOINT, unread);
    policy
}

fn read_into<T: FromStr>(
    said: &BTreeMap<&str, &str>,
    name: &str,
    into: &mut T,
    unread: &mut Vec<String>,
) {
    if let Some(value) = read_one(said, name, unread) {
        *into = value;
    }
}

fn read_one<T: FromStr>(
    said: &BTreeMap<&str, &str>,
    name: &str,
    unread: &mut Vec<String>,
) -> Option<T> {
    let text = said.get(name)?;
    let value = text.parse().ok();
    if value.is_none() {
        unread.push(format!("{name}={text}"));
    }
    value
}

impl<N> BaseView<N> {
    /// How the scheduler of a vCluster decides.
    pub fn policy_of(&self, vcluster: &VclusterName) -> Policy {
        let known = self.vclusters.get(vcluster);
        known.map_or_else(Policy::default, |known| policy(&known.definition.profile))
    }

    /// The same, with the settings that cannot be read, movement settings included.
    pub fn settings_of(&self, vcluster: &VclusterName) -> Read {
        let known = self.vclusters.get(vcluster);
        known.map_or_else(Read::default, |known| {
            let profile = &known.definition.profile;
            let mut found = read(profile);
            found.unread.extend(movement::unread(profile));
            found
        })
    }
}
