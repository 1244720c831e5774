//! Crash tests with SIGKILL at every step. A child process runs rounds and is killed in them repeatedly, while
//! allocations run and replies are lost; in some runs its journal is deleted too. In the end Waldur has exactly the
//! usage: nothing counted twice and nothing missing.
//!
//! `LATTICE_CRASHES` sets the number of clusters (`just crash-matrix`).

use crate::common::{self, BEGIN, HOUR, World};
use async_trait::async_trait;
use axum::{Router, body::Bytes, extract::State, routing::post};
use jiff::{Timestamp, tz::TimeZone};
use lattice_fake_waldur::{Fault, Rule, Version, Waldur};
use lattice_ledger::{Ledger, Usage};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    accounting_month::{AccountingMonth, MonthDifferences},
    budget::Credit,
    command::Principal,
    limit::{LimitPatch, Limits},
    usage_record::{UsagePeriod, UsageRecord, UsageRecordsHead},
};
use lattice_rng::Rng;
use lattice_waldur::{
    client::WaldurClient,
    cluster::{AccountedCluster, ClusterError, NodeHardware, UsageTotals},
    config::AccountingSettings,
    journal::Bounds,
    secret::{SecretRef, Secrets},
    step::{Step, StepObserver},
    sync::AccountingSync,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

/// Parameters of the child process that is killed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    quorum: String,
    waldur: String,
    folder: String,
    seed_paths: bool,
    /// Step at which the process stops and waits to be killed, and how many times it passes that step before.
    stops_at: Option<(usize, u32)>,
}

const ORDERS: &str = "LATTICE_ACCOUNTING_ORDERS";

/// Requests of the child process to the cluster, which is not killed.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Facts {
        after: u64,
        limit: u32,
        since: UnixMillis,
    },
    Acknowledge {
        through: u64,
        dropped: u64,
    },
    Credits(BTreeMap<ProjectPath, Credit>),
    Months,
    Cluster,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Facts(Vec<UsageRecord>, UsageRecordsHead),
    Done(Result<(), String>),
    Months(BTreeMap<AccountingMonth, MonthDifferences>),
    Cluster {
        now: UnixMillis,
        projects: BTreeSet<ProjectPath>,
    },
}

async fn answer(State(world): State<Arc<World>>, ask: Bytes) -> Vec<u8> {
    let ask: Ask = postcard::from_bytes(&ask).unwrap();
    let text = |done: Result<(), ClusterError>| done.map_err(|error| error.to_string());
    let answer = match ask {
        Ask::Facts {
            after,
            limit,
            since,
        } => {
            let (facts, head) = world.usage_records(after, limit, since).await.unwrap();
            Answer::Facts(facts, head)
        }
        Ask::Acknowledge { through, dropped } => {
            Answer::Done(text(world.acknowledge(through, dropped).await))
        }
        Ask::Credits(credits) => Answer::Done(text(world.note_credits(credits).await)),
        Ask::Months => Answer::Months(world.found_months()),
        Ask::Cluster => Answer::Cluster {
            now: world.now(),
            projects: world.projects(),
        },
    };
    postcard::to_stdvec(&answer).unwrap()
}

/// The cluster as seen from the child process. Its ledger is built from the usage records, as in a control.
struct Remote {
    http: reqwest::Client,
    url: String,
    ledger: Mutex<Ledger>,
    now: UnixMillis,
    projects: BTreeSet<ProjectPath>,
}

