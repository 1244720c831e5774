//! Issuer tokens, with a real issuer.

use super::{
    fixture::{ApiFixture, PATIENCE, TOKENS, job},
    grpc::channel,
    issuer::{Idp, Pair, message},
    projects::request,
};
use crate::Auth;
use crate::{
    oidc::Issuer,
    state::{Api, Bounds},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use lattice_api::v1::{
    self, admin_service_client::AdminServiceClient, allocations_client::AllocationsClient,
};
use lattice_mesh::{Clock as _, SystemClock};
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tonic::{Code, Request, Status};

fn now_s() -> u64 {
    SystemClock.now().0 / 1_000
}

/// A fixture with an issuer, and the tenant `ocean` with a project.
async fn fixture(issuer: &Arc<Issuer>) -> ApiFixture {
    let fixture = ApiFixture::trusting(issuer.clone()).await;
    for (path, nodes) in [("ocean", 9), ("ocean/deep", 4)] {
        let made = request(path, Some(nodes));
        fixture
            .client("root")
            .create_project(&made, None)
            .await
            .unwrap();
    }
    fixture
}

async fn knows_keys(issuer: &Issuer) {
    let known = async {
        while issuer.keys_age().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known)
        .await
        .expect("the issuer is asked");
}

async fn ask(
    fixture: &ApiFixture,
    method: Method,
    path: &str,
    token: &str,
    body: Value,
) -> (u16, Value) {
    let url = fixture.url(&format!("/api/v1/{path}"));
    let mut request = fixture.raw().request(method, url).bearer_auth(token);
    if body != Value::Null {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

async fn get(fixture: &ApiFixture, path: &str, token: &str) -> (u16, Value) {
    ask(fixture, Method::GET, path, token, Value::Null).await
}

fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

async fn status_by_grpc(fixture: &ApiFixture, token: &str) -> Result<v1::Status, Status> {
    let mut admin = AdminServiceClient::new(channel(fixture).await);
    let asked = admin.get_status(with_token(token, v1::GetStatusRequest {}));
    asked.await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn issuer_grants_role_on_rest_and_grpc() {
    let pairs = [Pair::rsa("r"), Pair::ec("c"), Pair::ed("d")];
    let idp = Idp::up(&[&pairs[0], &pairs[1], &pairs[2]]);
    let issuer = idp.trusted(&idp.config());
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    for pair in &pairs {
        let token = pair.token(&idp.claims());
        let (status, answer) = get(&fixture, "status", &token).await;
        assert_eq!(status, 200, "{} {answer}", pair.algorithm());
        assert_eq!(
            (&answer["principal"], &answer["roles"]),
            (&json!("ada"), &json!(["user"]))
        );
        let answer = status_by_grpc(&fixture, &token).await.unwrap();
        assert_eq!(answer.nodes, 24);
    }
    // Allocations belong to the user named in the token, and tokens of the file continue to work.
    let token = pairs[1].token(&idp.claims());
    let one = serde_json::to_value(job("atlas/web", 1)).unwrap();
    let (status, made) = ask(&fixture, Method::POST, "allocations", &token, one).await;
    assert_eq!(status, 201, "{made}");
    let id = made["id"].as_u64().unwrap();
    let seen = fixture
        .client("alice")
        .allocation(lattice_quorum_types::AllocationId(id))
        .await
        .unwrap();
    assert_eq!(seen.user, "ada");
    assert_eq!(idp.asked(), 1);
}

#[tokio::test]
async fn what_the_issuer_did_not_sign_for_here_and_now_is_refused() {
    let (rsa, ec, other) = (Pair::rsa("r"), Pair::ec("c"), Pair::ec("c"));
    let idp = Idp::up(&[&rsa, &ec]);
    let issuer = idp.trusted(&idp.config());
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    let now = now_s();
    let with = |changes: Value| ec.token(&idp.claims_with(changes));
    let good = ec.token(&idp.claims());
    let headed = |pair: &Pair, header: Value| pair.token_headed(&header, &idp.claims());
    let by_hmac = |secret: &[u8], kid: &str| {
        let message = message(&json!({"alg": "HS256", "kid": kid}), &idp.claims());
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let public = rsa.public();
    let modulus = URL_SAFE_NO_PAD
        .decode(public["n"].as_str().unwrap())
        .unwrap();
    let none = |alg: &str| format!("{}.", message(&json!({"alg": alg}), &idp.claims()));
    let (signed, _) = good.rsplit_once('.').unwrap();
    let (head, _) = good.split_once('.').unwrap();
    let mine = message(
        &json!({}),
        &idp.claims_with(json!({"preferred_username": "root"})),
    );
    let tampered = format!(
        "{head}.{}.{}",
        mine.split_once('.').unwrap().1,
        good.rsplit_once('.').unwrap().1
    );
    for (what, token, says) in [
        (
            "expired",
            with(json!({"exp": now - 61})),
            "the token expired 61 s ago",
        ),
        ("no end", with(json!({"exp": null})), "`exp`"),
        ("not yet", with(json!({"nbf": now + 120})), "becomes valid"),
        ("of tomorrow", with(json!({"iat": now + 120})), "`iat`"),
        (
            "another issuer's",
            with(json!({"iss": "https://evil.example"})),
            "not issued by",
        ),
        (
            "another audience's",
            with(json!({"aud": "grafana"})),
            "audience",
        ),
        (
            "a key of the same name",
            other.token(&idp.claims()),
            "signature",
        ),
        ("no signature", format!("{signed}."), "signature"),
        ("tampered", tampered, "signature"),
        ("none", none("none"), "algorithm is not one of"),
        ("None", none("None"), "algorithm is not one of"),
        (
            "hmac with the modulus",
            by_hmac(&modulus, "r"),
            "algorithm is not one of",
        ),
        (
            "hmac with the key as it is shown",
            by_hmac(public.to_string().as_bytes(), "r"),
            "algorithm is not one of",
        ),
        (
            "hmac with a key of the set",
            by_hmac(b"secret", "shared"),
            "algorithm is not one of",
        ),
        (
            "another algorithm than the key's",
            headed(&ec, json!({"alg": "RS256", "kid": "c"})),
            "signature",
        ),
        (
            "the key's other name",
            headed(&ec, json!({"alg": "ES256", "kid": "r"})),
            "signature",
        ),
        (
            "a key that it brings itself",
            headed(
                &other,
                json!({"alg": "ES256", "kid": "c", "jwk": other.public()}),
            ),
            "signature",
        ),
        (
            "an unknown extension",
            headed(
                &ec,
                json!({"alg": "ES256", "kid": "c", "crit": ["b64"], "b64": false}),
            ),
            "crit",
        ),
        (
            "a notice of leaving",
            headed(
                &ec,
                json!({"alg": "ES256", "kid": "c", "typ": "logout+jwt"}),
            ),
            "typ",
        ),
        (
            "names no key, of two",
            headed(&ec, json!({"alg": "ES256"})),
            "kid",
        ),
        (
            "names another key",
            headed(&ec, json!({"alg": "ES256", "kid": "x"})),
            "kid",
        ),
        (
            "no header",
            format!("eyJ.{}", good.split_once('.').unwrap().1),
            "header",
        ),
        ("two parts", signed.to_owned(), "token is unknown"),
    ] {
        let (status, answer) = get(&fixture, "status", &token).await;
        let detail = answer["detail"].as_str().unwrap();
        assert_eq!(status, 401, "{what}: {answer}");
        assert!(detail.contains(says), "{what}: {detail}");
        for part in token.split('.').filter(|part| part.len() > 8) {
            assert!(!answer.to_string().contains(part), "{what}: {answer}");
        }
        let refused = status_by_grpc(&fixture, &token).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{what}: {refused}");
    }
    assert_eq!(get(&fixture, "status", &good).await.0, 200);
    // However many keys were invented, the issuer was queried once about them.
    assert_eq!(idp.asked(), 2);
}

#[tokio::test]
async fn unknown_key_is_fetched_at_most_each_minute() {
    let (first, second, third) = (Pair::ec("1"), Pair::ed("2"), Pair::ec("3"));
    let idp = Idp::up(&[&first]);
    let issuer = idp.trusted(&idp.config());
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    let status = async |pair: &Pair| get(&fixture, "status", &pair.token(&idp.claims())).await.0;
    assert_eq!(status(&first).await, 200);
    idp.shows(&[&first, &second]);
    // Many concurrent requests cause one query.
    let many = (0..8).map(|_| status(&second));
    let all = tokio::time::timeout(PATIENCE, futures::future::join_all(many));
    assert_eq!(all.await.unwrap(), [200; 8]);
    assert_eq!(idp.asked(), 2);
    idp.shows(&[&second, &third]);
    assert_eq!(status(&third).await, 401);
    assert_eq!(idp.asked(), 2);
    assert_eq!((status(&first).await, status(&second).await), (200, 200));
}

#[tokio::test]
async fn token_without_key_id_uses_only_key() {
    let (first, second) = (Pair::ec("1"), Pair::ec("2"));
    let idp = Idp::up(&[&first]);
    let issuer = idp.trusted(&idp.config());
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    let unnamed = |pair: &Pair| pair.token_headed(&json!({"alg": "ES256"}), &idp.claims());
    assert_eq!(get(&fixture, "status", &unnamed(&first)).await.0, 200);
    idp.shows(&[&second]);
    assert_eq!(get(&fixture, "status", &unnamed(&second)).await.0, 200);
    assert_eq!(get(&fixture, "status", &unnamed(&first)).await.0, 401);
}

#[tokio::test]
async fn known_keys_work_while_issuer_is_down() {
    let pair = Pair::ed("k");
    let mut idp = Idp::down(&[&pair]);
    let issuer = idp.trusted(&idp.config());
    let fixture = fixture(&issuer).await;
    let token = pair.token(&idp.claims());
    let (status, answer) = get(&fixture, "status", &token).await;
    assert_eq!(
        (status, &answer["code"]),
        (503, &json!("issuer_unavailable")),
        "{answer}"
    );
    let refused = status_by_grpc(&fixture, &token).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    // A token that can never be valid receives no advice to retry.
    let never = format!("{}.", message(&json!({"alg": "none"}), &idp.claims()));
    assert_eq!(get(&fixture, "status", &never).await.0, 401);
    assert_eq!(
        get(&fixture, "status", &fixture.token("alice")).await.0,
        200
    );
    idp.open();
    knows_keys(&issuer).await;
    assert_eq!(get(&fixture, "status", &token).await.0, 200);
    idp.close().await;
    // A token with a new key causes a query, which fails without effect on the others.
    assert_eq!(
        get(&fixture, "status", &Pair::ed("new").token(&idp.claims()))
            .await
            .0,
        401
    );
    assert_eq!(get(&fixture, "status", &token).await.0, 200);
}

#[tokio::test]
async fn an_issuer_that_is_another_than_was_configured_is_not_believed() {
    let pair = Pair::ed("k");
    let idp = Idp::up(&[&pair]);
    idp.names_itself("https://id.example.org");
    let issuer = idp.trusted(&idp.config());
    let fixture = fixture(&issuer).await;
    let token = pair.token(&idp.claims());
    assert_eq!(get(&fixture, "status", &token).await.0, 503);
    assert_eq!((idp.asked(), issuer.keys_age()), (0, None));
    // Nor an issuer with a certificate of an untrusted authority.
    let idp = Idp::up(&[&pair]);
    let mut config = idp.config();
    config.ca_file = Some(Idp::down(&[]).config().ca_file.unwrap());
    let stranger = Idp::down(&[]);
    config.ca_file = stranger.config().ca_file;
    let issuer = idp.trusted(&config);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((idp.asked(), issuer.keys_age()), (0, None));
}

#[tokio::test]
async fn missing_role_names_claim() {
    let pair = Pair::ec("k");
    let idp = Idp::up(&[&pair]);
    let issuer = idp.trusted(&idp.config());
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    for (changes, says) in [
        (
            json!({"realm_access": null}),
            "has no claim `realm_access.roles`",
        ),
        (
            json!({"realm_access": {"roles": ["admin"]}}),
            "claim `realm_access.roles` is mapped to a role",
        ),
        (
            json!({"preferred_username": "service:control"}),
            "the user name in the token",
        ),
        (
            json!({"preferred_username": null, "sub": null}),
            "`preferred_username` or `sub`",
        ),
        (
            json!({"realm_access": {"roles": ["lead"]}}),
            "requires named tenants",
        ),
    ] {
        let token = pair.token(&idp.claims_with(changes.clone()));
        let (status, answer) = get(&fixture, "status", &token).await;
        assert_eq!(status, 403, "{changes}: {answer}");
        assert!(
            answer["detail"].as_str().unwrap().contains(says),
            "{answer}"
        );
        let refused = status_by_grpc(&fixture, &token).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{changes}");
    }
    let token = pair.token(&idp.claims_with(json!({"preferred_username": null})));
    assert_eq!(get(&fixture, "status", &token).await.1["principal"], "f3a1");
}

#[tokio::test]
async fn a_token_for_some_tenants_sees_these_alone() {
    let pair = Pair::ec("k");
    let idp = Idp::up(&[&pair]);
    let mut config = idp.config();
    config.tenants_claim = Some("groups".to_owned());
    let issuer = idp.trusted(&config);
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    let of_atlas = fixture.submit("alice", "atlas/web", 1).await;
    let of_ocean = fixture.submit("alice", "ocean/deep", 1).await;
    let by = |role: &str, groups: Value| {
        let changes = json!({"realm_access": {"roles": [role]}, "groups": groups});
        pair.token(&idp.claims_with(changes))
    };
    let lead = by("lead", json!(["ocean", "staff/all"]));
    let (_, tree) = get(&fixture, "projects", &lead).await;
    let paths: Vec<&str> = tree["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["ocean", "ocean/deep"]);
    let cancel = |id| format!("allocations/{id}");
    let (hidden, _) = ask(
        &fixture,
        Method::DELETE,
        &cancel(of_atlas),
        &lead,
        Value::Null,
    )
    .await;
    let (done, answer) = ask(
        &fixture,
        Method::DELETE,
        &cancel(of_ocean),
        &lead,
        Value::Null,
    )
    .await;
    assert_eq!((hidden, done), (404, 200), "{answer}");
    // The same over gRPC.
    let mut work = AllocationsClient::new(channel(&fixture).await);
    let get_one = |id: u64| with_token(&lead, v1::GetAllocationRequest { id });
    let hidden = work.get(get_one(of_atlas.0)).await.unwrap_err();
    assert_eq!(hidden.code(), Code::NotFound);
    assert!(work.get(get_one(of_ocean.0)).await.is_ok());
    assert_eq!(
        get(&fixture, "projects", &by("work", json!([]))).await.0,
        403
    );
    let (_, all) = get(&fixture, "projects", &by("work", json!("*"))).await;
    assert_eq!(all["items"].as_array().unwrap().len(), 6);
    // An accounting system of one tenant sets what that tenant may use.
    let books = by("books", json!(["ocean"]));
    let limits = json!({"max_nodes": 8});
    let put = async |id: &str| {
        ask(
            &fixture,
            Method::PUT,
            &format!("tenants/{id}"),
            &books,
            limits.clone(),
        )
        .await
        .0
    };
    assert_eq!((put("ocean").await, put("atlas").await), (200, 404));
}

#[tokio::test]
async fn whoever_an_issuer_names_is_held_to_the_same_rate() {
    let pair = Pair::ed("k");
    let idp = Idp::up(&[&pair]);
    let issuer = idp.trusted(&idp.config());
    knows_keys(&issuer).await;
    let fixture = ApiFixture::empty().await;
    let auth = Auth::parse(TOKENS).unwrap().with_issuer(issuer);
    let bounds = Bounds {
        requests_per_second: 1,
        connections: 1,
        max_dag_size: 1,
        default_output: None,
        stop: Default::default(),
    };
    let api = Api::new(
        fixture.core.clone(),
        fixture.stores.clone(),
        Arc::new(auth),
        fixture.authority,
        bounds,
    );
    let bearer = |claims: Value| format!("Bearer {}", pair.token(&idp.claims_with(claims)));
    let asks = async |bearer: &str| api.authenticate(Some(bearer)).await.map_err(|p| p.status);
    assert!(asks(&bearer(json!({}))).await.is_ok());
    // Another token of the same person: the rate limit applies per person.
    let mut refused = None;
    for n in 0..1_000 {
        refused = refused.or(asks(&bearer(json!({"jti": n}))).await.err());
    }
    assert_eq!(refused, Some(429));
    let other = asks(&bearer(json!({"preferred_username": "eve"}))).await;
    assert!(other.is_ok());
}

#[tokio::test]
async fn what_is_read_with_a_token_ends_with_it() {
    let pair = Pair::ed("k");
    let idp = Idp::up(&[&pair]);
    let mut config = idp.config();
    config.leeway_s = 0;
    let issuer = idp.trusted(&config);
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    let token = pair.token(&idp.claims_with(json!({"exp": now_s() + 3})));
    let events = fixture
        .raw()
        .get(fixture.url("/api/v1/events"))
        .bearer_auth(&token);
    let events = events.send().await.unwrap();
    assert_eq!(events.status(), 200);
    let whole = tokio::time::timeout(PATIENCE, events.bytes()).await;
    assert!(whole.expect("it ends with the token").is_ok());
    assert_eq!(get(&fixture, "status", &token).await.0, 401);
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The runtime of a test has one thread, so every log line is captured here.
#[tokio::test]
async fn nothing_of_a_token_is_logged() {
    let log = Log::default();
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("lattice_http=trace,lattice_engine=trace")
        .with_writer(move || to.clone())
        .finish();
    // With a single dispatcher, the thread of another test that logs first would decide on the interest in a call site,
    // and that thread has no dispatcher.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let pair = Pair::ed("k");
    let mut idp = Idp::up(&[&pair]);
    let issuer = idp.trusted(&idp.config());
    knows_keys(&issuer).await;
    let fixture = fixture(&issuer).await;
    idp.close().await;
    let good = pair.token(&idp.claims_with(json!({"secret": "of nobody's concern"})));
    let bad = Pair::ed("new").token(&idp.claims());
    for token in [&good, &bad] {
        get(&fixture, "status", token).await;
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("OIDC token keys read"), "{text}");
    assert!(text.contains("OIDC token keys not read"), "{text}");
    for part in good.split('.').chain(bad.split('.')) {
        assert!(!text.contains(part), "{part} in {text}");
    }
}

#[tokio::test]
async fn check_names_unusable_issuer_and_next_step() {
    let key = Pair::ec("k1");
    let idp = Idp::up(&[&key]);
    let issuer = |config| Issuer::new(&config).unwrap();
    assert!(issuer(idp.config()).check_keys().await.unwrap() >= 1);
    idp.names_itself("https://elsewhere.example/realm");
    let fault = issuer(idp.config()).check_keys().await.unwrap_err();
    assert!(fault.next_step.contains("exactly"), "{fault:?}");
    // The certificate of the issuer is not trusted.
    let other = Idp::down(&[&key]);
    let mut config = idp.config();
    config.ca_file = other.config().ca_file;
    let fault = issuer(config).check_keys().await.unwrap_err();
    assert!(fault.cause.contains(&idp.url()), "{fault:?}");
    assert!(fault.next_step.contains("ca_file"), "{fault:?}");
}
