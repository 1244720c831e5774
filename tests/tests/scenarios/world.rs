//! What the scenarios of one file have in common: a cluster, jobs by the names that scenarios give them, and what was
//! seen of them, as the event stream told it.

use futures::StreamExt as _;
use lattice_api::{
    reservation::ReservationRequest,
    vcluster::{VclusterNodesRequest, VclusterRequest},
};
use lattice_client::{
    AllocationView, Client, ClientError, LogOptions,
    api::event::{Change, StreamEvent},
};
use lattice_quorum_types::{
    AllocationId, Command, Envelope, VclusterName,
    command::{Power, Principal, SCHEMA},
    vcluster::VclusterPatch,
};
use lattice_replay::verify;
use lattice_tests::{
    Programs,
    script::Script,
    service,
    site::{Plan, Site},
    wait::eventually,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex},
};

/// Held by who founds a cluster.
static FOUNDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// States that nothing comes after.
pub const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

/// What a scenario calls by a name.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: AllocationId,
    /// The files of one that waits until it may end.
    pub script: Script,
}

/// Everything that the event stream told of allocations, in its order.
type Seen = Arc<Mutex<Vec<AllocationView>>>;

/// See the module.
pub struct World {
    /// The graph that the scenario speaks of.
    pub graph: crate::graphs::Graph,
    /// The service that it speaks of.
    pub service: crate::scaling::Service,
    /// Where a file has one, for all its scenarios.
    pub prometheus: Option<lattice_tests::prometheus::Prometheus>,
    programs: Programs,
    site: Option<Site>,
    nodes: Vec<String>,
    scratch: tempfile::TempDir,
    jobs: BTreeMap<String, Job>,
    seen: Seen,
    /// Names of the settings that the scenario gave, by vCluster.
    settings: BTreeMap<String, BTreeSet<String>>,
    /// vClusters that it made.
    vclusters: BTreeSet<String>,
    scripts: usize,
    /// Nodes that it drained, and reservations that it made.
    drained: BTreeSet<String>,
    reserved: BTreeSet<String>,
    /// What takes back what it said of a vCluster beside its settings.
    takes_back: BTreeMap<String, VclusterRequest>,
}

impl World {
    /// Without a cluster yet.
    pub fn new(programs: Programs) -> Self {
        let scratch = tempfile::Builder::new()
            .prefix("lattice-scenarios-")
            .tempdir()
            .unwrap();
        lattice_tests::open_to_others(scratch.path());
        Self {
            graph: Default::default(),
            service: Default::default(),
            prometheus: None,
            programs,
            site: None,
            nodes: Vec::new(),
            scratch,
            jobs: BTreeMap::new(),
            seen: Seen::default(),
            settings: BTreeMap::new(),
            vclusters: BTreeSet::new(),
            scripts: 0,
            drained: BTreeSet::new(),
            reserved: BTreeSet::new(),
            takes_back: BTreeMap::new(),
        }
    }

    /// The cluster with these nodes, founded by the first scenario of a file and used by the others.
    pub async fn has_cluster(&mut self, plan: Plan) {
        if self.site.is_some() {
            assert_eq!(self.nodes, plan.agents, "one cluster for a file");
            return;
        }
        self.nodes = plan.agents.clone();
        // One at a time: free ports are looked for, and then taken.
        let turn = FOUNDING.lock().await;
        let site = Site::found(self.programs, &plan).await;
        drop(turn);
        let mut events = site.api().events(None).await.unwrap();
        let seen = self.seen.clone();
        tokio::spawn(async move {
            while let Ok(event) = events.next_event().await {
                let StreamEvent::Changes(changes) = event else {
                    continue;
                };
                let records = changes
                    .changes
                    .into_iter()
                    .filter_map(|change| match change {
                        Change::Allocation { record, .. } => Some(*record),
                        _ => None,
                    });
                seen.lock().unwrap().extend(records);
            }
        });
        self.site = Some(site);
        // Nodes can be given back to what was defined.
        self.defines("default").await;
    }

    /// The cluster.
    pub fn site(&self) -> &Site {
        self.site.as_ref().expect("a cluster is given first")
    }

    /// The same, to start and stop daemons of it.
    pub fn site_mut(&mut self) -> &mut Site {
        self.site.as_mut().expect("a cluster is given first")
    }

    /// Its API, as the administrator.
    pub fn api(&self) -> &Client {
        self.site().api()
    }

    /// A folder for whatever a scenario writes; any user may.
    pub fn scratch(&self) -> PathBuf {
        self.scratch.path().to_owned()
    }

    /// Files for a job that waits until it may end.
    pub fn script(&mut self) -> Script {
        self.scripts += 1;
        Script::in_folder(self.scratch.path().join(format!("job-{}", self.scripts)))
    }

    /// From now on a scenario may speak of it.
    pub fn knows(&mut self, name: &str, job: Job) {
        let before = self.jobs.insert(name.to_owned(), job);
        assert!(before.is_none(), "two jobs are called {name:?}");
    }

