//! Change of the issuing authority.

use super::{
    certificates::{renewed, renewed_at},
    fixture::ApiFixture,
};
use lattice_client::{Client, ClientError};
use lattice_mesh::{Authority, Clock as _, JoinToken, Role, SystemClock, Validity};
use lattice_quorum_types::Command;
use std::time::Duration;

fn authority() -> (Authority, String) {
    let year = Validity::from_now(SystemClock.now(), Duration::from_secs(365 * 86_400));
    let made = Authority::create("test", year).unwrap();
    let pem = lattice_api::x509::to_pem(made.certificate());
    (made, pem)
}

/// Fixture with the issuing authority of a new cluster.
async fn fixture() -> (ApiFixture, Authority) {
    let fixture = ApiFixture::furnished().await;
    let (first, _) = authority();
    let certificate = first.certificate().to_vec().into();
    fixture
        .member_answer(Command::AddAuthority { certificate })
        .unwrap();
    (fixture, first)
}

async fn phases(client: &Client) -> Vec<(String, Option<u64>)> {
    let all = client.authorities().await.unwrap();
    let shown = all.into_iter().map(|a| (a.phase, a.certificates));
    shown.collect()
}

fn phase(phase: &str, certificates: u64) -> (String, Option<u64>) {
    (phase.to_owned(), Some(certificates))
}

#[tokio::test]
async fn rotates_authority_once_unused() {
    let (fixture, first) = fixture().await;
    let root = fixture.client("root");
    renewed(&fixture, Role::Agent, "gpu001", 60);
    renewed(&fixture, Role::Agent, "gpu002", 60);
    assert_eq!(phases(&root).await, [phase("issuing", 2)]);
    let (second, pem) = authority();
    root.add_authority(&pem, None).await.unwrap();
    assert_eq!(
        phases(&root).await,
        [phase("issuing", 2), phase("trusted", 0)]
    );
    let pin = second.pin().to_string();
    root.promote_authority(&pin[..8], None).await.unwrap();
    let rotation = async || {
        let request = serde_json::from_str(r#"{"role":"agent","ttl":"1h"}"#).unwrap();
        let made = root.create_token(&request).await.unwrap();
        made.token.parse::<JoinToken>().unwrap().pins().to_vec()
    };
    // Independent of the certificate that a member presents to a joining one.
    assert_eq!(rotation().await, [second.pin(), first.pin()]);
    let old = first.pin().to_string();
    let early = root.retire_authority(&old[..12], false, None).await;
    let early = early.unwrap_err();
    assert_eq!(early.problem().unwrap().code, "authority_in_use");
    let said = early.to_string();
    assert!(
        said.contains("2 members") && said.contains("agent/gpu[001-002]"),
        "{said}"
    );
    // Both members renew: certificates are now issued by the new authority.
    renewed(&fixture, Role::Agent, "gpu001", 0);
    root.revoke_certificates("agent", "gpu002", "gone for good", None)
        .await
        .unwrap();
    assert_eq!(
        phases(&root).await,
        [phase("trusted", 0), phase("issuing", 1)]
    );
    renewed(&fixture, Role::Quorum, "1", 0);
    // No member is known to use a certificate of the old authority; for this control that is unknown.
    let unseen = root.retire_authority(&old[..12], false, None).await;
    let unseen = unseen.unwrap_err().to_string();
    assert!(
        unseen.contains("control/c1") && unseen.contains("by hand"),
        "{unseen}"
    );
    renewed(&fixture, Role::Control, "c1", 0);
    root.retire_authority(&old[..12], false, None)
        .await
        .unwrap();
    assert_eq!(phases(&root).await, [phase("issuing", 3)]);
    let left = root.authorities().await.unwrap();
    assert_eq!((&left[0].pin, &left[0].certificate), (&pin, &pem));
    assert_eq!(rotation().await, [second.pin()]);
}

/// Members stamp certificates with the next whole second. A promotion within that second would count them for the new
/// authority, and take the old one for unused.
#[tokio::test]
async fn what_was_issued_just_before_a_promotion_counts_for_the_old_one() {
    let (fixture, _) = fixture().await;
    let root = fixture.client("root");
    let (second, pem) = authority();
    root.add_authority(&pem, None).await.unwrap();
    let now = SystemClock.now().0 / 1_000;
    renewed_at(&fixture, Role::Agent, "gpu001", now);
    renewed_at(&fixture, Role::Agent, "gpu002", now + 1);
    let pin = second.pin().to_string();
    root.promote_authority(&pin, None).await.unwrap();
    assert_eq!(
        phases(&root).await,
        [phase("trusted", 2), phase("issuing", 0)]
    );
    // A clock far ahead is reported, and nothing changes.
    renewed_at(&fixture, Role::Agent, "gpu003", now + 3_600);
    let (_, pem) = authority();
    root.add_authority(&pem, None).await.unwrap();
    let third = root.authorities().await.unwrap().pop().unwrap().pin;
    let refused = root.promote_authority(&third, None).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, "certificates_ahead");
    let phases = phases(&root).await;
    assert_eq!(phases.last().unwrap().0, "trusted");
}

