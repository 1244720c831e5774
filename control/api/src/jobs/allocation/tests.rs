#![expect(clippy::unwrap_used, reason = "tests")]

mod terms;

use super::*;
use lattice_quorum_types::{
    Allocation, AllocationName, AllocationState, NodeId, UnixMillis,
    allocation::{Rank, RankPhase, StopCause},
    progress::{ArrayElement, MoveReason},
    spec::Constraints,
    terms::{Condition, Dependency},
};

fn request(json: &str) -> Result<AllocationSpec, String> {
    let body: AllocationRequest = serde_json::from_str(json).map_err(|e| e.to_string())?;
    body.into_spec().map_err(|e| e.to_string())
}

#[test]
fn a_small_request_gets_the_defaults() {
    let spec =
        request(r#"{"project":"atlas/web","nodes":2,"argv":["sleep","1"],"walltime":"90s"}"#)
            .unwrap();
    assert_eq!(spec.vcluster.as_str(), "default");
    assert_eq!(spec.walltime_ms, Some(90_000));
    assert_eq!(spec.class, DEFAULT_CLASS);
    assert_eq!(spec.requeue, Requeue::Never);
    assert_eq!(spec.constraints, Constraints::default());
}

#[test]
fn a_request_that_cannot_be_read_names_the_field() {
    for (body, field) in [
        (r#"{"project":"a","nodes":1,"user":"root"}"#, "user"),
        (r#"{"project":"a","nodes":-1}"#, "-1"),
        (r#"{"project":"a//b","nodes":1}"#, "project"),
        (r#"{"project":"a","nodes":1,"walltime":"soon"}"#, "walltime"),
        (r#"{"project":"a","nodes":1,"requeue":"maybe"}"#, "requeue"),
        (
            r#"{"project":"a","nodes":1,"constraints":{"nodelist":"n[1-"}}"#,
            "constraints.nodelist",
        ),
        (
            r#"{"project":"a","nodes":1,"constraints":{"gpus":1}}"#,
            "gpus",
        ),
        (
            r#"{"project":"a","nodes":1,"constraints":{"gpu_models":["V100M16|"]}}"#,
            "constraints.gpu_models",
        ),
        (r#"{"project":"a","nodes":1,"output":" "}"#, "output"),
        (r#"{"project":"a","nodes":1,"error":"logs/"}"#, "error"),
        (r#"{"project":"a","nodes":1,"output":"o-%x.txt"}"#, "output"),
        (r#"{"project":"a","nodes":1,"error":"half%"}"#, "error"),
        (r#"{"nodes":1}"#, "project"),
        (
            r#"{"project":"a","nodes":0}"#,
            "nodes: 0 is not a valid number of nodes",
        ),
        (r#"{"project":"a","nodes":1,"walltime":"0"}"#, "walltime: "),
        (
            r#"{"project":"a","nodes":1,"walltime":"00:00:00"}"#,
            "walltime: ",
        ),
        (
            r#"{"project":"a","nodes":2,"constraints":{"nodelist":"n1,n[1-2]"}}"#,
            "constraints.nodelist: node n1 is named twice",
        ),
        (
            r#"{"project":"a","nodes":1,"constraints":{"nodelist":"n[1-2]","exclude":"n[2-3],n1"}}"#,
            "constraints.exclude: it excludes every node",
        ),
        (
            r#"{"project":"a","nodes":1,"data_ready":1.01}"#,
            "data_ready: 1.01 ",
        ),
        (
            r#"{"project":"a","nodes":1,"data_ready":-0.1}"#,
            "data_ready: -0.1 ",
        ),
        (
            r#"{"project":"a","nodes":1,"checkpoint_time":"0s"}"#,
            "checkpoint_time: ",
        ),
        (
            r#"{"project":"a","nodes":1,"checkpoint_time":"8d"}"#,
            "checkpoint_time: 8d exceeds the maximum of 7d",
        ),
        (
            r#"{"project":"a","nodes":1,"checkpoint_time":"soon"}"#,
            "checkpoint_time: \"soon\"",
        ),
        (
            r#"{"project":"a","nodes":1,"storage_gb_s":{"scratch":0}}"#,
            "storage_gb_s: 0 GB/s of \"scratch\"",
        ),
        (
            r#"{"project":"a","nodes":1,"storage_gb_s":{"scratch":-1}}"#,
            "storage_gb_s: -1 GB/s",
        ),
        (
            r#"{"project":"a","nodes":1,"storage_gb_s":{"scratch":2e9}}"#,
            "storage_gb_s: 2000000000GB/s of scratch exceeds the maximum of 1000000000GB/s",
        ),
        (
            r#"{"project":"a","nodes":1,"storage_gb_s":{"scratch":1e300}}"#,
            "storage_gb_s: ",
        ),
        (
            r#"{"project":"a","nodes":1,"storage_gb_s":{"":1}}"#,
            "storage_gb_s: \"\" is not a valid storage system name",
        ),
        (
            r#"{"project":"a","nodes":1,"storage_gb_s":{"a b":1}}"#,
            "storage_gb_s: \"a b\" is not a valid storage system name",
        ),
        (
            r#"{"project":"a","nodes":1,"storage":{"scratch":1}}"#,
            "unknown field `storage`",
        ),
    ] {
        let error = request(body).unwrap_err();
        assert!(error.contains(field), "{body}: {error}");
    }
}

#[test]
fn one_text_may_name_several_gpu_models() {
    let models = |list: &str| {
        let body = format!(
            r#"{{"project":"a","nodes":1,"argv":["true"],"constraints":{{"gpu_models":{list}}}}}"#
        );
        request(&body).unwrap().constraints.gpu_models
    };
    assert_eq!(
        models(r#"["V100M16|V100M32", "H100"]"#),
        ["V100M16", "V100M32", "H100"]
    );
    assert_eq!(models("[]"), [""; 0]);
}

/// A script that `lattice submit` refuses is refused here, too, by the name of its field.
#[test]
fn text_that_is_not_a_script_is_refused() {
    for (script, reason) in [
        ("", "script: it is empty"),
        (" \n", "script: it is empty"),
        ("hostname", "script: it does not begin with #!"),
        ("#!/bin/sh\r\ntrue\r\n", "script: it has DOS line endings"),
    ] {
        let body = AllocationRequest {
            project: "a".to_owned(),
            nodes: 1,
            script: Some(script.to_owned()),
            ..AllocationRequest::default()
        };
        let refused = body.clone().into_spec().unwrap_err();
        assert!(refused.to_string().starts_with(reason), "{refused}");
        // Other faults are reported with it.
        let both = AllocationRequest { nodes: 0, ..body };
        let fields: Vec<String> = both.faults().into_iter().map(|of| of.field).collect();
        assert_eq!(fields, ["nodes", "script"]);
    }
    request(r##"{"project":"a","nodes":1,"script":"#!/bin/sh\ntrue\n"}"##).unwrap();
}

#[test]
fn output_goes_where_it_is_asked_to() {
    let spec = request(
        r#"{"project":"a","nodes":1,"output":"/scratch/%j/100%%/%r-%n.out","error":"err"}"#,
    )
    .unwrap();
    let files = spec.workload.output;
    assert_eq!(files.stdout.as_deref(), Some("/scratch/%j/100%%/%r-%n.out"));
    assert_eq!(files.stderr.as_deref(), Some("err"));
}

fn record() -> Allocation {
    let spec = request(
        r##"{"project":"atlas/web","nodes":3,"argv":["run","--fast"],"script":"#!/bin/sh\necho hush",
            "env":{"API_KEY":"tell-nobody"},
            "constraints":{"nodelist":"gpu[001-004]","spread":"any"}}"##,
    )
    .unwrap();
    let rank = |node| Rank {
        boot: None,
        node: NodeId::new(node).unwrap(),
        phase: RankPhase::Assigned,
    };
    Allocation {
        id: AllocationId(7),
        user: "alice".to_owned(),
        spec,
        state: AllocationState::Starting,
        state_since: UnixMillis(1_000),
        submitted_at: UnixMillis(0),
        eligible_at: UnixMillis(0),
        started_at: None,
        ended_at: None,
        attempt: 1,
        ranks: vec![rank("gpu002"), rank("gpu001"), rank("gpu004")],
        stop: None,
        revision: Revision(9),
        progress: Default::default(),
    }
}

#[test]
fn environment_values_are_never_shown() {
    for sight in [WorkloadAccess::Full, WorkloadAccess::WithoutWorkload] {
        let json = serde_json::to_string(&AllocationView::new(
            &record(),
            sight,
            &AllocationName::of_id,
        ))
        .unwrap();
        assert!(!json.contains("tell-nobody"), "{json}");
    }
    let full = AllocationView::new(&record(), WorkloadAccess::Full, &AllocationName::of_id)
        .workload
        .unwrap();
    assert_eq!(full.env["API_KEY"], REDACTED);
    assert_eq!(full.script.as_deref(), Some("#!/bin/sh\necho hush"));
}

#[test]
fn others_do_not_see_what_runs() {
    let view = AllocationView::new(
        &record(),
        WorkloadAccess::WithoutWorkload,
        &AllocationName::of_id,
    );
    assert_eq!(view.workload, None);
    assert!(!serde_json::to_string(&view).unwrap().contains("hush"));
    assert_eq!(view.nodelist, "gpu[001-002,004]");
    assert_eq!(view.constraints.nodelist.as_deref(), Some("gpu[001-004]"));
    assert_eq!(view.constraints.spread.as_deref(), Some("any"));
}

#[test]
fn a_request_does_not_debug_what_it_runs() {
    let body: AllocationRequest =
        serde_json::from_str(r#"{"project":"a","nodes":1,"script":"hush","env":{"K":"V1"}}"#)
            .unwrap();
    let text = format!("{body:?}");
    assert!(!text.contains("hush") && !text.contains("V1"), "{text}");
}

/// JSON cannot represent these numbers, but a gRPC message and a flag can.
#[test]
fn what_is_not_a_number_is_refused_by_its_field() {
    let plain = AllocationRequest {
        project: "a".to_owned(),
        nodes: 1,
        argv: vec!["true".to_owned()],
        ..AllocationRequest::default()
    };
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let ready = AllocationRequest {
            data_ready: Some(value),
            ..plain.clone()
        };
        assert_eq!(ready.into_spec().unwrap_err().field, "data_ready");
        let storage = AllocationRequest {
            storage_gb_s: [("scratch".to_owned(), value)].into(),
            ..plain.clone()
        };
        assert_eq!(storage.into_spec().unwrap_err().field, "storage_gb_s");
    }
    let many = AllocationRequest {
        storage_gb_s: (0..17).map(|n| (format!("s{n}"), 1.0)).collect(),
        ..plain
    };
    let error = many.into_spec().unwrap_err();
    assert_eq!(error.field, "storage_gb_s");
    assert!(error.reason.contains("17"), "{}", error.reason);
}

#[test]
fn request_keeps_scheduler_factors() {
    let body = r#"{"project":"a","nodes":1,"argv":["true"],"data_ready":0.8,
        "checkpoint_time":"5m","storage_gb_s":{"scratch":40,"home":0.5,"tape":0.0001}}"#;
    let spec = request(body).unwrap();
    assert_eq!(spec.demand.data_ready_ppm, Some(800_000));
    assert_eq!(spec.demand.checkpoint_ms, Some(300_000));
    let stored = [("scratch", 40_000), ("home", 500), ("tape", 1)];
    let stored = stored.map(|(system, mb_s)| (system.to_owned(), mb_s));
    assert_eq!(spec.demand.storage_mb_s, stored.into());
    for sight in [WorkloadAccess::Full, WorkloadAccess::WithoutWorkload] {
        let shown = AllocationView::new(
            &Allocation {
                spec: spec.clone(),
                ..record()
            },
            sight,
            &AllocationName::of_id,
        );
        let shown = serde_json::to_value(&shown).unwrap();
        assert_eq!(shown["data_ready"], 0.8);
        assert_eq!(shown["checkpoint_time"], "5m");
        let storage = serde_json::json!({"home": 0.5, "scratch": 40.0, "tape": 0.001});
        assert_eq!(shown["storage_gb_s"], storage);
    }
    let silent = AllocationView::new(&record(), WorkloadAccess::Full, &AllocationName::of_id);
    let silent = serde_json::to_value(&silent).unwrap();
    for field in ["data_ready", "checkpoint_time", "storage_gb_s"] {
        assert_eq!(silent.get(field), None);
    }
}

#[test]
fn stop_reason_and_dependencies_name_elements_as_users_do() {
    let element = ArrayElement {
        array: AllocationId(5),
        index: 2,
    };
    let name = |id: AllocationId| AllocationName::new(id, (id.0 == 8).then_some(element));
    let on = AllocationId(8);
    let condition = Condition::Success;
    let mut blocked = record();
    blocked.spec.terms.after = vec![Dependency { on, condition }];
    blocked.stop = Some(StopCause::Unsatisfiable {
        on,
        condition,
        ended: AllocationState::Failed,
    });
    let view = AllocationView::new(&blocked, WorkloadAccess::Full, &name);
    assert_eq!(
        view.stop.as_deref(),
        Some("allocation 5_2 was failed; this one waited for success")
    );
    let after = &view.dependencies[0];
    assert_eq!(name_text(after.on, after.element.as_ref()), "5_2");
    blocked.stop = Some(StopCause::Moved {
        reason: MoveReason::Preempted { by: on },
        checkpoint: Some(3),
        has_run: true,
    });
    let view = AllocationView::new(&blocked, WorkloadAccess::Full, &name);
    assert_eq!(
        view.stop.as_deref(),
        Some("preempted by allocation 5_2, after checkpoint 3")
    );
    assert_eq!(name_text(on, None), "8");
}

#[test]
fn a_bandwidth_is_written_with_its_unit() {
    for (text, gb_s) in [
        ("40GB/s", 40.0),
        ("500MB/s", 0.5),
        ("1.5 TB/s", 1500.0),
        (" 2GB/s ", 2.0),
    ] {
        assert_eq!(read_bandwidth(text), Ok(gb_s), "{text}");
        assert_eq!(read_bandwidth(&write_bandwidth(gb_s)), Ok(gb_s));
    }
    for text in [
        "", "40", "GB/s", "40GiB/s", "40GB", "-1GB/s", "0GB/s", "nanGB/s", "infGB/s", "1e3GB/s",
    ] {
        let error = read_bandwidth(text).unwrap_err().to_string();
        assert!(error.contains("write it like 40GB/s"), "{text}: {error}");
    }
}
