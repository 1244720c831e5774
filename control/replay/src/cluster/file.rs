//! Cluster description in YAML. Every top-level field except `groups` is optional:
//!
//! ```yaml
//! groups:                        # topology groups
//!   - name: g0
//!     nodes: "gpu[001-128]"      # a hostlist
//!     model: gh200               # one of `models`
//!     conformance: a             # name of the conformance group; default: one group per model
//!     vcluster: batch            # one of `vclusters`; optional if there is at most one
//!     power_domain: row1         # one of `power_domains`
//! models:
//!   gh200: {gpus: 4, gpu_model: "NVIDIA GH200 120GB", gpu_memory_gib: 384, memory_gib: 480, features: [nvlink],
//!           work_w: 2200}
//! power_domains:
//!   hall: {budget_kw: 4000}
//!   row1: {parent: hall, budget_kw: 900}
//! vclusters:
//!   batch: {profile: hpc-batch, queues: [normal]}          # or weights: {wait_time: 0.4, …}
//!   debug: {weights: {wait_time: 1}, reservations: all, reference_wait_s: 600, checkpoint_gb_s: 40, queues: [debug]}
//! limit_policy: strict                                    # or flat: sums of children's limits may exceed the parent's
//! projects:
//!   physics: {max_nodes: 500, share: 0.3}
//!   physics/higgs: {max_nodes: 200, max_concurrent_allocations: 20}
//! accounts: {ph01: physics/higgs}                          # project of an account of the trace
//! classes: {debug: 8, low: 2}                              # priority of queues and qualities of service
//! targets_s: {8: 60, 5: 86400}                             # target of the wait by class, seconds
//! ```

