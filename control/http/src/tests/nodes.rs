//! Nodes, conformance and cluster status.

use super::fixture::{ApiFixture, operator_envelope};
use lattice_client::{AuditFilter, ClientError, api::conformance::DifferenceView};
use lattice_quorum_types::{Command, NodeId};

#[tokio::test]
async fn nodes_are_listed_a_page_at_a_time_and_shown() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    assert_eq!(eye.nodes().await.unwrap().len(), 24);
    let first = eye.nodes_page(Some(10), None).await.unwrap();
    assert_eq!(first.next_cursor.as_deref(), Some("gpu010"));
    let rest = eye
        .nodes_page(Some(20), first.next_cursor.as_deref())
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.next_cursor), (14, None));
    assert_eq!(rest.items[0].name, "gpu011");
    let node = eye.node("gpu003").await.unwrap();
    assert_eq!(
        (node.lifecycle.as_str(), node.liveness.as_str()),
        ("ready", "unknown")
    );
    assert_eq!(node.health.verdict, "healthy");
    assert_eq!(node.cell.as_deref(), Some("cell-0"));
    assert_eq!(node.classes["kernel"].state, "complete");
    assert_eq!(node.resources.gpu_count, None, "not known is not zero");
    for name in ["gpu999", "no such node"] {
        let error = eye.node(name).await.unwrap_err();
        assert!(matches!(error, ClientError::NotFound(_)), "{error:?}");
    }
    for limit in [0, 5_001] {
        let error = eye.nodes_page(Some(limit), None).await.unwrap_err();
        assert_eq!(error.problem().unwrap().field.as_deref(), Some("limit"));
    }
}

#[tokio::test]
async fn an_inventory_comes_from_the_node_itself() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let inventory = eye.inventory("gpu001", false).await.unwrap();
    assert!(inventory.is_object(), "{inventory}");
    // The mesh accepts an answer only from the requested node.
    let other = eye.inventory("gpu002", false).await.unwrap_err();
    assert!(matches!(other, ClientError::Unavailable(_)), "{other:?}");
    let absent = eye.inventory("gpu999", false).await.unwrap_err();
    assert_eq!(absent.exit_code(), 4);
    // A new probe causes load on the node.
    for caller in ["eye", "alice"] {
        let denied = fixture
            .client(caller)
            .inventory("gpu001", true)
            .await
            .unwrap_err();
        assert_eq!(denied.problem().unwrap().status, 403);
        assert!(denied.to_string().contains("role operator"), "{denied}");
    }
    fixture
        .client("op")
        .inventory("gpu001", true)
        .await
        .unwrap();
}

#[tokio::test]
async fn groups_and_differences_are_shown() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    for class in [None, Some("all"), Some("kernel")] {
        let groups = eye.conformance_groups(class).await.unwrap();
        let sizes: Vec<_> = groups
            .groups
            .iter()
            .map(|g| (g.nodes.as_str(), g.count))
            .collect();
        assert_eq!(
            sizes,
            [("gpu[001-002,004-024]", 23), ("gpu003", 1)],
            "{class:?}"
        );
    }
    let none = eye.conformance_groups(Some("nic")).await.unwrap();
    assert_eq!(
        (none.groups.len(), none.unknown.as_str()),
        (0, "gpu[001-024]")
    );
    let both = eye.conformance_groups(Some("nic,kernel")).await.unwrap();
    assert_eq!(
        (both.groups.len(), both.unknown.as_str()),
        (0, "gpu[001-024]"),
        "unknown in one class is unknown in both"
    );
    let kernel = eye.conformance_groups(Some("kernel")).await.unwrap();
    assert!(kernel.groups.iter().all(|group| group.first_seen.is_some()));
    let wrong = eye.conformance_groups(Some("colour")).await.unwrap_err();
    assert!(wrong.to_string().contains("known: gpu nic"), "{wrong}");
    assert!(eye.drift().await.unwrap().drifted.is_empty());
    let unknown = eye.diff("gpu001", "gpu999").await.unwrap_err();
    assert_eq!(unknown.exit_code(), 4);
    let diff = eye.diff("gpu001", "gpu001").await.unwrap();
    let of_kernel = |d: &&DifferenceView| d.class == "kernel";
    assert_eq!(diff.differences.iter().find(of_kernel), None);
    assert!(diff.differences.iter().all(|d| d.verdict == "unknown"));
}

