#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{core::Parts, feed::Subscription, store::Store};
use futures::stream::{self, BoxStream};
use lattice_mesh::{
    Authority, Clock as _, Credentials, Mesh, MeshConfig, Role, SystemClock, Validity,
};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal, UnixMillis,
    VclusterName,
    command::{Principal, Privilege, SCHEMA},
    dag::{DagSpec, MemberSpec},
    event::AllocationChange,
    limit::Limits,
    spec::{AllocationSpec, Workload},
    wire::Unavailable,
};
use std::sync::Mutex;
use tokio::time::timeout;

/// Store with scripted answers and events, taken from the end of the lists.
struct Scripted {
    readings: Mutex<Vec<Answer>>,
    watches: Mutex<Vec<Vec<WatchItem>>>,
    since: Mutex<Vec<Revision>>,
    /// Number of answers to [`Query::Reservations`] that belong to another query.
    mismatches: Mutex<u32>,
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
            Query::Reservations => {
                let mut mismatches = self.mismatches.lock().unwrap();
                if let Some(left) = mismatches.checked_sub(1) {
                    *mismatches = left;
                    return Ok(Answer::Vclusters(Vec::new()));
                }
                return Ok(Answer::Reservations(Vec::new()));
            }
            Query::Budgets => return Ok(Answer::Budgets(Vec::new())),
            Query::OnLimits => return Ok(Answer::OnLimits(Default::default())),
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

/// Creates a tenant, and returns the events for watchers.
fn create(state: &mut State, name: &str) -> Vec<Event> {
    let create = Command::CreateProject {
        path: ProjectPath::new(name).unwrap(),
        limits: Some(Limits::CLOSED),
        admins: Vec::new(),
        description: String::new(),
    };
    apply_to(state, create).events
}

fn apply_to(state: &mut State, command: Command) -> Applied {
    let envelope = Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: UnixMillis(1_000),
        fence: None,
        command,
    };
    let index = state.last_index() + 1;
    state.apply(index, &envelope).unwrap()
}

