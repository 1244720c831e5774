//! Every route has a gRPC call and every call a route; exceptions are listed here with the reason.

use std::collections::{BTreeMap, BTreeSet};

/// Each route with its equivalent call.
pub(in super::super) const CALLS: &[(&str, &str)] = &[
    ("GET /api/v1/allocations", "Allocations.List"),
    ("POST /api/v1/allocations", "Allocations.Submit"),
    ("GET /api/v1/allocations/{id}", "Allocations.Get"),
    ("DELETE /api/v1/allocations/{id}", "Allocations.Cancel"),
    ("POST /api/v1/allocations/{id}/hold", "Allocations.Hold"),
    (
        "POST /api/v1/allocations/{id}/release",
        "Allocations.Release",
    ),
    (
        "POST /api/v1/allocations/{id}/requeue",
        "Allocations.Requeue",
    ),
    ("POST /api/v1/allocations/{id}/extend", "Allocations.Extend"),
    (
        "POST /api/v1/allocations/{id}/checkpoint",
        "Allocations.Checkpoint",
    ),
    (
        "POST /api/v1/allocations/{id}/suspend",
        "Allocations.Suspend",
    ),
    ("POST /api/v1/allocations/{id}/resume", "Allocations.Resume"),
    (
        "GET /api/v1/allocations/{id}/explanation",
        "Allocations.Explain",
    ),
    ("GET /api/v1/dags", "Dags.List"),
    ("POST /api/v1/dags", "Dags.Submit"),
    ("GET /api/v1/dags/{id}", "Dags.Get"),
    ("DELETE /api/v1/dags/{id}", "Dags.Cancel"),
    ("GET /api/v1/dags/{id}/graph", "Dags.Graph"),
    ("GET /api/v1/reservations", "AdminService.ListReservations"),
    (
        "GET /api/v1/reservations/{name}",
        "AdminService.GetReservation",
    ),
    (
        "PUT /api/v1/reservations/{name}",
        "AdminService.SetReservation",
    ),
    (
        "DELETE /api/v1/reservations/{name}",
        "AdminService.DeleteReservation",
    ),
    ("GET /api/v1/nodes", "Nodes.List"),
    ("GET /api/v1/nodes/{id}", "Nodes.Get"),
    ("GET /api/v1/nodes/{id}/diff", "Nodes.Diff"),
    ("GET /api/v1/nodes/{id}/inventory", "Nodes.Inventory"),
    ("GET /api/v1/nodes/{id}/history", "Nodes.History"),
    ("GET /api/v1/nodes/{id}/health", "Nodes.Health"),
    ("POST /api/v1/nodes/{id}/health/clear", "Nodes.ClearHealth"),
    ("POST /api/v1/nodes/{id}/reprobe", "Nodes.Reprobe"),
    ("POST /api/v1/nodes/{id}/drain", "AdminService.DrainNode"),
    (
        "POST /api/v1/nodes/{id}/undrain",
        "AdminService.UndrainNode",
    ),
    ("POST /api/v1/nodes/{id}/claim", "Nodes.Claim"),
    ("POST /api/v1/nodes/{id}/release", "Nodes.Release"),
    ("GET /api/v1/conformance/groups", "Conformance.Groups"),
    ("GET /api/v1/conformance/drift", "Conformance.Drift"),
    ("GET /api/v1/conformance/changes", "Conformance.Changes"),
    (
        "GET /api/v1/conformance/baselines",
        "Conformance.ListBaselines",
    ),
    (
        "GET /api/v1/conformance/baselines/{name}",
        "Conformance.GetBaseline",
    ),
    (
        "PUT /api/v1/conformance/baselines/{name}",
        "Conformance.SetBaseline",
    ),
    (
        "DELETE /api/v1/conformance/baselines/{name}",
        "Conformance.DeleteBaseline",
    ),
    (
        "GET /api/v1/conformance/baselines/{name}/diff",
        "Conformance.DiffBaseline",
    ),
    ("GET /api/v1/conformance/brake", "Conformance.GetBrake"),
    (
        "POST /api/v1/conformance/brake/release",
        "Conformance.ReleaseBrake",
    ),
    ("GET /api/v1/projects", "Projects.Tree"),
    ("POST /api/v1/projects", "Projects.Create"),
    ("POST /api/v1/tenants", "AdminService.CreateTenant"),
    ("GET /api/v1/tenants", "AdminService.ListTenants"),
    ("GET /api/v1/tenants/{id}", "AdminService.GetTenant"),
    ("PUT /api/v1/tenants/{id}", "AdminService.UpdateTenant"),
    ("DELETE /api/v1/tenants/{id}", "AdminService.DeleteTenant"),
    (
        "GET /api/v1/tenants/{id}/usage",
        "AdminService.GetTenantUsage",
    ),
    ("GET /api/v1/usage", "AdminService.GetUserUsage"),
    (
        "GET /api/v1/accounting/status",
        "AdminService.GetAccountingStatus",
    ),
    (
        "POST /api/v1/accounting/reconcile",
        "AdminService.ReconcileAccounting",
    ),
    ("GET /api/v1/projects/{path}/headroom", "Projects.Headroom"),
    ("GET /api/v1/system/limits", "AdminService.GetSystemLimits"),
    ("PUT /api/v1/system/limits", "AdminService.SetSystemLimits"),
    (
        "PUT /api/v1/system/limit-policy",
        "AdminService.SetLimitPolicy",
    ),
    ("GET /api/v1/vclusters", "AdminService.ListVclusters"),
    ("GET /api/v1/vclusters/{name}", "AdminService.GetVcluster"),
    ("PUT /api/v1/vclusters/{name}", "AdminService.SetVcluster"),
    (
        "DELETE /api/v1/vclusters/{name}",
        "AdminService.DeleteVcluster",
    ),
    (
        "POST /api/v1/vclusters/{name}/nodes",
        "AdminService.AssignVcluster",
    ),
    ("GET /api/v1/projects/{path}", "Projects.Get"),
    ("PUT /api/v1/projects/{path}", "Projects.Update"),
    ("DELETE /api/v1/projects/{path}", "Projects.Delete"),
    ("PUT /api/v1/limits", "Projects.SetLimits"),
    ("GET /api/v1/status", "AdminService.GetStatus"),
    ("GET /api/v1/tokens", "AdminService.ListTokens"),
    ("POST /api/v1/tokens", "AdminService.CreateToken"),
    ("DELETE /api/v1/tokens/{id}", "AdminService.RevokeToken"),
    ("GET /api/v1/certificates", "AdminService.ListCertificates"),
    (
        "POST /api/v1/certificates/{role}/{name}/revoke",
        "AdminService.RevokeCertificates",
    ),
    ("GET /api/v1/authorities", "AdminService.ListAuthorities"),
    ("POST /api/v1/authorities", "AdminService.AddAuthority"),
    (
        "POST /api/v1/authorities/{pin}/promote",
        "AdminService.PromoteAuthority",
    ),
    (
        "DELETE /api/v1/authorities/{pin}",
        "AdminService.RetireAuthority",
    ),
    ("GET /api/v1/audit", "AdminService.QueryAudit"),
    ("GET /api/v1/quorum", "AdminService.GetQuorum"),
    (
        "POST /api/v1/quorum/members",
        "AdminService.AddQuorumMember",
    ),
    (
        "DELETE /api/v1/quorum/members/{id}",
        "AdminService.RemoveQuorumMember",
    ),
    ("POST /api/v1/quorum/step-down", "AdminService.StepDown"),
    ("POST /api/v1/quorum/backup", "AdminService.Backup"),
    ("POST /api/v1/audit/checkpoint", "AdminService.SignAudit"),
];