#[tokio::test]
async fn draining_is_for_operators_and_has_a_reason() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    op.drain("gpu001", "fan is loud").await.unwrap();
    let node = op.node("gpu001").await.unwrap();
    assert_eq!(node.drain[0].reason, "fan is loud");
    assert_eq!(node.drain[0].owner, "op");
    let empty = op.drain("gpu001", " ").await.unwrap_err();
    assert_eq!(empty.problem().unwrap().field.as_deref(), Some("reason"));
    op.undrain("gpu001").await.unwrap();
    assert!(op.node("gpu001").await.unwrap().drain.is_empty());
    let user = fixture
        .client("alice")
        .drain("gpu002", "mine")
        .await
        .unwrap_err();
    assert!(matches!(user, ClientError::NotAllowed(_)), "{user:?}");
    let ghost = op.drain("gpu999", "gone").await.unwrap_err();
    assert!(matches!(ghost, ClientError::NotFound(_)), "{ghost:?}");
}

#[tokio::test]
async fn node_returns_by_gate_or_administrator() {
    let fixture = ApiFixture::furnished().await;
    let (op, root) = (fixture.client("op"), fixture.client("root"));
    op.drain("gpu001", "fan is loud").await.unwrap();
    *fixture.gate.lock().unwrap() = Some("exit code 3: link 4 is down".to_owned());
    let failed = op.undrain("gpu001").await.unwrap_err();
    assert_eq!(failed.problem().unwrap().code, "health_gate_failed");
    let said = failed.to_string();
    assert!(said.contains("link 4 is down") && said.contains("--skip-gate"));
    assert_eq!(op.node("gpu001").await.unwrap().drain.len(), 1);
    let denied = op.undrain_without_gate("gpu001").await.unwrap_err();
    assert!(matches!(denied, ClientError::NotAllowed(_)), "{denied:?}");
    // While the reason of another owner remains, the node does not return, and the gate is not checked.
    root.drain("gpu001", "firmware").await.unwrap();
    op.undrain("gpu001").await.unwrap();
    assert!(root.undrain("gpu001").await.is_err());
    root.undrain_without_gate("gpu001").await.unwrap();
    assert!(op.node("gpu001").await.unwrap().drain.is_empty());
    // The state of an unreachable node is unknown.
    op.drain("gpu002", "dark").await.unwrap();
    let silent = op.undrain("gpu002").await.unwrap_err();
    assert_eq!(silent.exit_code(), 3, "{silent}");
    assert!(silent.to_string().contains("stays drained"), "{silent}");
}