fn core(store: Arc<Scripted>) -> Arc<Core> {
    const DAY: Duration = Duration::from_secs(86_400);
    let validity = Validity::from_now(SystemClock.now(), DAY);
    let authority = Authority::create("test", validity).unwrap();
    let credentials =
        Credentials::issued_now(&authority, "test", Role::Control, "c1", DAY).unwrap();
    let addr = "127.0.0.1:0".parse().unwrap();
    Core::new(Parts {
        cluster: "test".to_owned(),
        name: "c1".to_owned(),
        clock: Arc::new(SystemClock),
        store,
        mesh: Mesh::bind(addr, credentials, MeshConfig::default()).unwrap(),
        timings: crate::Timings::default(),
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
    // A repeat of events that were applied already changes nothing.
    let watch_items = vec![
        WatchItem::Events(events.clone()),
        WatchItem::Events(events),
        WatchItem::Compacted {
            oldest: state.revision(),
        },
    ];
    let store = Arc::new(Scripted {
        readings: Mutex::new(vec![state.query(&Query::Hot), first]),
        watches: Mutex::new(vec![watch_items]),
        since: Mutex::new(Vec::new()),
        mismatches: Mutex::new(0),
    });
    let core = core(store.clone());
    let mut changes = core.subscribe(None);
    assert_eq!(core.view_age_ms(), None);
    let following = tokio::spawn(follow(core.clone(), Arc::default()));

    timeout(Duration::from_secs(60), core.reached(Revision(3)))
        .await
        .unwrap();
    assert_eq!(projects(&core), ["a", "b", "missed"]);
    assert_eq!(*store.since.lock().unwrap(), [Revision(1), Revision(3)]);
    assert!(core.view_age_ms().is_some());
    // A subscriber from before receives the gap, and the revision at which the stream continues.
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

/// An answer to another query is not taken for an empty list: there is no view until every part was read.
#[tokio::test(start_paused = true)]
async fn no_view_before_every_part_is_read() {
    let mut state = State::new();
    create(&mut state, "a");
    let store = Arc::new(Scripted {
        readings: Mutex::new(vec![state.query(&Query::Hot)]),
        watches: Mutex::new(Vec::new()),
        since: Mutex::new(Vec::new()),
        mismatches: Mutex::new(u32::MAX),
    });
    let core = core(store.clone());
    let following = tokio::spawn(follow(core.clone(), Arc::default()));
    assert!(!core.has_view_after_start().await);
    assert_eq!((core.view_age_ms(), projects(&core)), (None, vec![]));
    *store.mismatches.lock().unwrap() = 2;
    timeout(Duration::from_secs(60), core.first_view())
        .await
        .unwrap();
    assert_eq!(projects(&core), ["a"]);
    assert!(core.has_view_after_start().await);
    following.abort();
}

/// The quorum publishes only changed parts of a DAG and of an array; after applying them both equal the quorum's
/// records.
#[tokio::test]
async fn folds_partial_updates() {
    let mut state = State::new();
    let path = ProjectPath::new("a").unwrap();
    let limits = Limits {
        max_nodes: Some(10),
        ..Limits::CLOSED
    };
    let create = Command::CreateProject {
        path: path.clone(),
        limits: Some(limits),
        admins: Vec::new(),
        description: String::new(),
    };
    apply_to(&mut state, create);
    let register = Command::RegisterNode {
        node: NodeId::new("a").unwrap(),
        vcluster: VclusterName::new("default").unwrap(),
    };
    apply_to(&mut state, register);
    let store = Arc::new(Scripted {
        readings: Mutex::new(vec![state.query(&Query::Hot)]),
        watches: Mutex::new(Vec::new()),
        since: Mutex::new(Vec::new()),
        mismatches: Mutex::new(0),
    });
    let core = core(store);
    let following = tokio::spawn(follow(core.clone(), Arc::default()));
    timeout(Duration::from_secs(60), core.reached(state.revision()))
        .await
        .unwrap();
    let mut changes = core.subscribe(None);

    let work = Workload {
        script: Some("exit 0".to_owned()),
        ..Workload::default()
    };
    let mut spec = AllocationSpec::new(path, VclusterName::new("default").unwrap(), 1, work);
    let member = |name: &str| MemberSpec {
        name: name.to_owned(),
        spec: spec.clone(),
        after: Vec::new(),
    };
    let dag = DagSpec {
        name: String::new(),
        members: vec![member("first"), member("second")],
    };
    let dag = Box::new(dag);
    let begun = apply_to(&mut state, Command::SubmitDag { dag });
    let Outcome::DagSubmitted { id: dag } = begun.outcome else {
        panic!("{begun:?}");
    };
    spec.terms.array = Some("0-3".parse().unwrap());
    let spec = Box::new(spec);
    let submitted = apply_to(&mut state, Command::Submit { spec });
    let Outcome::Submitted { id: array } = submitted.outcome else {
        panic!("{submitted:?}");
    };
    fold(&core, &[begun.events, submitted.events].concat());
    drop((next(&mut changes).await, next(&mut changes).await));

    let element = AllocationId(array.0 + 2);
    let counted = apply_to(&mut state, Command::Cancel { id: element });
    let is_part = |event: &Event| matches!(event.kind, EventKind::ArrayCounted { .. });
    assert!(counted.events.iter().any(is_part), "{counted:?}");
    fold(&core, &counted.events);
    let truth = match state.query(&Query::Allocation { id: array }) {
        Answer::Allocation(Some(found)) => *found,
        other => panic!("{other:?}"),
    };
    assert_eq!(**core.view().allocation(array).unwrap(), truth);
    assert!(truth.progress.tally.as_ref().unwrap().cancelled.contains(1));
    // A subscriber receives the complete record.
    let Change::Events(events) = next(&mut changes).await else {
        panic!("no events");
    };
    let is_whole = |event: &Event| match &event.kind {
        EventKind::Allocation { change, record } => {
            *change == AllocationChange::Counted && record.progress == truth.progress
        }
        _ => false,
    };
    assert!(events.iter().any(is_whole), "{events:?}");

    let member = AllocationId(dag.0 + 1);
    let ended = apply_to(&mut state, Command::Cancel { id: member });
    fold(&core, &ended.events);
    let truth = match state.query(&Query::Dag { id: dag }) {
        Answer::Dag(Some(found)) => *found,
        other => panic!("{other:?}"),
    };
    assert_eq!((truth.unfinished, truth.revision), (1, state.revision()));
    assert_eq!(*core.view().dags[&dag], truth);
    following.abort();
}
