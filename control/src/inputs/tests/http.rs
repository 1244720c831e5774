//! Sources that answer, fail, hang and talk nonsense, over real sockets.

use crate::{
    config::scheduling::{BandwidthUnit, Counts, SchedulingConfig},
    core::{Core, Wakes},
    inputs::{
        Source, System,
        fetch::{FetchError, Web, client},
        readiness::Pace,
        sources::{Asked, Origin, Prices, Readiness, Sources, Utilisation},
    },
    tasks::testing::world::World,
    view::View,
};
use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::header::AUTHORIZATION,
    response::{IntoResponse as _, Response},
};
use futures::{StreamExt as _, stream};
use lattice_placement::Fraction;
use lattice_quorum_types::spec::Requeue;
use reqwest::{StatusCode, Url};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(20);
/// After which a source here is given up.
const DEADLINE: Duration = Duration::from_millis(300);

/// What a site's service does with a question.
#[derive(Debug, Clone)]
enum Does {
    Says(String),
    /// By the path and query asked for.
    SaysOf(BTreeMap<String, &'static str>),
    Fails(u16),
    /// Takes the question and never answers.
    Hangs,
    /// Begins to answer and never ends.
    Drips,
    Redirects(String),
    /// Says it to whoever shows this token.
    SaysTo(&'static str, String),
}

#[derive(Clone)]
struct Site {
    does: Arc<Mutex<Does>>,
    asked: Arc<Mutex<Vec<String>>>,
    url: String,
    _serving: Arc<Serving>,
}

struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Site {
    async fn that(does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let does = Arc::new(Mutex::new(does));
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let shared = (does.clone(), asked.clone());
        let router = axum::Router::new().fallback(answer).with_state(shared);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            does,
            asked,
            url,
            _serving: Arc::new(Serving(serving)),
        }
    }

    fn now(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.url)).unwrap()
    }

    fn times_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

type Shared = (Arc<Mutex<Does>>, Arc<Mutex<Vec<String>>>);

