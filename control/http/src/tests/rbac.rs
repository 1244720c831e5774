//! Access control: every route and every call, requested by every kind of caller, against the table in
//! `rbac/matrix.txt`.
//!
//! Only access is judged: `ok` is every response but 401, 403 and, for a hidden object, 404. A request with access may
//! still be rejected.
//!
//! `LATTICE_BLESS=1` rewrites the table; `just rbac` prints it.

mod actions;

use super::{
    fixture::{ApiFixture, PATIENCE},
    grpc::channel,
    issuer::{Idp, Pair},
    parity::routes::{self, CALLS, REST_ALONE},
    projects::request,
};
use crate::oidc::Issuer;
use actions::{Act, Acts};
use futures::{StreamExt as _, stream};
use lattice_api::{
    Problem,
    v1::{self, admin_service_client::AdminServiceClient},
};
use lattice_mesh::{Authority, Clock as _, SystemClock, Validity};
use lattice_quorum_types::{AllocationId, Command};
use reqwest::Method;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt::Write as _, path::Path, sync::Arc, time::Duration};
use tonic::{Status, transport::Channel};

/// Title and principal of each column. `alice` has allocations of her own in both tenants; some roles are for `ocean`
/// alone.
const CALLERS: [(&str, Caller); 12] = [
    ("none", Caller::Nobody),
    ("bad", Caller::Stranger),
    ("expired", Caller::Former),
    ("viewer", Caller::Is("eye")),
    ("user", Caller::Is("alice")),
    ("t-admin@", Caller::Is("dean")),
    ("operator@", Caller::Is("diver")),
    ("operator", Caller::Is("op")),
    ("admin@", Caller::Is("warden")),
    ("admin", Caller::Is("root")),
    ("service@", Caller::Is("tide")),
    ("service", Caller::Is("waldur")),
];

const HEAD: &str = "\
# Who may do what. Each line is one act, which REST and gRPC answer alike, as it was answered; two lines with the
# same route differ in whose it is, which stands behind. `ok`: let in, whatever comes then; `-` for what is not
# shown: 404 to those who may not know of it; the numbers are those of HTTP.
#
# none: no token. bad: one that nobody has. expired: one of an issuer, of an administrator, that has ended.
# t-admin: tenant-admin. @: in the tenant ocean alone; all others in the whole cluster.
#
# Not in it: grpc.health.v1 and grpc.reflection, which answer everybody.
#
# Written by a test; LATTICE_BLESS=1 writes it anew.
";

#[derive(Clone, Copy)]
enum Caller {
    Nobody,
    Stranger,
    Former,
    Is(&'static str),
}

/// Result of the access check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessResult {
    Open,
    Unknown,
    Forbidden,
    Hidden,
}

impl AccessResult {
    fn of(act: &Act, status: u16) -> Self {
        match status {
            401 => AccessResult::Unknown,
            403 => AccessResult::Forbidden,
            404 if !act.is_absent => AccessResult::Hidden,
            _ => AccessResult::Open,
        }
    }

    fn word(self) -> &'static str {
        match self {
            AccessResult::Open => "ok",
            AccessResult::Unknown => "401",
            AccessResult::Forbidden => "403",
            AccessResult::Hidden => "-",
        }
    }
}

/// Shared by all fixtures: an issuer, and data created once.
struct Site {
    issuer: Arc<Issuer>,
    expired: String,
    authority: Vec<u8>,
}

impl Site {
    fn new(idp: &Idp, pair: &Pair) -> Self {
        let year = Validity::from_now(SystemClock.now(), Duration::from_secs(365 * 86_400));
        let authority = Authority::create("test", year).unwrap();
        let ended = SystemClock.now().0 / 1_000 - 3_600;
        let admin = json!({"exp": ended, "realm_access": {"roles": ["own"]}});
        Self {
            issuer: idp.trusted(&idp.config()),
            expired: pair.token(&idp.claims_with(admin)),
            authority: authority.certificate().to_vec(),
        }
    }

    fn token(&self, fixture: &ApiFixture, caller: Caller) -> Option<String> {
        match caller {
            Caller::Nobody => None,
            Caller::Stranger => Some("nobody-nobody-nobody-nobody".to_owned()),
            Caller::Former => Some(self.expired.clone()),
            Caller::Is(name) => Some(fixture.token(name)),
        }
    }

