//! Actions on quorum members and on the audit.

use super::{Acts, call, text};
use lattice_api::v1::{self, admin_service_client::AdminServiceClient};
use reqwest::Method;
use serde_json::{Value, json};

impl Acts {
    pub(super) fn quorum_and_audit(&mut self) {
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
