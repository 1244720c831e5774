//! Tests of the names, REST bodies and messages of the settings table.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Returns a value that differs from every default, as on a command line.
fn other(kind: SettingType) -> &'static str {
    match kind {
        SettingType::Flag => "false",
        SettingType::Count | SettingType::Limit => "2",
        SettingType::Seconds => "1.5",
        SettingType::Number => "0.25",
    }
}

#[test]
fn each_setting_goes_by_one_name_everywhere() {
    let mut all = MovementChange::default();
    for (name, kind) in SETTINGS {
        all.put(name, Some(other(*kind))).unwrap();
        let mut one = MovementChange::default();
        one.put(name, Some(other(*kind))).unwrap();
        let (group, field) = name.split_once('.').unwrap();
        let body = serde_json::to_value(one).unwrap();
        assert_eq!(
            body[group][field].to_string().trim_matches('"'),
            other(*kind)
        );
        let text = format!(r#"{{"{group}":{{"{field}":null}}}}"#);
        let back: MovementChange = serde_json::from_str(&text).unwrap();
        assert_eq!(back.given(), [(*name, None)]);
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        let mut taken = MovementChange::default();
        taken.put(name, None).unwrap();
        assert_eq!(taken, back);
        let message = v1::MovementChange {
            reset: vec![(*name).to_owned()],
            ..Default::default()
        };
        assert_eq!(MovementChange::try_from(message).unwrap(), back);
    }
    let given: Vec<_> = all.given().into_iter().map(|(name, _)| name).collect();
    let names: Vec<_> = SETTINGS.iter().map(|(name, _)| *name).collect();
    assert_eq!(given, names);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    all.check().unwrap();
}

#[test]
fn a_message_and_a_body_ask_for_the_same() {
    let body = json!({
        "preemption": {"enabled": false, "patience_s": 0.5},
        "sharing": {"lending_limit": 4, "return_grace_s": null},
        "scaling": {"threshold": 0.75}
    });
    let asked: MovementChange = serde_json::from_value(body.clone()).unwrap();
    let message = v1::MovementChange {
        preemption: Some(v1::PreemptionChange {
            enabled: Some(false),
            patience_s: Some(0.5),
            ..Default::default()
        }),
        sharing: Some(v1::SharingChange {
            lending_limit: Some(4),
            ..Default::default()
        }),
        scaling: Some(v1::ScalingChange {
            threshold: Some(0.75),
            ..Default::default()
        }),
        reset: vec!["sharing.return_grace_s".to_owned()],
        ..Default::default()
    };
    assert_eq!(MovementChange::try_from(message.clone()).unwrap(), asked);
    assert_eq!(serde_json::to_value(asked).unwrap(), body);
    let both = v1::MovementChange {
        reset: vec!["sharing.lending_limit".to_owned()],
        ..message
    };
    let refused = MovementChange::try_from(both).unwrap_err();
    assert_eq!(refused.field, "movement.sharing.lending_limit");
    assert!(refused.reason.contains("given twice"), "{refused}");
}

#[test]
fn error_names_field_and_remedy() {
    for (name, text, words) in [
        (
            "preemption.patience_s",
            "-1",
            "-1 s is out of range; it must be from 0",
        ),
        ("preemption.patience_s", "NaN", "NaN s is out of range"),
        ("checkpoint.timeout_s", "inf", "to 31622400 s (366 days)"),
        (
            "checkpoint.timeout_s",
            "soon",
            "a number of seconds, or like 90s",
        ),
        ("scaling.threshold", "NaN", "a finite number"),
        ("sharing.lending_limit", "-1", "a whole number from 0"),
        ("sharing.lending_limit", "1.5", "a whole number from 0"),
        ("sharing.allow_lending", "yes", "true or false"),
        (
            "sharing.lend_limit",
            "1",
            "did you mean sharing.lending_limit?",
        ),
        (
            "preemption.return_grace_s",
            "1",
            "valid are preemption.enabled, preemption.max_victims",
        ),
        ("grace", "1", "begin with preemption., sharing.,"),
    ] {
        let mut change = MovementChange::default();
        let put = change.put(name, Some(text));
        let error = put.and_then(|()| change.check()).unwrap_err();
        assert_eq!(error.field, format!("movement.{name}"));
        assert!(error.reason.contains(words), "{error}");
    }
    // JSON has no NaN: written as `null` it would reset the setting.
    let mut change = MovementChange::default();
    change.put("scaling.threshold", Some("NaN")).unwrap();
    let encode_error = serde_json::to_string(&change).unwrap_err().to_string();
    assert!(encode_error.contains("cannot be sent"), "{encode_error}");
}

#[test]
fn times_are_seconds_or_as_they_are_written_elsewhere() {
    for (text, seconds) in [
        ("0", 0.0),
        ("0.25", 0.25),
        ("90", 90.0),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
    ] {
        let mut change = MovementChange::default();
        change.put("preemption.patience_s", Some(text)).unwrap();
        let value = Some(SettingValue::Seconds(seconds));
        assert_eq!(change.given(), [("preemption.patience_s", value)]);
    }
    // A count accepts no time unit.
    let mut change = MovementChange::default();
    assert!(change.put("preemption.max_victims", Some("2s")).is_err());
    let shown = [
        (SettingValue::Seconds(60.0), "60"),
        (SettingValue::Seconds(0.5), "0.5"),
        (SettingValue::Limit(None), "no limit"),
        (SettingValue::Limit(Some(0)), "0"),
    ];
    for (value, text) in shown {
        assert_eq!(value.to_string(), text);
    }
    let wrong: Result<MovementChange, _> =
        serde_json::from_value(json!({"preemption": {"patience_s": Json::String("1".to_owned())}}));
    assert!(wrong.is_err());
}
