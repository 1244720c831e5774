#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_quorum_types::{ProjectPath, UnixMillis, dag::DagMember, dag::DagState, id::DagId};
use serde_json::{Value, json};

fn member(name: &str, more: Value) -> Value {
    let mut member = json!({"name": name, "project": "atlas/web", "nodes": 1, "argv": ["true"]});
    let more = more.as_object().unwrap().clone();
    member.as_object_mut().unwrap().extend(more);
    member
}

fn read(members: Vec<Value>) -> Result<DagSpec, String> {
    let body = json!({"name": "g", "members": members});
    let request: DagRequest = serde_json::from_value(body).map_err(|e| e.to_string())?;
    request.into_spec(&[]).map_err(|e| e.to_string())
}

#[test]
fn edges_are_written_in_three_ways() {
    let spec = read(vec![
        member("a", json!({"walltime": "1h"})),
        member("b", json!({"after": ["a"]})),
        member(
            "c",
            json!({"after": [{"member": "a"}, {"member": "b", "condition": "any"}]}),
        ),
        member(
            "d",
            json!({"after": {"success": ["a", "b"], "failure": ["c"]}}),
        ),
    ])
    .unwrap();
    let edges: Vec<Vec<(&str, &str)>> = (spec.members.iter())
        .map(|m| {
            m.after
                .iter()
                .map(|e| (&*e.member, e.condition.as_str()))
                .collect()
        })
        .collect();
    assert_eq!(
        edges,
        [
            vec![],
            vec![("a", "success")],
            vec![("a", "success"), ("b", "any")],
            vec![("c", "failure"), ("a", "success"), ("b", "success")],
        ]
    );
    assert_eq!(spec.members[0].spec.walltime_ms, Some(3_600_000));
    assert_eq!(spec.members[3].spec.name.as_deref(), Some("d"));
}

#[test]
fn what_cannot_be_is_refused_by_member_and_field() {
    for (asked, why) in [
        (member("a", json!({"nodez": 1})), "unknown field `nodez`"),
        (
            member("a", json!({"begin": ""})),
            "members.a.begin: the value is empty",
        ),
        (member("a", json!({"nodes": 0})), "members.a.nodes"),
        (member("a", json!({"array": "0-9:0"})), "members.a.array"),
        (
            member("a", json!({"on_limit": "reject"})),
            "members.a.on_limit: the members of a graph always wait",
        ),
        (
            member("a", json!({"on_limit": "queue"})),
            "members.a.on_limit: \"queue\" is not one of reject, wait",
        ),
        (
            member("a", json!({"after": {"done": ["b"]}})),
            "members.a.after",
        ),
        (
            member("a", json!({"after": "b"})),
            "after: it must be a list",
        ),
        (member("", json!({})), "members[0].name"),
        (json!({"project": "a", "nodes": 1}), "members[0].name"),
    ] {
        let error = read(vec![asked.clone()]).unwrap_err();
        assert!(error.contains(why), "{asked}: {error}");
    }
}

#[test]
fn a_request_is_sent_as_it_is_read() {
    let body = json!({"name": "g", "members": [
        member("b", json!({"after": {"any": ["a"]}, "sensitive": false, "hold": false,
            "constraints": {}})),
    ]});
    let request: DagRequest = serde_json::from_value(body).unwrap();
    let again: DagRequest =
        serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
    assert_eq!(again, request);
}

#[test]
fn a_graph_is_drawn() {
    let member = |name: &str, number, after| DagMember {
        name: name.to_owned(),
        allocation: AllocationId(number),
        after,
    };
    let dag = Dag {
        id: DagId(7),
        name: "say \"hi\"".to_owned(),
        user: "alice".to_owned(),
        project: ProjectPath::new("atlas").unwrap(),
        members: vec![
            member("a", 8, vec![]),
            member(
                "b\\c",
                9,
                vec![(0, Condition::Failure), (0, Condition::Success)],
            ),
        ],
        state: DagState::Running,
        submitted_at: UnixMillis(0),
        ended_at: None,
        unfinished: 1,
        cancelled_by: None,
        failed: None,
        revision: Revision(3),
    };
    let state = |id: AllocationId| (Some(id.0 == 8), None::<String>);
    let view = DagView::with_members(&dag, |id| {
        let (done, stop) = state(id);
        (
            done.filter(|done| *done).map(|_| "completed".to_owned()),
            stop,
        )
    });
    assert_eq!((view.size, view.members.len()), (2, 2));
    assert_eq!(
        GraphView::from(view).to_dot(),
        r#"digraph "say \"hi\"" {
  node [shape=box];
  "a" [label="a\n8 completed", style=filled, fillcolor=palegreen];
  "b\\c" [label="b\\c\n9 not kept"];
  "a" -> "b\\c" [label="failure"];
  "a" -> "b\\c";
}
"#
    );
}
