//! Services of a site over real sockets, and a control that sends requests to one of them.

use crate::{
    core::{Core, Parts},
    inputs::{Source, sources::SourceRequest},
    store::Store,
    web_client::{Trust, WebClient, client},
};
use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::header::AUTHORIZATION,
    response::{IntoResponse as _, Response},
};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use lattice_mesh::{Authority, Clock, Credentials, Mesh, MeshConfig, Role, SystemClock, Validity};
use lattice_quorum_types::{
    Applied, Envelope, Refusal, Revision, UnixMillis,
    view::{Answer, LiveState, Query, WatchItem},
    wire::Unavailable,
};
use lattice_view::View;
use reqwest::{StatusCode, Url};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::{Barrier, Semaphore},
    task::JoinHandle,
    time::timeout,
};

/// Longer than any step here takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any test.
pub(super) const LONG: Duration = Duration::from_secs(3_600);
pub(super) const OFTEN: Duration = Duration::from_millis(20);
/// Timeout for a source that hangs in these tests.
pub(super) const DEADLINE: Duration = Duration::from_millis(300);

/// Behaviour of a site's service for a request.
#[derive(Debug, Clone)]
pub(super) enum ServiceBehaviour {
    Says(String),
    /// Replies by path and query.
    SaysOf(BTreeMap<String, &'static str>),
    Fails(u16),
    /// Accepts the request and never replies.
    Hangs,
    /// Begins a reply and never ends it.
    Drips,
    Redirects(String),
    /// Replies to requests with this token.
    SaysTo(&'static str, String),
    /// The same; requests with another token are rejected together, once as many wait as the barrier needs.
    SaysTogetherTo(&'static str, String, Arc<Barrier>),
}

#[derive(Clone)]
pub(super) struct Site {
    does: Arc<Mutex<ServiceBehaviour>>,
    asked: Arc<Mutex<Vec<String>>>,
    pub(super) url: String,
    _serving: Arc<Serving>,
}

struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Site {
    pub(super) async fn that(does: ServiceBehaviour) -> Self {
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

    pub(super) fn now(&self, does: ServiceBehaviour) {
        *self.does.lock().unwrap() = does;
    }

    pub(super) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.url)).unwrap()
    }

    pub(super) fn times_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    pub(super) fn times_asked_for(&self, path: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| *asked == path).count()
    }

    /// Waits for `more` further requests.
    pub(super) async fn is_asked(&self, more: usize) {
        let all = self.times_asked() + more;
        while self.times_asked() < all {
            tokio::time::sleep(OFTEN).await;
        }
    }
}

type Shared = (Arc<Mutex<ServiceBehaviour>>, Arc<Mutex<Vec<String>>>);

async fn answer(State((does, asked)): State<Shared>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    asked.lock().unwrap().push(path.clone());
    let does = does.lock().unwrap().clone();
    let shown = request.headers().get(AUTHORIZATION);
    let shows = |token| shown.is_some_and(|shown| shown == format!("Bearer {token}").as_str());
    match does {
        ServiceBehaviour::Says(text) => text.into_response(),
        ServiceBehaviour::SaysOf(texts) => match texts.get(&path) {
            Some(text) => (*text).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        ServiceBehaviour::Fails(status) => StatusCode::from_u16(status).unwrap().into_response(),
        ServiceBehaviour::Hangs => std::future::pending().await,
        ServiceBehaviour::Drips => {
            let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
            Body::from_stream(first.chain(stream::pending())).into_response()
        }
        ServiceBehaviour::Redirects(to) => (StatusCode::FOUND, [("location", to)]).into_response(),
        ServiceBehaviour::SaysTo(token, text)
        | ServiceBehaviour::SaysTogetherTo(token, text, _)
            if shows(token) =>
        {
            text.into_response()
        }
        ServiceBehaviour::SaysTo(..) => StatusCode::UNAUTHORIZED.into_response(),
        ServiceBehaviour::SaysTogetherTo(_, _, others) => {
            others.wait().await;
            StatusCode::UNAUTHORIZED.into_response()
        }
    }
}

/// A client with a short timeout.
pub(super) fn web(token_file: Option<&Path>, most: usize) -> WebClient {
    web_within(DEADLINE, token_file, most)
}

pub(super) fn web_within(deadline: Duration, token_file: Option<&Path>, most: usize) -> WebClient {
    WebClient::new(client(Trust::NoTls).unwrap(), token_file, deadline, most).unwrap()
}

/// A clock that advances only on request.
#[derive(Clone)]
pub(super) struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// 2026-11-23T12:00:00Z.
    pub(super) fn at_noon() -> Self {
        Self(Arc::new(AtomicU64::new(1_795_435_200_000)))
    }

    pub(super) fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1_000, Ordering::Relaxed);
    }

    pub(super) fn seconds(&self) -> u64 {
        self.now().0 / 1_000
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::Relaxed))
    }
}

