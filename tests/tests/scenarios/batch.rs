//! Steps for the command line: arrays, holds, begin times, deadlines, scripts, reservations.

use crate::{
    graphs::{millis_between, work},
    step,
    steps::{Step, StepMatch},
    users,
    world::{Job, World},
};
use lattice_client::AllocationView;
use lattice_tests::{
    procs,
    wait::{eventually, until},
};
use std::process::Output;

/// Prefix of words that describe the job's behavior, which becomes a script in a file.
const DOES: &str = "does:";

/// Splits a command line into words. `<name>` stands for the id of the job of that name, `does:waits` for a script with
/// that behavior. Quotes keep blanks.
fn words(world: &World, line: &str, job: &lattice_tests::script::Script) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_quoted = false;
    let mut word = String::new();
    for c in line.chars().chain([' ']) {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    assert_eq!(words.remove(0), "lattice", "{line}");
    let mut all = Vec::new();
    for mut word in words {
        for (name, job) in world.jobs() {
            word = word.replace(&format!("<{name}>"), &job.id.to_string());
        }
        match word.strip_prefix(DOES) {
            None => all.push(word),
            Some(does) => {
                let file = job.path().join("script.sh");
                let text = work(does, job).unwrap_or_else(|| panic!("nothing does {does:?}"));
                std::fs::write(&file, format!("#!/bin/sh\n{text}")).unwrap();
                for (name, value) in world.site().request(None, "").env {
                    all.extend(["--env".to_owned(), format!("{name}={value}")]);
                }
                all.extend(["--project", "acme", "--script"].map(str::to_owned));
                all.push(file.to_str().unwrap().to_owned());
            }
        }
    }
    all
}

/// Output of a command line.
fn run(world: &mut World, said: &StepMatch) -> Output {
    let script = world.script();
    let words = words(world, said.text(1), &script);
    users::cli(world, said.text(0), &words)
}

/// Largest number of an array's elements that had a rank at the same time, according to the events in order.
fn most_at_a_time(world: &World, name: &str) -> usize {
    let array = world.job(name).id;
    let mut now = std::collections::BTreeSet::new();
    let mut most = 0;
    for view in world.all_records() {
        if view
            .element
            .as_ref()
            .is_none_or(|element| element.array != array)
        {
            continue;
        }
        match crate::world::ENDED.contains(&view.state.as_str()) {
            true => now.remove(&view.id),
            false => now.insert(view.id),
        };
        most = most.max(now.len());
    }
    most
}

fn tally(view: &AllocationView) -> Option<String> {
    let tally = view.element_counts.as_ref()?;
    let (all, pending, running) = (tally.elements, tally.pending, tally.running);
    Some(format!(
        "{all} elements, {pending} pending, {running} running"
    ))
}

pub fn steps() -> Vec<Step> {
    [lines(), arrays(), times(), scripts()].concat()
}

fn lines() -> Vec<Step> {
    vec![
        step!("{word} runs {text}", |world, said| {
            let done = run(world, &said);
            let error = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{error}");
        }),
        step!("{word} runs {text} as {text}", |world, said| {
            let script = world.script();
            let words = words(world, said.text(1), &script);
            let id: u64 = users::said(world, said.text(0), &words)
                .trim()
                .parse()
                .unwrap();
            let id = lattice_quorum_types::AllocationId(id);
            world.knows(said.text(2), Job { id, script });
        }),
        step!(
            "{word} runs {text} and is refused with code {number}",
            |world, said| {
                let done = run(world, &said);
                assert_eq!(
                    done.status.code().map(i64::from),
                    i64::try_from(said.number(2)).ok()
                );
                let error = String::from_utf8_lossy(&done.stderr);
                for (_, wanted) in said.pairs() {
                    assert!(error.contains(&wanted), "{wanted} is not in\n{error}");
                }
            }
        ),
    ]
}

