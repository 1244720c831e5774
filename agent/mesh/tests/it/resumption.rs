//! Session resumption is impossible: a certificate that was removed, foreign or revoked does not regain access by
//! tickets or early data.
//! `cargo test -p lattice-mesh --test it resumption:: -- --nocapture` prints the table.

use crate::common::{
    resuming::{ConnectionOutcome, ReplaceableCertificate, Resuming, lenient_server},
    trust::*,
    *,
};
use lattice_mesh::{Authority, Credentials, ExpectedIdentity, Mesh, Role, SignedBundle};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;

/// Change applied to a peer that was connected before.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Nothing,
    AuthorityRetired,
    OtherAuthority,
    OtherTrustDomain,
    Revoked,
}

const CHANGES: [(&str, Change); 5] = [
    ("good", Change::Nothing),
    ("old: its CA was removed", Change::AuthorityRetired),
    ("foreign: of another CA", Change::OtherAuthority),
    ("foreign: of another trust domain", Change::OtherTrustDomain),
    ("revoked", Change::Revoked),
];

struct Site {
    authority: Authority,
    next: Authority,
}

impl Site {
    fn new() -> Self {
        let (authority, next) = (authority("demo"), authority("demo"));
        Self { authority, next }
    }

    /// An endpoint that trusts both authorities from the start, as in the overlap of a rotation.
    fn member(&self, role: Role, name: &str) -> Mesh {
        let mesh = bind(&self.authority, role, name);
        let mut both = bundle(1, &self.authority, &[]);
        both.authorities = authorities(&[(&self.authority, true), (&self.next, true)]);
        mesh.apply_bundle(&both.sign([&self.authority]).unwrap())
            .unwrap();
        mesh
    }

    /// Bundle after the change, for an endpoint with a certificate of the next authority.
    fn after(&self, change: Change, peer: &lattice_mesh::Identity) -> Option<SignedBundle> {
        match change {
            Change::AuthorityRetired => Some(signed(2, &self.next, &[])),
            Change::Revoked => {
                let mut revoking = bundle(2, &self.authority, &[(peer, ahead(1))]);
                revoking.authorities = authorities(&[(&self.authority, true), (&self.next, true)]);
                Some(revoking.sign([&self.authority]).unwrap())
            }
            _ => None,
        }
    }

    /// Certificate that the peer presents after the change.
    fn shown(&self, change: Change, own: &Credentials) -> Credentials {
        let (role, name) = (own.identity().role(), own.identity().id());
        match change {
            Change::OtherAuthority => credentials(&authority("demo"), "demo", role, name),
            Change::OtherTrustDomain => credentials(&self.authority, "other", role, name),
            _ => own.clone(),
        }
    }
}

const ALERTS: [(&str, &str); 3] = [
    ("error 44", "certificate_revoked"),
    ("error 46", "certificate_unknown"),
    ("error 48", "unknown_ca"),
];

fn in_words(tried: &ConnectionOutcome) -> String {
    let how = match (&tried.refused, tried.resumed) {
        (Some(reason), _) => {
            let alert = ALERTS.iter().find(|(code, _)| reason.contains(code));
            format!(
                "REFUSED {}",
                alert.map_or(reason.as_str(), |(_, name)| name)
            )
        }
        (None, true) => "RESUMED".to_owned(),
        (None, false) => "in, judged anew".to_owned(),
    };
    match tried.early_data {
        Some(true) => format!("{how}, data TAKEN"),
        Some(false) => format!("{how}, data dropped"),
        None => how,
    }
}

fn row(peer: &str, cells: [&str; 4]) {
    let [had, ticket, early, anew] = cells;
    println!("| {peer:<32} | {had:<44} | {ticket:<27} | {early:<41} | {anew:<27} |");
}

/// A server with the same name and protocol as ours, so that the client offers its tickets to our server.
fn lenient(own: &Credentials, roots: &Authority) -> quinn::Endpoint {
    let clients =
        WebPkiClientVerifier::builder_with_provider(raw::roots_of(roots), raw::provider());
    lenient_server(ReplaceableCertificate::new(own), clients.build().unwrap())
}

/// Obtains a ticket from a server that issues tickets.
async fn plant(client: &Resuming, lenient: SocketAddr) {
    let had = client.tickets();
    let tried = client.connect(lenient, false).await;
    assert_eq!(tried.refused, None);
    until("a ticket", || async { client.tickets() > had }).await;
    tried.connection.unwrap().close(0u32.into(), b"");
}

/// Verifies the client itself: where a server permits it, the client resumes a session and the server accepts its early
/// data.
async fn shows_that_the_client_resumes(site: &Site) {
    let own = credentials(&site.authority, "demo", Role::Agent, "a1");
    let client = Resuming::new(&own);
    let server = lenient(
        &credentials(&site.authority, "demo", Role::Quorum, "q1"),
        &site.authority,
    );
    let addr = server.local_addr().unwrap();
    plant(&client, addr).await;
    let resumed = client.connect(addr, false).await;
    assert!(resumed.offered && resumed.resumed, "{resumed:?}");
    until("another ticket", || async { client.tickets() >= 2 }).await;
    let early = client.connect(addr, true).await;
    assert_eq!(early.early_data, Some(true), "{early:?}");
    row(
        "(good, at a server that resumes)",
        ["", &in_words(&resumed), &in_words(&early), ""],
    );
}

