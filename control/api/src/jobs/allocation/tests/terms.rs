//! Tests of allocation terms in a request.

use super::super::*;
use crate::jobs::dependency::JobRef;
use lattice_quorum_types::{
    UnixMillis,
    checkpoint::CheckpointMode,
    scale::Metric,
    terms::{CheckpointTrigger, Condition, Terms},
};
use serde_json::{Value, json};

/// Tuesday, 2023-11-14T22:13:20.123Z.
const NOW: UnixMillis = UnixMillis(1_700_000_000_123);

fn known() -> RequestContext {
    let element = JobRef {
        id: 14,
        index: Some(7),
    };
    RequestContext {
        now: NOW,
        elements: [(element, AllocationId(22))].into(),
        default_output: None,
    }
}

fn request(terms: &Value) -> AllocationRequest {
    let mut body = json!({"project": "atlas/web", "nodes": 2, "name": "step", "argv": ["true"]});
    let fields = terms.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    serde_json::from_value(body).unwrap()
}

fn terms(terms: &Value) -> Result<Terms, FieldError> {
    let spec = request(terms).into_spec_with(&known());
    spec.map(|spec| spec.terms)
}

#[test]
fn terms_are_read_as_people_write_them() {
    let read = terms(&json!({
        "array": "0-99%10", "dependency": "afterok:12:13,afternotok:14_7,singleton",
        "begin": "now+1hour", "deadline": "2023-11-16",
        "checkpoint": {"mode": "shared_memory", "trigger": "manual", "directory": "/scratch/a"},
        "scale": {"min_nodes": 2, "max_nodes": 8, "metric": {"prometheus": "up"}, "target": 0.7,
            "up_window": "2m", "cooldown": "0s", "down_threshold": 0.5},
        "reservation": "course",
    }))
    .unwrap();
    let after: Vec<_> = read.after.iter().map(|d| (d.condition, d.on.0)).collect();
    assert_eq!(
        after,
        [
            (Condition::Success, 12),
            (Condition::Success, 13),
            (Condition::Failure, 22)
        ]
    );
    assert_eq!(read.mutex.as_deref(), Some("step"));
    assert_eq!(read.begin_at, Some(NOW.after(3_600_000)));
    assert_eq!(read.deadline_at, Some(UnixMillis(1_700_092_800_000)));
    let array = read.array.unwrap();
    assert_eq!(
        (array.indices().len(), array.max_running()),
        (100, Some(10))
    );
    let checkpoint = read.checkpoint.unwrap();
    assert_eq!(checkpoint.mode, CheckpointMode::SharedMemory);
    assert_eq!(checkpoint.trigger, CheckpointTrigger::Manual);
    let scale = read.scale.unwrap();
    assert!(matches!(scale.metric, Metric::Prometheus { .. }));
    assert_eq!(scale.target_micro, 700_000);
    assert_eq!(scale.pace.up_window_ms, Some(120_000));
    assert_eq!(scale.pace.cooldown_ms, Some(0));
    assert_eq!(scale.pace.down_threshold_ppm, Some(500_000));
    assert_eq!(read.reservation.unwrap().as_str(), "course");
}

#[test]
fn dependency_list_equals_text_form() {
    let listed = terms(&json!({"dependencies": [
        {"condition": "success", "on": 12}, {"condition": "success", "on": 13},
        {"condition": "failure", "on": "14_7"}, {"condition": "corresponding", "on": "15"},
    ]}));
    let text = terms(&json!({"dependency": "afterok:12:13,afternotok:14_7,aftercorr:15"}));
    assert_eq!(listed.unwrap(), text.unwrap());
    let named = request(&json!({"dependency": "afterany:14_7:3,afterok:14_7"})).dependency_refs();
    let named: Vec<String> = named.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(named, ["3", "14_7"]);
}