fn arrays() -> Vec<Step> {
    vec![
        step!("the tally of {text} is {text}", |world, said| {
            let wanted = said.text(1);
            world
                .shows(said.text(0), &format!("has {wanted}"), |view| {
                    (tally(view)? == wanted).then_some(())
                })
                .await;
        }),
        step!("{number} nodes are free", |world, said| {
            let nodes = world.api().nodes().await.unwrap();
            let free = nodes.iter().filter(|node| node.holder.is_none()).count();
            assert_eq!(free as u64, said.number(0));
        }),
        step!(
            "the elements of {text} ran with the indices {text}",
            |world, said| {
                let file = world.job(said.text(0)).script.path().join("indices");
                let text = std::fs::read_to_string(file).unwrap();
                let mut indices: Vec<&str> = text.lines().collect();
                indices.sort_unstable();
                assert_eq!(indices.join(" "), said.text(1));
            }
        ),
        step!(
            "never more than {number} elements of {text} ran at a time",
            |world, said| {
                let most = most_at_a_time(world, said.text(1));
                assert_eq!(most as u64, said.number(0), "at a time at most");
            }
        ),
    ]
}

fn times() -> Vec<Step> {
    vec![
        step!("{text} runs its attempt {number}", |world, said| {
            let (name, attempt) = (said.text(0), said.number(1));
            world
                .shows(name, &format!("runs its attempt {attempt}"), |view| {
                    let is_it = u64::from(view.attempt) == attempt && view.state == "running";
                    is_it.then_some(())
                })
                .await;
            let script = &world.job(name).script;
            let own = format!("process.{attempt}");
            until("its process is there", || script.has(&own)).await;
        }),
        step!(
            "the process of attempt {number} of {text} is gone",
            |world, said| {
                let file = format!("process.{}", said.number(0));
                let file = world.job(said.text(1)).script.path().join(file);
                let pid: i32 = std::fs::read_to_string(file)
                    .unwrap()
                    .trim()
                    .parse()
                    .unwrap();
                assert_eq!(procs::process(pid), None);
            }
        ),
        step!("{text} waits because it {text}", |world, said| {
            let (name, why) = (said.text(0), said.text(1));
            world
                .shows(name, &format!("waits because it {why}"), |view| {
                    let waits = view.state == "pending" && view.attempt == 0;
                    (waits && view.reason.as_ref()?.contains(why)).then_some(())
                })
                .await;
        }),
        step!(
            "{text} began at least {number} s after its submit, and not before its begin time",
            |world, said| {
                let view = world.view(said.text(0)).await;
                let (began, begin) = (view.started_at.unwrap(), view.begin_at.unwrap());
                let after = millis_between(&view.submitted_at, &began);
                // The time is between two clocks: that of the control that read the request, and that of the member
                // that accepted it.
                assert!(after + 500 >= said.number(1) * 1000, "{after} ms");
                assert!(began >= begin, "{began} is before {begin}");
            }
        ),
        step!("{text} ended because of {text}", |world, said| {
            let stop = world.view(said.text(0)).await.stop;
            let stop = stop.expect("a reason");
            assert!(stop.contains(said.text(1)), "{stop}");
        }),
        step!("{text} has run for {number} s", |world, said| {
            let begun = world.view(said.text(0)).await.started_at.unwrap();
            let wanted = said.number(1) * 1000;
            eventually("it has run so long", || async {
                let now = jiff::Timestamp::now().to_string();
                (millis_between(&begun, &now) >= wanted).then_some(())
            })
            .await;
        }),
        step!("{number} s pass", |_world, said| {
            tokio::time::sleep(std::time::Duration::from_secs(said.number(0))).await;
        }),
    ]
}

fn scripts() -> Vec<Step> {
    vec![
        step!("the script {text}", |world, said| {
            let file = world.scratch().join(said.text(0));
            let lines = said.pairs().into_iter().map(|(_, line)| line + "\n");
            std::fs::write(file, lines.collect::<String>()).unwrap();
        }),
        step!("{text} has", |world, said| {
            let view = world.view(said.text(0)).await;
            let view = serde_json::to_value(view).unwrap();
            for (field, wanted) in said.pairs() {
                let found = &view[&field];
                let found = found
                    .as_str()
                    .map_or_else(|| found.to_string(), str::to_owned);
                assert_eq!(found, wanted, "{field}");
            }
        }),
    ]
}
