//! How a vCluster's work is moved: whom preemption may hit, what is lent, when checkpoints are written, how
//! quickly services scale.
//!
//! One table says what there is; the bodies of REST, the messages of `lattice.v1` and the names that the CLI
//! takes (`preemption.patience_s`) follow from it. Times are seconds, and may be fractions of one. What the
//! values must be together only the server knows, which has the whole.

use crate::{nearest::nearest, number::sendable, problem::FieldError, v1, vcluster::given};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

#[cfg(test)]
mod tests;

/// Longest time of any setting, seconds: a year.
pub const MAX_S: f64 = lattice_quorum_types::scheduler::MAX_TIME_MS as f64 / 1e3;

/// What a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Yes or no.
    Flag,
    /// A whole number.
    Count,
    /// A whole number, or no limit at all.
    Limit,
    /// A time, seconds.
    Seconds,
    /// A number.
    Part,
}

/// A setting's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Count(u32),
    /// A whole number; `None`: no limit at all.
    Limit(Option<u32>),
    /// A time, seconds.
    Seconds(f64),
    /// A number.
    Part(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(yes) => yes.fmt(f),
            Self::Count(count) | Self::Limit(Some(count)) => count.fmt(f),
            Self::Limit(None) => f.write_str("no limit"),
            Self::Seconds(number) | Self::Part(number) => number.fmt(f),
        }
    }
}

impl Value {
    /// What can be said of it alone.
    fn check(self) -> Result<(), String> {
        match self {
            Self::Seconds(seconds) if !(0.0..=MAX_S).contains(&seconds) => Err(format!(
                "it is {seconds} s; it must be from 0 to a year ({MAX_S} s)"
            )),
            Self::Part(part) if !part.is_finite() => {
                Err(format!("it is {part}; it must be a finite number"))
            }
            _ => Ok(()),
        }
    }
}

/// A value as it stands on a command line.
trait Given: Sized {
    fn read(kind: Kind, text: &str) -> Result<Self, String>;
}

fn plain<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("it is {text:?}; it must be {what}"))
}

impl Given for bool {
    fn read(_: Kind, text: &str) -> Result<Self, String> {
        plain(text, "true or false")
    }
}

impl Given for u32 {
    fn read(_: Kind, text: &str) -> Result<Self, String> {
        plain(text, "a whole number from 0 to 4294967295")
    }
}

impl Given for f64 {
    /// Also `90s`, `1h30m`, as times are written elsewhere.
    fn read(kind: Kind, text: &str) -> Result<Self, String> {
        match (kind, crate::duration::parse(text)) {
            (Kind::Seconds, Ok(millis)) => Ok(millis as f64 / 1000.0),
            (Kind::Seconds, Err(_)) => plain(text, "a number of seconds, or like 90s or 1h30m"),
            _ => plain(text, "a number"),
        }
    }
}

