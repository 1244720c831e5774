//! How a vCluster's work is moved: its settings as the quorum keeps them, and as those who decide take them.
//! What a setting does not say, or nobody can read, is as by default.

use crate::{View, tasks::schedule::room::Rules};
use lattice_placement::movement::{checkpoint, lend, preempt, scale::Damping};
use lattice_quorum_types::{VclusterName, vcluster::settings};
use std::{collections::BTreeMap, str::FromStr};

/// How long a job waits before others make room for it, milliseconds: what can be had by waiting, or be
/// borrowed, is had by then.
const PATIENCE_MS: u64 = 60_000;

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
        read(known.map_or("", |known| &known.definition.profile))
    }

    /// How quickly the services of a vCluster follow their metrics.
    pub(crate) fn damping_of(&self, vcluster: &VclusterName) -> Damping {
        let known = self.vclusters.get(vcluster);
        damping(known.map_or("", |known| &known.definition.profile))
    }
}

fn read(profile: &str) -> Movement {
    let said = Said(settings(profile));
    let checkpoint = said.checkpoint();
    Movement {
        room: said.room(&checkpoint),
        lend: said.lend(),
        checkpoint,
    }
}

fn damping(profile: &str) -> Damping {
    Said(settings(profile)).scale()
}

struct Said<'a>(BTreeMap<&'a str, &'a str>);

impl Said<'_> {
    fn or<T: FromStr>(&self, name: &str, default: T) -> T {
        let text = self.0.get(name);
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    fn some<T: FromStr>(&self, name: &str) -> Option<T> {
        self.0.get(name)?.parse().ok()
    }

    fn room(&self, checkpoint: &checkpoint::Policy) -> Rules {
        let usual = preempt::Policy::default();
        Rules {
            policy: preempt::Policy {
                enabled: self.or("preemption.enabled", usual.enabled),
                max_victims: self.or("preemption.max_victims", usual.max_victims),
                near_completion_ms: self
                    .or("preemption.near_completion_ms", usual.near_completion_ms),
                thrash_interval_ms: self
                    .or("preemption.thrash_interval_ms", usual.thrash_interval_ms),
                thrash_count: self.or("preemption.thrash_count", usual.thrash_count),
                only_borrowed: self.or("preemption.only_borrowed", usual.only_borrowed),
            },
            patience_ms: self.or("preemption.patience_ms", PATIENCE_MS),
            timeout_ms: checkpoint.ordinary.timeout_ms,
        }
    }

    fn lend(&self) -> lend::Policy {
        let usual = lend::Policy::default();
        lend::Policy {
            allow_lending: self.or("sharing.allow_lending", usual.allow_lending),
            lending_limit: self.some("sharing.lending_limit").or(usual.lending_limit),
            allow_borrowing: self.or("sharing.allow_borrowing", usual.allow_borrowing),
            borrowing_limit: self
                .some("sharing.borrowing_limit")
                .or(usual.borrowing_limit),
            return_grace_ms: self.or("sharing.return_grace_ms", usual.return_grace_ms),
        }
    }

    fn scale(&self) -> Damping {
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
        match read.check() {
            Ok(()) => read,
            Err(_) => usual,
        }
    }

    fn checkpoint(&self) -> checkpoint::Policy {
        let usual = checkpoint::Policy::default();
        let bounds = |kind: &str, usual: checkpoint::Bounds| checkpoint::Bounds {
            min_interval_ms: self.or(
                &format!("checkpoint.{kind}min_interval_ms"),
                usual.min_interval_ms,
            ),
            max_interval_ms: self.or(
                &format!("checkpoint.{kind}max_interval_ms"),
                usual.max_interval_ms,
            ),
            timeout_ms: self.or(&format!("checkpoint.{kind}timeout_ms"), usual.timeout_ms),
        };
        let read = checkpoint::Policy {
            ordinary: bounds("", usual.ordinary),
            sensitive: bounds("sensitive_", usual.sensitive),
            max_deferral_ms: self.or("checkpoint.max_deferral_ms", usual.max_deferral_ms),
            max_deferrals: self.or("checkpoint.max_deferrals", usual.max_deferrals),
            ..usual.clone()
        };
        match read.check() {
            Ok(()) => read,
            Err(_) => usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_by_default() {
        let usual = read("");
        assert_eq!(usual.room.policy, preempt::Policy::default());
        assert_eq!(usual.room.timeout_ms, 600_000);
        assert_eq!(usual.lend, lend::Policy::default());
        assert_eq!(usual.checkpoint, checkpoint::Policy::default());
        assert_eq!(damping(""), Damping::default());
        assert_eq!(read("preemption.max_victims=many\nsharing=1\n"), usual);
    }

    #[test]
    fn what_is_said_is_taken() {
        let said = read(
            "checkpoint.timeout_ms=2000\npreemption.enabled=false\npreemption.patience_ms=0\n\
             sharing.lending_limit=50\nsharing.return_grace_ms=1000\n",
        );
        assert!(!said.room.policy.enabled);
        assert_eq!((said.room.patience_ms, said.room.timeout_ms), (0, 2000));
        assert_eq!(said.lend.lending_limit, Some(50));
        assert_eq!(said.lend.return_grace_ms, 1000);
        let quick =
            damping("scale.evaluate_ms=500\nscale.up_window_ms=1000\nscale.threshold=0.8\n");
        assert_eq!((quick.evaluation_ms, quick.up_window_ms), (500, 1000));
        assert_eq!(quick.threshold.to_string(), "0.8");
        assert_eq!(quick.cooldown_ms, Damping::default().cooldown_ms);
        assert_eq!(damping("scale.threshold=2\n"), Damping::default());
        // A least interval above the longest is nobody's policy.
        let wrong = read("checkpoint.min_interval_ms=9\ncheckpoint.max_interval_ms=1\n");
        assert_eq!(wrong.checkpoint, checkpoint::Policy::default());
    }
}
