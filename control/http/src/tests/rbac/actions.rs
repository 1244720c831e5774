//! Every action, as a valid request over REST and gRPC.

mod allocations;
mod conformance;
mod joining;
mod nodes;
mod quorum;
mod tenancy;
mod vclusters;

use futures::future::BoxFuture;
use lattice_api::v1::{self, admin_service_client::AdminServiceClient};
use reqwest::Method;
use serde_json::Value;
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

/// A gRPC call: `Client.method(message)`.
macro_rules! call {
    ($client:ident.$method:ident($message:expr)) => {{
        let message = $message;
        $crate::tests::rbac::actions::Call {
            name: $crate::tests::rbac::actions::name(stringify!($client), stringify!($method)),
            ask: Box::new(move |channel, token| {
                let request = $crate::tests::rbac::actions::bearing(token, message.clone());
                Box::pin(async move {
                    let answer = $client::new(channel).$method(request).await;
                    answer.map(drop)
                })
            }),
        }
    }};
}
pub(super) use call;

fn text(text: &str) -> String {
    text.to_owned()
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
