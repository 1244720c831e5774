//! Request bodies for a change, one form per kind of control. Pure.

use super::LimitRefusal;
use crate::ResourcePath;
use crate::power::{PowerForm, Source, power_control_index};
use lattice_conformance::Milliwatts;
use serde_json::{Value, json};

/// Whether a limit can be written to the source. A control shared by several systems is never changed for one of them.
pub(super) const fn takes_limits(source: &Source) -> bool {
    let is_writable = matches!(
        source.shape,
        PowerForm::Control | PowerForm::EnvironmentMetrics | PowerForm::PowerControl
    );
    is_writable && !source.is_shared
}

/// The body that sets or lifts the limit.
pub(super) fn limit_body(
    source: &Source,
    value: &Value,
    system: Option<&ResourcePath>,
    limit: Option<Milliwatts>,
) -> Result<Value, LimitRefusal> {
    match source.shape {
        PowerForm::Control => set_point(value, limit),
        PowerForm::EnvironmentMetrics => {
            let control = value.get("PowerLimitWatts");
            let control = control.ok_or(LimitRefusal::NoControl)?;
            Ok(json!({"PowerLimitWatts": set_point(control, limit)?}))
        }
        PowerForm::PowerControl => {
            let limit = limit.map(watts);
            let entry = json!({"PowerLimit": {"LimitInWatts": limit}});
            power_control(value, system, entry).ok_or(LimitRefusal::NoControl)
        }
        PowerForm::HpeAccPowerLimit | PowerForm::Sensor => Err(LimitRefusal::NoControl),
    }
}

/// The body that sets the action for a limit that cannot be enforced; `None` if the source has no such setting.
pub(super) fn exception_body(
    source: &Source,
    value: &Value,
    system: Option<&ResourcePath>,
    action: &str,
) -> Option<Value> {
    let is_power = source.shape == PowerForm::PowerControl;
    let entry = json!({"PowerLimit": {"LimitException": action}});
    is_power.then(|| power_control(value, system, entry))?
}

/// A set point with its mode, if the control has a mode.
fn set_point(control: &Value, limit: Option<Milliwatts>) -> Result<Value, LimitRefusal> {
    let has_mode = control.get("ControlMode").is_some();
    match limit {
        Some(limit) if has_mode => {
            Ok(json!({"SetPoint": watts(limit), "ControlMode": "Automatic"}))
        }
        Some(limit) => Ok(json!({"SetPoint": watts(limit)})),
        None if has_mode => Ok(json!({"ControlMode": "Disabled"})),
        None => {
            // Without a mode, the highest set point is equivalent to no limit.
            let highest = ["SettingRangeMax", "AllowableMax"];
            let mut highest = highest.iter().filter_map(|name| control.get(name));
            let highest = highest.find(|watts| watts.is_number());
            let highest = highest.ok_or(LimitRefusal::CannotLift)?;
            Ok(json!({"SetPoint": highest}))
        }
    }
}

/// An entry at its index of `PowerControl[]`; empty objects leave the entries before it unchanged (DSP0266, section
/// 7.9.1).
fn power_control(value: &Value, system: Option<&ResourcePath>, entry: Value) -> Option<Value> {
    let index = power_control_index(value, system)?;
    let mut entries = vec![json!({}); index];
    entries.push(entry);
    Some(json!({"PowerControl": entries}))
}

/// Whole watts; limits are already rounded here.
const fn watts(limit: Milliwatts) -> u64 {
    limit.0 / 1000
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn source(shape: PowerForm) -> Source {
        Source {
            path: ResourcePath::parse("/redfish/v1/Chassis/1/X").unwrap(),
            shape,
            is_shared: false,
        }
    }

    fn change(shape: PowerForm, value: &Value, limit: Option<u64>) -> Result<Value, LimitRefusal> {
        let limit = limit.map(|watts| Milliwatts(watts * 1000));
        limit_body(&source(shape), value, None, limit)
    }

    #[test]
    fn a_control_is_switched_on_with_its_set_point_and_off_without_one() {
        let control = json!({"SetPoint": 0, "ControlMode": "Disabled", "SettingRangeMax": 2754});
        let set = json!({"SetPoint": 900, "ControlMode": "Automatic"});
        assert_eq!(change(PowerForm::Control, &control, Some(900)), Ok(set));
        let lifted = json!({"ControlMode": "Disabled"});
        assert_eq!(change(PowerForm::Control, &control, None), Ok(lifted));
    }

    #[test]
    fn a_control_without_a_mode_is_lifted_by_its_highest_set_point() {
        let control = json!({"SetPoint": 500, "SettingRangeMax": 2754});
        let lifted = json!({"SetPoint": 2754});
        assert_eq!(change(PowerForm::Control, &control, None), Ok(lifted));
        let control = json!({"SetPoint": 500});
        assert_eq!(
            change(PowerForm::Control, &control, None),
            Err(LimitRefusal::CannotLift)
        );
    }

    #[test]
    fn environment_metrics_hold_the_same_one_level_down() {
        let metrics = json!({"PowerLimitWatts": {"SetPoint": 0, "ControlMode": "Disabled"}});
        let set = json!({"PowerLimitWatts": {"SetPoint": 600, "ControlMode": "Automatic"}});
        assert_eq!(
            change(PowerForm::EnvironmentMetrics, &metrics, Some(600)),
            Ok(set)
        );
        let refused = change(PowerForm::EnvironmentMetrics, &json!({}), Some(600));
        assert_eq!(refused, Err(LimitRefusal::NoControl));
    }

    #[test]
    fn power_control_is_changed_in_the_entry_of_the_whole_system() {
        let power = json!({"PowerControl": [
            {"MemberId": "0", "PhysicalContext": "CPU", "PowerConsumedWatts": 60},
            {"MemberId": "1", "PowerConsumedWatts": 300, "PowerLimit": {"LimitInWatts": null}},
        ]});
        let set = json!({"PowerControl": [{}, {"PowerLimit": {"LimitInWatts": 250}}]});
        assert_eq!(change(PowerForm::PowerControl, &power, Some(250)), Ok(set));
        let lifted = json!({"PowerControl": [{}, {"PowerLimit": {"LimitInWatts": null}}]});
        assert_eq!(change(PowerForm::PowerControl, &power, None), Ok(lifted));
    }

    #[test]
    fn what_several_systems_share_is_never_limited_for_one() {
        let mut shared = source(PowerForm::PowerControl);
        assert!(takes_limits(&shared));
        shared.is_shared = true;
        assert!(!takes_limits(&shared));
        assert!(!takes_limits(&source(PowerForm::Sensor)));
    }
}
