//! Certificate endpoints.

use super::fixture::ApiFixture;
use lattice_client::{ClientError, api::certificate::CertificateState};
use lattice_engine::https_certificates::{CertificatePeriod, OwnCertificate, PublishedControl};
use lattice_mesh::{Clock as _, Role, SystemClock};
use lattice_quorum_types::{Command, UnixMillis, command::IssuedCertificate};
use std::{collections::BTreeMap, time::Duration};

/// Renews a certificate as a member does, `ago_s` seconds ago.
pub(super) fn renewed(fixture: &ApiFixture, role: Role, name: &str, ago_s: u64) {
    let now = SystemClock.now();
    renewed_at(fixture, role, name, now.0 / 1_000 - ago_s);
}

/// Renews a certificate as issued in that second.
pub(super) fn renewed_at(fixture: &ApiFixture, role: Role, name: &str, second: u64) {
    let issued_at = UnixMillis(second * 1_000);
    let renew = Command::RenewCertificate {
        name: name.to_owned(),
        role,
        shown_issued_at: UnixMillis(issued_at.0.saturating_sub(1_000)),
        certificate: IssuedCertificate {
            issued_at,
            expires_at: issued_at.after(30 * 24 * 3_600_000),
        },
    };
    fixture.service_answer(renew).unwrap();
}

#[tokio::test]
async fn members_are_listed_by_role_and_name_a_page_at_a_time() {
    let fixture = ApiFixture::furnished().await;
    for name in ["gpu001", "gpu002", "gpu010"] {
        renewed(&fixture, Role::Agent, name, 60);
    }
    renewed(&fixture, Role::Control, "c1", 60);
    renewed(&fixture, Role::Quorum, "1", 60);
    let op = fixture.client("op");
    let all = op.certificates().await.unwrap();
    let names: Vec<_> = all
        .iter()
        .map(|c| format!("{}/{}", c.role, c.name))
        .collect();
    assert_eq!(
        names,
        [
            "agent/gpu001",
            "agent/gpu002",
            "agent/gpu010",
            "quorum/1",
            "control/c1"
        ]
    );
    assert!(all.iter().all(|c| c.state == CertificateState::Valid));
    let get = async |query: &str| {
        let path = format!("/api/v1/certificates{query}");
        let get = fixture
            .raw()
            .get(fixture.url(&path))
            .bearer_auth(fixture.token("op"));
        let answer = get.send().await.unwrap();
        answer.json::<serde_json::Value>().await.unwrap()
    };
    let first = get("?limit=2").await;
    assert_eq!(first["next_cursor"], "agent/gpu002");
    let rest = get("?limit=3&cursor=agent/gpu002").await;
    assert_eq!(rest["items"][0]["name"], "gpu010");
    assert!(rest.get("next_cursor").is_none());
    assert_eq!(get("?cursor=gpu002").await["field"], "cursor");
    // Shown with the node, for callers that may see it.
    let node = op.node("gpu001").await.unwrap();
    assert_eq!(node.certificate.unwrap().state, CertificateState::Valid);
    let eye = fixture.client("eye").node("gpu001").await.unwrap();
    assert_eq!(eye.certificate, None);
    fixture.store.set_down(true);
    assert_eq!(op.node("gpu001").await.unwrap().certificate, None);
}

