//! Resizing. A running allocation grows, shrinks, is suspended and resumed, on real agents. Processes start on new
//! nodes and end on released ones before these are free; all other processes stay the same. The control is killed
//! during each operation.

use lattice_client::AllocationView;
use lattice_quorum_types::{
    AllocationId, Command, NodeId, Outcome, Refusal,
    command::ExpectedNode,
    limit::Resource,
    refusal::{LimitRequest, ViolatedLevel},
};
use lattice_tests::{
    daemon::Daemon,
    monitor::Monitor,
    procs::Process,
    script::{Behaviour, Script},
    service::Service,
    site::{Hook, PROJECT, Plan, Site},
    wait::{eventually, until},
};
use std::collections::BTreeMap;

const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];

/// One allocation with the service that resizes it.
struct ResizedService<'a> {
    site: &'a Site,
    service: Service,
    script: Script,
    id: AllocationId,
}

impl<'a> ResizedService<'a> {
    /// Starts the allocation on two nodes.
    async fn begin(site: &'a Site) -> Self {
        let service = Service::new(site).await;
        let script = Script::in_folder(site.path("resized"));
        let mut request = site.request(None, &script.text(Behaviour::Stubborn));
        request.nodes = 2;
        let id = site.submit_request(&request).await;
        site.reaches(id, &["running"]).await;
        Self {
            site,
            service,
            script,
            id,
        }
    }

    /// Nodes by rank, including released ones.
    async fn ranks(&self) -> Vec<String> {
        let record = self.service.allocation(self.id).await;
        record.nodes().map(ToString::to_string).collect()
    }

    /// Nodes that never had a rank of the allocation.
    async fn others(&self) -> Vec<&'static str> {
        let had = self.ranks().await;
        let is_new = |node: &&str| !had.iter().any(|had| had == node);
        NODES.into_iter().filter(is_new).collect()
    }

    async fn grow(&self, node: &str) -> Result<Outcome, Refusal> {
        let nodes = self.service.expected(self.site, &[node]).await;
        self.grow_by(nodes).await
    }

    /// Grows as an operator: only the vCluster's scheduler may grow services, and the scheduler is the control.
    async fn grow_by(&self, nodes: Vec<ExpectedNode>) -> Result<Outcome, Refusal> {
        let id = self.id;
        self.service.as_operator(Command::Grow { id, nodes }).await
    }

    async fn shrink(&self, nodes: &[&String]) {
        let nodes = nodes.iter().map(|node| NodeId::new(*node).unwrap());
        let command = Command::Shrink {
            id: self.id,
            nodes: nodes.collect(),
        };
        self.service.try_one(command).await.unwrap();
    }

    /// Waits until a rank's process lives.
    async fn starts(&self, rank: u32) -> Process {
        let what = format!("rank {rank} runs");
        eventually(&what, || std::future::ready(self.script.process(rank))).await
    }

    /// Waits until the API reports these phases of the ranks.
    async fn shows(&self, phases: &[&str]) -> AllocationView {
        eventually(&format!("its ranks are {phases:?}"), || async {
            let view = self.site.api().allocation(self.id).await.ok()?;
            let shown = view.ranks.iter().map(|rank| rank.phase.as_str());
            shown.eq(phases.iter().copied()).then_some(view)
        })
        .await
    }

    /// Nodes and allocations that the quorum counts for the project.
    async fn counted(&self) -> (u64, u64) {
        let hot = self.service.hot().await;
        let mut projects = hot.projects.iter();
        let own = projects
            .find(|project| project.path.as_str() == PROJECT)
            .unwrap()
            .own;
        (own.nodes, own.allocations)
    }

    /// Nodes that the allocation holds, according to the quorum.
    async fn held(&self) -> Vec<String> {
        let hot = self.service.hot().await;
        let its = |node: &&lattice_quorum_types::node::Node| {
            node.holder
                .is_some_and(|holder| holder.allocation == self.id)
        };
        let held = hot.nodes.iter().filter(its);
        held.map(|node| node.id.to_string()).collect()
    }

    /// Number of runs of each rank of each attempt.
    fn ran(&self) -> BTreeMap<String, usize> {
        let mut ran = BTreeMap::new();
        for line in self.script.effects() {
            *ran.entry(line).or_default() += 1;
        }
        ran
    }

    fn limit(&self, nodes: &str) {
        self.site
            .lattice(&["project", "set", PROJECT, "--max-nodes", nodes]);
    }
}