    /// Two tenants, `atlas` and `ocean`, with allocations of `alice` and of `bob`, and one of everything else.
    async fn fixture(&self, act: &Act) -> ApiFixture {
        let fixture = ApiFixture::trusting(self.issuer.clone()).await;
        let (root, op) = (fixture.client("root"), fixture.client("op"));
        for (path, nodes) in [("ocean", 9), ("ocean/deep", 4), ("ocean/deep/cold", 1)] {
            let made = request(path, Some(nodes));
            root.create_project(&made, None).await.unwrap();
        }
        let certificate = self.authority.clone().into();
        fixture
            .member_answer(Command::AddAuthority { certificate })
            .unwrap();
        for (place, (caller, project)) in actions::WORK.into_iter().enumerate() {
            let id = fixture.submit(caller, project, 1).await;
            assert_eq!(id.0, place as u64 + 1);
        }
        for (project, id) in actions::DAGS {
            let dag = json!({"members": [{"name": "a", "project": project, "nodes": 1, "argv": ["true"]}]});
            let dag = serde_json::from_value(dag).unwrap();
            let made = fixture.client("bob").submit_dag(&dag, None).await.unwrap();
            assert_eq!(made.id, id);
        }
        fixture
            .assign(
                AllocationId(actions::HELD_IN_OCEAN.0),
                &[actions::HELD_IN_OCEAN.1],
            )
            .await;
        fixture
            .assign(
                AllocationId(actions::HELD_IN_ATLAS.0),
                &[actions::HELD_IN_ATLAS.1],
            )
            .await;
        let course = json!({"nodes": "gpu024", "from": "now+1day", "duration": "1h", "users": ["alice"],
            "reason": "course"});
        let course = serde_json::from_value(course).unwrap();
        op.set_reservation("course", &course, None).await.unwrap();
        let night = json!({"tenants": ["atlas"]});
        let night = serde_json::from_value(night).unwrap();
        root.set_vcluster("night", &night, None).await.unwrap();
        if act.needs_baseline() {
            baseline(&fixture).await;
        }
        for (project, node) in actions::CLAIMS {
            fixture.settled().await;
            fixture.claim("bob", project, node).await;
        }
        fixture
    }
}

/// Creates a baseline. The request waits for a judgement, which does not happen here.
async fn baseline(fixture: &ApiFixture) {
    let baseline = json!({"nodes": "gpu001",
        "classes": {"kernel": {"keys": {"kernel.osrelease": {"any_of": ["6.8.0"]}}}}});
    let url = fixture.url("/api/v1/conformance/baselines/h100");
    let put = fixture.raw().put(url).bearer_auth(fixture.token("root"));
    let put = put.json(&baseline).send().await.unwrap();
    assert_eq!(put.status(), 200);
}

async fn by_rest(fixture: &ApiFixture, token: Option<&String>, act: &Act) -> u16 {
    let url = fixture.url(&act.path);
    let mut request = fixture.raw().request(act.method.clone(), url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if act.body != Value::Null {
        request = request.json(&act.body);
    }
    request.send().await.unwrap().status().as_u16()
}

async fn by_grpc(channel: Channel, token: Option<String>, act: &Act) -> Option<u16> {
    let call = act.call.as_ref()?;
    let answer: Result<(), Status> = (call.ask)(channel, token).await;
    Some(match answer {
        Ok(()) => 200,
        Err(status) => Problem::from_grpc(&status).map_or(500, |problem| problem.status),
    })
}

/// A fixture that is unchanged since its creation.
struct FreshFixture<'a> {
    site: &'a Site,
    fixture: Option<(ApiFixture, Channel)>,
}

impl FreshFixture<'_> {
    async fn get(&mut self, act: &Act) -> &(ApiFixture, Channel) {
        if self.fixture.is_none() {
            let fixture = self.site.fixture(act).await;
            let channel = channel(&fixture).await;
            self.fixture = Some((fixture, channel));
        }
        self.fixture.as_ref().unwrap()
    }

    /// Status of a request, and whether it changed anything.
    async fn status(&mut self, caller: Caller, act: &Act, is_rest: bool) -> Option<(u16, bool)> {
        let site = self.site;
        let (fixture, channel) = self.get(act).await;
        let before = fixture.store.revision();
        let token = site.token(fixture, caller);
        let status = match is_rest {
            true => Some(by_rest(fixture, token.as_ref(), act).await),
            false => by_grpc(channel.clone(), token, act).await,
        };
        let is_changed = fixture.store.revision() != before;
        if is_changed {
            self.fixture = None;
        }
        Some((status?, is_changed))
    }
}