#[tokio::test]
async fn an_authority_in_use_is_retired_by_force_and_the_one_that_issues_never() {
    let (fixture, first) = fixture().await;
    let root = fixture.client("root");
    renewed(&fixture, Role::Agent, "gpu001", 60);
    let old = first.pin().to_string();
    for force in [false, true] {
        let error = root.retire_authority(&old, force, None).await.unwrap_err();
        assert!(error.to_string().contains("promote another"), "{error}");
    }
    let (second, pem) = authority();
    root.add_authority(&pem, None).await.unwrap();
    let pin = second.pin().to_string();
    root.promote_authority(&pin, None).await.unwrap();
    assert!(root.retire_authority(&old, false, None).await.is_err());
    root.retire_authority(&old, true, None).await.unwrap();
    // Certificates of the retired authority are not counted for this one.
    assert_eq!(phases(&root).await, [phase("issuing", 0)]);
}

#[tokio::test]
async fn what_is_no_authority_is_refused_by_its_field() {
    let (fixture, first) = fixture().await;
    let root = fixture.client("root");
    let ended = Validity::from_now(
        lattice_quorum_types::UnixMillis(1_600_000_000_000),
        Duration::from_secs(3_600),
    );
    let ended = Authority::create("test", ended).unwrap();
    let ended = lattice_api::x509::to_pem(ended.certificate());
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_owned();
    for (pem, wanted) in [
        (String::new(), "no certificate"),
        (fixture.ca_pem.clone(), "not a CA certificate"),
        (key, "private key"),
        (ended, "expired at"),
    ] {
        let error = root.add_authority(&pem, None).await.unwrap_err();
        assert!(matches!(error, ClientError::Invalid(_)), "{error:?}");
        let field = error.problem().unwrap().field.clone();
        assert_eq!(field.as_deref(), Some("certificate"));
        assert!(error.to_string().contains(wanted), "{wanted}: {error}");
    }
    for pin in ["", "1234567", "zzzzzzzzzzzz"] {
        let error = root.promote_authority(pin, None).await.unwrap_err();
        assert!(
            error.exit_code() != 0 && error.problem().is_some(),
            "{error:?}"
        );
    }
    let unknown = root.promote_authority("0123456789ab", None).await;
    assert_eq!(unknown.unwrap_err().exit_code(), 4);
    let (_, pem) = authority();
    for key in ["once", "once"] {
        root.add_authority(&pem, Some(key)).await.unwrap();
    }
    assert_eq!(root.authorities().await.unwrap().len(), 2);
    root.promote_authority(&first.pin().to_string(), None)
        .await
        .unwrap();
}