impl Remote {
    async fn open(url: &str) -> Self {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(no_tls())
            .build()
            .unwrap();
        let mut ledger = Ledger::new(UnixMillis(0), Vec::new(), 0, BEGIN);
        ledger.compute_curves();
        let mut remote = Self {
            http,
            url: url.to_owned(),
            ledger: Mutex::new(ledger),
            now: BEGIN,
            projects: BTreeSet::new(),
        };
        let Answer::Cluster { now, projects } = remote.ask(&Ask::Cluster).await else {
            panic!("cluster")
        };
        (remote.now, remote.projects) = (now, projects);
        let since = UnixMillis(0);
        let Answer::Facts(facts, _) = remote
            .ask(&Ask::Facts {
                after: 0,
                limit: 10_000,
                since,
            })
            .await
        else {
            panic!("facts")
        };
        {
            let mut ledger = remote.ledger.lock().unwrap();
            for fact in &facts {
                ledger.add(fact);
            }
            for n in 1..200 {
                let node = NodeId::new(format!("gpu{n:03}")).unwrap();
                ledger.set_gpus(&node, Some(common::GPUS));
            }
            ledger.compute_curves();
            ledger.advance(now);
        }
        remote
    }

    async fn ask(&self, ask: &Ask) -> Answer {
        let body = postcard::to_stdvec(ask).unwrap();
        let answer = self.http.post(&self.url).body(body).send().await.unwrap();
        postcard::from_bytes(&answer.bytes().await.unwrap()).unwrap()
    }

    async fn done(&self, ask: &Ask) -> Result<(), ClusterError> {
        match self.ask(ask).await {
            Answer::Done(done) => done.map_err(|text| ClusterError::Refused { text }),
            other => panic!("{other:?}"),
        }
    }
}

fn no_tls() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

