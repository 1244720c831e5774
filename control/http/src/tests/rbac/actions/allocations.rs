//! Actions on allocations and on DAGs.

use super::{
    ALICES, Acts, Call, DAGS, HELD_IN_ATLAS, HELD_IN_OCEAN, IN_ATLAS, IN_OCEAN, call, submit, text,
};
use lattice_api::v1::{self, allocations_client::AllocationsClient, dags_client::DagsClient};
use reqwest::Method;
use serde_json::{Value, json};

impl Acts {
    pub(super) fn allocations(&mut self) {
        self.get("allocations").by(call!(
            AllocationsClient.list(v1::ListAllocationsRequest::default())
        ));
        for (note, project) in [("in ocean", "ocean/deep"), ("in atlas", "atlas/web")] {
            let body = json!({"project": project, "nodes": 1, "argv": ["true"]});
            self.push(Method::POST, "allocations", "allocations", body)
                .noted(note)
                .by(call!(AllocationsClient.submit(submit(project))));
        }
        for (note, id) in [
            ("her own, in ocean", ALICES),
            ("in ocean", IN_OCEAN),
            ("in atlas", IN_ATLAS),
        ] {
            self.allocation(note, id);
        }
        // Running allocations: more actions apply, and their nodes have an owner.
        for (note, id) in [
            ("runs in ocean", HELD_IN_OCEAN.0),
            ("runs in atlas", HELD_IN_ATLAS.0),
        ] {
            self.push(
                Method::DELETE,
                "allocations/{id}",
                &format!("allocations/{id}"),
                Value::Null,
            )
            .noted(note)
            .by(call!(AllocationsClient.cancel(v1::CancelRequest {
                id,
                idempotency_key: None
            })));
        }
    }

    fn allocation(&mut self, note: &'static str, id: u64) {
        let idempotency_key = None;
        let mut act = |method: Method, template: &'static str, body: Value, call: Option<Call>| {
            let path = template.replace("{id}", &id.to_string());
            let act = self.push(method, template, &path, body).noted(note);
            act.call = call;
        };
        let post = || Method::POST;
        act(
            Method::GET,
            "allocations/{id}",
            Value::Null,
            Some(call!(
                AllocationsClient.get(v1::GetAllocationRequest { id })
            )),
        );
        act(
            Method::GET,
            "allocations/{id}/explanation",
            Value::Null,
            Some(call!(AllocationsClient.explain(v1::ExplainRequest { id }))),
        );
        act(Method::GET, "allocations/{id}/logs", Value::Null, None);
        act(
            Method::DELETE,
            "allocations/{id}",
            Value::Null,
            Some(call!(AllocationsClient.cancel(v1::CancelRequest {
                id,
                idempotency_key: None
            }))),
        );
        act(
            post(),
            "allocations/{id}/hold",
            Value::Null,
            Some(call!(AllocationsClient.hold(v1::HoldRequest {
                id,
                idempotency_key: None
            }))),
        );
        act(
            post(),
            "allocations/{id}/release",
            Value::Null,
            Some(call!(AllocationsClient.release(v1::ReleaseRequest {
                id,
                idempotency_key: None
            }))),
        );
        act(
            post(),
            "allocations/{id}/requeue",
            Value::Null,
            Some(call!(AllocationsClient.requeue(v1::RequeueRequest {
                id,
                idempotency_key: None
            }))),
        );
        act(
            post(),
            "allocations/{id}/extend",
            json!({"walltime": "1h"}),
            Some(call!(AllocationsClient.extend(v1::ExtendRequest {
                id,
                walltime: text("1h"),
                idempotency_key: None
            }))),
        );
        act(
            post(),
            "allocations/{id}/checkpoint",
            json!({}),
            Some(call!(AllocationsClient.checkpoint(v1::CheckpointRequest {
                id,
                ..Default::default()
            }))),
        );
        act(
            post(),
            "allocations/{id}/suspend",
            Value::Null,
            Some(call!(AllocationsClient.suspend(v1::SuspendRequest {
                id,
                checkpoint: false,
                idempotency_key: None
            }))),
        );
        act(
            post(),
            "allocations/{id}/resume",
            Value::Null,
            Some(call!(AllocationsClient.resume(v1::ResumeRequest {
                id,
                idempotency_key
            }))),
        );
    }

    pub(super) fn dags(&mut self) {
        self.get("dags")
            .by(call!(DagsClient.list(v1::ListDagsRequest::default())));
        for (note, project) in [("in ocean", "ocean/deep"), ("in atlas", "atlas/web")] {
            let member = json!({"name": "a", "project": project, "nodes": 1, "argv": ["true"]});
            let by_grpc = v1::DagMemberRequest {
                request: Some(v1::SubmitRequest {
                    name: Some(text("a")),
                    ..submit(project)
                }),
                ..Default::default()
            };
            self.push(Method::POST, "dags", "dags", json!({"members": [member]}))
                .noted(note)
                .by(call!(DagsClient.submit(v1::SubmitDagRequest {
                    members: vec![by_grpc.clone()],
                    ..Default::default()
                })));
        }
        for (note, id) in [
            ("bob's, in ocean", DAGS[0].1),
            ("bob's, in atlas", DAGS[1].1),
        ] {
            let path = format!("dags/{id}");
            self.push(Method::GET, "dags/{id}", &path, Value::Null)
                .noted(note)
                .by(call!(DagsClient.get(v1::GetDagRequest { id })));
            self.push(
                Method::GET,
                "dags/{id}/graph",
                &format!("{path}/graph"),
                Value::Null,
            )
            .noted(note)
            .by(call!(DagsClient.graph(v1::GetDagRequest { id })));
            self.push(Method::DELETE, "dags/{id}", &path, Value::Null)
                .noted(note)
                .by(call!(DagsClient.cancel(v1::CancelDagRequest {
                    id,
                    idempotency_key: None
                })));
        }
    }
}
