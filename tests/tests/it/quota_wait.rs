//! Second limit check, with real processes: an accepted allocation that no longer fits waits for quota headroom. The
//! command line and REST name each level that blocks it. It holds nothing and blocks no other allocation. When another
//! allocation ends or a limit is raised, it gets its nodes without a new request.

use lattice_api::project::{LimitChangeBody, LimitsRequest};
use lattice_client::SubmitOptions;
use lattice_quorum_types::{AllocationId, limit::Patch};
use lattice_tests::{
    script::{Behaviour, Script},
    site::{Plan, Site},
    wait::{eventually, until},
};

const TENANT: &str = "physics";
const MIDDLE: &str = "physics/atlas";
const PROJECT: &str = "physics/atlas/higgs";

/// An allocation that runs until it may end.
struct HeldJob {
    id: AllocationId,
    script: Script,
}

/// Submits an allocation. A held allocation passed the first limit check and is not placed yet.
async fn submit(site: &Site, name: &str, project: &str, nodes: u32, hold: bool) -> HeldJob {
    let script = Script::in_folder(site.path(name));
    let mut request = site.request(None, &script.text(Behaviour::Plain));
    request.project = project.to_owned();
    request.nodes = nodes;
    request.hold = hold;
    let id = site.submit_request(&request).await;
    HeldJob { id, script }
}

/// Text of a level in the reason.
fn level(path: &str, limit: &str, current: u64, requested: u64, most: u64) -> String {
    let kind = if path == TENANT { "tenant" } else { "project" };
    format!("{kind} \"{path}\" {limit} (current: {current}, requested: {requested}, limit: {most})")
}

/// Waits until all interfaces report the reason of the wait, with exactly these levels.
async fn waits(site: &Site, id: AllocationId, levels: &[String]) {
    let wanted = format!("waiting for quota headroom; {}", levels.join("; "));
    eventually(&format!("allocation {id} is {wanted}"), || async {
        let explanation = site.api().explanation(id).await.ok()?;
        (explanation.blocker.as_deref() == Some(wanted.as_str())).then_some(())
    })
    .await;
    let view = site.api().allocation(id).await.unwrap();
    assert_eq!((view.state.as_str(), view.attempt), ("pending", 0));
    assert!(view.ranks.is_empty() && view.nodelist.is_empty());
    let reason = view.reason.unwrap();
    assert!(reason.contains(&wanted), "{reason}");
    let (number, name) = (id.to_string(), "waiting for quota headroom");
    let queue = site.lattice(&["status"]);
    let lines = queue.lines();
    let mut its = lines.filter(|line| line.split_whitespace().next() == Some(&number));
    assert!(
        its.next().is_some_and(|line| line.contains(name)),
        "{queue}"
    );
    let why = site.lattice(&["why", &number]);
    assert!(why.contains(&wanted), "{why}");
    let listed = site.lattice_json(&["status"]);
    let mut all = listed.as_array().unwrap().iter();
    let its = all.find(|one| one["id"].as_u64() == Some(id.0)).unwrap();
    assert!(its["reason"].as_str().unwrap().contains(&wanted), "{its}");
}

/// Usage that the quorum counts at the three levels: nodes and allocations.
async fn counted(site: &Site) -> [(u64, u64); 3] {
    let hot = eventually("a leader answers", || async { site.observer().hot().await }).await;
    [PROJECT, MIDDLE, TENANT].map(|path| {
        let mut projects = hot.projects.iter();
        let found = projects.find(|project| project.path.as_str() == path);
        let total = found.unwrap().total();
        (total.nodes, total.allocations)
    })
}

async fn set(site: &Site, limits: &[(&str, Patch, Patch)]) {
    let change =
        |(path, max_nodes, max_concurrent_allocations): &(&str, Patch, Patch)| LimitChangeBody {
            path: (*path).to_owned(),
            max_nodes: *max_nodes,
            max_concurrent_allocations: *max_concurrent_allocations,
        };
    let request = LimitsRequest {
        changes: limits.iter().map(change).collect(),
        force: false,
    };
    site.api().set_limits(&request, None).await.unwrap();
}

