//! Movement settings of a vCluster: preemption, lending, job checkpoints and scaling of services.
//!
//! One table defines the settings, and generates the REST bodies, their conversion from and to `lattice.v1`, and the
//! names in the CLI (`preemption.patience_s`). Times are seconds, and may have a fraction. Only the server, which holds
//! all settings, can check that they are consistent.

use crate::{
    notation::{nullable::deserialize_present, number::finite_or_null_of, suggestion::nearest},
    problem::FieldError,
    v1,
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

#[cfg(test)]
mod tests;

/// Longest time of any setting, seconds: 366 days.
pub const MAX_S: f64 = lattice_quorum_types::scheduler::MAX_TIME_MS as f64 / 1e3;

/// Type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingType {
    /// Boolean.
    Flag,
    /// Whole number.
    Count,
    /// Whole number, or unlimited.
    Limit,
    /// Time, seconds.
    Seconds,
    /// Decimal number.
    Number,
}

/// Value of a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SettingValue {
    /// Boolean.
    Flag(bool),
    /// Whole number.
    Count(u32),
    /// Whole number; `None`: unlimited.
    Limit(Option<u32>),
    /// Time, seconds.
    Seconds(f64),
    /// Decimal number.
    Number(f64),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(yes) => yes.fmt(f),
            Self::Count(count) | Self::Limit(Some(count)) => count.fmt(f),
            Self::Limit(None) => f.write_str("no limit"),
            Self::Seconds(number) | Self::Number(number) => number.fmt(f),
        }
    }
}

impl SettingValue {
    /// Checks the range of the value, as far as it is independent of other settings.
    fn check(self) -> Result<(), String> {
        match self {
            Self::Seconds(seconds) if !(0.0..=MAX_S).contains(&seconds) => Err(format!(
                "{seconds} s is out of range; it must be from 0 to {MAX_S} s (366 days)"
            )),
            Self::Number(part) if !part.is_finite() => {
                Err(format!("it is {part}; it must be a finite number"))
            }
            _ => Ok(()),
        }
    }
}

/// Parses a value from a command line.
trait SettingText: Sized {
    fn read(kind: SettingType, text: &str) -> Result<Self, String>;
}

fn parse_plain<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("it is {text:?}; it must be {what}"))
}

impl SettingText for bool {
    fn read(_: SettingType, text: &str) -> Result<Self, String> {
        parse_plain(text, "true or false")
    }
}

impl SettingText for u32 {
    fn read(_: SettingType, text: &str) -> Result<Self, String> {
        parse_plain(text, "a whole number from 0 to 4294967295")
    }
}

