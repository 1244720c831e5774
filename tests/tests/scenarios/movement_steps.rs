//! Steps for preemption, lent nodes, and checkpoints.

use crate::{cluster::GRACE_S, step, steps::Step, world::World};
use lattice_api::{
    AllocationView, allocation::CheckpointRequest, duration, reservation::ReservationRequest,
    scheduler::SchedulerChange, text::read_time, vcluster::VclusterRequest,
};
use lattice_tests::wait::{eventually, until};

/// Time of a job's first entry into a state, milliseconds; waits for the event.
async fn first(world: &World, name: &str, state: &str) -> u64 {
    let entered = || {
        let records = world.records_of(name).into_iter();
        let mut of_it = records.filter(|view| view.state == state);
        read_time(&of_it.next()?.state_since).map(|at| at.0)
    };
    eventually(&format!("{name} is {state}"), || {
        std::future::ready(entered())
    })
    .await
}

/// Indices in the events of all jobs: from the start of a job's first checkpoint to its end.
fn wrote(world: &World, name: &str) -> Option<std::ops::Range<usize>> {
    let id = world.job(name).id;
    let records = world.all_records();
    let is = |view: &AllocationView| view.id == id && view.state == "checkpointing";
    let begun = records.iter().position(is)?;
    let over = |view: &AllocationView| view.id == id && view.state != "checkpointing";
    let ended = records[begun..].iter().position(over)?;
    Some(begun..begun + ended)
}

/// Requests a checkpoint, without waiting for it.
async fn ask(world: &World, name: &str) {
    let (id, request) = (world.job(name).id, CheckpointRequest::default());
    world.api().checkpoint(id, &request).await.unwrap();
}

fn bandwidth(gb_s: Option<f64>) -> VclusterRequest {
    VclusterRequest {
        scheduler: Some(SchedulerChange {
            checkpoint_gb_s: Some(gb_s),
            ..SchedulerChange::default()
        }),
        ..VclusterRequest::default()
    }
}

pub fn steps() -> Vec<Step> {
    [room(), loans(), checkpoints()].concat()
}

fn room() -> Vec<Step> {
    vec![
        step!("{text} was preempted {number} times", |world, said| {
            let wanted = said.number(1);
            let what = format!("was preempted {wanted} times");
            world
                .shows(said.text(0), &what, |view| {
                    (u64::from(view.preempted) == wanted).then_some(())
                })
                .await;
        }),
        // The reason comes from a cycle that planned the job and searched for victims.
        step!("{text} waits for {text}", |world, said| {
            let (name, why) = (said.text(0), said.text(1));
            world
                .shows(name, &format!("waits for {why:?}"), |view| {
                    let waits = view.state == "pending";
                    let reason = view.reason.as_deref().unwrap_or_default();
                    (waits && reason.contains(why)).then_some(())
                })
                .await;
        }),
        step!("{text} started after {text}", |world, said| {
            let later = first(world, said.text(0), "starting").await;
            let sooner = first(world, said.text(1), "starting").await;
            assert!(later > sooner, "{later} ms against {sooner} ms");
        }),
        step!(
            "{text} and {text} wrote checkpoints at the same time",
            |world, said| {
                let both = || Some((wrote(world, said.text(0))?, wrote(world, said.text(1))?));
                let (a, b) = eventually("both wrote", || std::future::ready(both())).await;
                assert!(a.start < b.end && b.start < a.end, "{a:?} and {b:?}");
            }
        ),
        // The job's script records SIGTERM and continues: only SIGKILL ends it.
        step!(
            "{text} held out for the grace, and was killed",
            |world, said| {
                let name = said.text(0);
                let script = &world.job(name).script;
                until(&format!("{name} was asked to end"), || script.has("asked")).await;
                let stopping = first(world, name, "stopping").await;
                let left = || {
                    let records = world.records_of(name).into_iter();
                    let mut after = records.skip_while(|view| view.state != "stopping");
                    let after = after.find(|view| view.state != "stopping")?;
                    read_time(&after.state_since).map(|at| at.0)
                };
                let what = format!("{name} has stopped");
                let ended = eventually(&what, || std::future::ready(left())).await;
                assert!(
                    ended >= stopping + GRACE_S * 1000,
                    "{} ms",
                    ended - stopping
                );
            }
        ),
        step!("{text} was stopped since it was {text}", |world, said| {
            let (name, why) = (said.text(0), said.text(1));
            until(&format!("{name} was {why:?}"), || {
                let mut stops = world
                    .records_of(name)
                    .into_iter()
                    .filter_map(|view| view.stop);
                stops.any(|stop| stop.contains(why))
            })
            .await;
        }),
        step!("{text} is in attempt {number}", |world, said| {
            let wanted = said.number(1);
            world
                .shows(said.text(0), &format!("is in attempt {wanted}"), |view| {
                    (u64::from(view.attempt) == wanted).then_some(())
                })
                .await;
        }),
        step!("{text} kept its place in the queue", |world, said| {
            let records = world.records_of(said.text(0));
            let (first, last) = (records.first().unwrap(), records.last().unwrap());
            assert_eq!(first.submitted_at, last.submitted_at);
        }),
        step!("the user cancels {text}", |world, said| {
            let id = world.job(said.text(0)).id;
            world.api().cancel(id).await.unwrap();
        }),
        step!("the user releases {text}", |world, said| {
            let id = world.job(said.text(0)).id;
            world.api().release(id).await.unwrap();
        }),
        step!(
            "a project {text} of at most {number} nodes",
            |world, said| {
                let most = said.number(1).to_string();
                let create = ["project", "create", said.text(0), "--max-nodes", &most];
                world.site().lattice(&create);
            }
        ),
        step!("the metrics count {word} for {text}", |world, said| {
            let (name, labels) = (said.text(0).to_owned(), said.text(1).replace('\'', "\""));
            let series = match labels.is_empty() {
                true => format!("{name} "),
                false => format!("{name}{{{labels}}}"),
            };
            let world = &*world;
            eventually(&format!("{series} is counted"), || {
                let series = series.clone();
                async move {
                    let text = world.metrics().await?;
                    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&series));
                    let count: f64 = lines.next()?.trim().parse().ok()?;
                    (count > 0.0).then_some(())
                }
            })
            .await;
        }),
    ]
}

