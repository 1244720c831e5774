//! Shared state of a file's scenarios: a cluster, jobs by their names in scenarios, and the received events.

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
    command::{Principal, Privilege, SCHEMA},
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

/// Held while a cluster is set up.
static FOUNDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Final states.
pub const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

/// Allocation with a name in the scenario.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: AllocationId,
    /// Files of a job that waits until it may end.
    pub script: Script,
}

/// Events of all allocations, in the order of the stream.
type SeenStates = Arc<Mutex<Vec<AllocationView>>>;

/// Shared state of a file's scenarios.
pub struct World {
    /// DAG of the scenario.
    pub graph: crate::graphs::Graph,
    /// Service of the scenario.
    pub service: crate::scaling::Service,
    /// Prometheus for all scenarios of the file; `None` where the file has none.
    pub prometheus: Option<lattice_tests::prometheus::Prometheus>,
    programs: Programs,
    site: Option<Site>,
    nodes: Vec<String>,
    scratch: tempfile::TempDir,
    jobs: BTreeMap<String, Job>,
    seen: SeenStates,
    /// Names of the settings that the scenario changed, by vCluster.
    settings: BTreeMap<String, BTreeSet<String>>,
    /// vClusters that the scenario created.
    vclusters: BTreeSet<String>,
    scripts: usize,
    /// Nodes that the scenario drained, and reservations that it created.
    drained: BTreeSet<String>,
    reserved: BTreeSet<String>,
    /// Changes that restore a vCluster's other properties.
    takes_back: BTreeMap<String, VclusterRequest>,
}

impl World {
    /// Creates the state without a cluster.
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
            seen: SeenStates::default(),
            settings: BTreeMap::new(),
            vclusters: BTreeSet::new(),
            scripts: 0,
            drained: BTreeSet::new(),
            reserved: BTreeSet::new(),
            takes_back: BTreeMap::new(),
        }
    }

    /// Sets up the cluster with these nodes for the first scenario of a file; the others use the same cluster.
    pub async fn has_cluster(&mut self, plan: Plan) {
        if self.site.is_some() {
            assert_eq!(self.nodes, plan.agents, "one cluster for a file");
            return;
        }
        self.nodes = plan.agents.clone();
        // One at a time, because free ports are searched and taken later.
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
        // Nodes can be moved only to a defined vCluster.
        self.defines("default").await;
    }

    /// The cluster.
    pub fn site(&self) -> &Site {
        self.site.as_ref().expect("a cluster is given first")
    }

    /// The cluster, to start and stop daemons.
    pub fn site_mut(&mut self) -> &mut Site {
        self.site.as_mut().expect("a cluster is given first")
    }

    /// API of the cluster, as the administrator.
    pub fn api(&self) -> &Client {
        self.site().api()
    }

    /// Folder for files of a scenario; writable for any user.
    pub fn scratch(&self) -> PathBuf {
        self.scratch.path().to_owned()
    }

    /// Files for a job that waits until it may end.
    pub fn script(&mut self) -> Script {
        self.scripts += 1;
        Script::in_folder(self.scratch.path().join(format!("job-{}", self.scripts)))
    }

    /// Registers a job for later steps.
    pub fn knows(&mut self, name: &str, job: Job) {
        let before = self.jobs.insert(name.to_owned(), job);
        assert!(before.is_none(), "two jobs are called {name:?}");
    }

    /// Job of the scenario by name.
    pub fn job(&self, name: &str) -> &Job {
        let job = self.jobs.get(name);
        job.unwrap_or_else(|| panic!("no job is called {name:?}"))
    }

    /// All jobs of the scenario, by name.
    pub fn jobs(&self) -> &BTreeMap<String, Job> {
        &self.jobs
    }

    /// Current view of a job in the API.
    pub async fn view(&self, name: &str) -> AllocationView {
        let id = self.job(name).id;
        eventually("the control answers", || async {
            self.api().allocation(id).await.ok()
        })
        .await
    }

    /// Waits until the API's view of a job satisfies the condition.
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

    /// Events of a job, in order. They arrive shortly after the API reports the state.
    pub fn records_of(&self, name: &str) -> Vec<AllocationView> {
        let id = self.job(name).id;
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|view| view.id == id).cloned().collect()
    }

    /// Events of all allocations, in order.
    pub fn all_records(&self) -> Vec<AllocationView> {
        self.seen.lock().unwrap().clone()
    }

    /// States of a job, without repetitions.
    pub fn states(&self, name: &str) -> Vec<String> {
        let mut states: Vec<String> = self
            .records_of(name)
            .into_iter()
            .map(|view| view.state)
            .collect();
        states.dedup();
        states
    }

    /// Output of a job's rank 0, in all attempts with output on the node.
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

    /// Changes scheduler settings of a vCluster by audit name; an empty value clears a setting.
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

    /// Sends an administrator's command to the quorum, for changes that the interfaces do not have or not in this
    /// detail.
    pub async fn command(&self, command: Command) {
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "ada".to_owned(),
                privilege: Privilege::Admin,
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

    /// Creates a vCluster with these nodes, which are in `default` before.
    pub async fn makes_vcluster(&mut self, name: &str, nodes: &str) {
        self.vclusters.insert(name.to_owned());
        self.defines(name).await;
        if !nodes.is_empty() {
            self.assigns(name, nodes, "default").await;
        }
    }

    /// Drains a node for the rest of the scenario.
    pub async fn drains(&mut self, node: &str) {
        self.api().drain(node, "of a scenario").await.unwrap();
        self.drained.insert(node.to_owned());
    }

    /// Creates a reservation for the rest of the scenario.
    pub async fn reserves(&mut self, name: &str, request: ReservationRequest) {
        self.api()
            .set_reservation(name, &request, None)
            .await
            .unwrap();
        self.reserved.insert(name.to_owned());
    }

    /// Changes a vCluster for the rest of the scenario.
    pub async fn writes(&mut self, vcluster: &str, now: &VclusterRequest, later: VclusterRequest) {
        self.api().set_vcluster(vcluster, now, None).await.unwrap();
        self.takes_back.insert(vcluster.to_owned(), later);
    }

    /// Control's metrics, in the Prometheus format.
    pub async fn metrics(&self) -> Option<String> {
        self.site().metrics().await
    }

    /// Fetches the control's record of decisions and replays it: every plan must be equal. Does nothing where no
    /// scenario of the file has set up a cluster.
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

    /// Restores the state before the scenario: no job runs or waits, every node is in `default` and free, no setting is
    /// left, and the jobs' names are free.
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
            // The allocation may have ended meanwhile.
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

    /// States of the jobs, for the report of a failed scenario.
    pub fn what_was_seen(&self) -> String {
        let mut text = String::from("  what was seen:\n");
        for (name, job) in &self.jobs {
            let states = self.states(name).join(" ");
            let _ = writeln!(text, "    {name} (allocation {}): {states}", job.id);
            if let Some(last) = self.records_of(name).last() {
                let Some(stop) = last.stop.as_ref().or(last.reason.as_ref()) else {
                    continue;
                };
                let _ = writeln!(text, "      {stop}");
            }
        }
        text
    }

    /// Prints the last log lines of every daemon for a failed scenario, if the environment requests them.
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