/// The direct answer of the node counts, whatever it gossips.
#[tokio::test]
async fn faulty_node_stays_drained_with_remedy() {
    let fixture = ApiFixture::furnished().await;
    let (op, root) = (fixture.client("op"), fixture.client("root"));
    op.drain("gpu001", "fan is loud").await.unwrap();
    let sound = fixture.health.lock().unwrap().clone();
    fixture.health.lock().unwrap()["reasons"] = serde_json::json!([{
        "code": "gpu.xid.79", "entity": "gpu.1", "evidence": "fallen off the bus",
        "severity": "faulty", "action": "reboot", "observe_only": false,
        "first_seen_ms": 1, "last_seen_ms": 1, "count": 1,
    }]);
    let faulty = op.undrain("gpu001").await.unwrap_err();
    assert_eq!(faulty.problem().unwrap().code, "still_faulty");
    let said = faulty.to_string();
    assert!(said.contains("gpu.xid.79 on gpu.1: fallen off the bus; reboot the node"));
    assert!(said.contains("--clear CODE") && said.contains("--skip-gate"));
    *fixture.health.lock().unwrap() = sound.clone();
    fixture.health.lock().unwrap()["blind"] = serde_json::json!(["probe.gpu.hung"]);
    let blind = op.undrain("gpu001").await.unwrap_err();
    assert_eq!(blind.problem().unwrap().code, "not_verified");
    assert!(blind.to_string().contains("probe.gpu.hung"), "{blind}");
    // A reason of another owner is not cleared, and the error reports it.
    let others = root.undrain("gpu001").await.unwrap_err();
    assert_eq!(others.problem().unwrap().code, "drained_by_others");
    assert!(others.to_string().contains("op: fan is loud"), "{others}");
    assert_eq!(op.node("gpu001").await.unwrap().drain.len(), 1);
    *fixture.health.lock().unwrap() = sound;
    let undrained = op.undrain("gpu001").await.unwrap();
    assert_eq!(undrained.cleared, ["op: fan is loud"]);
    // Undraining a node that is not drained succeeds whatever its gate, and reports that nothing was cleared.
    *fixture.gate.lock().unwrap() = Some("exit code 3: link 4 is down".to_owned());
    for again in [
        op.undrain("gpu001").await.unwrap(),
        root.undrain_without_gate("gpu001").await.unwrap(),
    ] {
        assert!(again.cleared.is_empty(), "{again:?}");
    }
    assert_eq!(op.node("gpu001").await.unwrap().lifecycle, "ready");
}

#[tokio::test]
async fn skipped_gate_is_audited_with_author() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    fixture
        .ends_with_fault(id, "gpu001", "epilog: exit code 2: cannot unmount")
        .await;
    root.drain("gpu001", "firmware").await.unwrap();
    *fixture.gate.lock().unwrap() = Some("exit code 3: link 4 is down".to_owned());
    assert!(root.undrain("gpu001").await.is_err());
    let of_node = || AuditFilter {
        actions: vec!["gate_skipped".to_owned()],
        node: Some("gpu001".to_owned()),
        ..AuditFilter::default()
    };
    let op = fixture.client("op");
    let none = op.audit_page(&of_node(), 0, None).await.unwrap();
    assert!(none.items.is_empty(), "nothing was skipped yet");
    root.undrain_without_gate("gpu001").await.unwrap();
    let node = op.node("gpu001").await.unwrap();
    assert_eq!((node.drain.len(), node.lifecycle.as_str()), (0, "ready"));
    let found = op.audit_page(&of_node(), 0, None).await.unwrap();
    let [entry] = &found.items[..] else {
        panic!("{found:?}")
    };
    assert_eq!(entry.by, "root");
    assert_eq!(
        entry.summary,
        "undrained node gpu001 without its health gate; cleared service:hooks: epilog: exit code \
         2: cannot unmount; root: firmware"
    );
    // An undrain with a gate check, and one that cleared nothing, make no entry.
    *fixture.gate.lock().unwrap() = None;
    root.drain("gpu001", "firmware").await.unwrap();
    root.undrain("gpu001").await.unwrap();
    root.undrain_without_gate("gpu001").await.unwrap();
    let found = op.audit_page(&of_node(), 0, None).await.unwrap();
    assert_eq!(found.items.len(), 1);
}

#[tokio::test]
async fn hook_failure_needs_person_and_gate() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    fixture
        .ends_with_fault(id, "gpu001", "epilog: exit code 2: cannot unmount")
        .await;
    let node = op.node("gpu001").await.unwrap();
    assert_eq!((node.holder, node.lifecycle.as_str()), (None, "drained"));
    assert!(node.drain[0].reason.contains("cannot unmount"));
    *fixture.gate.lock().unwrap() = Some("exit code 3: link 4 is down".to_owned());
    assert!(op.undrain("gpu001").await.is_err());
    assert_eq!(op.node("gpu001").await.unwrap().drain.len(), 1);
    *fixture.gate.lock().unwrap() = None;
    op.undrain("gpu001").await.unwrap();
    let node = op.node("gpu001").await.unwrap();
    assert_eq!((node.drain.len(), node.lifecycle.as_str()), (0, "ready"));
}

