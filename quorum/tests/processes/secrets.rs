//! Issuing keys and join tokens never enter the replicated, stored or printed data of members. Three processes perform
//! every operation with keys and tokens; then the test searches every byte that they left.

use crate::common::{self, admin, client_of, node, now, process::Site, register, until};
use lattice_mesh::{
    Authority, Clock, Credentials, ExpectedIdentity, JoinToken, Mesh, MeshConfig,
    QuorumRenewalSource, RenewalSettings, Role, Router, SystemClock, Validity, enrol, keep_renewed,
};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Command, UnixMillis,
    command::TokenGrant,
    view::{Answer, Query},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use secrecy::ExposeSecret;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// A secret in one of its possible encodings.
struct Needle {
    what: String,
    bytes: Vec<u8>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The private key in `ca.key`: as in the file, as DER, and as the number itself.
fn needles_of(folder: &Path) -> Vec<Needle> {
    let file = folder.join("ca.key");
    let named = |what: &str, bytes: Vec<u8>| Needle {
        what: format!("{what} of {}", folder.display()),
        bytes,
    };
    let key = PrivatePkcs8KeyDer::from_pem_file(&file).unwrap();
    let der = key.secret_pkcs8_der().to_vec();
    // RFC 5915: version 1, then the private key as an octet string of 32 bytes.
    let mark = [2, 1, 1, 4, 32];
    let at = der.windows(5).position(|w| w == mark).unwrap() + 5;
    let number = der[at..at + 32].to_vec();
    let mut needles = vec![
        named("hex", hex(&number).into_bytes()),
        named("decimals", format!("{number:?}").into_bytes()),
        named("number", number),
        named("DER", der),
    ];
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("-----")).collect();
    // Only the position of the number: the public key after it is no secret. Four characters encode three bytes.
    let (from, to) = (at.div_ceil(3) * 4, (at + 32) / 3 * 4);
    for (start, line) in (0..).step_by(64).zip(lines) {
        let part = from.saturating_sub(start)..to.saturating_sub(start).min(line.len());
        if let Some(part) = line.get(part).filter(|part| !part.is_empty()) {
            needles.push(named("PEM", part.into()));
        }
    }
    needles
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns the needles found, with their files.
fn search(needles: &[Needle], files: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let hay = std::fs::read(file).unwrap();
        for needle in needles {
            if hay.windows(needle.bytes.len()).any(|w| w == needle.bytes) {
                found.push(format!("{} in {}", needle.what, file.display()));
            }
        }
    }
    found
}

fn token(authority: &Authority) -> (JoinToken, Command) {
    let token = JoinToken::generate(Role::Agent, authority.pin());
    let grant = TokenGrant {
        hash: token.hash(),
        role: Role::Agent,
        names: None,
        cidrs: Vec::new(),
        uses: 5,
        replace: true,
        expires_at: UnixMillis(now().0 + 600_000),
    };
    (token, Command::CreateToken { grant })
}

async fn propose(client: &QuorumClient, command: Command) {
    let proposed = client.propose(admin(None, command)).await;
    proposed.unwrap().unwrap();
}

