//! How a vCluster's work is moved: its settings as the quorum keeps them, as people see and change them, and
//! as those who decide take them. What a setting does not say, or nobody can read, is as by default.

mod home;
#[cfg(test)]
mod tests;

pub(crate) use home::{Home, is_least_of_service};

use crate::{View, scheduler, tasks::schedule::room::Rules};
use lattice_api::{
    movement::{
        CheckpointSettingsView, MovementChange, MovementView, PreemptionView, ScalingView,
        SharingView, Value, wrong,
    },
    problem::FieldError,
};
use lattice_placement::movement::{
    checkpoint, lend,
    preempt::{self, MOST_VICTIMS},
    scale::Damping,
};
use lattice_quorum_types::{VclusterName, checkpoint::MAX_TIMEOUT_MS, vcluster::settings};
use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

/// How long a job waits before others make room for it, milliseconds: what can be had by waiting, or be
/// borrowed, is had by then.
const PATIENCE_MS: u64 = 60_000;

/// Names of settings as people know them, and as the quorum keeps them: times in milliseconds there.
const KEYS: [(&str, &str); 30] = [
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
const ALLOW_LENDING: &str = "sharing.allow_lending";
const LENDING_LIMIT: &str = "sharing.lending_limit";
/// The only group of which one setting may be of no use while the others hold.
const SHARING: &str = "sharing";

/// How one vCluster's work is moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Movement {
    /// Who makes room for whom.
    pub(crate) room: Rules,
    /// What it lends and borrows.
    pub(crate) lend: lend::Policy,
    /// When checkpoints pay.
    pub(crate) checkpoint: checkpoint::Policy,
}

/// Work without an end counts for so long, milliseconds: a day, as the solver's queue counts it.
const UNBOUNDED_MS: u64 = 24 * 3_600_000;

/// What is asked for, in milliseconds of one GPU. A node of which nobody says how many it has counts as one.
pub(crate) fn asked_gpu_ms(
    nodes: u32,
    gpus_per_node: Option<u32>,
    walltime_ms: Option<u64>,
) -> u128 {
    let gpus = u128::from(gpus_per_node.unwrap_or(1).max(1));
    let walltime = u128::from(walltime_ms.unwrap_or(UNBOUNDED_MS));
    u128::from(nodes) * gpus * walltime
}

impl View {
    /// How the work of a vCluster is moved.
    pub(crate) fn movement_of(&self, vcluster: &VclusterName) -> Movement {
        let known = self.vclusters.get(vcluster);
        let mut said = Said::new(known.map_or("", |known| &known.definition.profile));
        said.movement()
    }

    /// How quickly the services of a vCluster follow their metrics.
    pub(crate) fn damping_of(&self, vcluster: &VclusterName) -> Damping {
        let known = self.vclusters.get(vcluster);
        Said::new(known.map_or("", |known| &known.definition.profile)).scale()
    }

    /// How many nodes a vCluster has of its own.
    pub(crate) fn owned_by(&self, vcluster: &VclusterName) -> u32 {
        let records = self.nodes.values().filter_map(|node| node.record.as_ref());
        let owned = records.filter(|record| record.home == *vcluster).count();
        u32::try_from(owned).unwrap_or(u32::MAX)
    }
}

/// What is stored, and for which the defaults hold.
pub(crate) fn unread(profile: &str) -> Vec<String> {
    let mut said = Said::new(profile);
    said.movement();
    said.scale();
    said.unread()
}

