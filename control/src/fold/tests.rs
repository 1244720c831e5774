#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{core::Parts, feed::Subscription, store::Store};
use futures::stream::{self, BoxStream};
use lattice_mesh::{
    Authority, Clock as _, Credentials, Identity, Mesh, MeshConfig, Role, SystemClock, Validity,
};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Applied, Command, Envelope, ProjectPath, Refusal, UnixMillis,
    command::{Power, Principal, SCHEMA},
    limit::Limits,
    wire::Unavailable,
};
use std::sync::Mutex;
use tokio::time::timeout;

/// Tells the state machine's answers and events as the test says, the last first.
struct Scripted {
    readings: Mutex<Vec<Answer>>,
    watches: Mutex<Vec<Vec<WatchItem>>>,
    since: Mutex<Vec<Revision>>,
}

#[async_trait::async_trait]
impl Store for Scripted {
    async fn propose(
        &self,
        _: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
        Err(Unavailable::NoMajority)
    }
    async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        if query == Query::Baselines {
            return Ok(Answer::Baselines(Box::default()));
        }
        match query {
            Query::Vclusters => return Ok(Answer::Vclusters(Vec::new())),
            Query::Dags { .. } => return Ok(Answer::Dags(Vec::new())),
            Query::Reservations => return Ok(Answer::Reservations(Vec::new())),
            _ => {}
        }
        let reading = self.readings.lock().unwrap().pop();
        reading.ok_or(Unavailable::NoMajority)
    }
    fn watch(&self, since: Revision) -> BoxStream<'static, WatchItem> {
        self.since.lock().unwrap().push(since);
        match self.watches.lock().unwrap().pop() {
            Some(items) => stream::iter(items).boxed(),
            None => stream::pending().boxed(),
        }
    }
}

/// Creates a tenant; what watchers learn of it.
fn create(state: &mut State, name: &str) -> Vec<Event> {
    let envelope = Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "root".to_owned(),
            power: Power::Admin,
        },
        key: None,
        at: UnixMillis(1_000),
        fence: None,
        command: Command::CreateProject {
            path: ProjectPath::new(name).unwrap(),
            limits: Some(Limits::CLOSED),
            admins: Vec::new(),
            description: String::new(),
        },
    };
    let index = state.last_index() + 1;
    state.apply(index, &envelope).unwrap().events
}

fn core(store: Arc<Scripted>) -> Arc<Core> {
    let day = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
    let authority = Authority::create("test", day).unwrap();
    let identity = Identity::new("test", Role::Control, "c1").unwrap();
    let credentials = Credentials::issued_by(&authority, &identity, day).unwrap();
    let addr = "127.0.0.1:0".parse().unwrap();
    Core::new(Parts {
        cluster: "test".to_owned(),
        name: "c1".to_owned(),
        clock: Arc::new(SystemClock),
        store,
        mesh: Mesh::bind(addr, credentials, MeshConfig::default()).unwrap(),
        timings: crate::Timings::default(),
        history: crate::history::History::open(None).unwrap(),
    })
}

async fn next(changes: &mut Subscription) -> Change {
    timeout(Duration::from_secs(60), changes.next())
        .await
        .unwrap()
}

fn projects(core: &Core) -> Vec<String> {
    let view = core.view();
    view.projects.keys().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_watch_that_was_compacted_is_taken_up_from_a_new_reading() {
    let mut state = State::new();
    create(&mut state, "a");
    let first = state.query(&Query::Hot);
    let events = create(&mut state, "b");
    create(&mut state, "missed");
    // A repeat of what was folded already changes nothing.
    let told = vec![
        WatchItem::Events(events.clone()),
        WatchItem::Events(events),
        WatchItem::Compacted {
            oldest: state.revision(),
        },
    ];
    let store = Arc::new(Scripted {
        readings: Mutex::new(vec![state.query(&Query::Hot), first]),
        watches: Mutex::new(vec![told]),
        since: Mutex::new(Vec::new()),
    });
    let core = core(store.clone());
    let mut changes = core.subscribe(None);
    assert_eq!(core.view_age_ms(), None);
    let following = tokio::spawn(follow(core.clone()));

    timeout(Duration::from_secs(60), core.reached(Revision(3)))
        .await
        .unwrap();
    assert_eq!(projects(&core), ["a", "b", "missed"]);
    assert_eq!(*store.since.lock().unwrap(), [Revision(1), Revision(3)]);
    assert!(core.view_age_ms().is_some());
    // Whoever followed all along is told that something is missing, and where it goes on.
    let is_gap = |change: Change| {
        matches!(
            change,
            Change::Compacted {
                oldest: Revision(3)
            }
        )
    };
    assert!(is_gap(next(&mut changes).await));
    following.abort();
}
