//! Every action, as a valid request over REST and gRPC.

use futures::future::BoxFuture;
use lattice_api::v1::{
    self, admin_service_client::AdminServiceClient, allocations_client::AllocationsClient,
    conformance_client::ConformanceClient, dags_client::DagsClient, nodes_client::NodesClient,
    projects_client::ProjectsClient,
};
use reqwest::Method;
use serde_json::{Value, json};
use tonic::{Request, Status, transport::Channel};

/// Submitting user and project of each allocation, by number.
pub(super) const WORK: [(&str, &str); 5] = [
    ("alice", "ocean/deep"),
    ("bob", "ocean/deep"),
    ("bob", "atlas/web"),
    ("bob", "ocean/deep"),
    ("bob", "atlas/web"),
];
/// Projects of the DAGs submitted by `bob`, and their numbers, which share the sequence of allocations.
pub(super) const DAGS: [(&str, u64); 2] = [("ocean/deep", 6), ("atlas/web", 8)];
/// Nodes claimed by `bob`, and the projects.
pub(super) const CLAIMS: [(&str, &str); 2] = [("ocean/deep", "gpu006"), ("atlas/web", "gpu007")];
const ALICES: u64 = 1;
const IN_OCEAN: u64 = 2;
const IN_ATLAS: u64 = 3;
/// Allocations that hold a node.
pub(super) const HELD_IN_OCEAN: (u64, &str) = (4, "gpu004");
pub(super) const HELD_IN_ATLAS: (u64, &str) = (5, "gpu005");

/// A gRPC call.
pub(super) struct Call {
    /// `Service.Method`.
    pub(super) name: String,
    pub(super) ask: ActRequest,
}

const HOOK: &str = "accounting/hook/{secret}";
const PUBLIC: [&str; 5] = ["/", "/openapi.json", "/healthz", "/readyz", HOOK];

type ActRequest =
    Box<dyn Fn(Channel, Option<String>) -> BoxFuture<'static, Result<(), Status>> + Send + Sync>;

/// One action.
pub(super) struct Act {
    pub(super) method: Method,
    /// Path of the route below `/api/v1`, or the whole path of a route outside it.
    template: &'static str,
    /// Path of the request.
    pub(super) path: String,
    pub(super) body: Value,
    pub(super) call: Option<Call>,
    /// Distinguishes lines of the same route.
    note: &'static str,
    /// The object exists for no caller: 404 hides nothing.
    pub(super) is_absent: bool,
    /// The object is not in a suitable state, whichever caller requests the action.
    pub(super) is_unfit: bool,
}

impl Act {
    /// The route as in the OpenAPI document.
    pub(super) fn route(&self) -> String {
        match self.is_below_v1() {
            true => format!("{} /api/v1/{}", self.method, self.template),
            false => format!("{} {}", self.method, self.template),
        }
    }

    /// Whether the route needs no authentication.
    pub(super) fn is_public(&self) -> bool {
        PUBLIC.contains(&self.template)
    }

    /// Whether the action concerns an existing baseline.
    pub(super) fn needs_baseline(&self) -> bool {
        self.template.starts_with("conformance/baselines/{name}")
    }

    fn is_below_v1(&self) -> bool {
        !self.template.starts_with('/')
    }

    pub(super) fn title(&self) -> String {
        let (method, template) = (&self.method, self.template);
        let title = format!("{method} {template}");
        match self.note {
            "" => title,
            note => format!("{title} ({note})"),
        }
    }
}

fn bearing<T>(token: Option<String>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
    }
    request
}

/// `list_tenants` of `AdminServiceClient` is `AdminService.ListTenants`.
fn name(client: &str, method: &str) -> String {
    let words = method.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    let service = client.strip_suffix("Client").unwrap();
    format!("{service}.{}", words.collect::<String>())
}