/// What is stored, as people see it.
pub(crate) fn shown(profile: &str) -> MovementView {
    let mut said = Said::new(profile);
    let Movement {
        room,
        lend,
        checkpoint,
    } = said.movement();
    let scale = said.scale();
    let (ordinary, sensitive) = (checkpoint.ordinary, checkpoint.sensitive);
    MovementView {
        preemption: PreemptionView {
            enabled: room.policy.enabled,
            max_victims: room.policy.max_victims,
            patience_s: seconds(room.patience_ms),
            near_completion_threshold_s: seconds(room.policy.near_completion_ms),
            thrash_interval_s: seconds(room.policy.thrash_interval_ms),
            thrash_count: room.policy.thrash_count,
            only_borrowed: room.policy.only_borrowed,
        },
        sharing: SharingView {
            allow_lending: lend.allow_lending,
            lending_limit: lend.lending_limit,
            allow_borrowing: lend.allow_borrowing,
            borrowing_limit: lend.borrowing_limit,
            return_grace_s: seconds(lend.return_grace_ms),
        },
        checkpoint: CheckpointSettingsView {
            timeout_s: seconds(ordinary.timeout_ms),
            min_interval_s: seconds(ordinary.min_interval_ms),
            max_interval_s: seconds(ordinary.max_interval_ms),
            sensitive_timeout_s: seconds(sensitive.timeout_ms),
            sensitive_min_interval_s: seconds(sensitive.min_interval_ms),
            sensitive_max_interval_s: seconds(sensitive.max_interval_ms),
            max_deferral_s: seconds(checkpoint.max_deferral_ms),
            max_deferral_count: checkpoint.max_deferrals,
        },
        scaling: ScalingView {
            threshold: scale.threshold,
            evaluation_s: seconds(scale.evaluation_ms),
            up_window_s: seconds(scale.up_window_ms),
            down_window_s: seconds(scale.down_window_ms),
            cooldown_s: seconds(scale.cooldown_ms),
            missing_alert: scale.missing_alert,
            retries: scale.retries,
            backoff_cooldowns: scale.backoff_cooldowns,
            oscillation_alert: scale.oscillation_alert,
            calm_s: seconds(scale.calm_ms),
        },
        set: said.set(),
        unread: said.unread(),
    }
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

/// The settings that a change asks for.
///
/// # Errors
/// The first field that is not as it must be.
pub(crate) fn asked(change: &MovementChange) -> Result<BTreeMap<String, String>, FieldError> {
    change.check()?;
    let given = change.given().into_iter().map(|(name, value)| {
        let text = match value {
            // Without a value it is taken back.
            None | Some(Value::Limit(None)) => String::new(),
            Some(Value::Flag(yes)) => yes.to_string(),
            Some(Value::Count(count) | Value::Limit(Some(count))) => count.to_string(),
            Some(Value::Seconds(seconds)) => ((seconds * 1000.0).round() as u64).to_string(),
            Some(Value::Part(part)) => format!("{part:?}"),
        };
        (key_of(name).to_owned(), text)
    });
    Ok(given.collect())
}

fn key_of(name: &str) -> &str {
    let known = KEYS.iter().find(|(known, _)| *known == name);
    known.map_or(name, |(_, key)| key)
}

fn name_of(key: &str) -> &str {
    let known = KEYS.iter().find(|(_, known)| *known == key);
    known.map_or(key, |(name, _)| name)
}

/// Checks what a vCluster with so many nodes of its own would have: whether it fits together.
///
/// # Errors
/// The first field that does not, and what would do.
pub(crate) fn check(profile: &str, owned: u32) -> Result<(), FieldError> {
    let mut said = Said::new(profile);
    let movement = said.movement();
    said.scale();
    let fault = said.unfit.into_values().flatten().next();
    fault.map_or(Ok(()), Err)?;
    let victims = movement.room.policy.max_victims;
    if !(1..=MOST_VICTIMS).contains(&victims) {
        let reason = format!(
            "it is {victims}; it must be from 1 to {MOST_VICTIMS} (preemption.enabled=false: nobody makes room)"
        );
        return Err(wrong("preemption.max_victims", reason));
    }
    let lent = movement.lend.check(owned);
    lent.map_err(|error| wrong(LENDING_LIMIT, error.to_string()))
}

/// Checks whether a vCluster may lend its nodes, where it is set to.
///
/// # Errors
/// It is for sensitive work.
pub(crate) fn check_kind(profile: &str) -> Result<(), FieldError> {
    let mut said = Said::new(profile);
    said.lend();
    let fault = said.unfit.into_values().flatten().next();
    fault.map_or(Ok(()), Err)
}

/// A vCluster's settings, and what of them is of no use.
struct Said<'a> {
    said: BTreeMap<&'a str, &'a str>,
    /// Keys of which nobody can read the value.
    unread: BTreeSet<&'a str>,
    /// Groups, as the quorum has them, whose settings do not fit together, or do not fit the vCluster.
    unfit: BTreeMap<&'static str, Vec<FieldError>>,
}

impl<'a> Said<'a> {
    fn new(profile: &'a str) -> Self {
        Self {
            said: settings(profile),
            unread: BTreeSet::new(),
            unfit: BTreeMap::new(),
        }
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
    fn fit<T>(
        &mut self,
        group: &'static str,
        fault: Option<FieldError>,
        (read, usual): (T, T),
    ) -> T {
        let Some(fault) = fault else {
            return read;
        };
        self.unfit.entry(group).or_default().push(fault);
        usual
    }

    /// Names of those that are in force because somebody has set them.
    fn set(&self) -> Vec<String> {
        let in_force = |key: &str| {
            let is_unfit = |(group, faults): (&&str, &Vec<FieldError>)| {
                let is_of_group = key.split('.').next() == Some(*group);
                let is_named = || {
                    faults
                        .iter()
                        .any(|fault| fault.field.ends_with(name_of(key)))
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

    /// In words, what the defaults hold for.
    fn unread(&self) -> Vec<String> {
        let unread = self.unread.iter().map(|key| {
            let text = self.said.get(key).copied().unwrap_or_default();
            format!("{key}={text}")
        });
        let unfit = self.unfit.values().flatten().map(FieldError::to_string);
        unread.chain(unfit).collect()
    }

    fn movement(&mut self) -> Movement {
        let checkpoint = self.checkpoint();
        Movement {
            room: self.room(&checkpoint),
            lend: self.lend(),
            checkpoint,
        }
    }

    fn room(&mut self, checkpoint: &checkpoint::Policy) -> Rules {
        let usual = preempt::Policy::default();
        // What serves others makes room where it is a guest, unless somebody says otherwise.
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

    /// Nodes of a vCluster for sensitive work are lent to nobody, whatever is stored.
    fn lend(&mut self) -> lend::Policy {
        let usual = lend::Policy::default();
        let for_sensitive = scheduler::is_for_sensitive(&self.said);
        let asked = self.some("sharing.allow_lending");
        let fault = (for_sensitive && asked == Some(true)).then(|| {
            let reason = "the vCluster has the weights of sensitive work, whose nodes are not lent; set it to \
                          false, take it back, or give the vCluster another scheduler.profile";
            wrong(ALLOW_LENDING, reason)
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

    fn scale(&mut self) -> Damping {
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
fn too_long(policy: &checkpoint::Policy) -> Option<FieldError> {
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
fn unfit(group: &str, field: &str, found: &str, must: &str) -> FieldError {
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
    wrong(&format!("{group}.{}", named(field)), reason)
}