fn loans() -> Vec<Step> {
    vec![
        step!("the nodes {text} are used by {text}", |world, said| {
            let (nodes, by) = (said.text(0), said.text(1));
            let api = world.api();
            eventually(&format!("{by} uses {nodes}"), || async {
                let all = api.nodes().await.ok()?;
                let uses = |name: &str| all.iter().any(|n| n.name == name && n.vcluster == by);
                nodes.split_whitespace().all(uses).then_some(())
            })
            .await;
        }),
        step!("{text} runs on {text}", |world, said| {
            let (name, nodes) = (said.text(0), said.text(1));
            let mut wanted: Vec<_> = nodes.split_whitespace().collect();
            wanted.sort_unstable();
            world
                .shows(name, &format!("runs on {nodes}"), |view| {
                    let mut on: Vec<_> = view.ranks.iter().map(|rank| &*rank.node).collect();
                    on.sort_unstable();
                    (view.state == "running" && on == wanted).then_some(())
                })
                .await;
        }),
        step!("the node {text} is drained", |world, said| {
            world.drains(said.text(0)).await;
        }),
        step!("the node {text} is reserved for others", |world, said| {
            let request = ReservationRequest {
                nodes: Some(said.text(0).to_owned()),
                duration: Some("1h".to_owned()),
                reason: "of a scenario".to_owned(),
                ..ReservationRequest::default()
            };
            world.reserves("others", request).await;
        }),
        // Bound for the owner: the grace, the longest checkpoint, and the time of Lattice's own steps.
        step!(
            "{text} started within {number} seconds of its submit",
            |world, said| {
                let (name, most) = (said.text(0), said.number(1));
                let started = first(world, name, "starting").await;
                let view = world.view(name).await;
                let took = started - read_time(&view.submitted_at).unwrap().0;
                println!("    {name} started {took} ms after its submit");
                assert!(took <= most * 1000, "{took} ms");
            }
        ),
        step!(
            "{text} started no sooner than {number} seconds after its submit",
            |world, said| {
                let (name, least) = (said.text(0), said.number(1));
                let started = first(world, name, "starting").await;
                let view = world.view(name).await;
                let took = started - read_time(&view.submitted_at).unwrap().0;
                assert!(took >= least * 1000, "{took} ms");
            }
        ),
    ]
}

fn checkpoints() -> Vec<Step> {
    vec![
        step!("the user asks {text} for a checkpoint", |world, said| {
            ask(world, said.text(0)).await;
        }),
        step!("the user queues {text} again", |world, said| {
            let id = world.job(said.text(0)).id;
            world.api().requeue(id).await.unwrap();
        }),
        step!("{text} keeps checkpoint {number}", |world, said| {
            let wanted = said.number(1);
            world
                .shows(
                    said.text(0),
                    &format!("keeps checkpoint {wanted}"),
                    |view| {
                        let kept = view.checkpoints.as_ref()?.last.as_ref()?;
                        (u64::from(kept.number) == wanted).then_some(())
                    },
                )
                .await;
        }),
        step!("{text} has a checkpoint", |world, said| {
            world
                .shows(said.text(0), "has a checkpoint", |view| {
                    view.checkpoints.as_ref()?.last.as_ref().map(drop)
                })
                .await;
        }),
        step!("{text} was asked for no checkpoint", |world, said| {
            let view = world.view(said.text(0)).await;
            assert_eq!(view.checkpoints, None);
        }),
        step!("{text} has {number} failed checkpoints", |world, said| {
            let wanted = said.number(1);
            world
                .shows(
                    said.text(0),
                    &format!("has {wanted} failed checkpoints"),
                    |view| {
                        let failed = view.checkpoints.as_ref().map_or(0, |all| all.failed);
                        (u64::from(failed) == wanted).then_some(())
                    },
                )
                .await;
        }),
        step!(
            "the checkpoint of {text} took longer than {number} ms",
            |world, said| {
                let took = world
                    .shows(said.text(0), "has a checkpoint", |view| {
                        let kept = view.checkpoints.as_ref()?.last.as_ref()?;
                        duration::parse(&kept.duration).ok()
                    })
                    .await;
                assert!(took > said.number(1), "{took} ms");
            }
        ),
        step!(
            "checkpoint {number} of {text} lies below its tenant, project and number",
            |world, said| {
                let id = world.job(said.text(1)).id;
                let number = said.number(0);
                let path = format!("checkpoints/acme/acme/{id}/{number}/rank-0/state");
                let path = world.scratch().join(path);
                let what = format!("{} is there", path.display());
                until(&what, || path.is_file()).await;
            }
        ),
        step!(
            "the checkpoint storage of {text} writes nothing",
            |world, said| {
                world
                    .writes(said.text(0), &bandwidth(Some(0.0)), bandwidth(None))
                    .await;
            }
        ),
    ]
}