/// Renews until the certificate has another issue time.
async fn renew(addrs: Vec<SocketAddr>, credentials: Credentials) {
    let mesh = Mesh::bind(common::any_port(), credentials, MeshConfig::default()).unwrap();
    mesh.serve(Router::new()).unwrap();
    let weak = mesh.downgrade();
    let ask = QuorumRenewalSource::new(move || {
        let peer = |addr| {
            Some(
                weak.upgrade()?
                    .peer(addr, ExpectedIdentity::role(Role::Quorum)),
            )
        };
        addrs.iter().copied().filter_map(peer).collect()
    });
    let renewal = keep_renewed(&mesh, ask, RenewalSettings::new(None, 1));
    let renewed = || async { renewal.state().renewals > 0 };
    until("a renewal", renewed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_tokens_are_in_nothing_that_members_keep_or_print() {
    let mut site = Site::prepare("");
    let ca = site.folder.path().join("ca");
    site.configure(&format!(
        "snapshot_every: 100\nlog: debug\nenrolment: {{authority: {:?}, lifetime: 30s, burst: 100}}\n",
        ca.display().to_string()
    ));
    site.start_all();
    let client = client_of(&site.authority, "c1", site.addrs.clone());
    let (first, create) = token(&site.authority);
    propose(&client, create).await;
    let enrolled = enrol(site.addrs[0], &first, "n1").await.unwrap();
    // A lifetime of 30 s: renewed after 20 s.
    let renewing = tokio::spawn(renew(site.addrs.clone(), enrolled.credentials));

    let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
    let next = Authority::create("test", validity).unwrap();
    next.save(&ca.join("next")).unwrap();
    (1..=3).for_each(|id| site.signal(id, "HUP"));
    let pin = next.pin().to_string();
    until("the members hold both keys", || async {
        (1..=3).all(|id| {
            let printed = site.printed(id);
            printed.contains("issuing keys reloaded") && printed.contains(&pin)
        })
    })
    .await;
    let certificate = next.certificate().to_vec().into();
    for command in [
        Command::AddAuthority { certificate },
        Command::PromoteAuthority { pin: pin.clone() },
    ] {
        propose(&client, command).await;
    }
    // The members' own certificates are still from the first authority, so tokens name that one.
    let (second, create) = token(&site.authority);
    propose(&client, create).await;
    for (i, addr) in site.addrs.iter().enumerate() {
        enrol(*addr, &second, &format!("m{i}")).await.unwrap();
    }
    // A refused secret is not logged either.
    let (unknown, _) = token(&next);
    enrol(site.addrs[0], &unknown, "m9").await.unwrap_err();
    let revoke = Command::RevokeCertificates {
        name: "m0".to_owned(),
        role: Role::Agent,
        reason: "test".to_owned(),
    };
    propose(&client, revoke).await;
    renewing.await.unwrap();
    // One at a time, each an entry of its own, so that there are snapshots.
    for i in 0..250 {
        propose(&client, register(&format!("r{i:03}"))).await;
    }
    let has_snapshot = |id| {
        let folder = site.data_dir(id).join("snapshots");
        std::fs::read_dir(folder).unwrap().count() > 0
    };
    until("snapshots", || async { (1..=3).all(has_snapshot) }).await;
    let Answer::Hot(hot) = client.read(Query::Hot).await.unwrap() else {
        panic!("hot")
    };
    assert!(hot.nodes.iter().any(|n| n.id == node("r249")));
    for id in 1..=3 {
        assert!(site.terminate(id).success());
    }

    let mut needles = needles_of(&ca);
    needles.extend(needles_of(&ca.join("next")));
    for (what, token) in [
        ("first", &first),
        ("second", &second),
        ("unknown", &unknown),
    ] {
        let text = token.expose().expose_secret().to_owned();
        let secret = text.rsplit('.').next().unwrap().as_bytes().to_vec();
        needles.push(Needle {
            what: format!("{what} token"),
            bytes: secret,
        });
    }
    let mut kept = Vec::new();
    for id in 1..=3 {
        files_below(&site.data_dir(id), &mut kept);
        files_below(
            &site.folder.path().join(format!("credentials-{id}")),
            &mut kept,
        );
        kept.push(site.folder.path().join(format!("member-{id}.log")));
    }
    let bytes: u64 = kept.iter().map(|f| f.metadata().unwrap().len()).sum();
    println!(
        "{} secrets searched in {} files, {bytes} bytes",
        needles.len(),
        kept.len()
    );
    assert_eq!(search(&needles, &kept), Vec::<String>::new());
    // The search does find existing data: the keys in their own folder, the new certificate in the snapshots.
    let own = [ca.join("ca.key"), ca.join("next/ca.key")];
    assert!(search(&needles, &own).len() >= 2);
    let known = Needle {
        what: "certificate".to_owned(),
        bytes: next.certificate().to_vec(),
    };
    let snapshots: Vec<_> = kept
        .into_iter()
        .filter(|file| file.extension().is_some_and(|e| e == "snap"))
        .collect();
    assert_eq!(search(&[known], &snapshots).len(), snapshots.len());
}
