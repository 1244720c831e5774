//! Steps for services that are preempted and return borrowed nodes.

use crate::{
    graphs::millis_between,
    scaling::{prometheus, runs_on, staying},
    step,
    steps::Step,
};
use lattice_client::AllocationView;
use lattice_quorum_types::{Command, NodeId};
use lattice_tests::wait::eventually;
use std::time::{Duration, Instant};

pub fn steps() -> Vec<Step> {
    vec![
        step!("{text} asks for {number} nodes", |world, said| {
            let view = world.view(said.text(0)).await;
            assert_eq!(u64::from(view.nodes), said.number(1));
        }),
        // Longer than the time between two evaluations, so a running service would be evaluated.
        step!(
            "for {number} s nothing is read for {text}, and nothing of it changes",
            |world, said| {
                let name = said.text(1);
                let before = (
                    prometheus(world).asked().await,
                    world.records_of(name).len(),
                );
                assert!(before.0.is_some());
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(said.number(0)) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    let now = (
                        prometheus(world).asked().await,
                        world.records_of(name).len(),
                    );
                    assert_eq!(now, before, "queries, and what was told of {name}");
                }
            }
        ),
        step!(
            "{text} had {number} nodes as long as it was {word}",
            |world, said| {
                let (name, nodes, state) = (said.text(0), said.number(1), said.text(2));
                let records = world.records_of(name);
                let then: Vec<_> = records.iter().filter(|view| view.state == state).collect();
                assert!(!then.is_empty(), "{name} was never {state}");
                for view in then {
                    assert_eq!(view.ranks.len() as u64, nodes, "{view:?}");
                }
            }
        ),
        step!("{text} begins again with {number} nodes", |world, said| {
            let (name, nodes) = (said.text(0), said.number(1));
            let again = |view: &AllocationView| view.attempt == 2 && view.state == "running";
            world
                .shows(name, "begins again", |view| again(view).then_some(()))
                .await;
            let records = || world.records_of(name).into_iter().find(again);
            let first = eventually("that is told", || std::future::ready(records())).await;
            assert_eq!(staying(&first).len() as u64, nodes, "{:?}", first.ranks);
        }),
        step!(
            "{text} grows to {number} nodes no sooner than {number} s after it began again",
            |world, said| {
                let name = said.text(0);
                runs_on(world, name, said.number(1)).await;
                let view = world.view(name).await;
                let since = |rank: usize| view.ranks[rank].since.clone().unwrap();
                let after = millis_between(&since(0), &since(view.ranks.len() - 1));
                assert!(after >= said.number(2) * 1000, "{after} ms");
            }
        ),
        step!("{text} is left with {text}", |world, said| {
            let (name, nodes) = (said.text(0), said.text(1));
            let wanted: Vec<_> = nodes.split_whitespace().map(str::to_owned).collect();
            world
                .shows(name, &format!("is left with {nodes}"), |view| {
                    let mut left = staying(view);
                    left.sort_unstable();
                    let goes = view.ranks.iter().any(|rank| rank.phase == "leaving");
                    (view.state == "running" && left == wanted && !goes).then_some(())
                })
                .await;
        }),
        step!("an operator takes a node from {text}", |world, said| {
            let id = world.job(said.text(0)).id;
            let last = staying(&world.view(said.text(0)).await).pop().unwrap();
            let nodes = vec![NodeId::new(&last).unwrap()];
            world.command(Command::Shrink { id, nodes }).await;
        }),
    ]
}