/// Routes without a call.
pub(in super::super) const REST_ALONE: &[(&str, &str)] = &[
    (
        "GET /api/v1/allocations/{id}/logs",
        "bytes that are followed: a chunked answer is what pipes and browsers read",
    ),
    (
        "GET /api/v1/events",
        "server-sent events, with what a browser does when the connection is lost",
    ),
    (
        "GET /api/v1/decisions",
        "lines of JSON that go to a file as they come: nothing in them is for a program of another kind than \
         the one that plans again",
    ),
    (
        "GET /healthz",
        "for load balancers, which speak HTTP; without a token",
    ),
    (
        "GET /readyz",
        "for load balancers, which speak HTTP; without a token",
    ),
    ("GET /metrics", "the text format of Prometheus"),
    (
        "POST /api/v1/accounting/hook/{secret}",
        "where Waldur calls, which posts JSON; without a token but its secret",
    ),
];

pub(in super::super) fn routes() -> BTreeSet<String> {
    let document = serde_json::to_value(crate::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &serde_json::Value)| -> Vec<String> {
        let methods = item.as_object().unwrap().keys();
        methods
            .map(|method| format!("{} {path}", method.to_uppercase()))
            .collect()
    };
    paths.iter().flat_map(of_path).collect()
}

/// `Service.Method` of each call, from the proto files.
pub(in super::super) fn calls() -> BTreeSet<String> {
    let files = [
        include_str!("../../../../api/proto/lattice/v1/lattice.proto"),
        include_str!("../../../../api/proto/lattice/v1/conformance.proto"),
        include_str!("../../../../api/proto/lattice/v1/hardware.proto"),
    ];
    let mut calls = BTreeSet::new();
    for file in files {
        let mut service = "";
        for line in file.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.trim_end_matches(" {");
            }
            if let Some(rest) = line.strip_prefix("rpc ") {
                let method = rest.split('(').next().unwrap();
                assert!(calls.insert(format!("{service}.{method}")));
            }
        }
    }
    calls
}

#[test]
fn every_route_has_a_call_and_every_call_a_route() {
    let (routes, calls) = (routes(), calls());
    let mut asked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (route, call) in CALLS {
        asked.entry(route).or_default().push(call);
    }
    let alone: BTreeSet<&str> = REST_ALONE.iter().map(|(route, _)| *route).collect();
    let missing = routes
        .iter()
        .filter(|route| !asked.contains_key(route.as_str()) && !alone.contains(route.as_str()));
    let missing: Vec<&String> = missing.collect();
    assert!(
        missing.is_empty(),
        "without a call and without a reason: {missing:#?}"
    );
    let listed = asked.keys().chain(&alone);
    let gone: Vec<&&str> = listed.filter(|route| !routes.contains(**route)).collect();
    assert!(gone.is_empty(), "there is no such route: {gone:#?}");
    let both: Vec<&&str> = alone
        .iter()
        .filter(|route| asked.contains_key(**route))
        .collect();
    assert!(both.is_empty(), "they have a call: {both:#?}");
    let named: BTreeSet<String> = CALLS.iter().map(|(_, call)| (*call).to_owned()).collect();
    assert_eq!(named, calls);
    assert!(REST_ALONE.iter().all(|(_, why)| why.len() > 20));
}
