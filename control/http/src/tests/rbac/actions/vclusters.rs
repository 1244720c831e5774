//! Actions on vClusters and reservations.

use super::{Acts, call, text};
use lattice_api::v1::{self, admin_service_client::AdminServiceClient};
use reqwest::Method;
use serde_json::{Value, json};

impl Acts {
    pub(super) fn vclusters_and_reservations(&mut self) {
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
}