/// The time is 22:13:20 on 14 November 2023.
#[test]
fn deadline_by_the_hour_follows_the_begin_time() {
    for (begin, deadline, wanted) in [
        (Some("23:00"), "06:00", "2023-11-15T06:00:00.000Z"),
        (Some("22:00"), "06:00", "2023-11-16T06:00:00.000Z"),
        (
            Some("2023-12-01T08:00"),
            "10:00",
            "2023-12-01T10:00:00.000Z",
        ),
        (Some("2023-11-01"), "06:00", "2023-11-15T06:00:00.000Z"),
        (None, "06:00", "2023-11-15T06:00:00.000Z"),
        (Some("now+1min"), "now+2min", "2023-11-14T22:15:20.123Z"),
    ] {
        let read = terms(&json!({"begin": begin, "deadline": deadline})).unwrap();
        let deadline_at = crate::text::time(read.deadline_at.unwrap());
        assert_eq!(deadline_at, wanted, "{begin:?} to {deadline}");
    }
}

#[test]
fn nothing_asked_for_is_nothing() {
    assert!(terms(&json!({})).unwrap().is_empty());
    // A begin time in the past has no effect.
    assert!(terms(&json!({"begin": "2023-11-14"})).unwrap().is_empty());
}

#[test]
fn what_cannot_be_is_refused_by_its_field() {
    let scale = |field: &str, value: Value| {
        let mut scale = json!({"min_nodes": 2, "max_nodes": 8, "metric": "gpu", "target": 0.7});
        scale[field] = value;
        json!({ "scale": scale })
    };
    for (asked, field, why) in [
        (json!({"array": "0-9:0"}), "array", "the step is at least 1"),
        (json!({"array": "9-0"}), "array", "is descending"),
        (json!({"array": "0-9%0"}), "array", "at least 1"),
        (
            json!({"dependency": "after:12"}),
            "dependency",
            "not supported",
        ),
        (
            json!({"dependency": "afterok:9_1"}),
            "dependency",
            "9_1 is not an element",
        ),
        (
            json!({"dependency": "afterok:1", "dependencies": [{"condition": "any", "on": 1}]}),
            "dependency",
            "give one of them",
        ),
        (
            json!({"dependencies": [{"condition": "done", "on": 1}]}),
            "dependencies",
            "success, failure, any, corresponding",
        ),
        (
            json!({"dependencies": [{"condition": "success", "on": 1},
                {"condition": "failure", "on": 1}]}),
            "dependencies",
            "cannot both complete and fail",
        ),
        (
            json!({"dependencies": [{"condition": "any", "on": 0}]}),
            "dependencies",
            "is not a valid allocation",
        ),
        (
            json!({"singleton": true, "mutex": "m"}),
            "mutex",
            "singleton",
        ),
        (
            json!({"singleton": true, "name": null}),
            "name",
            "requires a name",
        ),
        (json!({"begin": "teatime"}), "begin", "16:00"),
        (
            json!({"deadline": "2023-11-14"}),
            "deadline",
            "is in the past",
        ),
        (
            json!({"checkpoint": {"mode": "sigusr1"}}),
            "checkpoint.mode",
            "signal",
        ),
        (
            json!({"checkpoint": {"mode": "signal", "trigger": "never"}}),
            "checkpoint.trigger",
            "automatic, manual",
        ),
        (
            scale("min_nodes", json!(0)),
            "scale.min_nodes",
            "at least 1",
        ),
        (scale("max_nodes", json!(1)), "scale.max_nodes", "less than"),
        (scale("target", json!(0.0)), "scale.target", "above 0"),
        (scale("target", json!(-1.0)), "scale.target", "above 0"),
        (scale("target", json!(1e300)), "scale.target", "at most"),
        (scale("target", json!(1.5)), "scale.target", "never reached"),
        (
            scale("up_window", json!("-2m")),
            "scale.up_window",
            "is not a duration",
        ),
        (
            scale("down_window", json!("0s")),
            "scale.down_window",
            "at least 1 ms",
        ),
        (scale("cooldown", json!("8d")), "scale.cooldown", "7 days"),
        (
            scale("down_threshold", json!(1.0)),
            "scale.down_threshold",
            "between 0 and 1",
        ),
        (json!({"reservation": "a b"}), "reservation", "a b"),
    ] {
        let error = terms(&asked).unwrap_err();
        assert_eq!(error.field, field, "{asked}: {error}");
        assert!(error.to_string().contains(why), "{asked}: {error}");
    }
}

