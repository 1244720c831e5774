//! Time from SIGKILL of an agent to `suspect` in the REST API, by step. Prints a table; `LATTICE_OUTPUT=json` prints one
//! object. `LATTICE_AGENTS` and `LATTICE_KILLS` set the size, see `just suspicion`.

use jiff::Timestamp;
use lattice_tests::{
    site::{Plan, Site},
    wait::eventually,
};
use serde_json::json;
use std::{
    env, fmt,
    time::{Duration, Instant},
};

/// Time between two requests for the node's view.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Times of one kill.
struct Detection {
    /// From the last reply of the agent to its kill.
    replied_before: Duration,
    /// From the last reply to the first answer with `suspect`. Control counts silence from this reply.
    silent_until_shown: Duration,
    /// From the kill to that answer.
    total: Duration,
    /// Duration of the REST call with that answer.
    call: Duration,
    /// Longest time between two answers: a detection cannot be measured more exactly.
    longest_look: Duration,
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
        let steps: [(&str, Step); 5] = [
            ("last reply to SIGKILL", |one| one.replied_before),
            ("last reply to suspect in REST", |one| {
                one.silent_until_shown
            }),
            ("SIGKILL to suspect in REST", |one| one.total),
            ("REST call with that answer", |one| one.call),
            ("longest time between two answers", |one| one.longest_look),
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

/// Kills the agent of a node, waits for `suspect`, and starts the agent again.
async fn detect(site: &mut Site, node: &str) -> Detection {
    site.agent(node).kill();
    let (killed, killed_at) = (Instant::now(), Timestamp::now());
    let (mut answered, mut longest_look) = (killed, Duration::ZERO);
    let detection = loop {
        let asked = Instant::now();
        let view = site.api().node(node).await.unwrap();
        longest_look = longest_look.max(answered.elapsed());
        answered = Instant::now();
        if view.liveness != "alive" {
            assert_eq!(view.liveness, "suspect", "{view:?}");
            let replied: Timestamp = view.last_seen.unwrap().parse().unwrap();
            break Detection {
                replied_before: between(replied, killed_at),
                silent_until_shown: between(replied, Timestamp::now()),
                total: killed.elapsed(),
                call: asked.elapsed(),
                longest_look,
            };
        }
        assert!(
            killed.elapsed() < lattice_tests::wait::PATIENCE,
            "{node} is never suspect"
        );
        tokio::time::sleep(POLL_EVERY).await;
    };
    site.agent(node).start();
    eventually("the agent answers again", || async {
        let view = site.api().node(node).await.ok()?;
        (view.liveness == "alive").then_some(())
    })
    .await;
    detection
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
        // A busy machine delays the test's own requests; that delay is not control's.
        let limit = Duration::from_millis(3000) + one.longest_look;
        assert!(
            one.total < limit,
            "{:?} with looks of {:?}",
            one.total,
            one.longest_look
        );
    }
}
