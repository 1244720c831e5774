//! Movement settings of a vCluster: preemption, lending, checkpoints and scaling, as the quorum stores them. A setting
//! that is absent, or cannot be read, has its default.

use crate::{BaseView, ViewNode, scheduler};
use lattice_placement::movement::{checkpoint, lend, preempt, scale::Damping};
use lattice_quorum_types::{
    VclusterName,
    checkpoint::MAX_TIMEOUT_MS,
    vcluster::{Vcluster, settings},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

/// How long a job waits before others make room for it, milliseconds: what can be had by waiting, or be
/// borrowed, is had by then.
const PATIENCE_MS: u64 = 60_000;

/// Names of settings in the API, and as the quorum stores them: times in milliseconds there.
pub const KEYS: [(&str, &str); 30] = [
    ("preemption.enabled", "preemption.enabled"),
    ("preemption.max_victims", "preemption.max_victims"),
    ("preemption.patience_s", "preemption.patience_ms"),
    (
        "preemption.near_completion_threshold_s",
        "preemption.near_completion_ms",
    ),
    (
        "preemption.thrash_interval_s",
        "preemption.thrash_interval_ms",
    ),
    ("preemption.thrash_count", "preemption.thrash_count"),
    ("preemption.only_borrowed", "preemption.only_borrowed"),
    (ALLOW_LENDING, "sharing.allow_lending"),
    (LENDING_LIMIT, "sharing.lending_limit"),
    ("sharing.allow_borrowing", "sharing.allow_borrowing"),
    ("sharing.borrowing_limit", "sharing.borrowing_limit"),
    ("sharing.return_grace_s", "sharing.return_grace_ms"),
    ("checkpoint.timeout_s", "checkpoint.timeout_ms"),
    ("checkpoint.min_interval_s", "checkpoint.min_interval_ms"),
    ("checkpoint.max_interval_s", "checkpoint.max_interval_ms"),
    (
        "checkpoint.sensitive_timeout_s",
        "checkpoint.sensitive_timeout_ms",
    ),
    (
        "checkpoint.sensitive_min_interval_s",
        "checkpoint.sensitive_min_interval_ms",
    ),
    (
        "checkpoint.sensitive_max_interval_s",
        "checkpoint.sensitive_max_interval_ms",
    ),
    ("checkpoint.max_deferral_s", "checkpoint.max_deferral_ms"),
    ("checkpoint.max_deferral_count", "checkpoint.max_deferrals"),
    ("scaling.threshold", "scale.threshold"),
    ("scaling.evaluation_s", "scale.evaluate_ms"),
    ("scaling.up_window_s", "scale.up_window_ms"),
    ("scaling.down_window_s", "scale.down_window_ms"),
    ("scaling.cooldown_s", "scale.cooldown_ms"),
    ("scaling.missing_alert", "scale.missing_alert"),
    ("scaling.retries", "scale.retries"),
    ("scaling.backoff_cooldowns", "scale.backoff_cooldowns"),
    ("scaling.oscillation_alert", "scale.oscillation_alert"),
    ("scaling.calm_s", "scale.calm_ms"),
];
/// API name of the setting that allows lending.
pub const ALLOW_LENDING: &str = "sharing.allow_lending";
/// API name of the limit of lending.
pub const LENDING_LIMIT: &str = "sharing.lending_limit";
/// The only group of which one setting may be of no use while the others hold.
const SHARING: &str = "sharing";

/// How one vCluster's work is moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// Which work makes room for which.
    pub room: Rules,
    /// What it lends and borrows.
    pub lend: lend::Policy,
    /// When checkpoints pay.
    pub checkpoint: checkpoint::Policy,
}

/// When a vCluster's jobs are made room for, and by which work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Which work makes room.
    pub policy: preempt::Policy,
    /// A job has waited so long, and would wait so long still, before other work makes room for it.
    pub patience_ms: u64,
    /// How long a checkpoint of one that makes room may take.
    pub timeout_ms: u64,
}

/// A setting that does not fit the others, or its vCluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Its name in the API, below `movement`.
    pub setting: String,
    /// Why it does not fit.
    pub reason: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "movement.{}: {}", self.setting, self.reason)
    }
}

fn misfit(setting: &str, reason: impl Into<String>) -> Misfit {
    Misfit {
        setting: setting.to_owned(),
        reason: reason.into(),
    }
}

/// How the work of a vCluster is moved.
pub fn movement_of(vcluster: &Vcluster) -> Movement {
    MovementReader::new(&vcluster.definition.profile).movement()
}

impl<N: ViewNode> BaseView<N> {
    /// How the work of a vCluster is moved.
    pub fn movement_of(&self, vcluster: &VclusterName) -> Movement {
        self.movement_reader(vcluster).movement()
    }

    /// How quickly the services of a vCluster follow their metrics.
    pub fn damping_of(&self, vcluster: &VclusterName) -> Damping {
        self.movement_reader(vcluster).scale()
    }