    /// A job of the scenario.
    pub fn job(&self, name: &str) -> &Job {
        let job = self.jobs.get(name);
        job.unwrap_or_else(|| panic!("no job is called {name:?}"))
    }

    /// All jobs of the scenario, by name.
    pub fn jobs(&self) -> &BTreeMap<String, Job> {
        &self.jobs
    }

    /// As the API shows it now.
    pub async fn view(&self, name: &str) -> AllocationView {
        let id = self.job(name).id;
        eventually("the control answers", || async {
            self.api().allocation(id).await.ok()
        })
        .await
    }

    /// Waits until the API shows what is found in it.
    pub async fn shows<T>(
        &self,
        name: &str,
        what: &str,
        found: impl Fn(&AllocationView) -> Option<T>,
    ) -> T {
        let id = self.job(name).id;
        eventually(&format!("{name} {what}"), || async {
            found(&self.api().allocation(id).await.ok()?)
        })
        .await
    }

    /// All that was told of a job, in order. It comes a moment after the API shows it.
    pub fn told(&self, name: &str) -> Vec<AllocationView> {
        let id = self.job(name).id;
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|view| view.id == id).cloned().collect()
    }

    /// The same of all jobs.
    pub fn told_of_all(&self) -> Vec<AllocationView> {
        self.seen.lock().unwrap().clone()
    }

    /// All that was told of any allocation, in order.
    pub fn all_told(&self) -> Vec<AllocationView> {
        self.seen.lock().unwrap().clone()
    }

    /// The states that a job went through, each once in a row.
    pub fn states(&self, name: &str) -> Vec<String> {
        let mut states: Vec<String> = self.told(name).into_iter().map(|view| view.state).collect();
        states.dedup();
        states
    }

    /// What its rank 0 has printed, in all attempts whose output its node has.
    pub async fn output(&self, name: &str) -> String {
        let id = self.job(name).id;
        let read = async || -> Result<String, ClientError> {
            let logs = self.api().logs(id, LogOptions::default()).await?;
            let mut chunks = std::pin::pin!(logs);
            let mut all = Vec::new();
            while let Some(chunk) = futures::StreamExt::next(&mut chunks).await {
                let Ok(chunk) = chunk else { break };
                all.extend_from_slice(&chunk);
            }
            Ok(String::from_utf8_lossy(&all).into_owned())
        };
        read().await.unwrap_or_default()
    }

    /// Scheduler settings of a vCluster, by their audit names; an empty value clears one.
    pub async fn set(&mut self, vcluster: &str, settings: Vec<(String, String)>) {
        let names = settings.iter().map(|(name, _)| name.clone());
        let given = self.settings.entry(vcluster.to_owned()).or_default();
        given.extend(names);
        self.command(Command::SetScheduler {
            vcluster: VclusterName::new(vcluster).unwrap(),
            change: Box::new(VclusterPatch::default()),
            settings: Box::new(crate::settings::patch(&settings)),
            expected_version: None,
        })
        .await;
    }

    /// What an administrator says to the quorum itself: what the interfaces do not have, or not so finely.
    pub async fn command(&self, command: Command) {
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "ada".to_owned(),
                power: Power::Admin,
            },
            key: Some(format!("{:032x}", rand::random::<u128>())),
            at: service::now(),
            fence: None,
            command,
        };
        self.site().observer().propose(envelope).await.unwrap();
    }

    async fn defines(&self, vcluster: &str) {
        let request = VclusterRequest {
            description: Some("of scenarios".to_owned()),
            ..VclusterRequest::default()
        };
        self.api()
            .set_vcluster(vcluster, &request, None)
            .await
            .unwrap();
    }

    /// A vCluster with these nodes, which are in `default` until then.
    pub async fn makes_vcluster(&mut self, name: &str, nodes: &str) {
        self.vclusters.insert(name.to_owned());
        self.defines(name).await;
        if !nodes.is_empty() {
            self.assigns(name, nodes, "default").await;
        }
    }

    /// Drained for the rest of the scenario.
    pub async fn drains(&mut self, node: &str) {
        self.api().drain(node, "of a scenario").await.unwrap();
        self.drained.insert(node.to_owned());
    }

    /// Reserved for the rest of the scenario.
    pub async fn reserves(&mut self, name: &str, request: ReservationRequest) {
        self.api()
            .set_reservation(name, &request, None)
            .await
            .unwrap();
        self.reserved.insert(name.to_owned());
    }

    /// Says something of a vCluster for the rest of the scenario.
    pub async fn writes(&mut self, vcluster: &str, now: &VclusterRequest, later: VclusterRequest) {
        self.api().set_vcluster(vcluster, now, None).await.unwrap();
        self.takes_back.insert(vcluster.to_owned(), later);
    }

    /// What the control counts, as Prometheus reads it.
    pub async fn metrics(&self) -> Option<String> {
        self.site().metrics().await
    }

    /// Fetches the control's record of decisions and decides it again: every plan must be the same. Nothing is
    /// compared where no scenario of the file has founded a cluster.
    pub async fn decides_again(&self, feature: &str) {
        let Some(site) = &self.site else { return };
        let mut pieces = site.api().decisions(None).await.unwrap();
        let mut record = Vec::new();
        while let Some(piece) = pieces.next().await {
            record.extend_from_slice(&piece.unwrap());
        }
        let path = self.scratch.path().join("decisions.jsonl");
        std::fs::write(&path, record).unwrap();
        let verdict = verify::verify(|| verify::open(&path)).unwrap();
        println!(
            "{feature}: {} of {} recorded plans are the same, {} of {} starts",
            verdict.cycles_equal, verdict.cycles, verdict.same_nodes, verdict.allocations
        );
        assert!(verdict.cycles > 0, "no plan was recorded");
        assert_eq!(verdict.first_divergence, None, "{verdict:#?}");
        assert_eq!(verdict.cycles_equal, verdict.cycles);
    }

    async fn assigns(&self, to: &str, nodes: &str, from: &str) {
        let request = VclusterNodesRequest {
            nodes: nodes.split_whitespace().collect::<Vec<_>>().join(","),
            from: Some(from.to_owned()),
        };
        self.api()
            .assign_vcluster(to, &request, None)
            .await
            .unwrap();
    }

    /// Everything as before the scenario: nothing runs or waits, every node is in `default` and free, no setting is
    /// left, the jobs' names are free.
    pub async fn clean(&mut self) {
        if self.site.is_none() {
            return;
        }
        let all = self
            .api()
            .allocations(&lattice_client::AllocationFilter::default())
            .await
            .unwrap();
        for one in all
            .iter()
            .filter(|one| !ENDED.contains(&one.state.as_str()))
        {
            // It may have ended meanwhile.
            let _ = self.api().cancel(one.id).await;
        }
        for name in std::mem::take(&mut self.reserved) {
            self.api().delete_reservation(&name, None).await.unwrap();
        }
        for node in std::mem::take(&mut self.drained) {
            self.api().undrain_without_gate(&node).await.unwrap();
        }
        for (vcluster, request) in std::mem::take(&mut self.takes_back) {
            self.api()
                .set_vcluster(&vcluster, &request, None)
                .await
                .unwrap();
        }
        for job in self.jobs.values() {
            job.script.may_exit();
            job.script.may_stop();
        }
        eventually("nothing is left to run", || async {
            let all = self
                .api()
                .allocations(&lattice_client::AllocationFilter::default())
                .await
                .ok()?;
            let mut states = all.iter().map(|one| one.state.as_str());
            states.all(|state| ENDED.contains(&state)).then_some(())
        })
        .await;
        eventually("every node is at home", || async {
            let nodes = self.api().nodes().await.ok()?;
            nodes
                .iter()
                .all(|node| node.lent_by.is_none())
                .then_some(())
        })
        .await;
        for name in std::mem::take(&mut self.vclusters) {
            let nodes = self.api().vcluster(&name).await.unwrap().nodes;
            if !nodes.is_empty() {
                self.assigns("default", &nodes, &name).await;
            }
            self.settings.remove(&name);
            self.api().delete_vcluster(&name, None, None).await.unwrap();
        }
        for (vcluster, names) in std::mem::take(&mut self.settings) {
            let back = names.into_iter().map(|name| (name, String::new()));
            self.set(&vcluster, back.collect()).await;
        }
        self.settings.clear();
        self.jobs.clear();
        self.graph = Default::default();
        self.service = Default::default();
        self.seen.lock().unwrap().clear();
        self.site().are_ready(&self.nodes).await;
    }

    /// For whom a scenario fails: what the jobs went through.
    pub fn what_was_seen(&self) -> String {
        let mut text = String::from("  what was seen:\n");
        for (name, job) in &self.jobs {
            let states = self.states(name).join(" ");
            let _ = writeln!(text, "    {name} (allocation {}): {states}", job.id);
            if let Some(last) = self.told(name).last() {
                let Some(stop) = last.stop.as_ref().or(last.reason.as_ref()) else {
                    continue;
                };
                let _ = writeln!(text, "      {stop}");
            }
        }
        text
    }

    /// For whom a scenario fails: the last lines of every daemon, where the environment asks for them.
    pub fn tells_of_daemons(&self) {
        let Some(site) = self.site.as_ref() else {
            return;
        };
        let Some(folder) = std::env::var_os("LATTICE_SCENARIOS_LOGS") else {
            return;
        };
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let daemons = site.quorum.iter().chain(&site.controls);
        for daemon in daemons.chain(site.agents.values()) {
            let text = daemon.said();
            std::fs::write(folder.join(format!("{}.log", daemon.name())), text).unwrap();
        }
    }
}