/// A quorum with this state. The last of the initial reads waits for a permit of `leave`.
pub(super) struct ScriptedQuorum {
    pub(super) hot: LiveState,
    pub(super) leave: Semaphore,
}

#[async_trait::async_trait]
impl Store for ScriptedQuorum {
    async fn propose(
        &self,
        _: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
        Err(Unavailable::NoMajority)
    }
    async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        match query {
            Query::Hot => Ok(Answer::Hot(Box::new(self.hot.clone()))),
            Query::Baselines => Ok(Answer::Baselines(Box::default())),
            Query::Vclusters => {
                let _leave = self.leave.acquire().await.unwrap();
                Ok(Answer::Vclusters(Vec::new()))
            }
            Query::Dags { .. } => Ok(Answer::Dags(Vec::new())),
            Query::Reservations => Ok(Answer::Reservations(Vec::new())),
            Query::Budgets => Ok(Answer::Budgets(Vec::new())),
            Query::OnLimits => Ok(Answer::OnLimits(Default::default())),
            _ => Err(Unavailable::NoMajority),
        }
    }
    fn watch(&self, _: Revision) -> BoxStream<'static, WatchItem> {
        stream::pending().boxed()
    }
}

/// A control that has read nothing yet.
pub(super) fn core(store: Arc<ScriptedQuorum>, clock: Arc<dyn Clock>) -> Arc<Core> {
    const DAY: Duration = Duration::from_secs(86_400);
    let validity = Validity::from_now(SystemClock.now(), DAY);
    let authority = Authority::create("test", validity).unwrap();
    let credentials =
        Credentials::issued_now(&authority, "test", Role::Control, "c1", DAY).unwrap();
    let addr = "127.0.0.1:0".parse().unwrap();
    Core::new(Parts {
        cluster: "test".to_owned(),
        name: "c1".to_owned(),
        clock,
        store,
        mesh: Mesh::bind(addr, credentials, MeshConfig::default()).unwrap(),
        timings: crate::Timings::default(),
    })
}

/// An empty quorum that answers.
pub(super) fn empty() -> Arc<ScriptedQuorum> {
    Arc::new(ScriptedQuorum {
        hot: LiveState {
            revision: Revision(1),
            ..LiveState::default()
        },
        leave: Semaphore::new(1),
    })
}

/// A control that reads one source.
pub(super) struct ReadingControl {
    core: Arc<Core>,
    _task: Serving,
}

pub(super) fn asking(core: Arc<Core>, asked: SourceRequest) -> ReadingControl {
    let _task = Serving(tokio::spawn(asked.follow(core.clone())));
    ReadingControl { core, _task }
}

impl ReadingControl {
    pub(super) fn view(&self) -> Arc<View> {
        self.core.view()
    }

    /// Age of the view in milliseconds; `None` without a view.
    pub(super) fn age(&self) -> Option<u64> {
        self.core.view_age_ms()
    }

    /// Waits until the view satisfies the condition.
    pub(super) async fn shows(&self, what: &str, is_so: impl Fn(&View) -> bool) {
        let waits = async {
            while !is_so(&self.view()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let shown = timeout(PATIENCE, waits).await;
        assert!(shown.is_ok(), "{what}: {:?}", self.view().inputs);
    }

    /// Waits until the source's last failure contains this text.
    pub(super) async fn fails(&self, source: &Source, part: &str) {
        let says = |view: &View| {
            let state = view.inputs.sources.get(source);
            let failure = state.and_then(|state| state.failure.as_deref());
            failure.is_some_and(|failure| failure.contains(part))
        };
        self.shows(part, says).await;
    }

    pub(super) async fn answers(&self, source: &Source) {
        let answers = |view: &View| {
            let state = view.inputs.sources.get(source);
            state.is_some_and(|state| state.failure.is_none() && state.answered_at.is_some())
        };
        self.shows("it answers", answers).await;
    }
}
