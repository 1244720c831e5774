#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_quorum_types::{
    Command, Envelope, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    command::{ExpectedNode, Principal, Privilege, SCHEMA},
    limit::Limits,
    membership::Incarnation,
    node::Lifecycle,
    spec::{AllocationSpec, Workload},
};

const AT: UnixMillis = UnixMillis(1_700_000_000_000);

fn apply(state: &mut State, command: Command) {
    let envelope = Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: AT,
        fence: None,
        command,
    };
    let index = state.last_index() + 1;
    state.apply(index, &envelope).unwrap();
}

/// Submits an allocation of one node, or a job array.
fn submit(state: &mut State, array: Option<&str>) {
    let mut spec = AllocationSpec::new(
        ProjectPath::new("t").unwrap(),
        VclusterName::new("main").unwrap(),
        1,
        Workload {
            argv: vec!["true".to_owned()],
            ..Workload::default()
        },
    );
    spec.terms.array = array.map(|indices| indices.parse().unwrap());
    let spec = Box::new(spec);
    apply(state, Command::Submit { spec });
}

fn assign(state: &mut State, id: AllocationId, node: &str) {
    let node = NodeId::new(node).unwrap();
    let version = state.node(&node).unwrap().version;
    let nodes = vec![ExpectedNode {
        node,
        version,
        boot: None,
    }];
    apply(state, Command::Assign { id, nodes });
}

/// Two nodes. Allocation 1 waits and 2 runs; of the array 3, the element with index 6 runs, and two others wait.
fn state() -> State {
    let mut state = State::new();
    apply(
        &mut state,
        Command::CreateProject {
            path: ProjectPath::new("t").unwrap(),
            limits: Some(Limits {
                max_nodes: Some(9),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        },
    );
    for name in ["n0", "n1"] {
        let node = NodeId::new(name).unwrap();
        let register = Command::RegisterNode {
            node: node.clone(),
            vcluster: VclusterName::new("main").unwrap(),
        };
        apply(&mut state, register);
        let lifecycle = Lifecycle::Ready;
        apply(&mut state, Command::SetLifecycle { node, lifecycle });
    }
    submit(&mut state, None);
    submit(&mut state, None);
    submit(&mut state, Some("5-7"));
    assign(&mut state, AllocationId(2), "n0");
    assign(&mut state, AllocationId(5), "n1");
    state
}

fn plan() -> RestorePlan {
    let header = BackupHeader {
        cluster: "hpc".to_owned(),
        incarnation: Incarnation::FIRST,
        revision: Revision(17),
        at: AT,
        term: 1,
        led_by: 1,
        index: 40,
        audit_number: 3,
        members: vec![(1, "10.0.0.1:7400".to_owned())],
        written_at: AT,
        written_by: 1,
        build: "0.1.0".to_owned(),
        state_format: 1,
        parts: Vec::new(),
    };
    RestorePlan::new(header, &state())
}

#[test]
fn plan_names_running_and_counts_waiting_work() {
    let plan = plan();
    let running: Vec<String> = plan.running.iter().map(ToString::to_string).collect();
    assert_eq!(running, ["2 of root on n0", "3_6 of root on n1"]);
    assert_eq!(plan.waiting, 3);
    assert_eq!(
        (plan.last_allocation, plan.next_allocation),
        (AllocationId(6), AllocationId(1_000_000_001))
    );
}

#[test]
fn text_lists_lost_changes_and_work() {
    let text = plan().to_string();
    for line in [
        "backup of cluster \"hpc\" as of 2023-11-14T22:13:20Z, revision 17; highest allocation number 6\n",
        "\n  - allocations with numbers above 6: they were submitted after the backup.",
        "the next allocation is 1000000001\n",
        "\n  - allocations that held nodes at the backup (2): 2 of root on n0, 3_6 of root on n1. Each continues if its \
         processes still run.",
        "\n  - allocations that waited at the backup (3): where one was started since, its processes are ended, and it \
         starts again\n",
        "\n  - allocations that were submitted after the backup are lost:",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let idle = RestorePlan {
        running: Vec::new(),
        waiting: 0,
        ..plan()
    };
    let text = idle.to_string();
    assert!(
        text.contains("\n  - no allocation held nodes at the backup\n"),
        "{text}"
    );
}

#[test]
fn only_some_running_allocations_are_named() {
    let of = |id| AllocationInBackup {
        id: AllocationId(id),
        element: None,
        user: "alice".to_owned(),
        nodes: "n0".to_owned(),
    };
    let many = RestorePlan {
        running: (1..=12).map(of).collect(),
        ..plan()
    };
    let [running, ..] = &many.consequences()[..] else {
        panic!("no consequences")
    };
    assert!(running.contains("(12): 1 of alice on n0, "), "{running}");
    assert!(
        running.contains("10 of alice on n0 and 2 more. Each"),
        "{running}"
    );
}

#[test]
fn document_has_header_and_consequences() {
    let document = serde_json::to_value(plan()).unwrap();
    assert_eq!(document["cluster"], "hpc");
    assert_eq!(document["revision"], 17);
    assert_eq!(document["last_allocation"], 6);
    assert_eq!(document["next_allocation"], 1_000_000_001);
    assert_eq!(
        document["running"],
        serde_json::json!([
            {"id": 2, "user": "root", "nodes": "n0"},
            {"id": 5, "element": {"array": 3, "index": 6}, "user": "root", "nodes": "n1"},
        ])
    );
    assert_eq!(document["waiting"], 3);
}
