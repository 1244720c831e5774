#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_quorum_types::{AllocationState, UnixMillis, allocation::Rank};

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
        r#"{"project":"atlas/web","nodes":3,"argv":["run","--fast"],"script":"echo hush",
            "env":{"API_KEY":"tell-nobody"},
            "constraints":{"nodelist":"gpu[001-004]","spread":"any"}}"#,
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
    }
}

#[test]
fn environment_values_are_shown_to_nobody() {
    for sight in [Sight::Full, Sight::Outline] {
        let json = serde_json::to_string(&AllocationView::new(&record(), sight)).unwrap();
        assert!(!json.contains("tell-nobody"), "{json}");
    }
    let full = AllocationView::new(&record(), Sight::Full)
        .workload
        .unwrap();
    assert_eq!(full.env["API_KEY"], REDACTED);
    assert_eq!(full.script.as_deref(), Some("echo hush"));
}

#[test]
fn others_do_not_see_what_runs() {
    let view = AllocationView::new(&record(), Sight::Outline);
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
