//! Time from SIGKILL of an agent to `suspect` in the REST API, by step. Prints a table; `LATTICE_OUTPUT=json` prints one
//! object. `LATTICE_AGENTS` and `LATTICE_KILLS` set the size, see `just suspicion`.
//!
//! Two readings are taken at the same time: the node list, which no agent is requested for, and the view of the one
//! node, for which control requests the power from the agent. Both have a limit that does not depend on the duration of
//! the calls: a call that waits for the dead agent delays the answer, and must not extend the limit.

use jiff::Timestamp;
use lattice_client::api::node::NodeView;
use lattice_tests::{
    site::{Plan, Site},
    wait::eventually,
};
use serde_json::json;
use std::{
    env, fmt,
    time::{Duration, Instant},
};

/// Time between two requests of one kind.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Time within which a dead agent is suspect.
const MAX_DETECTION: Duration = Duration::from_secs(3);

/// Time within which the view of the one node follows the list.
const MAX_LAG: Duration = Duration::from_millis(500);

/// First answer with `suspect`.
struct Sighting {
    /// From the kill to the answer.
    after_kill: Duration,
    /// Time of the answer.
    at: Timestamp,
    /// Duration of the REST call.
    call: Duration,
    /// Last reply of the agent. Control counts silence from this reply.
    replied: Timestamp,
}

/// Times of one kill.
struct Detection {
    killed_at: Timestamp,
    /// In the node list.
    listed: Sighting,
    /// In the view of the one node.
    shown: Sighting,
}

impl Detection {
    /// Time from the list to the view of the one node.
    fn lag(&self) -> Duration {
        let (listed, shown) = (self.listed.after_kill, self.shown.after_kill);
        shown.saturating_sub(listed)
    }
}

/// Selects the time of a step.
type Step = fn(&Detection) -> Duration;

/// Nearest-rank percentile of a step over all kills.
fn percentile(all: &[Detection], step: Step, percent: usize) -> Duration {
    let mut times: Vec<Duration> = all.iter().map(step).collect();
    times.sort();
    times[(times.len() * percent).div_ceil(100) - 1]
}

struct Report(Vec<(&'static str, [Duration; 3])>);

impl Report {
    fn new(all: &[Detection]) -> Self {
        let steps: [(&str, Step); 6] = [
            ("last reply to SIGKILL", |one| {
                between(one.listed.replied, one.killed_at)
            }),
            ("last reply to suspect in the list", |one| {
                between(one.listed.replied, one.listed.at)
            }),
            ("SIGKILL to suspect in the list", |one| {
                one.listed.after_kill
            }),
            ("SIGKILL to suspect in the node view", |one| {
                one.shown.after_kill
            }),
            ("suspect in the list to node view", Detection::lag),
            ("REST call of the node view", |one| one.shown.call),
        ];
        let row = |(name, step): (_, Step)| {
            (
                name,
                [50, 99, 100].map(|percent| percentile(all, step, percent)),
            )
        };
        Self(steps.map(row).into())
    }

    fn print(&self) {
        if env::var("LATTICE_OUTPUT").is_ok_and(|format| format == "json") {
            let rows = self.0.iter().map(|(name, times)| {
                let [p50, p99, max] = times.map(|time| time.as_millis());
                (
                    (*name).to_owned(),
                    json!({"p50_ms": p50, "p99_ms": p99, "max_ms": max}),
                )
            });
            println!("{}", serde_json::Value::Object(rows.collect()));
        } else {
            println!("{self}");
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<36} {:>8} {:>8} {:>8}",
            "step", "p50 ms", "p99 ms", "max ms"
        )?;
        for (name, times) in &self.0 {
            let [p50, p99, max] = times.map(|time| time.as_millis());
            write!(f, "\n{name:<36} {p50:>8} {p99:>8} {max:>8}")?;
        }
        Ok(())
    }
}

/// Duration between two times; zero if a reply was recorded just after the kill.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

/// Repeats a request until its answer shows the node as suspect.
async fn first_suspect<F>(killed: Instant, mut request: impl FnMut() -> F) -> Sighting
where
    F: Future<Output = NodeView>,
{
    loop {
        let requested = Instant::now();
        let view = request().await;
        if view.liveness != "alive" {
            assert_eq!(view.liveness, "suspect", "{view:?}");
            break Sighting {
                after_kill: killed.elapsed(),
                at: Timestamp::now(),
                call: requested.elapsed(),
                replied: view.last_seen.unwrap().parse().unwrap(),
            };
        }
        assert!(
            killed.elapsed() < lattice_tests::wait::PATIENCE,
            "{} is never suspect",
            view.name
        );
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Kills the agent of a node, waits for `suspect`, and starts the agent again.
async fn detect(site: &mut Site, node: &str) -> Detection {
    site.agent(node).kill();
    let (killed, killed_at) = (Instant::now(), Timestamp::now());
    let api = site.api();
    let list = || async {
        let mut nodes = api.nodes().await.unwrap().into_iter();
        nodes.find(|view| view.name == node).unwrap()
    };
    let show = || async { api.node(node).await.unwrap() };
    let (listed, shown) = tokio::join!(first_suspect(killed, list), first_suspect(killed, show));
    site.agent(node).start();
    eventually("the agent answers again", || async {
        let view = site.api().node(node).await.ok()?;
        (view.liveness == "alive").then_some(())
    })
    .await;
    Detection {
        killed_at,
        listed,
        shown,
    }
}

fn setting(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_is_suspect_within_three_seconds() {
    let (agents, kills) = (setting("LATTICE_AGENTS", 3), setting("LATTICE_KILLS", 1));
    let names: Vec<String> = (1..=agents).map(|n| format!("n{n}")).collect();
    let mut site = Site::found(lattice_tests::programs!(), &Plan::with_agents(&names)).await;
    let mut all = Vec::new();
    for kill in 0..kills {
        all.push(detect(&mut site, &names[kill % agents]).await);
    }
    Report::new(&all).print();
    for one in &all {
        let (listed, lag) = (one.listed.after_kill, one.lag());
        assert!(listed < MAX_DETECTION, "{listed:?} until the list");
        assert!(lag < MAX_LAG, "{lag:?} from the list to the node view");
    }
}