impl SettingText for f64 {
    /// A time may also be written as `90s` or `1h30m`, as elsewhere.
    fn read(kind: SettingType, text: &str) -> Result<Self, String> {
        match (kind, crate::notation::duration::parse(text)) {
            (SettingType::Seconds, Ok(millis)) => Ok(millis as f64 / 1000.0),
            (SettingType::Seconds, Err(_)) => {
                parse_plain(text, "a number of seconds, or like 90s or 1h30m")
            }
            _ => parse_plain(text, "a number"),
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
            /// A field left out keeps its value; `null` resets it to the default.
            #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
            #[serde(default, deny_unknown_fields)]
            pub struct $change {
                $(
                    $(#[$what])*
                    #[serde(
                        deserialize_with = "deserialize_present",
                        skip_serializing_if = "Option::is_none",
                        serialize_with = "finite_or_null_of"
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

        /// All settings, by the names used in a body and on a command line.
        pub const SETTINGS: &[(&str, SettingType)] = &[ $( $(
            (concat!(stringify!($group), ".", stringify!($field)), SettingType::$kind),
        )* )* ];

        /// Movement settings of a vCluster that are in force.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct MovementView {
            $( $(#[$about])* pub $group: $view, )*
            /// Settings that have been set, such as `preemption.patience_s`. All others have their default.
            pub set: Vec<String>,
            /// Stored settings that are inconsistent, with the reason; the defaults of these settings apply instead.
            pub unread: Vec<String>,
        }

        impl MovementView {
            /// Returns all settings by name.
            pub fn named(&self) -> Vec<(&'static str, SettingValue)> {
                vec![ $( $( (
                    concat!(stringify!($group), ".", stringify!($field)),
                    SettingValue::$kind(self.$group.$field.into()),
                ), )* )* ]
            }
        }

        /// Change of a vCluster's movement settings; a field left out keeps its value.
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
            /// Returns the changed settings by name; `None` resets a setting to its default.
            pub fn given(&self) -> Vec<(&'static str, Option<SettingValue>)> {
                let mut given = Vec::new();
                $( if let Some(group) = &self.$group { $(
                    if let Some(value) = group.$field {
                        let name = concat!(stringify!($group), ".", stringify!($field));
                        given.push((name, value.map(|value| SettingValue::$kind(value.into()))));
                    }
                )* } )*
                given
            }

            /// Changes one setting by name; without a text the setting is reset to its default.
            ///
            /// # Errors
            /// An unknown name, a name given before, or a text that is not a valid value.
            pub fn put(&mut self, name: &str, text: Option<&str>) -> Result<(), FieldError> {
                $( $(
                    if name == concat!(stringify!($group), ".", stringify!($field)) {
                        let value = text.map(|text| <$given>::read(SettingType::$kind, text)).transpose();
                        let value = value.map_err(|reason| setting_error(name, reason))?;
                        let slot = &mut self.$group.get_or_insert_default().$field;
                        return match slot.replace(value) {
                            None => Ok(()),
                            Some(_) => Err(setting_error(name, "the setting is given twice; give it once")),
                        };
                    }
                )* )*
                Err(setting_error(name, unknown(name)))
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

            /// Where REST uses `null`, a message names the setting in `reset`.
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
    /// Preemption for jobs of a higher class.
    preemption: PreemptionView = PreemptionSettings, PreemptionChange = PreemptionChange {
        /// Whether preemption is enabled. Default: true.
        enabled: [bool] bool Flag,
        /// Maximum number of victims per preemptor, 1 to 3. Default: 3.
        max_victims: [u32] u32 Count,
        /// Minimum time that a job has waited, and is still expected to wait, before it preempts, seconds. Default: 60.
        patience_s: [f64] f64 Seconds,
        /// A job with less than this time to its end is not preempted, seconds. Default: 300.
        near_completion_threshold_s: [f64] f64 Seconds,
        /// A job that was preempted or resumed within this time is not preempted, seconds. Default: 900.
        thrash_interval_s: [f64] f64 Seconds,
        /// A job that was preempted this often counts as one class higher; 0: never. Default: 3.
        thrash_count: [u32] u32 Count,
        /// Preempt only jobs that hold nothing but borrowed nodes. Default: false; true for services.
        only_borrowed: [bool] bool Flag,
    }
    /// Lending and borrowing of nodes.
    sharing: SharingView = SharingSettings, SharingChange = SharingChange {
        /// Whether the vCluster lends its idle nodes. Default: true. With the weights of `sensitive`: always false.
        allow_lending: [bool] bool Flag,
        /// Maximum number of own nodes that are lent at once. Default: all idle nodes.
        lending_limit: [Option<u32>] u32 Limit,
        /// Whether the vCluster borrows nodes. Default: true.
        allow_borrowing: [bool] bool Flag,
        /// Maximum number of nodes that are borrowed at once. Default: unlimited.
        borrowing_limit: [Option<u32>] u32 Limit,
        /// Time for which a borrower keeps a reclaimed node before the job on it is stopped, seconds. Default: 60.
        return_grace_s: [f64] f64 Seconds,
    }
    /// Job checkpoints: when they are written, and how long one may take.
    checkpoint: CheckpointSettingsView = CheckpointSettings, CheckpointSettingsChange = CheckpointSettingsChange {
        /// Time that a checkpoint may take before it is extended or abandoned, seconds. Default: 600.
        timeout_s: [f64] f64 Seconds,
        /// Minimum time since the last checkpoint or the start, seconds. Default: 300.
        min_interval_s: [f64] f64 Seconds,
        /// Maximum time since the last checkpoint or the start, regardless of cost, seconds. Default: 21600.
        max_interval_s: [f64] f64 Seconds,
        /// `timeout_s` for sensitive jobs, seconds. Default: 900.
        sensitive_timeout_s: [f64] f64 Seconds,
        /// `min_interval_s` for sensitive jobs, seconds. Default: 600.
        sensitive_min_interval_s: [f64] f64 Seconds,
        /// `max_interval_s` for sensitive jobs, seconds. Default: 3600.
        sensitive_max_interval_s: [f64] f64 Seconds,
        /// Total time by which a job may defer a checkpoint, seconds. Default: 300.
        max_deferral_s: [f64] f64 Seconds,
        /// Number of times that a job may defer a checkpoint. Default: 3.
        max_deferral_count: [u32] u32 Count,
    }
    /// Scaling: how quickly services follow their metrics.
    scaling: ScalingView = ScalingSettings, ScalingChange = ScalingChange {
        /// A service shrinks below this fraction of the target; above 0 and below 1. Default: 0.5.
        threshold: [f64] f64 Number,
        /// Interval between readings of the metric, seconds. Default: 60.
        evaluation_s: [f64] f64 Seconds,
        /// Time for which the metric must be above the target before the service grows, seconds. Default: 120.
        up_window_s: [f64] f64 Seconds,
        /// Time for which the metric must be below the threshold before the service shrinks, seconds. Default: 300.
        down_window_s: [f64] f64 Seconds,
        /// Time for which a service keeps its size after a change, seconds. Default: 180.
        cooldown_s: [f64] f64 Seconds,
        /// Consecutive evaluations without a metric before an alert. Default: 3.
        missing_alert: [u32] u32 Count,
        /// Number of times that a rejected proposal is repeated. Default: 3.
        retries: [u32] u32 Count,
        /// Cooldowns without a proposal after the last repetition was rejected. Default: 2.
        backoff_cooldowns: [u32] u32 Count,
        /// Consecutive changes of direction, between growing and shrinking, before an alert. Default: 5.
        oscillation_alert: [u32] u32 Count,
        /// Time without a change of size after which the next change does not count as a change of direction, seconds.
        /// Default: 3600.
        calm_s: [f64] f64 Seconds,
    }
}

impl MovementChange {
    /// Checks the ranges of all values, as far as they are independent of the rest of the vCluster. A client can check
    /// before it sends the request.
    ///
    /// # Errors
    /// The first field with an invalid value.
    pub fn check(&self) -> Result<(), FieldError> {
        for (name, value) in self.given() {
            if let Some(value) = value {
                value
                    .check()
                    .map_err(|reason| setting_error(name, reason))?;
            }
        }
        Ok(())
    }
}

/// Describes an unknown setting, and suggests a similar or related name.
fn unknown(name: &str) -> String {
    let names = || SETTINGS.iter().map(|(name, _)| *name);
    if let Some(near) = nearest(name, names()) {
        return format!("unknown setting; did you mean {near}?");
    }
    let group = name.split('.').next().unwrap_or_default();
    let of_group = names().filter(|name| name.split('.').next() == Some(group));
    let of_group: Vec<_> = of_group.collect();
    match of_group.is_empty() {
        true => "unknown setting; settings begin with preemption., sharing., checkpoint. or \
            scaling."
            .to_owned(),
        false => format!("unknown setting; valid are {}", of_group.join(", ")),
    }
}

/// Creates the error for an invalid setting.
pub fn setting_error(name: &str, reason: impl Into<String>) -> FieldError {
    FieldError {
        field: format!("movement.{name}"),
        reason: reason.into(),
    }
}