#[tokio::test]
async fn a_client_that_was_connected_before_does_not_come_back_by_its_session() {
    let site = Site::new();
    println!(
        "\nclients that keep their sessions and were connected before, at a member's endpoint:"
    );
    row(
        "client",
        [
            "its open connection",
            "by a session ticket",
            "by 0-RTT",
            "anew",
        ],
    );
    shows_that_the_client_resumes(&site).await;
    for (peer, change) in CHANGES {
        let server = site.member(Role::Quorum, "q1");
        server.serve(router()).unwrap();
        let addr = server.local_addr();
        // The client's authority can then be retired.
        server
            .rotate(credentials(&site.next, "demo", Role::Quorum, "q1"))
            .unwrap();
        let own = credentials(&site.authority, "demo", Role::Agent, "a1");
        let client = Resuming::new(&own);
        let before = client.connect(addr, true).await;
        let tickets = client.tickets();
        assert_eq!((before.refused.as_deref(), tickets), (None, 0), "{peer}");
        let open = before.connection.unwrap();

        let lenient = lenient(&own, &site.authority);
        let planted = lenient.local_addr().unwrap();
        for _ in 0..2 {
            plant(&client, planted).await;
        }
        let had = if let Some(bundle) = site.after(change, own.identity()) {
            server.apply_bundle(&bundle).unwrap();
            let closed = tokio::time::timeout(SHORT, open.closed()).await;
            let closed = closed.unwrap().to_string();
            closed.replace("closed by peer:", "CLOSED:")
        } else {
            raw::hello(&open).await.unwrap();
            "open: its certificate is good".to_owned()
        };
        client.shown.change_to(&site.shown(change, &own));
        let resumption = client.connect(addr, false).await;
        let early = client.connect(addr, true).await;
        let fresh = client.connect(addr, false).await;
        assert!(
            resumption.offered && early.offered,
            "{peer}: {resumption:?} {early:?}"
        );
        // Without a session to offer, the client performs a full handshake.
        for (what, tried) in [
            ("again, by a session ticket", &resumption),
            ("again, by 0-RTT", &early),
            ("again, anew", &fresh),
        ] {
            assert!(!tried.resumed, "{peer}, {what}: {tried:?}");
            assert_ne!(tried.early_data, Some(true), "{peer}, {what}: {tried:?}");
            let expected = match change {
                Change::Nothing => None,
                Change::Revoked => Some("error 44"),
                Change::AuthorityRetired | Change::OtherAuthority => Some("error 48"),
                Change::OtherTrustDomain => Some("error 46"),
            };
            match (expected, &tried.refused) {
                (None, None) => {}
                (Some(alert), Some(reason)) => assert!(reason.contains(alert), "{peer}: {reason}"),
                _ => panic!("{peer}, {what}: {tried:?}"),
            }
        }
        let cells = [&resumption, &early, &fresh].map(in_words);
        row(peer, [&had, &cells[0], &cells[1], &cells[2]]);
        assert_eq!(early.early_data, Some(false), "{peer}: it was sent");
        // The server must not have admitted any connection that the client missed.
        let let_in = usize::from(change == Change::Nothing) * 3;
        let left = usize::from(!matches!(
            change,
            Change::AuthorityRetired | Change::Revoked
        ));
        until("nobody else is connected", || async {
            server.connections().len() == let_in + left
        })
        .await;
    }
}

#[tokio::test]
async fn connected_member_rechecks_server() {
    let site = Site::new();
    println!(
        "\nservers that give tickets and were connected to before, as a member dials them again:"
    );
    for (peer, change) in CHANGES {
        let own = credentials(&site.authority, "demo", Role::Quorum, "q1");
        let shown = ReplaceableCertificate::new(&own);
        let roots = raw::roots_of(&site.next);
        let clients = WebPkiClientVerifier::builder_with_provider(roots, raw::provider());
        let server = lenient_server(shown.clone(), clients.build().unwrap());
        let addr = server.local_addr().unwrap();
        let member = site.member(Role::Agent, "a1");
        member
            .rotate(credentials(&site.next, "demo", Role::Agent, "a1"))
            .unwrap();
        let dialled = member.peer(addr, ExpectedIdentity::role(Role::Quorum));
        dialled.connected().await.unwrap();
        if let Some(bundle) = site.after(change, own.identity()) {
            member.apply_bundle(&bundle).unwrap();
        } else {
            member.disconnect(own.identity());
        }
        until("the connection is gone", || async {
            member.connections().is_empty()
        })
        .await;
        shown.change_to(&site.shown(change, &own));
        let again = dialled.connected().await;
        let outcome = match &again {
            Ok(_) => "in, judged anew".to_owned(),
            Err(refused) => {
                let text = refused.to_string();
                format!(
                    "REFUSED ({})",
                    text.split(" failed: ").last().unwrap_or(&text)
                )
            }
        };
        println!("| {peer:<32} | {outcome}");
        assert_eq!(
            again.is_ok(),
            change == Change::Nothing,
            "{peer}: {again:?}"
        );
    }
}