    fn movement_reader(&self, vcluster: &VclusterName) -> MovementReader<'_> {
        let known = self.vclusters.get(vcluster);
        MovementReader::new(known.map_or("", |known| &known.definition.profile))
    }

    /// How many nodes a vCluster has of its own.
    pub fn owned_by(&self, vcluster: &VclusterName) -> u32 {
        let records = self.nodes.values().filter_map(|node| node.record());
        let owned = records.filter(|record| record.home == *vcluster).count();
        u32::try_from(owned).unwrap_or(u32::MAX)
    }
}

/// Settings for which the default holds, and why.
pub fn unread(profile: &str) -> Vec<String> {
    let mut reader = MovementReader::new(profile);
    reader.movement();
    reader.scale();
    reader.unread()
}

/// The name under which the quorum stores a setting of the API.
pub fn key_of(name: &str) -> &str {
    let known = KEYS.iter().find(|(known, _)| *known == name);
    known.map_or(name, |(_, key)| key)
}

fn name_of(key: &str) -> &str {
    let known = KEYS.iter().find(|(_, known)| *known == key);
    known.map_or(key, |(name, _)| name)
}

/// Reads the movement settings of a vCluster, and records which of them cannot be used.
#[derive(Debug)]
pub struct MovementReader<'a> {
    said: BTreeMap<&'a str, &'a str>,
    /// Keys with a value that cannot be read.
    unread: BTreeSet<&'a str>,
    /// Groups, as the quorum has them, with settings that do not fit together or do not fit the vCluster.
    unfit: BTreeMap<&'static str, Vec<Misfit>>,
}

impl<'a> MovementReader<'a> {
    /// Of a vCluster's settings as the quorum stores them.
    pub fn new(profile: &'a str) -> Self {
        Self {
            said: settings(profile),
            unread: BTreeSet::new(),
            unfit: BTreeMap::new(),
        }
    }

    /// The first setting that does not fit the others or the vCluster.
    pub fn misfit(&self) -> Option<&Misfit> {
        self.unfit.values().flatten().next()
    }

    /// The value under a key, if it has one that can be read.
    fn some<T: FromStr>(&mut self, key: &str) -> Option<T> {
        let (key, text) = self.said.get_key_value(key)?;
        let value = text.parse().ok();
        if value.is_none() {
            self.unread.insert(*key);
        }
        value
    }

    fn or<T: FromStr>(&mut self, key: &str, default: T) -> T {
        self.some(key).unwrap_or(default)
    }

    /// The settings of a group if they fit together, and the usual ones otherwise.
    fn fit<T>(&mut self, group: &'static str, fault: Option<Misfit>, (read, usual): (T, T)) -> T {
        let Some(fault) = fault else {
            return read;
        };
        self.unfit.entry(group).or_default().push(fault);
        usual
    }

    /// API names of the settings that were set and are in force.
    pub fn set(&self) -> Vec<String> {
        let in_force = |key: &str| {
            let is_unfit = |(group, faults): (&&str, &Vec<Misfit>)| {
                let is_of_group = key.split('.').next() == Some(*group);
                let is_named = || {
                    faults
                        .iter()
                        .any(|fault| fault.setting.ends_with(name_of(key)))
                };
                is_of_group && (*group != SHARING || is_named())
            };
            self.said.contains_key(key)
                && !self.unread.contains(key)
                && !self.unfit.iter().any(is_unfit)
        };
        let set = KEYS.iter().filter(|(_, key)| in_force(key));
        set.map(|(name, _)| (*name).to_owned()).collect()
    }

    /// Settings for which the default holds, and why.
    pub fn unread(&self) -> Vec<String> {
        let unread = self.unread.iter().map(|key| {
            let text = self.said.get(key).copied().unwrap_or_default();
            format!("{key}={text}")
        });
        let unfit = self.unfit.values().flatten().map(Misfit::to_string);
        unread.chain(unfit).collect()
    }

    /// How the vCluster's work is moved.
    pub fn movement(&mut self) -> Movement {
        let checkpoint = self.checkpoint();
        Movement {
            room: self.room(&checkpoint),
            lend: self.lend(),
            checkpoint,
        }
    }

    fn room(&mut self, checkpoint: &checkpoint::Policy) -> Rules {
        let usual = preempt::Policy::default();
        // A service makes room on borrowed nodes only, unless it is set otherwise.
        let for_services = scheduler::is_for_services(&self.said);
        Rules {
            policy: preempt::Policy {
                enabled: self.or("preemption.enabled", usual.enabled),
                max_victims: self.or("preemption.max_victims", usual.max_victims),
                near_completion_ms: self
                    .or("preemption.near_completion_ms", usual.near_completion_ms),
                thrash_interval_ms: self
                    .or("preemption.thrash_interval_ms", usual.thrash_interval_ms),
                thrash_count: self.or("preemption.thrash_count", usual.thrash_count),
                only_borrowed: self.or("preemption.only_borrowed", for_services),
            },
            patience_ms: self.or("preemption.patience_ms", PATIENCE_MS),
            timeout_ms: checkpoint.ordinary.timeout_ms,
        }
    }