/// Waits until another allocation has ended; the control is killed meanwhile.
async fn until_another_ends(site: &mut Site) -> HeldJob {
    let waiting = submit(site, "waiting", PROJECT, 2, true).await;
    let first = submit(site, "first", PROJECT, 2, false).await;
    site.reaches(first.id, &["running"]).await;
    site.lattice(&["release", &waiting.id.to_string()]);
    let all = [PROJECT, MIDDLE, TENANT].map(|path| level(path, "max_nodes", 2, 2, 3));
    waits(site, waiting.id, &all).await;
    assert_eq!(counted(site).await, [(2, 1); 3], "who waits holds nothing");
    // The waiting allocation does not block the free node.
    let other = submit(site, "other", "chemistry", 1, false).await;
    site.reaches(other.id, &["running"]).await;

    site.controls[0].kill();
    site.controls[0].start();
    site.is_up().await;
    waits(site, waiting.id, &all).await;

    first.script.may_exit();
    site.reaches(waiting.id, &["running"]).await;
    until("it runs", || waiting.script.has_main()).await;
    assert_eq!(counted(site).await, [(2, 1); 3]);
    other.script.may_exit();
    site.reaches(other.id, &["failed"]).await;
    waiting
}

/// Limits were lowered after the acceptance; the allocation waits until both levels are raised again.
async fn until_limits_are_raised(site: &Site) -> HeldJob {
    let work = submit(site, "lowered", PROJECT, 1, true).await;
    let (two, three, same) = (Patch::Set(2), Patch::Set(3), Patch::Unchanged);
    set(site, &[(PROJECT, two, same), (MIDDLE, two, same)]).await;
    site.lattice(&["release", &work.id.to_string()]);
    let short = |path| level(path, "max_nodes", 2, 1, 2);
    waits(site, work.id, &[short(PROJECT), short(MIDDLE)]).await;
    set(site, &[(MIDDLE, three, same)]).await;
    waits(site, work.id, &[short(PROJECT)]).await;
    assert_eq!(counted(site).await, [(2, 1); 3]);
    set(site, &[(PROJECT, three, same)]).await;
    site.reaches(work.id, &["running"]).await;
    assert_eq!(counted(site).await, [(3, 2); 3]);
    work
}

/// The same with the number of allocations, until one is cancelled.
async fn until_another_is_cancelled(site: &Site, runs: &HeldJob) -> HeldJob {
    let work = submit(site, "counted", PROJECT, 1, true).await;
    let (same, one) = (Patch::Unchanged, Patch::Set(1));
    let limits = [PROJECT, MIDDLE, TENANT].map(|path| (path, same, one));
    set(site, &limits).await;
    site.lattice(&["release", &work.id.to_string()]);
    let all = [PROJECT, MIDDLE, TENANT];
    let all = all.map(|path| level(path, "max_concurrent_allocations", 1, 1, 1));
    waits(site, work.id, &all).await;
    site.lattice(&["cancel", &runs.id.to_string()]);
    site.reaches(work.id, &["running"]).await;
    assert_eq!(counted(site).await, [(1, 1); 3]);
    work
}

/// A submit that does not fit with the present usage is accepted if it may wait, without a hold.
async fn until_a_submit_fits(site: &Site) -> HeldJob {
    let runs = submit(site, "runs", PROJECT, 2, false).await;
    site.reaches(runs.id, &["running"]).await;
    let script = Script::in_folder(site.path("accepted"));
    let mut request = site.request(None, &script.text(Behaviour::Plain));
    request.project = PROJECT.to_owned();
    request.nodes = 2;
    let refused = site.api().submit(&request, SubmitOptions::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, "limit_exceeded");
    request.on_limit = Some("wait".to_owned());
    let id = site.submit_request(&request).await;
    let all = [PROJECT, MIDDLE, TENANT].map(|path| {
        let nodes = level(path, "max_nodes", 2, 2, 3);
        let allocations = level(path, "max_concurrent_allocations", 1, 1, 1);
        [nodes, allocations]
    });
    waits(site, id, &all.concat()).await;
    assert_eq!(
        counted(site).await,
        [(2, 1); 3],
        "waiting work holds nothing"
    );
    runs.script.may_exit();
    site.reaches(id, &["running"]).await;
    assert_eq!(counted(site).await, [(2, 1); 3]);
    HeldJob { id, script }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_waits_for_headroom_then_runs() {
    let plan = Plan::with_agents(["n1", "n2", "n3"]);
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    for path in [TENANT, MIDDLE, PROJECT] {
        site.lattice(&["project", "create", path, "--max-nodes", "3"]);
        // Unlimited at the tenant, and therefore below.
    }
    site.lattice(&["project", "create", "chemistry", "--max-nodes", "1"]);

    let first = until_another_ends(&mut site).await;
    let second = until_limits_are_raised(&site).await;
    second.script.may_exit();
    site.reaches(second.id, &["failed"]).await;
    let third = until_another_is_cancelled(&site, &first).await;
    third.script.may_exit();
    site.reaches(third.id, &["failed"]).await;
    let fourth = until_a_submit_fits(&site).await;
    fourth.script.may_exit();
    site.reaches(fourth.id, &["failed"]).await;
    assert_eq!(counted(&site).await, [(0, 0); 3]);
    site.leaves_nothing().await;
}