/// One line of the table, and its errors.
async fn line(site: &Site, act: &Act) -> (String, Vec<String>) {
    let (mut line, mut wrong) = (format!("{:64}", act.title()), Vec::new());
    let mut fresh = FreshFixture {
        site,
        fixture: None,
    };
    for (title, caller) in CALLERS {
        let (rest, is_changed) = fresh.status(caller, act, true).await.unwrap();
        let door = AccessResult::of(act, rest);
        write!(line, "{:>10}", door.word()).unwrap();
        let fault = |what: String| format!("{} by {title}: {what}", act.title());
        if door != AccessResult::Open && is_changed {
            wrong.push(fault(format!("{rest}, and it was done")));
        }
        if matches!(rest, 400 | 405 | 415 | 422 | 500) && !act.is_unfit {
            wrong.push(fault(format!("{rest}: not what the door said")));
        }
        if title == "admin" && door != AccessResult::Open {
            wrong.push(fault(format!("{rest}: nobody may do that")));
        }
        let Some((grpc, is_changed)) = fresh.status(caller, act, false).await else {
            continue;
        };
        if AccessResult::of(act, grpc) != door {
            wrong.push(fault(format!("{rest} by REST, {grpc} by gRPC")));
        }
        if AccessResult::of(act, grpc) != AccessResult::Open && is_changed {
            wrong.push(fault(format!("{grpc} by gRPC, and it was done")));
        }
    }
    (line, wrong)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_match_table_on_rest_and_grpc() {
    let pair = Pair::ed("k");
    let idp = Idp::up(&[&pair]);
    let site = Site::new(&idp, &pair);
    let keys = async {
        while site.issuer.keys_age().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, keys).await.unwrap();
    let acts = Acts::all(&lattice_api::x509::to_pem(&site.authority));
    let lines = stream::iter(&acts.0).map(|act| line(&site, act));
    let lines: Vec<(String, Vec<String>)> = lines.buffered(8).collect().await;
    let mut table = format!("{HEAD}{:64}", "");
    for (title, _) in CALLERS {
        write!(table, "{title:>10}").unwrap();
    }
    let mut wrong = Vec::new();
    for (line, faults) in lines {
        write!(table, "\n{line}").unwrap();
        wrong.extend(faults);
    }
    table.push('\n');
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    blessed(&table);
}

fn blessed(table: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/rbac/matrix.txt");
    if std::env::var_os("LATTICE_BLESS").is_some() {
        std::fs::write(&file, table).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    let (was, is): (BTreeSet<&str>, BTreeSet<&str>) =
        (expected.lines().collect(), table.lines().collect());
    let lines = |lines: Vec<&&str>| lines.into_iter().copied().collect::<Vec<_>>().join("\n");
    assert!(
        expected == table,
        "{} is not what came out; review the difference, then bless it with LATTICE_BLESS=1\n\
         --- blessed\n{}\n--- came out\n{}",
        file.display(),
        lines(was.difference(&is).collect()),
        lines(is.difference(&was).collect())
    );
}

/// An invalid request reveals nothing about its errors before the caller is authenticated.
#[tokio::test]
async fn unreadable_request_is_authorized_first() {
    let fixture = ApiFixture::furnished().await;
    for act in Acts::all("").0.iter().filter(|act| !act.is_public()) {
        let request = fixture
            .raw()
            .request(act.method.clone(), fixture.url(&act.path));
        let request = request.header("content-type", "application/json");
        let request = request.header("idempotency-key", "");
        let answer = request.body("{").send().await.unwrap();
        assert_eq!(answer.status(), 401, "{}", act.title());
    }
    let deep = v1::CreateProjectRequest {
        path: "a/b".to_owned(),
        ..Default::default()
    };
    let mut admin = AdminServiceClient::new(channel(&fixture).await);
    let refused = admin.create_tenant(deep).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
}

/// A route or call missing in the table has unchecked access.
#[test]
fn every_route_and_every_call_is_in_the_table() {
    let acts = Acts::all("");
    let listed_routes: BTreeSet<String> = acts.0.iter().map(Act::route).collect();
    let missing: Vec<String> = routes::routes()
        .difference(&listed_routes)
        .cloned()
        .collect();
    assert!(missing.is_empty(), "routes without a line: {missing:#?}");
    let called = acts.0.iter().filter_map(|act| act.call.as_ref());
    let called: BTreeSet<String> = called.map(|call| call.name.clone()).collect();
    let missing: Vec<String> = routes::calls().difference(&called).cloned().collect();
    assert!(missing.is_empty(), "calls without a line: {missing:#?}");
    for act in &acts.0 {
        let route = act.route();
        let known = CALLS.iter().find(|(of, _)| *of == route).map(|(_, c)| *c);
        let call = act.call.as_ref().map(|call| call.name.as_str());
        assert_eq!(call, known, "{route}: another act than its call's");
        let is_alone = REST_ALONE.iter().any(|(of, _)| *of == route);
        let is_page = matches!(route.as_str(), "GET /" | "GET /openapi.json");
        assert_eq!(call.is_none(), is_alone || is_page, "{route}");
        assert_eq!(act.method == Method::GET, route.starts_with("GET "));
    }
}
