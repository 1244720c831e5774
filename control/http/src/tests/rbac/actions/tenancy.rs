//! Actions on projects, tenants, limits, usage and accounting.

use super::{Acts, HOOK, call, text};
use lattice_api::v1::{
    self, admin_service_client::AdminServiceClient, projects_client::ProjectsClient,
};
use reqwest::Method;
use serde_json::{Value, json};

fn set(n: u64) -> Option<v1::LimitChangeValue> {
    Some(v1::LimitChangeValue {
        change: Some(v1::limit_change_value::Change::Set(n)),
    })
}

impl Acts {
    pub(super) fn projects(&mut self) {
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

    pub(super) fn tenants(&mut self) {
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

    pub(super) fn usage(&mut self) {
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

    pub(super) fn accounting(&mut self) {
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
                dry_run: false,
                accept: false,
            }
        )));
        // The secret replaces a token, and no caller has it here.
        self.push(Method::POST, HOOK, "accounting/hook/anything", Value::Null)
            .absent();
    }
}