#[tokio::test]
async fn forced_release_reports_loss() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let id = fixture.submit("alice", "atlas/web", 2).await;
    fixture.assign(id, &["gpu001", "gpu002"]).await;
    fixture.begins(id, "gpu001").await;
    let empty = op.force_release("gpu001", " ").await.unwrap_err();
    assert!(
        empty.to_string().contains("written to the audit log"),
        "{empty}"
    );
    let given = op
        .force_release("gpu001", "the cage is dark")
        .await
        .unwrap();
    let held = given.force_released_from.unwrap();
    assert_eq!((held.allocation, held.attempt), (id, 1));
    let node = op.node("gpu001").await.unwrap();
    assert_eq!((node.holder, node.lifecycle.as_str()), (None, "drained"));
    assert!(node.drain[0].reason.contains("the cage is dark"));
    let allocation = op.allocation(id).await.unwrap();
    let lost = allocation.ranks[0].exit.as_deref().unwrap();
    assert!(lost.starts_with("lost: released by force by op"), "{lost}");
    // The node has no holder any more, so it is only drained.
    let again = op.force_release("gpu003", "spare").await.unwrap();
    assert_eq!(again.force_released_from, None);
    assert_eq!(op.node("gpu003").await.unwrap().drain[0].reason, "spare");
    let ghost = op.force_release("gpu999", "gone").await.unwrap_err();
    assert_eq!(ghost.exit_code(), 4);
    // An operator of another tenant may not give up this allocation.
    let diver = fixture.client("diver");
    let denied = diver.force_release("gpu002", "mine").await.unwrap_err();
    assert_eq!(denied.exit_code(), 5, "{denied}");
}

#[tokio::test]
async fn a_node_taken_by_force_while_its_gate_is_asked_stays_out() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    fixture.begins(id, "gpu001").await;
    op.drain("gpu001", "fan is loud").await.unwrap();
    // The forced release would be a second reason of the same operator, cleared together with the first one.
    let release = Command::ForceRelease {
        node: NodeId::new("gpu001").unwrap(),
        reason: "it hangs".to_owned(),
        expected: None,
    };
    *fixture.meanwhile.lock().unwrap() = Some(operator_envelope("op", release));
    let changed = op.undrain("gpu001").await.unwrap_err();
    assert_eq!(changed.problem().unwrap().code, "node_changed");
    fixture.settled().await;
    let node = op.node("gpu001").await.unwrap();
    assert_eq!((node.lifecycle.as_str(), node.drain.len()), ("drained", 1));
    assert!(node.drain[0].reason.contains("it hangs"));
}

#[tokio::test]
async fn a_repeated_forced_release_is_answered_as_the_first() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    let release = async || {
        let post = fixture
            .raw()
            .post(fixture.url("/api/v1/nodes/gpu001/drain"));
        let body = serde_json::json!({"reason": "the cage is dark", "force_release": true});
        let post = post.bearer_auth(fixture.token("op"));
        let post = post.header("idempotency-key", "once").json(&body);
        let answer = post.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json::<serde_json::Value>().await.unwrap()
    };
    let first = release().await;
    assert_eq!(first["force_released_from"]["allocation"], id.0);
    // The node is not held now, so the same request would have another effect without its key.
    let revision = fixture.store.revision();
    let second = release().await;
    assert_eq!(second, first);
    assert_eq!(fixture.store.revision(), revision);
}

#[tokio::test]
async fn the_numbers_add_up() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 2).await;
    fixture.assign(id, &["gpu001", "gpu002"]).await;
    let status = fixture.client("eye").status().await.unwrap();
    assert_eq!((status.nodes, status.nodes_held), (24, 2));
    assert_eq!(status.nodes_by_lifecycle["ready"], 24);
    assert_eq!(status.cells["cell-0"], 24);
    assert_eq!(status.allocations_by_state["starting"], 1);
    assert_eq!(
        (status.principal.as_str(), status.roles),
        ("eye", vec!["viewer".to_owned()])
    );
    let web = fixture.client("eye").project("atlas").await.unwrap();
    assert_eq!(
        (web.own.nodes, web.subtree.nodes, web.total.nodes),
        (0, 2, 2)
    );
}