/// Refusal that names the level, with usage, request and limit.
fn refused(asked: LimitRequest, current: u64, requested: u64, limit: u64) -> Refusal {
    Refusal::LimitExceeded {
        asked,
        levels: vec![ViolatedLevel {
            path: PROJECT.parse().unwrap(),
            resource: Resource::Nodes,
            current,
            requested,
            limit,
        }],
    }
}

/// Adds three nodes. The control runs while the third node is added, and is killed at the prolog of the fourth. It
/// receives the fifth after its restart.
async fn grows(work: &ResizedService<'_>, control: &mut Daemon) {
    let site = work.site;
    let before = [work.starts(0).await, work.starts(1).await];
    work.limit("4");
    let [third, fourth, fifth] = work.others().await[..3] else {
        panic!("six nodes")
    };
    site.hold(third, Hook::Prolog);
    work.grow(third).await.unwrap();
    until("the prolog runs on the new node", || {
        site.is_in(third, Hook::Prolog)
    })
    .await;
    let view = work.shows(&["running", "running", "assigned"]).await;
    assert_eq!(view.state, "running");
    assert_eq!(work.counted().await, (3, 1), "counted before it runs");
    assert_eq!(work.script.process(2), None, "its prolog comes first");
    site.let_go(third, Hook::Prolog);
    work.starts(2).await;
    work.shows(&["running"; 3]).await;

    site.hold(fourth, Hook::Prolog);
    work.grow(fourth).await.unwrap();
    until("the prolog runs on the next one", || {
        site.is_in(fourth, Hook::Prolog)
    })
    .await;
    let last = work.service.expected(site, &[fifth]).await;
    control.kill();
    assert_eq!(work.counted().await, (4, 1));
    assert_eq!(
        work.grow_by(last.clone()).await,
        Err(refused(LimitRequest::Growth, 4, 1, 4))
    );
    site.let_go(fourth, Hook::Prolog);
    work.starts(3).await;
    control.start();
    site.is_up().await;
    work.shows(&["running"; 4]).await;

    work.limit("5");
    control.kill();
    work.grow_by(last).await.unwrap();
    assert_eq!(work.counted().await, (5, 1));
    assert_eq!(work.script.process(4), None, "nobody launches it");
    control.start();
    work.starts(4).await;
    work.shows(&["running"; 5]).await;
    let after = [work.starts(0).await, work.starts(1).await];
    assert_eq!(after, before, "what ran runs on");
}

/// Releases two nodes. Their processes hold out, and the nodes are not free meanwhile; the control is killed in
/// between.
async fn shrinks(work: &ResizedService<'_>, control: &mut Daemon) {
    let (site, script) = (work.site, &work.script);
    let stay = [script.process(0), script.process(1), script.process(3)];
    let go = [work.starts(2).await, work.starts(4).await];
    // Readiness is per rank: a process that gets SIGTERM before its handler is ready just ends.
    let both = |said: &str| {
        [2, 4]
            .iter()
            .all(|rank| script.has(&format!("{said}.{rank}")))
    };
    until("both can be asked to end", || both("ready")).await;
    let ranks = work.ranks().await;
    work.shrink(&[&ranks[2], &ranks[4]]).await;
    until("both were asked to end", || both("asked")).await;
    let phases = ["running", "running", "leaving", "running", "leaving"];
    let view = work.shows(&phases).await;
    assert_eq!(view.state, "running");
    control.kill();
    assert_eq!(work.counted().await, (5, 1), "not before they are gone");
    assert!(work.held().await.contains(&ranks[2]));
    script.may_stop();
    until("what ran there is gone", || {
        [script.process(2), script.process(4)]
            .iter()
            .zip(go)
            .all(|(now, then)| *now != Some(then))
    })
    .await;
    control.start();
    site.is_up().await;
    let view = work
        .shows(&["running", "running", "left", "running", "left"])
        .await;
    assert_eq!((view.state.as_str(), view.nodes), ("running", 3));
    assert_eq!(work.counted().await, (3, 1));
    let now = [script.process(0), script.process(1), script.process(3)];
    assert_eq!(now, stay, "the others run on");
    // The next allocation gets the node at once.
    let next = site.submit(&ranks[2], "exit 0").await;
    site.reaches(next, &["completed"]).await;
}

