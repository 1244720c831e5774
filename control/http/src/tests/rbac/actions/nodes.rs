//! Actions on nodes: inventory, health, drains and claims.

use super::{Acts, CLAIMS, HELD_IN_ATLAS, HELD_IN_OCEAN, call, text};
use lattice_api::v1::{self, admin_service_client::AdminServiceClient, nodes_client::NodesClient};
use reqwest::Method;
use serde_json::{Value, json};

impl Acts {
    pub(super) fn nodes(&mut self) {
        let name = || text("gpu001");
        self.get("nodes")
            .by(call!(NodesClient.list(v1::ListNodesRequest::default())));
        self.push(Method::GET, "nodes/{id}", "nodes/gpu001", Value::Null)
            .by(call!(NodesClient.get(v1::GetNodeRequest { name: name() })));
        self.push(
            Method::GET,
            "nodes/{id}/diff",
            "nodes/gpu001/diff?with=gpu003",
            Value::Null,
        )
        .by(call!(NodesClient.diff(v1::DiffRequest {
            node: name(),
            with: text("gpu003"),
            since: String::new()
        })));
        for (note, fresh) in [("", false), ("fresh", true)] {
            let asked = |what: &str| format!("nodes/gpu001/{what}?fresh={fresh}");
            self.push(
                Method::GET,
                "nodes/{id}/inventory",
                &asked("inventory"),
                Value::Null,
            )
            .noted(note)
            .by(call!(NodesClient.inventory(v1::InventoryRequest {
                name: name(),
                fresh
            })));
            self.push(
                Method::GET,
                "nodes/{id}/health",
                &asked("health"),
                Value::Null,
            )
            .noted(note)
            .by(call!(NodesClient.health(v1::NodeHealthRequest {
                name: name(),
                fresh
            })));
        }
        for (note, kind, path) in [
            ("", "", "nodes/gpu001/history"),
            ("of people", "audit", "nodes/gpu001/history?kind=audit"),
        ] {
            self.push(Method::GET, "nodes/{id}/history", path, Value::Null)
                .noted(note)
                .by(call!(NodesClient.history(v1::NodeHistoryRequest {
                    name: name(),
                    kind: text(kind),
                    ..Default::default()
                })));
        }
        self.push(
            Method::POST,
            "nodes/{id}/health/clear",
            "nodes/gpu001/health/clear",
            json!({"code": "gpu.xid.79"}),
        )
        .absent()
        .by(call!(NodesClient.clear_health(v1::ClearHealthRequest {
            name: name(),
            code: text("gpu.xid.79"),
            entity: None
        })));
        self.push(
            Method::POST,
            "nodes/{id}/reprobe",
            "nodes/gpu001/reprobe",
            Value::Null,
        )
        .by(call!(
            NodesClient.reprobe(v1::ReprobeRequest { name: name() })
        ));
        self.drains();
        for (note, project) in [("for ocean", "ocean/deep"), ("for atlas", "atlas/web")] {
            self.push(
                Method::POST,
                "nodes/{id}/claim",
                "nodes/gpu002/claim",
                json!({"project": project}),
            )
            .noted(note)
            .by(call!(NodesClient.claim(v1::ClaimNodesRequest {
                nodes: text("gpu002"),
                project: text(project),
                ..Default::default()
            })));
        }
        for (note, (_, node)) in ["bob's, for ocean", "bob's, for atlas"]
            .into_iter()
            .zip(CLAIMS)
        {
            self.release(note, node, "");
        }
        self.release("bob's, unwiped", CLAIMS[0].1, "waive");
    }

    fn release(&mut self, note: &'static str, node: &'static str, wipe: &'static str) {
        let body = match wipe {
            "" => json!({"reason": "why"}),
            wipe => json!({"reason": "why", "wipe": wipe}),
        };
        let act = self.push(
            Method::POST,
            "nodes/{id}/release",
            &format!("nodes/{node}/release"),
            body,
        );
        act.is_unfit = !wipe.is_empty();
        act.noted(note)
            .by(call!(NodesClient.release(v1::ReleaseNodesRequest {
                nodes: text(node),
                reason: Some(text("why")),
                wipe: text(wipe),
                idempotency_key: None
            })));
    }

    fn drains(&mut self) {
        for (note, node, force_release) in [
            ("", "gpu002", false),
            ("held in ocean, by force", HELD_IN_OCEAN.1, true),
            ("held in atlas, by force", HELD_IN_ATLAS.1, true),
        ] {
            self.push(
                Method::POST,
                "nodes/{id}/drain",
                &format!("nodes/{node}/drain"),
                json!({"reason": "why", "force_release": force_release}),
            )
            .noted(note)
            .by(call!(AdminServiceClient.drain_node(v1::DrainNodeRequest {
                name: text(node),
                reason: text("why"),
                force_release,
                idempotency_key: None
            })));
        }
        for (note, skip_gate) in [("", false), ("unchecked", true)] {
            self.push(
                Method::POST,
                "nodes/{id}/undrain",
                &format!("nodes/gpu002/undrain?skip_gate={skip_gate}"),
                Value::Null,
            )
            .noted(note)
            .by(call!(AdminServiceClient.undrain_node(
                v1::UndrainNodeRequest {
                    name: text("gpu002"),
                    skip_gate,
                    idempotency_key: None
                }
            )));
        }
    }
}
