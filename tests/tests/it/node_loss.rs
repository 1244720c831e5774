//! Silent, given-up and rebooted nodes, with real processes. Silence frees nothing; an operator's forced removal frees
//! the node and is audited; another boot id proves the loss.

use lattice_tests::{
    daemon::Daemon,
    monitor::Monitor,
    procs,
    script::{Behaviour, Script},
    site::{Plan, Site},
    wait::{LOOK_EVERY, eventually, until},
};
use rustix::process::Signal;
use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Waits for a liveness of a node. Returns the time, and the longest time between two checks.
async fn is(site: &Site, node: &str, liveness: &str) -> (Duration, Duration) {
    let begun = Instant::now();
    let looked_at = Cell::new(begun);
    let longest = Cell::new(Duration::ZERO);
    eventually(&format!("{node} is {liveness}"), || async {
        let view = site.api().node(node).await.ok()?;
        longest.set(longest.get().max(looked_at.get().elapsed()));
        looked_at.set(Instant::now());
        (view.liveness == liveness).then_some(())
    })
    .await;
    (begun.elapsed(), longest.get())
}

/// Stopped agent: the node is suspect soon, gets no new jobs, and continues after the stop.
async fn silent(site: &Site, agent: &Daemon) {
    let script = Script::in_folder(site.path("silent"));
    let id = site.submit("n1", &script.text(Behaviour::Plain)).await;
    site.reaches(id, &["running"]).await;
    agent.signal(Signal::STOP);
    let (took, look) = is(site, "n1", "suspect").await;
    println!("silent: suspect after {:.2} s", took.as_secs_f64());
    // 3 s; the delay of a busy machine is not control's fault.
    assert!(took < Duration::from_millis(3300) + look, "{took:?}");
    let waits = site.submit("n1", "exit 0").await;
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let node = site.api().node("n1").await.unwrap();
        assert_eq!(node.holder.map(|h| h.allocation), Some(id));
        assert_eq!(site.api().allocation(id).await.unwrap().state, "running");
        assert_eq!(site.api().allocation(waits).await.unwrap().state, "pending");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    agent.signal(Signal::CONT);
    let (took, _) = is(site, "n1", "alive").await;
    println!("silent: alive again after {:.2} s", took.as_secs_f64());
    script.may_exit();
    let ended = site.reaches(id, &["failed", "completed"]).await;
    assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
    site.reaches(waits, &["completed"]).await;
}

/// A node without an agent is freed by force. Processes on the node are ended when an agent starts, and only then the
/// node may be used again.
async fn forced(site: &Site, agent: &mut Daemon) {
    let script = Script::in_folder(site.path("forced"));
    let id = site.submit("n2", &script.text(Behaviour::Stubborn)).await;
    site.reaches(id, &["running"]).await;
    until("the job can be asked to end", || script.has("ready")).await;
    agent.kill();
    is(site, "n2", "suspect").await;
    let reason = "the machine is on fire";
    site.lattice(&["node", "drain", "n2", "--reason", reason, "--force-release"]);
    let lost = site.reaches(id, &["failed", "cancelled"]).await;
    let exit = lost.ranks[0].exit.clone().unwrap();
    println!("forced: {}, {exit}", lost.state);
    assert!(exit.starts_with("lost"), "{exit}");
    let node = site.api().node("n2").await.unwrap();
    assert_eq!(node.holder, None);
    assert!(!node.drain.is_empty(), "it stays drained");
    assert!(site.job_lives(id), "nobody could end it");
    let audit = site.lattice(&["audit", "query"]);
    println!("{audit}");
    let line = audit.lines().find(|line| line.contains("force"));
    assert!(
        line.is_some_and(|line| line.contains("n2") && line.contains(reason)),
        "{audit}"
    );

    agent.start();
    is(site, "n2", "alive").await;
    until("the agent asks what it finds to end", || {
        script.has("asked")
    })
    .await;
    // An operator may clear the own reason; the dispatcher has added a reason meanwhile.
    let undrained = site.cli(&["node", "undrain", "n2"]);
    println!(
        "forced: {}",
        String::from_utf8_lossy(&undrained.stderr).trim()
    );
    let next = site.submit("n2", "exit 0").await;
    let until_then = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until_then {
        let node = site.api().node("n2").await.unwrap();
        assert!(!node.drain.is_empty(), "in service while {id} lives there");
        assert_eq!(site.api().allocation(next).await.unwrap().state, "pending");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let node = site.api().node("n2").await.unwrap();
    node.drain
        .iter()
        .for_each(|d| println!("forced: drained by {}: {}", d.owner, d.reason));
    script.may_stop();
    until("what was found has ended", || !site.job_lives(id)).await;
    // The dispatcher releases the node a minute later; the test does not wait for it.
    site.api().cancel(next).await.unwrap();
    assert_eq!(script.effects(), [format!("{id}.1.0")]);
}

/// A rebooted machine has no earlier processes: the rank is lost without an operator's action, and is requeued if
/// permitted.
async fn rebooted(site: &Site, agent: &mut Daemon) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: another boot id can only be shown by root");
        return;
    }
    let script = Script::in_folder(site.path("rebooted"));
    let mut request = site.request(Some("n3"), &script.text(Behaviour::Plain));
    request.requeue = Some("once".to_owned());
    let id = site.submit_request(&request).await;
    site.reaches(id, &["running"]).await;
    // The process exists before it has executed its first lines.
    until("its script runs", || script.has_main()).await;
    let supervisor = site.supervisor("n3", id, 1).expect("a supervisor");
    agent.kill();
    procs::signal(supervisor, Signal::KILL);
    until("the first process went with it", || script.main_is_gone()).await;
    // A boot takes longer than control's detection of silence.
    is(site, "n3", "suspect").await;
    let began = Instant::now();
    agent.boot("11111111-2222-4333-8444-555555555555");
    agent.start();
    eventually("it runs again", || async {
        let view = site.api().allocation(id).await.ok()?;
        (view.attempt == 2 && view.state == "running").then_some(())
    })
    .await;
    println!(
        "rebooted: runs again {:.2} s after the boot",
        began.elapsed().as_secs_f64()
    );
    script.may_exit();
    let ended = site.reaches(id, &["failed", "completed"]).await;
    assert_eq!(ended.ranks[0].exit.as_deref(), Some("exit code 7"));
    assert_eq!(script.effects(), [format!("{id}.1.0"), format!("{id}.2.0")]);
    assert_eq!(site.api().node("n3").await.unwrap().drain, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_frees_nothing_a_person_and_a_boot_do() {
    let plan = Plan::with_agents(["n1", "n2", "n3"]);
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    let monitor = Monitor::start(site.observer(), site.jobs());
    let mut agents = std::mem::take(&mut site.agents);
    let mut all = agents.values_mut();
    let (n1, n2, n3) = (
        all.next().unwrap(),
        all.next().unwrap(),
        all.next().unwrap(),
    );
    tokio::join!(silent(&site, n1), forced(&site, n2), rebooted(&site, n3));
    site.are_ready(&["n1".to_owned(), "n3".to_owned()]).await;
    site.leaves_nothing().await;
    // The forced removal is the only violation that the monitor finds, which shows that the monitor works.
    let seen = monitor.seen().await;
    println!("the monitor saw: {:#?}", seen.violations);
    let forced = |violation: &String| violation.starts_with("n2 is held by nobody while");
    assert!(!seen.violations.is_empty() && seen.violations.iter().all(forced));
}