    /// Lending policy. Nodes of a vCluster for sensitive work are not lent, whatever is stored.
    pub fn lend(&mut self) -> lend::Policy {
        let usual = lend::Policy::default();
        let for_sensitive = scheduler::is_for_sensitive(&self.said);
        let asked = self.some("sharing.allow_lending");
        let fault = (for_sensitive && asked == Some(true)).then(|| {
            let reason = "the vCluster has the weights of sensitive work, and such nodes are not lent; set it to \
                          false, take it back, or give the vCluster another scheduler.profile";
            misfit(ALLOW_LENDING, reason)
        });
        let allow_lending = asked.unwrap_or(usual.allow_lending && !for_sensitive);
        lend::Policy {
            allow_lending: self.fit(SHARING, fault, (allow_lending, false)),
            lending_limit: self.some("sharing.lending_limit").or(usual.lending_limit),
            allow_borrowing: self.or("sharing.allow_borrowing", usual.allow_borrowing),
            borrowing_limit: self
                .some("sharing.borrowing_limit")
                .or(usual.borrowing_limit),
            return_grace_ms: self.or("sharing.return_grace_ms", usual.return_grace_ms),
        }
    }

    /// How quickly its services follow their metrics.
    pub fn scale(&mut self) -> Damping {
        let usual = Damping::default();
        let read = Damping {
            threshold: self.or("scale.threshold", usual.threshold),
            evaluation_ms: self.or("scale.evaluate_ms", usual.evaluation_ms),
            up_window_ms: self.or("scale.up_window_ms", usual.up_window_ms),
            down_window_ms: self.or("scale.down_window_ms", usual.down_window_ms),
            cooldown_ms: self.or("scale.cooldown_ms", usual.cooldown_ms),
            missing_alert: self.or("scale.missing_alert", usual.missing_alert),
            retries: self.or("scale.retries", usual.retries),
            backoff_cooldowns: self.or("scale.backoff_cooldowns", usual.backoff_cooldowns),
            oscillation_alert: self.or("scale.oscillation_alert", usual.oscillation_alert),
            calm_ms: self.or("scale.calm_ms", usual.calm_ms),
        };
        let fault = read.check().err();
        let fault = fault.map(|fault| unfit("scaling", fault.field, &fault.found, &fault.must));
        self.fit("scale", fault, (read, usual))
    }

    fn checkpoint(&mut self) -> checkpoint::Policy {
        let usual = checkpoint::Policy::default();
        let mut bounds = |kind: &str, usual: checkpoint::Bounds| {
            let mut or = |name: &str, usual| self.or(&format!("checkpoint.{kind}{name}_ms"), usual);
            checkpoint::Bounds {
                min_interval_ms: or("min_interval", usual.min_interval_ms),
                max_interval_ms: or("max_interval", usual.max_interval_ms),
                timeout_ms: or("timeout", usual.timeout_ms),
            }
        };
        let read = checkpoint::Policy {
            ordinary: bounds("", usual.ordinary),
            sensitive: bounds("sensitive_", usual.sensitive),
            max_deferral_ms: self.or("checkpoint.max_deferral_ms", usual.max_deferral_ms),
            max_deferrals: self.or("checkpoint.max_deferrals", usual.max_deferrals),
            ..usual.clone()
        };
        let fault = read.check().err().map(|fault| {
            let value = fault.value.to_string();
            unfit("checkpoint", fault.field, &value, &fault.must)
        });
        let fault = fault.or_else(|| too_long(&read));
        self.fit("checkpoint", fault, (read, usual))
    }
}

/// A checkpoint that is given more time than the quorum gives any would never be asked for.
fn too_long(policy: &checkpoint::Policy) -> Option<Misfit> {
    let must = format!("at most a day ({MAX_TIMEOUT_MS})");
    let timeouts = [
        ("timeout_ms", policy.ordinary.timeout_ms),
        ("sensitive_timeout_ms", policy.sensitive.timeout_ms),
    ];
    let late = timeouts.into_iter().find(|(_, ms)| *ms > MAX_TIMEOUT_MS);
    let fault = |(field, ms): (&str, u64)| unfit("checkpoint", field, &ms.to_string(), &must);
    late.map(fault).or_else(|| {
        // What is slow, or was put off, is given that at once.
        let more_ms = |sensitive| {
            let deadlines = policy.deadlines(sensitive);
            deadlines.longest_ms().saturating_sub(deadlines.timeout_ms)
        };
        let more_ms = more_ms(false).max(more_ms(true));
        let must = format!("so short that half of the timeout and it are {must}");
        let deferral = policy.max_deferral_ms.to_string();
        (more_ms > MAX_TIMEOUT_MS).then(|| unfit("checkpoint", "max_deferral_ms", &deferral, &must))
    })
}

/// A setting that does not fit the others, by its name in a policy.
fn unfit(group: &str, field: &str, found: &str, must: &str) -> Misfit {
    let named = |text: &str| {
        let text = text
            .replace("ordinary.", "")
            .replace("sensitive.", "sensitive_");
        text.replace("_ms", "_s")
    };
    let must = named(must);
    let reason = match field.ends_with("_ms") {
        true => format!("in milliseconds it is {found}; it must be {must}"),
        false => format!("it is {found}; it must be {must}"),
    };
    misfit(&format!("{group}.{}", named(field)), reason)
}