/// A certificate issued by hand has no record in the quorum, and that of a TLS port never has one.
#[tokio::test]
async fn hand_issued_and_https_certificates_are_listed() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let now = SystemClock.now().0;
    let period = |days: u64| CertificatePeriod {
        issued_at_ms: now - 1_000,
        expires_at_ms: now + days * 86_400_000,
    };
    let certificates = &fixture.core.https_certificates;
    certificates.set_own(OwnCertificate {
        period: period(3),
        reload_error: None,
    });
    let other = PublishedControl {
        // Another process answers there, so a connection attempt ends at once.
        addr: fixture.agent_addr,
        https: Some(period(0)),
    };
    certificates.set_published("c0", BTreeMap::from([("c10".to_owned(), other)]));
    tokio::time::sleep(Duration::from_millis(2)).await;
    let all = op.certificates().await.unwrap();
    let of = |role: &str| all.iter().filter(|c| c.role == role).collect::<Vec<_>>();
    let [own] = of("control")[..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (own.name.as_str(), own.state),
        ("c1", CertificateState::Valid)
    );
    assert!(own.issued_at.is_some() && own.expires_at.is_some());
    let ports = of("https").into_iter();
    let ports: Vec<_> = ports.map(|c| (c.name.as_str(), c.state)).collect();
    let (valid, expired) = (CertificateState::Valid, CertificateState::Expired);
    assert_eq!(ports, [("c1", valid), ("c10", expired)]);
    let get = async |path: &str| {
        let get = fixture.raw().get(fixture.url(path));
        let answer = get.bearer_auth(fixture.token("op")).send().await.unwrap();
        answer.text().await.unwrap()
    };
    let last = get("/api/v1/certificates?cursor=https/c1").await;
    assert!(
        last.contains("c10") && !last.contains("next_cursor"),
        "{last}"
    );
    let metrics = get("/metrics").await;
    let left = metrics.lines().find_map(|line| {
        let value = line.strip_prefix("lattice_https_certificate_left_seconds ")?;
        value.parse::<f64>().ok()
    });
    let left = left.unwrap();
    assert!(
        (3.0 * 86_400.0 - 60.0..=3.0 * 86_400.0).contains(&left),
        "{left}"
    );
    assert!(
        metrics.contains("lattice_https_certificate_reload_failed 0"),
        "{metrics}"
    );
    certificates.set_own(OwnCertificate {
        period: period(3),
        reload_error: Some("no key".to_owned()),
    });
    let metrics = get("/metrics").await;
    assert!(
        metrics.contains("lattice_https_certificate_reload_failed 1"),
        "{metrics}"
    );
    // A record that is newer than the presented certificate counts.
    renewed_at(&fixture, Role::Control, "c1", now / 1_000 + 60);
    let all = op.certificates().await.unwrap();
    let own = all.iter().find(|c| c.role == "control").unwrap();
    let expected = lattice_api::text::time(UnixMillis((now / 1_000 + 60) * 1_000));
    assert_eq!(own.issued_at.as_deref(), Some(expected.as_str()));
}

#[tokio::test]
async fn certificates_are_in_numerical_order() {
    let fixture = ApiFixture::furnished().await;
    for name in ["n10", "n11", "n8", "n9"] {
        renewed(&fixture, Role::Agent, name, 60);
    }
    let all = fixture.client("op").certificates().await.unwrap();
    let agents = all.iter().filter(|c| c.role == "agent");
    let names: Vec<&str> = agents.map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["n8", "n9", "n10", "n11"]);
    let get = fixture
        .raw()
        .get(fixture.url("/api/v1/certificates?limit=1&cursor=agent/n9"))
        .bearer_auth(fixture.token("op"));
    let page = get.send().await.unwrap();
    let page = page.json::<serde_json::Value>().await.unwrap();
    assert_eq!(page["items"][0]["name"], "n10");
}

#[tokio::test]
async fn revoked_member_is_marked_until_reenrolment() {
    let fixture = ApiFixture::furnished().await;
    renewed(&fixture, Role::Agent, "gpu001", 60);
    let root = fixture.client("root");
    let of = async |name: &str| {
        let all = root.certificates().await.unwrap();
        all.into_iter().find(|c| c.name == name).unwrap()
    };
    root.revoke_certificates("agent", "gpu001", "the disk was sold", None)
        .await
        .unwrap();
    let revoked = of("gpu001").await;
    assert_eq!(revoked.state, CertificateState::Revoked);
    let why = revoked.revoked.unwrap();
    assert_eq!(
        (why.reason.as_str(), why.by.as_str()),
        ("the disk was sold", "root")
    );
    // A certificate issued by hand is known only through the node.
    root.revoke_certificates("agent", "gpu002", "never enrolled", None)
        .await
        .unwrap();
    assert_eq!(of("gpu002").await.state, CertificateState::Revoked);
    root.revoke_certificates("quorum", "9", "left the site", None)
        .await
        .unwrap();
}

#[tokio::test]
async fn unrevocable_name_is_rejected() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let long = "x".repeat(2_000);
    for (role, name, reason, field) in [
        ("agents", "gpu001", "gone", "role"),
        ("agent", "gpu001", " ", "reason"),
        ("agent", "gpu001", &long, "reason"),
        ("control", "c 2", "gone", "name"),
    ] {
        let error = root.revoke_certificates(role, name, reason, None).await;
        let error = error.unwrap_err();
        let found = error.problem().unwrap().field.clone();
        assert_eq!(found.as_deref(), Some(field), "{role}/{name}: {error}");
    }
    // A misspelt name revokes nothing.
    let typo = root
        .revoke_certificates("agent", "gpu01", "gone", None)
        .await;
    assert!(matches!(typo, Err(ClientError::NotFound(_))), "{typo:?}");
    let oneself = root
        .revoke_certificates("control", "c1", "gone", None)
        .await;
    let oneself = oneself.unwrap_err();
    assert_eq!(oneself.problem().unwrap().code, "revokes_itself");
}