macro_rules! call {
    ($client:ident.$method:ident($message:expr)) => {{
        let message = $message;
        Call {
            name: name(stringify!($client), stringify!($method)),
            ask: Box::new(move |channel, token| {
                let request = bearing(token, message.clone());
                Box::pin(async move {
                    let answer = $client::new(channel).$method(request).await;
                    answer.map(drop)
                })
            }),
        }
    }};
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn set(n: u64) -> Option<v1::LimitChangeValue> {
    Some(v1::LimitChangeValue {
        change: Some(v1::limit_change_value::Change::Set(n)),
    })
}

fn submit(project: &str) -> v1::SubmitRequest {
    super::super::grpc::submit(project, 1)
}

/// All actions, in the order of the table.
pub(super) struct Acts(pub(super) Vec<Act>);

impl Acts {
    /// `authority`: a certificate, PEM, that may be added to the cluster.
    pub(super) fn all(authority: &str) -> Self {
        let mut acts = Self(Vec::new());
        acts.service();
        acts.allocations();
        acts.dags();
        acts.projects();
        acts.tenants();
        acts.usage();
        acts.accounting();
        acts.nodes();
        acts.conformance();
        acts.vclusters_and_reservations();
        acts.joining(authority);
        acts.quorum_and_audit();
        acts
    }

    fn push(
        &mut self,
        method: Method,
        template: &'static str,
        path: &str,
        body: Value,
    ) -> &mut Act {
        let path = match template.starts_with('/') {
            true => path.to_owned(),
            false => format!("/api/v1/{path}"),
        };
        self.0.push(Act {
            method,
            template,
            path,
            body,
            call: None,
            note: "",
            is_absent: false,
            is_unfit: false,
        });
        self.0.last_mut().unwrap()
    }

    /// A GET action without a body or variable parts.
    fn get(&mut self, template: &'static str) -> &mut Act {
        self.push(Method::GET, template, template, Value::Null)
    }

    fn service(&mut self) {
        for public in PUBLIC.into_iter().filter(|path| *path != HOOK) {
            self.get(public);
        }
        self.get("/metrics");
        self.get("status").by(call!(
            AdminServiceClient.get_status(v1::GetStatusRequest {})
        ));
        self.get("events");
        self.get("decisions").absent();
    }

    fn allocations(&mut self) {
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

    fn dags(&mut self) {
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

    fn projects(&mut self) {
        self.get("projects")
            .by(call!(ProjectsClient.tree(v1::TreeRequest::default())));
        for (note, path) in [
            ("below ocean", "ocean/new"),
            ("below atlas", "atlas/new"),
            ("a tenant", "river"),
        ] {
            self.push(
                Method::POST,
                "projects",
                "projects",
                json!({"path": path, "limits": {"max_nodes": 1}}),
            )
            .noted(note)
            .by(call!(ProjectsClient.create(v1::CreateProjectRequest {
                path: text(path),
                max_nodes: Some(1),
                ..Default::default()
            })));
        }
        for (note, path) in [
            ("below ocean", "ocean/deep/cold"),
            ("ocean itself", "ocean"),
            ("below atlas", "atlas/physics/simulation"),
        ] {
            self.project(note, path);
        }
        for (note, path) in [
            ("below ocean", "ocean/deep"),
            ("ocean itself", "ocean"),
            ("below atlas", "atlas/web"),
        ] {
            for (force, note) in [(false, note), (true, "by force")] {
                if force && path != "ocean/deep" {
                    continue;
                }
                let body = json!({"changes": [{"path": path, "max_nodes": 5}], "force": force});
                self.push(Method::PUT, "limits", "limits", body)
                    .noted(note)
                    .by(call!(ProjectsClient.set_limits(v1::SetLimitsRequest {
                        changes: vec![v1::LimitChange {
                            path: text(path),
                            max_nodes: set(5),
                            max_concurrent_allocations: None,
                        }],
                        idempotency_key: None,
                        force,
                    })));
            }
        }
    }

    fn project(&mut self, note: &'static str, path: &'static str) {
        let at = format!("projects/{path}");
        self.push(Method::GET, "projects/{path}", &at, Value::Null)
            .noted(note)
            .by(call!(
                ProjectsClient.get(v1::GetProjectRequest { path: text(path) })
            ));
        self.push(
            Method::GET,
            "projects/{path}/headroom",
            &format!("{at}/headroom"),
            Value::Null,
        )
        .noted(note)
        .by(call!(
            ProjectsClient.headroom(v1::GetProjectRequest { path: text(path) })
        ));
        self.push(Method::PUT, "projects/{path}", &at, json!({"max_nodes": 8}))
            .noted(note)
            .by(call!(ProjectsClient.update(v1::UpdateProjectRequest {
                path: text(path),
                max_nodes: set(8),
                ..Default::default()
            })));
        self.push(Method::DELETE, "projects/{path}", &at, Value::Null)
            .noted(note)
            .by(call!(ProjectsClient.delete(v1::DeleteProjectRequest {
                path: text(path),
                idempotency_key: None
            })));
    }

    fn tenants(&mut self) {
        self.get("tenants").by(call!(
            AdminServiceClient.list_tenants(v1::ListTenantsRequest::default())
        ));
        // A caller limited to some tenants is informed that another tenant does not exist.
        self.push(
            Method::POST,
            "tenants",
            "tenants",
            json!({"id": "river", "max_nodes": 1}),
        )
        .by(call!(AdminServiceClient.create_tenant(
            v1::CreateProjectRequest {
                path: text("river"),
                max_nodes: Some(1),
                ..Default::default()
            }
        )));
        for id in ["ocean", "atlas"] {
            let at = format!("tenants/{id}");
            self.push(Method::GET, "tenants/{id}", &at, Value::Null)
                .noted(id)
                .by(call!(
                    AdminServiceClient.get_tenant(v1::GetTenantRequest { id: text(id) })
                ));
            self.push(Method::PUT, "tenants/{id}", &at, json!({"max_nodes": 300}))
                .noted(id)
                .by(call!(AdminServiceClient.update_tenant(
                    v1::UpdateTenantRequest {
                        id: text(id),
                        max_nodes: set(300),
                        ..Default::default()
                    }
                )));
        }
        self.push(
            Method::PUT,
            "tenants/{id}",
            "tenants/ocean",
            json!({"max_nodes": 2, "force": true}),
        )
        .noted("ocean, by force")
        .by(call!(AdminServiceClient.update_tenant(
            v1::UpdateTenantRequest {
                id: text("ocean"),
                max_nodes: set(2),
                force: true,
                ..Default::default()
            }
        )));
        for id in ["ocean", "atlas"] {
            self.push(
                Method::DELETE,
                "tenants/{id}",
                &format!("tenants/{id}"),
                Value::Null,
            )
            .noted(id)
            .by(call!(AdminServiceClient.delete_tenant(
                v1::DeleteTenantRequest {
                    id: text(id),
                    idempotency_key: None
                }
            )));
        }
        self.get("system/limits").by(call!(
            AdminServiceClient.get_system_limits(v1::GetSystemLimitsRequest {})
        ));
        self.push(
            Method::PUT,
            "system/limits",
            "system/limits",
            json!({"sensitive_pool_size": 4}),
        )
        .by(call!(AdminServiceClient.set_system_limits(
            v1::SetSystemLimitsRequest {
                sensitive_pool_size: set(4),
                idempotency_key: None
            }
        )));
        self.push(
            Method::PUT,
            "system/limit-policy",
            "system/limit-policy",
            json!({"limit_policy": "flat"}),
        )
        .by(call!(AdminServiceClient.set_limit_policy(
            v1::SetLimitPolicyRequest {
                limit_policy: text("flat"),
                idempotency_key: None
            }
        )));
    }

    fn usage(&mut self) {
        for id in ["ocean", "atlas"] {
            self.push(
                Method::GET,
                "tenants/{id}/usage",
                &format!("tenants/{id}/usage"),
                Value::Null,
            )
            .noted(id)
            .by(call!(AdminServiceClient.get_tenant_usage(
                v1::GetTenantUsageRequest {
                    id: text(id),
                    days: 0
                }
            )));
        }
        for (note, path, user) in [
            ("one's own", "usage", ""),
            ("bob's", "usage?user=bob", "bob"),
        ] {
            self.push(Method::GET, "usage", path, Value::Null)
                .noted(note)
                .by(call!(AdminServiceClient.get_user_usage(
                    v1::GetUserUsageRequest {
                        user: text(user),
                        days: 0
                    }
                )));
        }
    }

    fn accounting(&mut self) {
        self.get("accounting/status").by(call!(
            AdminServiceClient.get_accounting_status(v1::GetAccountingStatusRequest {})
        ));
        let (since, until) = (text("2026-03-01"), text("2026-03-02"));
        self.push(
            Method::POST,
            "accounting/reconcile",
            "accounting/reconcile",
            json!({"since": since, "until": until}),
        )
        .by(call!(AdminServiceClient.reconcile_accounting(
            v1::ReconcileAccountingRequest {
                since: since.clone(),
                until: until.clone(),
                dry_run: false
            }
        )));
        // The secret replaces a token, and no caller has it here.
        self.push(Method::POST, HOOK, "accounting/hook/anything", Value::Null)
            .absent();
    }

    fn nodes(&mut self) {
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

    fn conformance(&mut self) {
        let name = || text("h100");
        let release = v1::KeyValue {
            value: Some(v1::key_value::Value::Text(text("6.8.0"))),
        };
        let rule = v1::KeyRule {
            any_of: vec![release],
            or_absent: false,
        };
        let one = ("conformance/baselines/{name}", "conformance/baselines/h100");
        self.get("conformance/groups").by(call!(
            ConformanceClient.groups(v1::GroupsRequest::default())
        ));
        self.get("conformance/drift")
            .by(call!(ConformanceClient.drift(v1::DriftRequest {})));
        self.get("conformance/changes").by(call!(
            ConformanceClient.changes(v1::ChangesRequest::default())
        ));
        self.get("conformance/baselines").by(call!(
            ConformanceClient.list_baselines(v1::ListBaselinesRequest {})
        ));
        self.push(Method::GET, one.0, one.1, Value::Null).by(call!(
            ConformanceClient.get_baseline(v1::GetBaselineRequest { name: name() })
        ));
        self.push(
            Method::GET,
            "conformance/baselines/{name}/diff",
            "conformance/baselines/h100/diff?with=gpu001",
            Value::Null,
        )
        .by(call!(ConformanceClient.diff_baseline(
            v1::DiffBaselineRequest {
                name: name(),
                with: text("gpu001")
            }
        )));
        self.push(
            Method::PUT,
            one.0,
            one.1,
            json!({"nodes": "gpu[001-002]", "classes": {"kernel": {"keys": {"kernel.osrelease": {"any_of": ["6.8.0"]}}}}}),
        )
        .by(call!(
            ConformanceClient.set_baseline(v1::SetBaselineRequest {
                name: name(),
                nodes: Some(text("gpu[001-002]")),
                classes: [(
                    text("kernel"),
                    v1::ClassRule {
                        keys: Some(v1::KeyRules { keys: [(text("kernel.osrelease"), rule.clone())].into() }),
                        ..Default::default()
                    }
                )]
                .into(),
                ..Default::default()
            })
        ));
        self.push(Method::DELETE, one.0, one.1, Value::Null)
            .by(call!(ConformanceClient.delete_baseline(
                v1::DeleteBaselineRequest {
                    name: name(),
                    ..Default::default()
                }
            )));
        self.get("conformance/brake")
            .by(call!(ConformanceClient.get_brake(v1::GetBrakeRequest {})));
        self.push(
            Method::POST,
            "conformance/brake/release",
            "conformance/brake/release",
            json!({"reason": "why"}),
        )
        .by(call!(ConformanceClient.release_brake(
            v1::ReleaseBrakeRequest {
                reason: text("why"),
                idempotency_key: None
            }
        )));
    }

    fn vclusters_and_reservations(&mut self) {
        let name = || text("night");
        let one = ("vclusters/{name}", "vclusters/night");
        self.get("vclusters").by(call!(
            AdminServiceClient.list_vclusters(v1::ListVclustersRequest::default())
        ));
        self.push(Method::GET, one.0, one.1, Value::Null).by(call!(
            AdminServiceClient.get_vcluster(v1::GetVclusterRequest { name: name() })
        ));
        self.push(Method::PUT, one.0, one.1, json!({"tenants": ["ocean"]}))
            .by(call!(AdminServiceClient.set_vcluster(
                v1::SetVclusterRequest {
                    name: name(),
                    tenants: Some(v1::TenantsChange {
                        all: false,
                        names: vec![text("ocean")]
                    }),
                    ..Default::default()
                }
            )));
        self.push(Method::DELETE, one.0, one.1, Value::Null)
            .by(call!(AdminServiceClient.delete_vcluster(
                v1::DeleteVclusterRequest {
                    name: name(),
                    ..Default::default()
                }
            )));
        self.push(
            Method::POST,
            "vclusters/{name}/nodes",
            "vclusters/night/nodes",
            json!({"nodes": "gpu[010-011]"}),
        )
        .by(call!(AdminServiceClient.assign_vcluster(
            v1::AssignVclusterRequest {
                name: name(),
                nodes: text("gpu[010-011]"),
                ..Default::default()
            }
        )));
        let name = || text("course");
        let one = ("reservations/{name}", "reservations/course");
        self.get("reservations").by(call!(
            AdminServiceClient.list_reservations(v1::ListReservationsRequest::default())
        ));
        self.push(Method::GET, one.0, one.1, Value::Null).by(call!(
            AdminServiceClient.get_reservation(v1::GetReservationRequest { name: name() })
        ));
        self.push(
            Method::PUT,
            one.0,
            one.1,
            json!({"nodes": "gpu023", "users": ["bob"], "duration": "1h", "reason": "why"}),
        )
        .by(call!(AdminServiceClient.set_reservation(
            v1::SetReservationRequest {
                name: name(),
                nodes: Some(text("gpu023")),
                users: vec![text("bob")],
                duration: Some(text("1h")),
                reason: text("why"),
                ..Default::default()
            }
        )));
        self.push(Method::DELETE, one.0, one.1, Value::Null)
            .by(call!(AdminServiceClient.delete_reservation(
                v1::DeleteReservationRequest {
                    name: name(),
                    idempotency_key: None
                }
            )));
    }

    fn joining(&mut self, authority: &str) {
        let pin = || text("0123456789ab");
        self.get("tokens").by(call!(
            AdminServiceClient.list_tokens(v1::ListTokensRequest {})
        ));
        self.push(
            Method::POST,
            "tokens",
            "tokens",
            json!({"role": "agent", "ttl": "1h"}),
        )
        .by(call!(AdminServiceClient.create_token(
            v1::CreateTokenRequest {
                role: text("agent"),
                ttl: text("1h"),
                ..Default::default()
            }
        )));
        self.push(
            Method::DELETE,
            "tokens/{id}",
            "tokens/0123456789ab",
            Value::Null,
        )
        .absent()
        .by(call!(AdminServiceClient.revoke_token(
            v1::RevokeTokenRequest {
                id: pin(),
                idempotency_key: None
            }
        )));
        self.get("certificates").by(call!(
            AdminServiceClient.list_certificates(v1::ListCertificatesRequest::default())
        ));
        self.push(
            Method::POST,
            "certificates/{role}/{name}/revoke",
            "certificates/agent/gpu001/revoke",
            json!({"reason": "why"}),
        )
        .by(call!(AdminServiceClient.revoke_certificates(
            v1::RevokeCertificatesRequest {
                role: text("agent"),
                name: text("gpu001"),
                reason: text("why"),
                idempotency_key: None
            }
        )));
        self.get("authorities").by(call!(
            AdminServiceClient.list_authorities(v1::ListAuthoritiesRequest {})
        ));
        self.push(
            Method::POST,
            "authorities",
            "authorities",
            json!({"certificate": authority}),
        )
        .by(call!(AdminServiceClient.add_authority(
            v1::AddAuthorityRequest {
                certificate: text(authority),
                idempotency_key: None
            }
        )));
        self.push(
            Method::POST,
            "authorities/{pin}/promote",
            "authorities/0123456789ab/promote",
            Value::Null,
        )
        .absent()
        .by(call!(AdminServiceClient.promote_authority(
            v1::AuthorityPin {
                pin: pin(),
                idempotency_key: None
            }
        )));
        self.push(
            Method::DELETE,
            "authorities/{pin}",
            "authorities/0123456789ab",
            Value::Null,
        )
        .absent()
        .by(call!(AdminServiceClient.retire_authority(
            v1::RetireAuthorityRequest {
                pin: pin(),
                ..Default::default()
            }
        )));
    }

    fn quorum_and_audit(&mut self) {
        self.get("quorum").by(call!(
            AdminServiceClient.get_quorum(v1::GetQuorumRequest {})
        ));
        self.push(
            Method::POST,
            "quorum/members",
            "quorum/members",
            json!({"id": 4, "address": "10.0.0.4:7101"}),
        )
        .by(call!(AdminServiceClient.add_quorum_member(
            v1::AddQuorumMemberRequest {
                id: 4,
                address: text("10.0.0.4:7101"),
                idempotency_key: None
            }
        )));
        self.push(
            Method::DELETE,
            "quorum/members/{id}",
            "quorum/members/3?reason=why",
            Value::Null,
        )
        .by(call!(AdminServiceClient.remove_quorum_member(
            v1::RemoveQuorumMemberRequest {
                id: 3,
                reason: text("why"),
                ..Default::default()
            }
        )));
        self.push(
            Method::POST,
            "quorum/step-down",
            "quorum/step-down",
            json!({}),
        )
        .by(call!(
            AdminServiceClient.step_down(v1::StepDownRequest::default())
        ));
        self.push(Method::POST, "quorum/backup", "quorum/backup", Value::Null)
            .by(call!(
                AdminServiceClient.backup(v1::BackupRequest::default())
            ));
        for (note, path, user, project) in [
            ("all that one may", "audit", "", ""),
            ("of ocean", "audit?project=ocean", "", "ocean"),
            ("of atlas", "audit?project=atlas", "", "atlas"),
            ("of bob", "audit?user=bob", "bob", ""),
        ] {
            self.push(Method::GET, "audit", path, Value::Null)
                .noted(note)
                .by(call!(AdminServiceClient.query_audit(
                    v1::QueryAuditRequest {
                        user: text(user),
                        project: text(project),
                        ..Default::default()
                    }
                )));
        }
        self.push(
            Method::POST,
            "audit/checkpoint",
            "audit/checkpoint",
            Value::Null,
        )
        .by(call!(
            AdminServiceClient.sign_audit(v1::SignAuditRequest {})
        ));
    }
}

impl Act {
    fn by(&mut self, call: Call) {
        self.call = Some(call);
    }

    fn noted(&mut self, note: &'static str) -> &mut Self {
        self.note = note;
        self
    }

    fn absent(&mut self) -> &mut Self {
        self.is_absent = true;
        self
    }
}