async fn answer(State((does, asked)): State<Shared>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    asked.lock().unwrap().push(path.clone());
    let does = does.lock().unwrap().clone();
    match does {
        Does::Says(text) => text.into_response(),
        Does::SaysOf(texts) => match texts.get(&path) {
            Some(text) => (*text).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Does::Fails(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Does::Hangs => std::future::pending().await,
        Does::Drips => {
            let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
            Body::from_stream(first.chain(stream::pending())).into_response()
        }
        Does::Redirects(to) => (StatusCode::FOUND, [("location", to)]).into_response(),
        Does::SaysTo(token, text) => {
            let shown = request.headers().get(AUTHORIZATION);
            match shown.is_some_and(|shown| shown == format!("Bearer {token}").as_str()) {
                true => text.into_response(),
                false => StatusCode::UNAUTHORIZED.into_response(),
            }
        }
    }
}

fn web(token_file: Option<&Path>, most: usize) -> Web {
    Web::new(client(false).unwrap(), token_file, DEADLINE, most).unwrap()
}

/// A control that asks one source.
struct Asking {
    world: World,
    _task: Serving,
}

fn asking(world: World, asked: Asked) -> Asking {
    let core = world.core.clone();
    let _task = Serving(tokio::spawn(asked.follow(core)));
    Asking { world, _task }
}

impl Asking {
    fn core(&self) -> &Arc<Core> {
        &self.world.core
    }

    /// Until the view is so.
    async fn shows(&self, what: &str, is_so: impl Fn(&View) -> bool) {
        let waits = async {
            while !is_so(&self.core().view()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let shown = timeout(PATIENCE, waits).await;
        assert!(shown.is_ok(), "{what}: {:?}", self.core().view().inputs);
    }

    /// Until the source's last failure says this.
    async fn fails(&self, source: &Source, part: &str) {
        let says = |view: &View| {
            let state = view.inputs.sources.get(source);
            let failure = state.and_then(|state| state.failure.as_deref());
            failure.is_some_and(|failure| failure.contains(part))
        };
        self.shows(part, says).await;
    }

    async fn answers(&self, source: &Source) {
        let answers = |view: &View| {
            let state = view.inputs.sources.get(source);
            state.is_some_and(|state| state.failure.is_none() && state.answered_at.is_some())
        };
        self.shows("it answers", answers).await;
    }
}

fn prices(origin: Origin) -> Asked {
    Asked::Prices(Prices {
        origin,
        refresh: OFTEN,
        deadline: DEADLINE,
        tick: OFTEN,
    })
}

fn price(view: &View) -> Option<f64> {
    view.inputs.energy.map(|price| price.price)
}

#[tokio::test]
async fn prices_go_on_while_their_source_fails_hangs_and_talks_nonsense() {
    let world = World::new();
    let now = world.core.now().0 / 1_000;
    let series = |price: i64, next_s: u64, next: i64| {
        let (from, later) = (now - 10, now + next_s);
        Does::Says(format!("timestamp,price\n{from},{price}\n{later},{next}\n"))
    };
    let site = Site::that(series(80, 3_600, -20)).await;
    let origin = Origin::Url(web(None, 1 << 20), site.url("/prices.csv?key=hidden"));
    let control = asking(world, prices(origin));
    control.shows("the first", |v| price(v) == Some(80.0)).await;
    // Another one, of which the next price comes soon, and holds for long enough.
    site.now(Does::Says(format!(
        "{},81\n{},-40\n{},\n",
        now - 10,
        now + 4,
        now + 3_600
    )));
    control.shows("another", |v| price(v) == Some(81.0)).await;
    let source = Source::EnergyPrice;
    for (does, part) in [
        (Does::Fails(503), "status 503"),
        (
            Does::Says("<html>login</html>".to_owned()),
            "line 1: price: is missing",
        ),
        (Does::Says(String::new()), "it has no price"),
        (
            Does::Redirects(site.url.clone()),
            "redirects are not followed",
        ),
        (Does::Drips, "no answer within 0.3 s"),
        (Does::Hangs, "no answer within 0.3 s"),
    ] {
        site.now(does.clone());
        control.fails(&source, part).await;
        let view = control.core().view();
        assert!(
            price(&view).is_some(),
            "{does:?}: the last good series stays in force"
        );
        let failure = view.inputs.sources[&source].failure.clone().unwrap();
        assert!(
            failure.starts_with(&format!("{}/prices.csv: ", site.url)),
            "{failure}"
        );
        assert!(!failure.contains("hidden"), "{failure}");
    }
    // The source hangs for good, and the price in force still changes when its time comes.
    control
        .shows("the next price", |v| price(v) == Some(-40.0))
        .await;
    site.now(series(80, 3_600, 1));
    control.answers(&source).await;
    control
        .shows("the first again", |v| price(v) == Some(80.0))
        .await;
}

#[tokio::test]
async fn a_series_that_ended_is_unknown_and_told_as_such() {
    let world = World::new();
    let now = world.core.now().0 / 1_000;
    let over = format!("{},10\n{},20\n", now - 100, now - 50);
    let site = Site::that(Does::Says(over)).await;
    let origin = Origin::Url(web(None, 1 << 20), site.url("/"));
    let control = asking(world, prices(origin));
    let source = Source::EnergyPrice;
    control.fails(&source, "it ended at ").await;
    assert_eq!(price(&control.core().view()), None);
}

#[tokio::test]
async fn a_file_of_prices_that_is_spoiled_or_gone_leaves_the_last_good_ones_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.csv");
    let world = World::new();
    let now = world.core.now().0 / 1_000;
    let good = |price: i64| format!("{},{price}\n{},\n", now - 10, now + 3_600);
    fs::write(&path, good(-7)).unwrap();
    let control = asking(world, prices(Origin::File(path.clone())));
    control.shows("the first", |v| price(v) == Some(-7.0)).await;
    let source = Source::EnergyPrice;
    fs::write(&path, format!("{now},1\n{now},2\n")).unwrap();
    let told = format!("{}: line 2: timestamp: is not later", path.display());
    control.fails(&source, &told).await;
    fs::remove_file(&path).unwrap();
    control.fails(&source, "No such file").await;
    // Nobody ever writes into it: a reader would wait for ever.
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    control.fails(&source, "it is no regular file").await;
    assert_eq!(price(&control.core().view()), Some(-7.0));
    fs::remove_file(&path).unwrap();
    fs::write(&path, good(9)).unwrap();
    control.shows("the next", |v| price(v) == Some(9.0)).await;
    control.answers(&source).await;
}

fn others(view: &View) -> Option<u64> {
    view.inputs
        .storage
        .get("scratch")
        .and_then(|s| s.others_mb_s)
}

#[tokio::test]
async fn what_others_use_is_forgotten_when_its_source_is_silent_for_long() {
    let site = Site::that(Does::Says(r#"{"now": {"used": 120}}"#.to_owned())).await;
    let world = World::new();
    world.core.publish(Wakes::Readers, |view| {
        let system = System {
            budget_mb_s: 200_000,
            has_source: true,
            ..System::default()
        };
        view.inputs.storage = Arc::new([("scratch".to_owned(), system)].into());
        Some(Vec::new())
    });
    let source = Source::Storage("scratch".to_owned());
    let utilisation = Utilisation {
        system: "scratch".to_owned(),
        web: web(None, 1 << 10),
        url: site.url("/"),
        pointer: "/now/used".to_owned(),
        unit: BandwidthUnit::GbS,
        counts: Counts::All,
        refresh: OFTEN,
        max_age: Duration::from_secs(2),
    };
    let control = asking(world, Asked::Utilisation(utilisation));
    control
        .shows("the first", |v| others(v) == Some(120_000))
        .await;
    site.now(Does::Fails(500));
    control.fails(&source, "status 500").await;
    assert_eq!(
        others(&control.core().view()),
        Some(120_000),
        "one failure is no news"
    );
    control
        .shows("it is forgotten", |v| others(v).is_none())
        .await;
    let counted = |view: &View| view.inputs.storage["scratch"].counted_mb_s();
    assert_eq!(counted(&control.core().view()), 120_000);
    for (does, part) in [
        (Does::Says("{}".to_owned()), "nothing at /now/used"),
        (
            Does::Says(r#"{"now": {"used": null}}"#.to_owned()),
            "it does not know",
        ),
        (Does::Says(format!("{:2000}", 1)), "longer than 1024 bytes"),
        (Does::Hangs, "no answer within"),
    ] {
        site.now(does);
        control.fails(&source, part).await;
        assert_eq!(others(&control.core().view()), None);
    }
    site.now(Does::Says(r#"{"now": {"used": "0.5"}}"#.to_owned()));
    control
        .shows("it is back", |v| others(v) == Some(500))
        .await;
    control.answers(&source).await;
}

#[tokio::test]
async fn each_that_waits_is_asked_about_by_its_own_names() {
    let world = World::new();
    let (first, second) = (world.waits(Requeue::Never), world.waits(Requeue::Never));
    world.fold();
    let of = |id| format!("/ready?allocation={id}&project=atlas&user=root");
    let texts = BTreeMap::from([
        (of(first), r#"{"fraction": 0.8}"#),
        (of(second), r#"{"fraction": 8}"#),
    ]);
    let site = Site::that(Does::SaysOf(texts.clone())).await;
    let readiness = |at_a_time| Readiness {
        web: web(None, 1 << 10),
        template: format!(
            "{}/ready?allocation={{id}}&project={{project}}&user={{user}}",
            site.url
        ),
        pace: Pace {
            refresh: OFTEN,
            max_age: Duration::from_secs(2),
            at_a_time,
            pause: OFTEN,
        },
        tick: OFTEN,
    };
    let control = asking(world, Asked::Readiness(readiness(4)));
    let ready = |view: &View| BTreeMap::clone(&view.inputs.data_ready);
    let one = BTreeMap::from([(first, Fraction::millionths(800_000))]);
    control.shows("the first", |v| ready(v) == one).await;
    let source = Source::DataReadiness;
    control
        .fails(&source, "/fraction is 8, not a number from 0 to 1")
        .await;
    // It hangs: what was said counts on, and then no more.
    site.now(Does::Hangs);
    control.fails(&source, "no answer within 0.3 s").await;
    assert_eq!(ready(&control.core().view()), one);
    control
        .shows("it is forgotten", |v| ready(v).is_empty())
        .await;
    site.now(Does::SaysOf(texts));
    control.shows("it is back", |v| ready(v) == one).await;
    // Who has what it waited for is asked about no more.
    control.world.assign(first, "b1");
    control.shows("it is over", |v| ready(v).is_empty()).await;
    let asked = || {
        let asked = site.asked.lock().unwrap();
        asked.iter().filter(|path| **path == of(first)).count()
    };
    let (before, all) = (asked(), site.times_asked());
    while site.times_asked() < all + 5 {
        tokio::time::sleep(OFTEN).await;
    }
    assert_eq!(asked(), before);
}

#[tokio::test]
async fn a_token_is_shown_and_read_again_when_it_is_no_longer_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let put = |token: &str| {
        fs::write(&path, token).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    put("first\n");
    let site = Site::that(Does::SaysTo("first", "1".to_owned())).await;
    let (asker, url) = (web(Some(&path), 10), site.url("/"));
    assert_eq!(asker.get(&url).await, Ok(b"1".to_vec()));
    site.now(Does::SaysTo("second", "2".to_owned()));
    assert_eq!(
        asker.get(&url).await,
        Err(FetchError::Status { status: 401 })
    );
    put("second");
    assert_eq!(asker.get(&url).await, Ok(b"2".to_vec()));
    assert_eq!(
        web(None, 10).get(&url).await,
        Err(FetchError::Status { status: 401 })
    );
    // What others can read, or what no header may have, is no token.
    let refused = |path: &Path| {
        let web = Web::new(client(false).unwrap(), Some(path), DEADLINE, 10);
        web.unwrap_err().to_string()
    };
    put("two\nlines");
    assert!(refused(&path).contains("no header may have"));
    put("");
    assert!(refused(&path).contains("is empty"));
    put("third");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let told = refused(&path);
    assert!(
        told.starts_with("token_file: others can read") && told.contains("chmod 600"),
        "{told}"
    );
    assert!(!format!("{asker:?}").contains("second"), "{asker:?}");
}

#[tokio::test]
async fn nobody_there_is_told_without_the_address_s_query() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let url = Url::parse(&format!("http://{addr}/ready?user=alice")).unwrap();
    let told = web(None, 10).get(&url).await.unwrap_err();
    assert!(told.is_outage(), "{told:?}");
    let told = told.to_string();
    assert!(
        told.starts_with("no answer: ") && !told.contains("alice"),
        "{told}"
    );
}

#[test]
fn a_check_of_the_configuration_reads_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let (prices, token) = (folder.path().join("p.csv"), folder.path().join("token"));
    let text = format!(
        "{{energy_price: {{file: {}}}, data_readiness: {{url: 'https://x/{{id}}', token_file: {}}}}}",
        prices.display(),
        token.display()
    );
    let config: SchedulingConfig = serde_yaml_ng::from_str(&text).unwrap();
    let told = || {
        let sources = Sources::new(&config).map_err(|error| error.to_string())?;
        sources.check_files().map_err(|error| error.to_string())
    };
    let says = |begins: &str, part: &str| {
        let error = told().unwrap_err();
        assert!(error.starts_with(begins) && error.contains(part), "{error}");
    };
    says("scheduling.data_readiness: token_file: ", "No such file");
    fs::write(&token, "secret").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let place = format!("scheduling.energy_price: {}: ", prices.display());
    says(&place, "No such file");
    fs::write(&prices, "1795435200,1\n1795435200,2\n").unwrap();
    says(&place, "line 2: timestamp: is not later");
    fs::write(&prices, "1795435200,-1\n1795438800,2\n").unwrap();
    assert_eq!(told(), Ok(()));
}
