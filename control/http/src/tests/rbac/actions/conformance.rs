//! Actions on conformance: groups, drift, baselines and the brake.

use super::{Acts, call, text};
use lattice_api::v1::{self, conformance_client::ConformanceClient};
use reqwest::Method;
use serde_json::{Value, json};

impl Acts {
    pub(super) fn conformance(&mut self) {
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
}