#[async_trait]
impl AccountedCluster for Remote {
    fn cluster(&self) -> &str {
        "alps"
    }
    fn now(&self) -> UnixMillis {
        self.now
    }
    async fn usage_records(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> Result<(Vec<UsageRecord>, UsageRecordsHead), ClusterError> {
        match self
            .ask(&Ask::Facts {
                after,
                limit,
                since,
            })
            .await
        {
            Answer::Facts(facts, head) => Ok((facts, head)),
            other => panic!("{other:?}"),
        }
    }
    async fn acknowledge(&self, through: u64, dropped: u64) -> Result<(), ClusterError> {
        self.done(&Ask::Acknowledge { through, dropped }).await
    }
    async fn months(&self) -> Result<BTreeMap<AccountingMonth, MonthDifferences>, ClusterError> {
        match self.ask(&Ask::Months).await {
            Answer::Months(months) => Ok(months),
            other => panic!("{other:?}"),
        }
    }
    async fn note_open_month(&self, _: AccountingMonth, _: bool) -> Result<(), ClusterError> {
        panic!("no month has ended with usage here")
    }
    async fn accept_month(
        &self,
        _: AccountingMonth,
        _: &Principal,
        _: u32,
    ) -> Result<(), ClusterError> {
        panic!("no month is accepted here")
    }
    fn totals(&self, from: UnixMillis, until: UnixMillis) -> Option<UsageTotals> {
        let ledger = self.ledger.lock().unwrap();
        let until = until.min(ledger.at());
        Some(UsageTotals {
            used: ledger.totals(from, until),
            through: ledger.last(),
            until,
        })
    }
    fn consumed(&self, allocation: AllocationId, uses: &[UsagePeriod]) -> Usage {
        self.ledger.lock().unwrap().consumed(allocation, uses)
    }
    fn node_hardware(&self, _: &NodeId) -> NodeHardware {
        NodeHardware {
            gpus: common::GPUS,
            gpu_model: None,
        }
    }
    fn projects(&self) -> BTreeSet<ProjectPath> {
        self.projects.clone()
    }
    fn limits(&self, _: &ProjectPath) -> Option<Limits> {
        None
    }
    async fn note_credits(
        &self,
        credits: BTreeMap<ProjectPath, Credit>,
    ) -> Result<(), ClusterError> {
        self.done(&Ask::Credits(credits)).await
    }
    async fn set_limits(&self, _: &ProjectPath, _: LimitPatch) -> Result<(), ClusterError> {
        Ok(())
    }
}

/// Stops at the given step, reports it, and waits to be killed.
struct Stops(Option<(Step, Mutex<u32>)>);

impl StepObserver for Stops {
    fn at(&self, step: Step) {
        let Some((wanted, left)) = &self.0 else {
            return;
        };
        if step != *wanted {
            return;
        }
        let mut left = left.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            return;
        }
        println!("at {step:?}");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

/// The child process. Does nothing without orders in the environment.
#[tokio::test]
async fn one_that_is_killed() {
    let Ok(orders) = std::env::var(ORDERS) else {
        return;
    };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    let cluster = Arc::new(Remote::open(&orders.quorum).await);
    let token = std::path::Path::new(&orders.folder).join("token");
    let settings = AccountingSettings {
        api: format!("{}/api/", orders.waldur).parse().unwrap(),
        token: SecretRef::File(token),
        interval: Duration::from_secs(60),
        bounds: Bounds {
            memory: 20,
            disk: 1_000,
        },
        folder: std::path::Path::new(&orders.folder).join("wal"),
        zone: TimeZone::UTC,
        ca_file: None,
        vault: None,
        offerings: BTreeMap::new(),
        plans: BTreeMap::new(),
        reconcile_every: None,
        order_check_every: None,
        lower_totals: false,
        provider_customer: None,
        category: "HPC".to_owned(),
        take_limits: false,
        hook_secret: None,
        order_per_allocation: false,
        seed_paths: orders.seed_paths,
    };
    let http = reqwest::Client::builder()
        .tls_backend_preconfigured(no_tls())
        .build()
        .unwrap();
    let secrets = Secrets {
        http: http.clone(),
        vault: None,
    };
    let waldur = WaldurClient::new(
        "alps",
        http,
        settings.api.clone(),
        secrets,
        settings.token.clone(),
    );
    let stops = orders
        .stops_at
        .map(|(step, times)| (Step::ALL[step], Mutex::new(times)));
    let mut sync = AccountingSync::new(cluster, waldur, settings, Arc::new(Stops(stops)));
    sync.round().await;
    let failure = sync.status().lock().failure.clone();
    println!("ended {}", failure.unwrap_or_default());
}

/// Runs the child until it stops at its step and kills it there, or until it completes a round.
fn run(orders: &Orders) -> Option<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::one_that_is_killed",
            "--nocapture",
            "--test-threads",
            "1",
        ])
        .env(ORDERS, serde_json::to_string(orders).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stopped = None;
    for line in lines {
        let line = line.unwrap();
        if let Some(step) = line
            .strip_prefix("at ")
            .or_else(|| line.split("... at ").nth(1))
        {
            stopped = Some(step.to_owned());
            // SIGKILL.
            child.kill().unwrap();
            break;
        }
    }
    let _ = child.wait();
    stopped
}

#[derive(Default)]
struct Tally {
    kills: BTreeMap<String, u32>,
    journals: u32,
    lost_answers: u32,
    clusters: u32,
}