#[test]
fn what_is_given_and_empty_is_refused() {
    for (asked, field) in [
        (json!({"dependency": ""}), "dependency"),
        (json!({"begin": " "}), "begin"),
        (json!({"array": ""}), "array"),
        (
            json!({"constraints": {"nodelist": ""}}),
            "constraints.nodelist",
        ),
        (
            json!({"constraints": {"features": ["a", ""]}}),
            "constraints.features",
        ),
        (
            json!({"checkpoint": {"mode": "signal", "directory": ""}}),
            "checkpoint.directory",
        ),
    ] {
        let error = request(&asked).into_spec_with(&known()).unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.reason.starts_with("the value is empty"), "{error}");
    }
}

#[test]
fn reports_each_invalid_field_once() {
    let fields = |asked: Value| {
        let faults = request(&asked).faults().into_iter();
        faults.map(|fault| fault.field).collect::<Vec<_>>()
    };
    // Only the server has the current time and the array elements.
    assert_eq!(
        fields(
            json!({"begin": "2026-12-01", "deadline": "2020-01-01", "dependency": "afterok:9_1"})
        ),
        [""; 0]
    );
    assert_eq!(
        fields(json!({"begin": "", "deadline": "now+soon"})),
        ["begin", "deadline"]
    );
    assert_eq!(
        fields(
            json!({"project": "a//b", "nodes": 0, "dependency": "", "walltime": "soon",
            "begin": "teatime", "array": "9-0", "working_dir": "run", "checkpoint": {"mode": "x"},
            "storage_gb_s": {"s": -1.0}, "mutex": "", "name": ""})
        ),
        [
            "dependency",
            "begin",
            "name",
            "mutex",
            "nodes",
            "storage_gb_s",
            "array",
            "checkpoint.mode",
            "project",
            "working_dir",
            "walltime",
        ]
    );
    // A fault that no other value of the field can correct is reported once, too.
    assert_eq!(fields(json!({"singleton": true, "name": null})), ["name"]);
}

#[test]
fn what_is_no_number_is_refused_and_never_sent() {
    let mut asked =
        request(&json!({"scale": {"min_nodes": 2, "max_nodes": 8, "metric": "cpu", "target": 1}}));
    for (target, threshold, field) in [
        (f64::NAN, None, "scale.target"),
        (f64::INFINITY, None, "scale.target"),
        (1.0, Some(f64::NAN), "scale.down_threshold"),
    ] {
        let scale = asked.scale.as_mut().unwrap();
        (scale.target, scale.down_threshold) = (target, threshold);
        assert!(serde_json::to_string(&asked).is_err());
        let error = asked.clone().into_spec_with(&known()).unwrap_err();
        assert_eq!(error.field, field);
    }
}

#[test]
fn check_without_clock_covers_the_rest() {
    let asked =
        request(&json!({"begin": "yesterday", "deadline": "x", "dependency": "afterok:9_1"}));
    assert!(asked.into_spec().is_ok());
    let asked = request(&json!({"array": "0-9:0"}));
    assert_eq!(asked.into_spec().unwrap_err().field, "array");
    let asked = request(&json!({"dependency": "afterok"}));
    assert_eq!(asked.into_spec().unwrap_err().field, "dependency");
}

#[test]
fn terms_are_shown_as_they_were_asked_for() {
    let checkpoint = json!({"mode": "callback", "trigger": "automatic", "directory": "/a"});
    let scale = json!({"min_nodes": 2, "max_nodes": 8, "metric": {"prometheus": "up"},
        "target": 0.7, "up_window": "2m", "down_window": "5m", "cooldown": "3m",
        "down_threshold": 0.5});
    let read = terms(&json!({"checkpoint": checkpoint, "scale": scale})).unwrap();
    let shown = CheckpointBody::from(read.checkpoint.as_ref().unwrap());
    assert_eq!(serde_json::to_value(shown).unwrap(), checkpoint);
    let shown = ScaleBody::from(read.scale.as_ref().unwrap());
    assert_eq!(serde_json::to_value(shown).unwrap(), scale);
}
