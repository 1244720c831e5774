//! Actions on join tokens, certificates and authorities.

use super::{Acts, call, text};
use lattice_api::v1::{self, admin_service_client::AdminServiceClient};
use reqwest::Method;
use serde_json::{Value, json};

impl Acts {
    pub(super) fn joining(&mut self, authority: &str) {
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
}