/// Releases a node while its prolog runs: no process of the job starts there, and the node cannot be added again.
async fn shrinks_before_it_began(work: &ResizedService<'_>) {
    let (site, ran) = (work.site, work.ran());
    let [sixth] = work.others().await[..] else {
        panic!("one is left")
    };
    let sixth = sixth.to_owned();
    site.hold(&sixth, Hook::Prolog);
    work.grow(&sixth).await.unwrap();
    until("the prolog runs there", || site.is_in(&sixth, Hook::Prolog)).await;
    work.shrink(&[&sixth]).await;
    work.shows(&["running", "running", "left", "running", "left", "leaving"])
        .await;
    assert!(work.held().await.contains(&sixth));
    site.let_go(&sixth, Hook::Prolog);
    work.shows(&["running", "running", "left", "running", "left", "left"])
        .await;
    assert_eq!(work.counted().await, (3, 1));
    assert_eq!(work.ran(), ran, "nothing of it ran there");
    // The node had a rank of this attempt, and an agent never starts a second one.
    let again = work.grow(&sixth).await.unwrap_err().to_string();
    assert!(again.contains(&sixth), "{again}");
}

/// A suspended allocation holds nothing, and waits for the same number of nodes; the control is killed while the epilog
/// runs.
async fn is_suspended_and_resumed(work: &ResizedService<'_>, control: &mut Daemon) {
    let (site, id) = (work.site, work.id);
    let ranks = work.ranks().await;
    site.hold(&ranks[0], Hook::Epilog);
    let suspend = work.service.try_one(Command::Suspend { id });
    suspend.await.unwrap();
    until("no process of it lives, its epilog runs", || {
        site.is_in(&ranks[0], Hook::Epilog) && !site.job_lives(id)
    })
    .await;
    control.kill();
    assert_eq!(work.counted().await, (3, 1), "until the epilog is over");
    assert!(work.held().await.contains(&ranks[0]));
    site.let_go(&ranks[0], Hook::Epilog);
    control.start();
    site.is_up().await;
    let view = site.reaches(id, &["suspended"]).await;
    assert_eq!(
        (view.nodes, view.stop.as_deref()),
        (3, Some("suspended without a checkpoint")),
        "it asks for as many as it had"
    );
    assert_eq!(work.counted().await, (0, 0));
    site.are_ready(&NODES.map(str::to_owned)).await;

    work.limit("2");
    let resume = Command::Resume { id };
    let none = work.service.try_one(resume.clone()).await;
    assert_eq!(none, Err(refused(LimitRequest::Resumption, 0, 3, 2)));
    work.limit("5");
    work.service.try_one(resume).await.unwrap();
    site.reaches(id, &["running"]).await;
    let view = work.shows(&["running"; 3]).await;
    assert_eq!(view.attempt, 2);
    until("its three ranks have begun", || {
        (0..3).all(|rank| work.ran().contains_key(&format!("{id}.2.{rank}")))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_grows_shrinks_is_suspended_and_resumed() {
    let plan = Plan {
        hooks: true,
        ..Plan::with_agents(NODES)
    };
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    let mut controls = std::mem::take(&mut site.controls);
    let control = &mut controls[0];
    let monitor = Monitor::start(site.observer(), site.jobs());
    let work = ResizedService::begin(&site).await;

    grows(&work, control).await;
    shrinks(&work, control).await;
    shrinks_before_it_began(&work).await;
    is_suspended_and_resumed(&work, control).await;

    work.script.may_exit();
    let ended = site.reaches(work.id, &["failed"]).await;
    assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
    assert_eq!(work.counted().await, (0, 0));
    let id = work.id;
    let first = (0..5).map(|rank| format!("{id}.1.{rank}"));
    let second = (0..3).map(|rank| format!("{id}.2.{rank}"));
    let once: BTreeMap<_, _> = first.chain(second).map(|line| (line, 1)).collect();
    assert_eq!(work.ran(), once, "each rank ran once");
    site.are_ready(&NODES.map(str::to_owned)).await;
    site.leaves_nothing().await;
    let seen = monitor.seen().await;
    println!(
        "{} looks; up to {} processes of jobs at a time",
        seen.looks, seen.most_processes
    );
    assert_eq!(seen.violations, Default::default());
}