use super::{
    Cluster, ClusterError, Domain, Host, VclusterSetup, charge, conformance, healthy_facts,
};
use crate::{
    description,
    policy::{PolicyText, ReservationsText, read_policy},
};
use lattice_placement::NodeFacts;
use lattice_quorum_types::{
    ProjectPath, VclusterName, hostlist, limit::Limits, limit_policy::LimitPolicy,
    vcluster::DEFAULT_VCLUSTER,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

const GIB: u64 = 1 << 30;
const MAX_CLASS: u8 = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<GroupText>,
    #[serde(default)]
    models: BTreeMap<String, ModelText>,
    #[serde(default)]
    power_domains: BTreeMap<String, DomainText>,
    #[serde(default)]
    vclusters: BTreeMap<String, VclusterText>,
    #[serde(default)]
    limit_policy: LimitPolicy,
    #[serde(default)]
    projects: BTreeMap<String, ProjectText>,
    #[serde(default)]
    accounts: BTreeMap<String, String>,
    #[serde(default)]
    classes: BTreeMap<String, u8>,
    #[serde(default)]
    targets_s: BTreeMap<u8, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    name: Option<String>,
    nodes: String,
    model: Option<String>,
    conformance: Option<String>,
    vcluster: Option<String>,
    power_domain: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModelText {
    gpus: Option<u32>,
    gpu_model: Option<String>,
    gpu_memory_gib: Option<u64>,
    memory_gib: Option<u64>,
    features: BTreeSet<String>,
    work_w: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainText {
    parent: Option<String>,
    budget_kw: f64,
}

/// The fields of [`PolicyText`] and the queues. The fields are repeated, because a flattened struct accepts unknown
/// fields.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct VclusterText {
    profile: Option<String>,
    weights: BTreeMap<String, f64>,
    reservations: Option<ReservationsText>,
    reference_wait_s: Option<f64>,
    checkpoint_gb_s: Option<f64>,
    queues: BTreeSet<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProjectText {
    max_nodes: Option<u64>,
    max_concurrent_allocations: Option<u64>,
    share: Option<f64>,
}

pub(super) fn read(text: &str, path: &Path) -> Result<Cluster, ClusterError> {
    let faults = |faults| ClusterError::Faults {
        path: path.to_owned(),
        faults,
    };
    let file: File = description::read(text).map_err(faults)?;
    let mut reading = ClusterReader::default();
    reading.read(file);
    match reading.faults.is_empty() {
        true => Ok(reading.cluster),
        false => Err(faults(reading.faults)),
    }
}

/// Cluster read so far, and all faults.
#[derive(Default)]
struct ClusterReader {
    cluster: Cluster,
    faults: Vec<String>,
}

impl ClusterReader {
    fn add_fault(&mut self, field: impl std::fmt::Display, reason: impl std::fmt::Display) {
        self.faults.push(format!("{field}: {reason}"));
    }

    /// Returns the value, or records the error under the field's name.
    fn accept<T, E: std::fmt::Display>(
        &mut self,
        field: impl std::fmt::Display,
        made: Result<T, E>,
    ) -> Option<T> {
        match made {
            Ok(made) => Some(made),
            Err(error) => {
                self.add_fault(field, error);
                None
            }
        }
    }

    fn read(&mut self, file: File) {
        self.cluster.limit_policy = file.limit_policy;
        self.domains(&file.power_domains);
        self.vclusters(file.vclusters);
        for (place, group) in file.groups.iter().enumerate() {
            self.group(place, group, &file.models);
        }
        if self.cluster.nodes.is_empty() && self.faults.is_empty() {
            self.add_fault("groups", "no nodes are defined");
        }
        self.hardware();
        self.projects(file.projects);
        for (account, project) in file.accounts {
            let field = format!("accounts.{account}");
            if let Some(project) = self.accept(&field, ProjectPath::new(&project)) {
                if !self.cluster.projects.contains_key(&project) {
                    self.add_fault(&field, format!("project \"{project}\" is not defined"));
                }
                self.cluster.accounts.insert(account, project);
            }
        }
        for (name, class) in &file.classes {
            if *class > MAX_CLASS {
                self.add_fault(
                    format!("classes.{name}"),
                    format!("{class} is above {MAX_CLASS}"),
                );
            }
        }
        self.cluster.classes = file.classes;
        for (class, seconds) in file.targets_s {
            let field = format!("targets_s.{class}");
            if class > MAX_CLASS {
                self.add_fault(&field, format!("the class is above {MAX_CLASS}"));
            }
            match seconds.is_finite() && seconds >= 0.0 {
                true => drop(
                    self.cluster
                        .targets_ms
                        .insert(class, (seconds * 1000.0) as u64),
                ),
                false => self.add_fault(field, "it must be a number of seconds of at least 0"),
            }
        }
    }

    fn domains(&mut self, domains: &BTreeMap<String, DomainText>) {
        for (name, domain) in domains {
            let field = format!("power_domains.{name}");
            if !domain.budget_kw.is_finite() || domain.budget_kw < 0.0 {
                self.add_fault(
                    format!("{field}.budget_kw"),
                    "it must be a number of at least 0",
                );
            }
            if let Some(parent) = &domain.parent {
                let mut up = domains.get(parent);
                if up.is_none() {
                    self.add_fault(
                        format!("{field}.parent"),
                        format!("power domain {parent:?} is not defined"),
                    );
                }
                let mut steps = 0;
                while let Some(parent) = up.and_then(|up| up.parent.as_ref()) {
                    steps += 1;
                    if steps > domains.len() {
                        self.add_fault(
                            format!("{field}.parent"),
                            "the power domain contains itself through its parents",
                        );
                        break;
                    }
                    up = domains.get(parent);
                }
            }
            let domain = Domain {
                parent: domain.parent.clone(),
                budget_mw: (domain.budget_kw.max(0.0) * 1e6) as u64,
            };
            self.cluster.power.insert(name.clone(), domain);
        }
    }

    fn vclusters(&mut self, vclusters: BTreeMap<String, VclusterText>) {
        for (name, text) in vclusters {
            let field = format!("vclusters.{name}");
            let policy = PolicyText {
                profile: text.profile,
                weights: text.weights,
                reservations: text.reservations,
                reference_wait_s: text.reference_wait_s,
                checkpoint_gb_s: text.checkpoint_gb_s,
            };
            let policy = match policy.is_default() {
                true => None,
                false => self.accept(&field, read_policy(&policy)),
            };
            for queue in &text.queues {
                let taken = self
                    .cluster
                    .vclusters
                    .iter()
                    .find(|(_, known)| known.queues.contains(queue));
                let taken = taken.map(|(other, _)| other.clone());
                if let Some(other) = taken {
                    self.add_fault(
                        format!("{field}.queues"),
                        format!("{queue:?} already belongs to vCluster {other}"),
                    );
                }
            }
            if let Some(name) = self.accept(&field, VclusterName::new(&name)) {
                let queues = text.queues;
                self.cluster
                    .vclusters
                    .insert(name, VclusterSetup { policy, queues });
            }
        }
        if self.cluster.vclusters.is_empty()
            && let Some(name) = self.accept("vclusters", VclusterName::new(DEFAULT_VCLUSTER))
        {
            self.cluster
                .vclusters
                .insert(name, VclusterSetup::default());
        }
    }

    fn group(&mut self, place: usize, group: &GroupText, models: &BTreeMap<String, ModelText>) {
        let field = format!("groups[{place}]");
        let Some(names) = self.accept(
            format!("{field}.nodes"),
            hostlist::expand_distinct(&group.nodes),
        ) else {
            return;
        };
        let nothing = ModelText::default();
        let model = match &group.model {
            None => &nothing,
            Some(name) => match models.get(name) {
                Some(model) => model,
                None => {
                    return self.add_fault(
                        format!("{field}.model"),
                        format!("model {name:?} is not defined"),
                    );
                }
            },
        };
        let only = self.cluster.vclusters.keys().next().cloned();
        let vcluster = match &group.vcluster {
            Some(name) => VclusterName::new(name)
                .ok()
                .filter(|name| self.cluster.vclusters.contains_key(name)),
            None => only.filter(|_| self.cluster.vclusters.len() == 1),
        };
        let Some(vcluster) = vcluster else {
            let known = self.cluster.vclusters.keys();
            let known: Vec<&str> = known.map(VclusterName::as_str).collect();
            let known = known.join(", ");
            let said = match &group.vcluster {
                Some(name) => format!("vCluster {name:?} is not defined"),
                None => "it is missing".to_owned(),
            };
            return self.add_fault(
                format!("{field}.vcluster"),
                format!("{said}; it must be one of {known}"),
            );
        };
        if let Some(domain) = &group.power_domain
            && !self.cluster.power.contains_key(domain)
        {
            return self.add_fault(
                format!("{field}.power_domain"),
                format!("power domain {domain:?} is not defined"),
            );
        }
        let alike = group.conformance.as_ref().or(group.model.as_ref());
        let gib = |gib: Option<u64>| gib.and_then(|gib| gib.checked_mul(GIB));
        let facts = NodeFacts {
            group: Some(group.name.clone().unwrap_or_else(|| format!("g{place:03}"))),
            conformance: conformance(alike.map_or("alike", String::as_str)),
            gpu_count: model.gpus,
            gpu_model: model.gpu_model.clone(),
            gpu_memory_bytes: gib(model.gpu_memory_gib),
            memory_bytes: gib(model.memory_gib),
            features: model.features.clone(),
            charge: group
                .power_domain
                .as_ref()
                .map(|domain| charge(domain, model.work_w)),
            ..healthy_facts()
        };
        for name in names {
            let host = Host {
                vcluster: vcluster.clone(),
                facts: facts.clone(),
            };
            if self.cluster.nodes.insert(name.clone(), host).is_some() {
                self.add_fault(format!("{field}.nodes"), format!("{name} is in two groups"));
            }
        }
    }

    /// Sets an unknown number of GPUs to 0 if any node has a number, and likewise for memory.
    fn hardware(&mut self) {
        let facts = || self.cluster.nodes.values().map(|host| &host.facts);
        let (gpus, memory) = (
            facts().any(|facts| facts.gpu_count.is_some()),
            facts().any(|facts| facts.memory_bytes.is_some()),
        );
        for host in self.cluster.nodes.values_mut() {
            if gpus {
                host.facts.gpu_count.get_or_insert(0);
            }
            if memory {
                host.facts.memory_bytes.get_or_insert(0);
            }
        }
    }

    fn projects(&mut self, projects: BTreeMap<String, ProjectText>) {
        let mut shares = 0.0;
        for (name, text) in projects {
            let field = format!("projects.{name}");
            let Some(path) = self.accept(&field, ProjectPath::new(&name)) else {
                continue;
            };
            if let Some(share) = text.share {
                shares += share;
                match share.is_finite() && (0.0..=1.0).contains(&share) {
                    true => drop(self.cluster.shares.insert(name.clone(), share)),
                    false => {
                        self.add_fault(format!("{field}.share"), "it must be a number from 0 to 1")
                    }
                }
            }
            let limits = Limits {
                max_nodes: text.max_nodes,
                max_concurrent_allocations: text.max_concurrent_allocations,
            };
            self.cluster.projects.insert(path, limits);
        }
        // Tolerates rounding: ten shares of 0.1 add up to slightly less or more than 1.
        if shares > 1.0 + 1e-9 {
            self.add_fault(
                "projects",
                format!("shares add up to {shares}; the sum must be at most 1"),
            );
        }
        let projects = &self.cluster.projects;
        let bounded = |path: &ProjectPath| {
            projects
                .get(path)
                .is_some_and(|limits| limits.max_nodes.is_some())
        };
        let open: Vec<ProjectPath> = projects
            .keys()
            .filter(|path| !bounded(path) && path.parent().is_some_and(|up| bounded(&up)))
            .cloned()
            .collect();
        for path in open {
            self.add_fault(
                format!("projects.{path}.max_nodes"),
                "it is required, because the parent project has a limit",
            );
        }
        let missing: BTreeSet<ProjectPath> = self
            .cluster
            .projects
            .keys()
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|up| !self.cluster.projects.contains_key(up))
            .collect();
        for path in missing {
            self.add_fault(
                format!("projects.{path}"),
                "it is missing, but projects below it are defined",
            );
        }
    }
}