macro_rules! settings {
    ($(
        $(#[$about:meta])*
        $group:ident: $view:ident = $message:ident, $change:ident = $change_message:ident {
            $( $(#[$what:meta])* $field:ident: [$($shown:tt)*] $given:ident $kind:ident, )*
        }
    )*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
            #[serde(deny_unknown_fields)]
            pub struct $view {
                $( $(#[$what])* pub $field: $($shown)*, )*
            }

            impl From<$view> for v1::$message {
                fn from(view: $view) -> Self {
                    let $view { $($field),* } = view;
                    Self { $($field),* }
                }
            }

            $(#[$about])*
            ///
            /// What is left out stays; `null` takes it back to its default.
            #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
            #[serde(default, deny_unknown_fields)]
            pub struct $change {
                $(
                    $(#[$what])*
                    #[serde(
                        deserialize_with = "given",
                        skip_serializing_if = "Option::is_none",
                        serialize_with = "sendable"
                    )]
                    #[schema(value_type = Option<$given>, required = false)]
                    pub $field: Option<Option<$given>>,
                )*
            }

            impl From<v1::$change_message> for $change {
                fn from(change: v1::$change_message) -> Self {
                    let v1::$change_message { $($field),* } = change;
                    Self { $($field: $field.map(Some)),* }
                }
            }
        )*

        /// Every setting, as it is named in a body and on a command line.
        pub const SETTINGS: &[(&str, Kind)] = &[ $( $(
            (concat!(stringify!($group), ".", stringify!($field)), Kind::$kind),
        )* )* ];

        /// How a vCluster's work is moved, as it is in force.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct MovementView {
            $( $(#[$about])* pub $group: $view, )*
            /// Those that somebody has set, as `preemption.patience_s`. All others are as by default.
            pub set: Vec<String>,
            /// Stored settings that do not fit together, and why. The defaults hold for them.
            pub unread: Vec<String>,
        }

        impl MovementView {
            /// All settings by name.
            pub fn named(&self) -> Vec<(&'static str, Value)> {
                vec![ $( $( (
                    concat!(stringify!($group), ".", stringify!($field)),
                    Value::$kind(self.$group.$field.into()),
                ), )* )* ]
            }
        }

        /// What is to be changed of how a vCluster's work is moved; what is left out stays.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct MovementChange {
            $(
                $(#[$about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $group: Option<$change>,
            )*
        }

        impl MovementChange {
            /// Those that are changed, by name; `None` takes one back to its default.
            pub fn given(&self) -> Vec<(&'static str, Option<Value>)> {
                let mut given = Vec::new();
                $( if let Some(group) = &self.$group { $(
                    if let Some(value) = group.$field {
                        let name = concat!(stringify!($group), ".", stringify!($field));
                        given.push((name, value.map(|value| Value::$kind(value.into()))));
                    }
                )* } )*
                given
            }

            /// Changes one by its name; without a text it is taken back to its default.
            ///
            /// # Errors
            /// There is none of that name, it was named before, or the text is no such value.
            pub fn put(&mut self, name: &str, text: Option<&str>) -> Result<(), FieldError> {
                $( $(
                    if name == concat!(stringify!($group), ".", stringify!($field)) {
                        let value = text.map(|text| <$given>::read(Kind::$kind, text)).transpose();
                        let value = value.map_err(|reason| wrong(name, reason))?;
                        let slot = &mut self.$group.get_or_insert_default().$field;
                        return match slot.replace(value) {
                            None => Ok(()),
                            Some(_) => Err(wrong(name, "it is named twice; say it once")),
                        };
                    }
                )* )*
                Err(wrong(name, unknown(name)))
            }
        }

        impl From<MovementView> for v1::Movement {
            fn from(view: MovementView) -> Self {
                let MovementView { $($group,)* set, unread } = view;
                Self { $($group: Some($group.into()),)* set, unread }
            }
        }

        impl TryFrom<v1::MovementChange> for MovementChange {
            type Error = FieldError;

            /// Where REST says `null`, a message names the setting in `reset`.
            fn try_from(change: v1::MovementChange) -> Result<Self, FieldError> {
                let v1::MovementChange { $($group,)* reset } = change;
                let mut change = Self { $($group: $group.map(Into::into)),* };
                for name in &reset {
                    change.put(name, None)?;
                }
                Ok(change)
            }
        }
    };
}

settings! {
    /// Who makes room for work of a higher class.
    preemption: PreemptionView = PreemptionSettings, PreemptionChange = PreemptionChange {
        /// Whether anybody does. Default: true.
        enabled: [bool] bool Flag,
        /// How many make room for one, at most; 1 to 3. Default: 3.
        max_victims: [u32] u32 Count,
        /// How long work waits, and would wait on, before others make room for it, seconds. Default: 60.
        patience_s: [f64] f64 Seconds,
        /// Work so near its end is left alone, seconds. Default: 300.
        near_completion_threshold_s: [f64] f64 Seconds,
        /// Work that was preempted or resumed so recently is left alone, seconds. Default: 900.
        thrash_interval_s: [f64] f64 Seconds,
        /// Work that was preempted so often counts as one class higher; 0: never. Default: 3.
        thrash_count: [u32] u32 Count,
        /// Only work that has nothing but borrowed nodes makes room: so it is for services. Default: false.
        only_borrowed: [bool] bool Flag,
    }
    /// What it lends and borrows.
    sharing: SharingView = SharingSettings, SharingChange = SharingChange {
        /// Whether its idle nodes are lent. Default: true; false where its weights are those of `sensitive`,
        /// and never anything else there.
        allow_lending: [bool] bool Flag,
        /// Most of its nodes that are lent at once. Default: all that are idle.
        lending_limit: [Option<u32>] u32 Limit,
        /// Whether it borrows. Default: true.
        allow_borrowing: [bool] bool Flag,
        /// Most nodes that it has borrowed at once. Default: any number.
        borrowing_limit: [Option<u32>] u32 Limit,
        /// How long a borrower keeps a node that is asked back before its work is stopped, seconds. Default: 60.
        return_grace_s: [f64] f64 Seconds,
    }
    /// When its work writes checkpoints, and how long one may take.
    checkpoint: CheckpointSettingsView = CheckpointSettings, CheckpointSettingsChange = CheckpointSettingsChange {
        /// How long one may take before it is extended or given up, seconds. Default: 600.
        timeout_s: [f64] f64 Seconds,
        /// None sooner after the last one, or after the start, seconds. Default: 300.
        min_interval_s: [f64] f64 Seconds,
        /// None later, whatever it costs, seconds. Default: 21600.
        max_interval_s: [f64] f64 Seconds,
        /// As `timeout_s`, of sensitive work. Default: 900.
        sensitive_timeout_s: [f64] f64 Seconds,
        /// As `min_interval_s`, of sensitive work. Default: 600.
        sensitive_min_interval_s: [f64] f64 Seconds,
        /// As `max_interval_s`, of sensitive work. Default: 3600.
        sensitive_max_interval_s: [f64] f64 Seconds,
        /// How long work may put one off, in all, seconds. Default: 300.
        max_deferral_s: [f64] f64 Seconds,
        /// How often it may. Default: 3.
        max_deferral_count: [u32] u32 Count,
    }
    /// How quickly its services follow their metrics.
    scaling: ScalingView = ScalingSettings, ScalingChange = ScalingChange {
        /// Below this part of the target a service shrinks; above 0 and below 1. Default: 0.5.
        threshold: [f64] f64 Part,
        /// How often its metric is read, seconds. Default: 60.
        evaluation_s: [f64] f64 Seconds,
        /// How long the metric must be above the target, seconds. Default: 120.
        up_window_s: [f64] f64 Seconds,
        /// How long it must be below the threshold, seconds. Default: 300.
        down_window_s: [f64] f64 Seconds,
        /// How long it stays as it is after a change, seconds. Default: 180.
        cooldown_s: [f64] f64 Seconds,
        /// Evaluations without a metric, in a row, until somebody is told. Default: 3.
        missing_alert: [u32] u32 Count,
        /// How often a proposal that was refused is made again. Default: 3.
        retries: [u32] u32 Count,
        /// For how many cooldowns nothing is proposed then. Default: 2.
        backoff_cooldowns: [u32] u32 Count,
        /// Turns from growing to shrinking or back, in a row, until somebody is told. Default: 5.
        oscillation_alert: [u32] u32 Count,
        /// How long it must have been calm for a change to be no turn, seconds. Default: 3600.
        calm_s: [f64] f64 Seconds,
    }
}

impl MovementChange {
    /// What can be said without the rest of the vCluster, so that a client can ask before it asks anybody.
    ///
    /// # Errors
    /// The first field that is not as it must be.
    pub fn check(&self) -> Result<(), FieldError> {
        for (name, value) in self.given() {
            if let Some(value) = value {
                value.check().map_err(|reason| wrong(name, reason))?;
            }
        }
        Ok(())
    }
}

/// There is no setting of that name; which one may be meant.
fn unknown(name: &str) -> String {
    let names = || SETTINGS.iter().map(|(name, _)| *name);
    if let Some(near) = nearest(name, names()) {
        return format!("there is no such setting; did you mean {near}?");
    }
    let group = name.split('.').next().unwrap_or_default();
    let of_group = names().filter(|name| name.split('.').next() == Some(group));
    let of_group: Vec<_> = of_group.collect();
    match of_group.is_empty() {
        true => "there is no such setting; those there are begin with preemption., sharing., checkpoint. \
                 or scaling."
            .to_owned(),
        false => format!("there is no such setting; there are {}", of_group.join(", ")),
    }
}

/// A setting that is not as it must be.
pub fn wrong(name: &str, reason: impl Into<String>) -> FieldError {
    FieldError {
        field: format!("movement.{name}"),
        reason: reason.into(),
    }
}