async fn one_cluster(seed: u64, tally: &mut Tally) {
    let mut rng = Rng::new(seed, "cluster");
    let seed_paths = rng.range(0, 3) == 0;
    let world = Arc::new(World::new());
    world.project("physics", 100);
    world.project("physics/higgs", 50);
    world.project("bio", 100);
    let now = |world: &World| Timestamp::from_millisecond(world.now().0 as i64).unwrap();
    let mut waldur = Waldur::builder().version(Version::V8).now(now(&world));
    if seed_paths {
        waldur = waldur.seed_paths();
    }
    let waldur = waldur.start().await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let quorum = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/", post(answer))
        .with_state(world.clone());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, waldur.token()).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let orders = |stops_at| Orders {
        quorum: quorum.clone(),
        waldur: waldur.url().to_owned(),
        folder: folder.path().to_str().unwrap().to_owned(),
        seed_paths,
        stops_at,
    };
    let mut running = Vec::new();
    for _ in 0..1 + rng.range(0, 4) {
        for _ in 0..1 + rng.range(0, 4) {
            let project = ["physics", "physics/higgs", "bio"][rng.range(0, 3) as usize];
            let vc = ["batch", "notebooks"][rng.range(0, 2) as usize];
            let (nodes, ms) = (1 + rng.range(0, 3) as u32, 1 + rng.range(0, 5 * HOUR));
            match rng.range(0, 4) {
                0 => running.push(world.start(project, vc, nodes)),
                1 if !running.is_empty() => world.end(running.remove(0)),
                _ => world.ran(project, vc, nodes, ms),
            }
        }
        world.wait(1 + rng.range(0, HOUR));
        waldur.set_now(now(&world));
        if rng.range(0, 3) == 0 {
            let path = [
                "/api/marketplace-component-usages/set_usage/",
                "/api/*",
                "/api/marketplace-orders/",
            ];
            let path = path[rng.range(0, 3) as usize];
            let skip = rng.range(0, 6) as u32;
            waldur.add_fault(Rule::new(path, Fault::lost_answer()).skip(skip).times(1));
            tally.lost_answers += 1;
        }
        let step = rng.range(0, Step::ALL.len() as u64) as usize;
        let orders = orders(Some((step, rng.range(0, 3) as u32)));
        let stopped = tokio::task::spawn_blocking(move || run(&orders))
            .await
            .unwrap();
        if let Some(step) = stopped {
            *tally.kills.entry(step).or_default() += 1;
        }
        if rng.range(0, 3) == 0 {
            let _ = std::fs::remove_dir_all(folder.path().join("wal"));
            tally.journals += 1;
        }
    }
    waldur.clear_faults();
    // The first round may still meet the end of a fault; the later ones succeed.
    for _ in 0..3 {
        let orders = orders(None);
        tokio::task::spawn_blocking(move || run(&orders))
            .await
            .unwrap();
        let head = world.head();
        if head.acknowledged == head.last {
            break;
        }
    }
    let head = world.head();
    assert_eq!(head.acknowledged, head.last, "seed {seed}");
    let totals = waldur.totals().into_iter();
    let totals: BTreeMap<_, _> = totals
        .filter(|(_, amount)| *amount != 0)
        .map(|((id, kind, _), amount)| ((id, kind), amount))
        .collect();
    assert_eq!(totals, world.truth(BEGIN, world.now()), "seed {seed}");
    let made = waldur.snapshot();
    let ids = |all: &[serde_json::Value]| -> Vec<String> {
        let ids = all
            .iter()
            .map(|one| one["backend_id"].as_str().unwrap().to_owned());
        ids.collect()
    };
    for all in [
        ids(&made.customers),
        ids(&made.projects),
        ids(&made.offerings),
        ids(&made.resources),
    ] {
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "seed {seed}: {all:?}");
    }
    let mut keys: Vec<_> = waldur
        .seed_items()
        .iter()
        .map(|item| item.idempotency_key.clone())
        .collect();
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count, "seed {seed}: an event is there twice");
    tally.clusters += 1;
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_the_truth_wherever_it_was_killed() {
    if std::env::var(ORDERS).is_ok() {
        return;
    }
    let clusters = std::env::var("LATTICE_CRASHES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(25);
    let mut tally = Tally::default();
    for seed in 0..clusters {
        one_cluster(seed, &mut tally).await;
    }
    let kills: u32 = tally.kills.values().sum();
    println!("clusters               {}", tally.clusters);
    println!("kills                  {kills}");
    for (step, times) in &tally.kills {
        println!("  at {step:<20}{times}");
    }
    println!("journals destroyed     {}", tally.journals);
    println!("answers lost           {}", tally.lost_answers);
    println!("totals that were wrong 0");
    assert!(kills > 0, "nothing was ever killed");
    if clusters >= 200 {
        assert_eq!(
            tally.kills.len(),
            Step::ALL.len(),
            "a step was never met: {:?}",
            tally.kills
        );
    }
}
