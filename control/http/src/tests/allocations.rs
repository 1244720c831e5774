//! Allocation endpoints.

use super::fixture::{ApiFixture, OUTPUT, PATIENCE, job};
use futures::TryStreamExt;
use lattice_api::{allocation::OutputPlaceView, text::read_time};
use lattice_client::{
    AllocationFilter, AllocationRequest, AllocationView, ClientError, JobRef, LogOptions,
    LogOutput, SubmitOptions, WaitError,
};
use lattice_quorum_types::{AllocationId, AllocationState, allocation::RankExit};
use std::time::Duration;

fn numbers(list: &[AllocationView]) -> Vec<u64> {
    list.iter().map(|a| a.id.0).collect()
}

#[tokio::test]
async fn exceeded_limit_shows_each_level() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    for dry_run in [true, false] {
        let options = SubmitOptions {
            dry_run,
            ..SubmitOptions::default()
        };
        let asked = alice
            .submit(&job("atlas/physics/simulation", 21), options)
            .await;
        let Err(ClientError::Refused(problem)) = asked else {
            panic!("{asked:?}")
        };
        assert_eq!(
            problem.detail,
            "allocation rejected: project \"atlas/physics/simulation\" would exceed max_nodes \
             quota (current: 0, requested: 21, limit: 10)\nallocation rejected: project \
             \"atlas/physics\" would exceed max_nodes quota (current: 0, requested: 21, limit: 20)"
        );
        assert_eq!(
            (problem.status, problem.code.as_str()),
            (409, "limit_exceeded")
        );
        let levels: Vec<_> = problem
            .violations
            .iter()
            .map(|v| {
                (
                    v.path.as_str(),
                    v.limit_name.as_str(),
                    v.current,
                    v.requested,
                    v.limit,
                )
            })
            .collect();
        assert_eq!(
            levels,
            [
                ("atlas/physics/simulation", "max_nodes", 0, 21, 10),
                ("atlas/physics", "max_nodes", 0, 21, 20)
            ]
        );
    }
    assert!(
        alice
            .allocations(&AllocationFilter::default())
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_dry_run_judges_and_changes_nothing() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let options = SubmitOptions {
        dry_run: true,
        ..SubmitOptions::default()
    };
    let before = alice.status().await.unwrap().revision;
    let judged = alice.submit(&job("atlas/web", 3), options).await.unwrap();
    assert_eq!(
        (judged.id, judged.dry_run, judged.revision),
        (None, true, before)
    );
    assert_eq!(alice.status().await.unwrap().revision, before);
}

#[tokio::test]
async fn shows_demand_as_requested() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let mut request = job("atlas/web", 1);
    request.data_ready = Some(0.8);
    request.checkpoint_time = Some("5m".to_owned());
    request.storage_gb_s = [("scratch".to_owned(), 40.0), ("home".to_owned(), 0.5)].into();
    let answer = alice.submit(&request, SubmitOptions::default()).await;
    let id = answer.unwrap().id.unwrap();
    let listed = alice.allocations(&AllocationFilter::default()).await;
    for shown in [
        alice.allocation(id).await.unwrap(),
        listed.unwrap().remove(0),
    ] {
        assert_eq!(shown.data_ready, request.data_ready);
        assert_eq!(shown.checkpoint_time, request.checkpoint_time);
        assert_eq!(shown.storage_gb_s, request.storage_gb_s);
    }
}

#[tokio::test]
async fn bad_requests_say_what_is_wrong_and_change_nothing() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let mut far = job("atlas/web", 1);
    far.walltime = Some("soon".to_owned());
    let mut odd = job("atlas/web", 1);
    odd.constraints.nodelist = Some("gpu[1-".to_owned());
    let mut ghost = job("atlas/web", 1);
    ghost.constraints.nodelist = Some("gpu999".to_owned());
    for (request, exit, wanted) in [
        (
            job("atlas/nowhere", 1),
            4,
            "unknown project \"atlas/nowhere\"",
        ),
        (job("atlas/web", 0), 2, "at least 1 node"),
        (job("atlas/web", 30), 1, "30"),
        (job("", 1), 2, "project"),
        (far, 2, "write it like"),
        (odd, 2, "']' is missing"),
        (ghost, 4, "unknown node \"gpu999\""),
    ] {
        let error = alice
            .submit(&request, SubmitOptions::default())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert_eq!(error.exit_code(), exit, "{error}");
    }
    let status = alice.status().await.unwrap();
    assert!(status.allocations_by_state.values().all(|n| *n == 0));
}

#[tokio::test]
async fn a_repeated_submit_is_one_allocation() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let key = || SubmitOptions {
        key: Some("once".to_owned()),
        dry_run: false,
    };
    let first = alice.submit(&job("atlas/web", 2), key()).await.unwrap();
    let again = alice.submit(&job("atlas/web", 2), key()).await.unwrap();
    assert_eq!(first.id, again.id);
    let other = alice.submit(&job("atlas/web", 3), key()).await.unwrap_err();
    assert_eq!(other.problem().unwrap().code, "key_reused");
    // The key of another principal is another key.
    let bobs = fixture
        .client("bob")
        .submit(&job("atlas/web", 3), key())
        .await
        .unwrap();
    assert_ne!(bobs.id, first.id);
    assert_eq!(
        alice
            .allocations(&AllocationFilter::default())
            .await
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn workload_is_visible_to_owner_and_operators() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 2).await;
    let own = fixture.client("alice").allocation(id).await.unwrap();
    assert_eq!(
        (own.user.as_str(), own.walltime.as_deref()),
        ("alice", Some("10m"))
    );
    let workload = own.workload.unwrap();
    assert_eq!(workload.argv, ["true"]);
    assert_eq!(workload.env["SECRET"], "<redacted>");
    assert!(
        fixture
            .client("op")
            .allocation(id)
            .await
            .unwrap()
            .workload
            .is_some()
    );
    for caller in ["bob", "eye"] {
        assert!(
            fixture
                .client(caller)
                .allocation(id)
                .await
                .unwrap()
                .workload
                .is_none()
        );
    }
}

#[tokio::test]
async fn lists_filter_and_page_over_the_living_and_the_ended() {
    let fixture = ApiFixture::furnished().await;
    for n in 0..7 {
        let caller = if n % 2 == 0 { "alice" } else { "bob" };
        let project = if n < 4 { "atlas/web" } else { "atlas/physics" };
        fixture.submit(caller, project, 1).await;
    }
    let op = fixture.client("op");
    let ended = op.cancel(AllocationId(2)).await.unwrap();
    assert_eq!(ended.state, "cancelled");
    assert!(ended.stop.unwrap().contains("op"));
    let list = async |filter: AllocationFilter| numbers(&op.allocations(&filter).await.unwrap());
    assert_eq!(
        list(AllocationFilter::default()).await,
        [1, 2, 3, 4, 5, 6, 7]
    );
    let user = Some("bob".to_owned());
    assert_eq!(
        list(AllocationFilter {
            user,
            ..Default::default()
        })
        .await,
        [2, 4, 6]
    );
    let project = Some("atlas/physics".to_owned());
    assert_eq!(
        list(AllocationFilter {
            project,
            ..Default::default()
        })
        .await,
        [5, 6, 7]
    );
    let pending = || AllocationFilter {
        states: vec![AllocationState::Pending],
        ..Default::default()
    };
    assert_eq!(list(pending()).await, [1, 3, 4, 5, 6, 7]);
    for filter in [AllocationFilter::default(), pending()] {
        let whole = list(filter.clone()).await;
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let page = op
                .allocations_page(&filter, Some(2), cursor.as_deref())
                .await
                .unwrap();
            assert!(page.items.len() <= 2);
            seen.extend(numbers(&page.items));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, whole);
    }
    let wrong = op
        .allocations_page(&pending(), Some(2), Some("x"))
        .await
        .unwrap_err();
    assert_eq!(wrong.problem().unwrap().field.as_deref(), Some("cursor"));
}

#[tokio::test]
async fn only_owner_may_hold_release_cancel() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 2).await;
    let (alice, bob) = (fixture.client("alice"), fixture.client("bob"));
    let denied = bob.cancel(id).await.unwrap_err();
    assert!(matches!(denied, ClientError::NotAllowed(_)), "{denied:?}");
    let held = alice.hold(id).await.unwrap();
    assert_eq!(
        (held.state.as_str(), held.reason.as_deref()),
        ("held", Some("on hold"))
    );
    assert_eq!(alice.explanation(id).await.unwrap().summary, "on hold");
    assert_eq!(alice.release(id).await.unwrap().state, "pending");
    let why = alice.explanation(id).await.unwrap();
    // No control schedules here, so this control plans for the explanation.
    let said = why.summary;
    assert!(said.starts_with("needs 2 of 24 nodes: 0 alive"), "{said}");
    assert_eq!(alice.cancel(id).await.unwrap().state, "cancelled");
    let late = alice.hold(id).await.unwrap_err();
    assert_eq!(late.problem().unwrap().code, "wrong_state");
    let why = alice.explanation(id).await.unwrap();
    assert!(why.summary.starts_with("cancelled at "), "{}", why.summary);
    let none = alice.allocation(AllocationId(99)).await.unwrap_err();
    assert!(matches!(none, ClientError::NotFound(_)), "{none:?}");
}

#[tokio::test]
async fn output_comes_from_node_for_owner() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let alice = fixture.client("alice");
    let read = async |options: LogOptions| -> Result<String, ClientError> {
        let chunks: Vec<_> = alice.logs(id, options).await?.try_collect().await?;
        Ok(String::from_utf8(chunks.concat()).unwrap())
    };
    let early = read(LogOptions::default()).await.unwrap_err();
    assert_eq!(early.problem().unwrap().code, "not_started");
    fixture.assign(id, &["gpu001"]).await;
    assert_eq!(read(LogOptions::default()).await.unwrap(), OUTPUT);
    fixture.begins(id, "gpu001").await;
    let follow = LogOptions {
        follow: true,
        offset: 6,
        ..LogOptions::default()
    };
    assert_eq!(read(follow).await.unwrap(), OUTPUT[6..]);
    let stderr = LogOptions {
        output: LogOutput::Stderr,
        ..LogOptions::default()
    };
    assert_eq!(read(stderr).await.unwrap(), "");
    let rank = read(LogOptions {
        rank: 1,
        ..LogOptions::default()
    })
    .await
    .unwrap_err();
    assert_eq!(rank.exit_code(), 4, "{rank}");
    let denied = fixture
        .client("bob")
        .logs(id, LogOptions::default())
        .await
        .err()
        .unwrap();
    assert!(matches!(denied, ClientError::NotAllowed(_)), "{denied:?}");
    let running = alice.allocation(id).await.unwrap();
    assert_eq!(
        (running.state.as_str(), running.nodelist.as_str()),
        ("running", "gpu001")
    );
    let why = alice.explanation(id).await.unwrap();
    assert!(why.summary.contains("gpu001"), "{}", why.summary);
}

#[tokio::test]
async fn missing_output_has_a_reason() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let reason = async |id: AllocationId| {
        let refused = alice.logs(id, LogOptions::default()).await.err().unwrap();
        assert_eq!(refused.problem().unwrap().code, "not_started");
        refused.to_string()
    };
    let id = fixture.submit("alice", "atlas/web", 1).await;
    assert!(reason(id).await.contains("it has not started yet"));
    alice.cancel(id).await.unwrap();
    assert!(reason(id).await.contains("it ended without a start"));
    let mut request = job("atlas/web", 1);
    request.array = Some("0-3".to_owned());
    let made = alice.submit(&request, SubmitOptions::default()).await;
    let array = made.unwrap().id.unwrap();
    assert!(reason(array).await.contains("name an element"));
}

#[tokio::test]
async fn readers_of_one_node_leave_room_for_orders_to_it() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    let follow = || LogOptions {
        follow: true,
        output: LogOutput::Stderr,
        ..LogOptions::default()
    };
    let (alice, op) = (fixture.client("alice"), fixture.client("op"));
    let mut held = Vec::new();
    for n in 0..16 {
        let caller = if n % 2 == 0 { &alice } else { &op };
        held.push(caller.logs(id, follow()).await.unwrap());
    }
    let refused = alice.logs(id, follow()).await.err().unwrap();
    let problem = refused.problem().unwrap();
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (503, "too_many_streams")
    );
    assert!(problem.detail.contains("gpu001"), "{}", problem.detail);
    // The node still answers other requests.
    fixture
        .client("op")
        .inventory("gpu001", true)
        .await
        .unwrap();
    drop(held);
    let freed = async {
        while alice.logs(id, follow()).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed)
        .await
        .expect("places are given back");
}

#[tokio::test]
async fn follower_waits_for_rank_start() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let alice = fixture.client("alice");
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let mut pending = alice.logs(id, follow).await.unwrap();
    fixture.assign(id, &["gpu001"]).await;
    let mut starting = alice.logs(id, follow).await.unwrap();
    // Both responses have begun, and stay empty while the node has no output.
    let early = std::time::Duration::from_millis(100);
    for waiting in [&mut pending, &mut starting] {
        let next = tokio::time::timeout(early, waiting.try_next()).await;
        assert!(next.is_err(), "{next:?}");
    }
    fixture.begins(id, "gpu001").await;
    for waiting in [pending, starting] {
        let chunks: Vec<_> = waiting.try_collect().await.unwrap();
        assert_eq!(chunks.concat(), OUTPUT.as_bytes());
    }
}

#[tokio::test]
async fn follower_of_unstarted_rank_gets_its_end() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let alice = fixture.client("alice");
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let waiting = alice.logs(id, follow).await.unwrap();
    let there_is_no_rank_2 = LogOptions { rank: 2, ..follow };
    assert!(alice.logs(id, there_is_no_rank_2).await.is_err());
    alice.cancel(id).await.unwrap();
    let chunks: Vec<_> = waiting.try_collect().await.unwrap();
    assert!(chunks.concat().is_empty(), "{chunks:?}");
}

#[tokio::test]
async fn start_failure_is_hidden_from_others() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    let reason = "/home/alice/secret-project/train: no such file".to_owned();
    fixture
        .ends(id, "gpu001", RankExit::SpawnFailed { reason })
        .await;
    let stop_shown_to = async |caller: &str| {
        let client = fixture.client(caller);
        let shown = client.allocation(id).await.unwrap();
        assert_eq!(shown.state, "failed");
        let why = client.explanation(id).await.unwrap().summary;
        [
            shown.ranks[0].exit.clone().unwrap(),
            shown.stop.unwrap(),
            why,
        ]
    };
    for caller in ["alice", "op"] {
        for text in stop_shown_to(caller).await {
            assert!(text.contains("secret-project"), "{caller}: {text}");
        }
    }
    for caller in ["bob", "eye"] {
        for text in stop_shown_to(caller).await {
            assert!(text.contains("could not start"), "{caller}: {text}");
            assert!(!text.contains("secret-project"), "{caller}: {text}");
        }
    }
}

#[tokio::test]
async fn output_file_path_is_shown_without_content() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let mut request = job("atlas/web", 2);
    request.output = Some("/scratch/alice/%j-%r-%n.100%%".to_owned());
    request.working_dir = Some("/home/alice".to_owned());
    let made = alice.submit(&request, SubmitOptions::default()).await;
    let id = made.unwrap().id.unwrap();
    let shown = alice.allocation(id).await.unwrap().workload.unwrap();
    assert_eq!((shown.output, shown.error), (request.output, None));
    let note_of = async |options: LogOptions| {
        let Err(error) = alice.logs(id, options).await else {
            panic!("a file was read");
        };
        assert_eq!(error.problem().unwrap().code, "output_in_file");
        error.to_string()
    };
    fixture.assign(id, &["gpu001", "gpu002"]).await;
    let rank = |rank| LogOptions {
        rank,
        ..LogOptions::default()
    };
    assert_eq!(
        note_of(rank(1)).await,
        format!(
            "the standard output of allocation {id} rank 1 is not kept as a log: it goes to \
             /scratch/alice/{id}-1-gpu002.100% on gpu002, a file of the account that runs it"
        )
    );
    // Output without its own file is read as usual.
    fixture.begins(id, "gpu001").await;
    let stderr = LogOptions {
        output: LogOutput::Stderr,
        ..LogOptions::default()
    };
    let read = alice.logs(id, stderr).await.unwrap();
    let read: Vec<_> = read.try_collect().await.unwrap();
    assert!(read.concat().is_empty());
    let bob = fixture.client("bob").logs(id, rank(0)).await.err().unwrap();
    assert_eq!(bob.exit_code(), 5, "its place is nobody else's business");
}

/// No scheduler runs in this test.
#[tokio::test]
async fn wait_survives_restart_within_timeout() {
    let mut fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let work = AllocationRequest {
        project: "atlas/web".to_owned(),
        nodes: 1,
        argv: vec!["true".to_owned()],
        ..AllocationRequest::default()
    };
    let short = Some(Duration::from_millis(300));
    let late = alice.submit_and_wait(&work, short).await.unwrap_err();
    let WaitError::TimedOut { id, seen, .. } = late else {
        panic!("{late}")
    };
    assert_eq!(seen.unwrap().state, "pending");

    fixture.close().await;
    let late = alice.wait(id, short).await.unwrap_err();
    assert!(
        matches!(late, WaitError::TimedOut { seen: None, .. }),
        "{late}"
    );
    let waiting = tokio::spawn({
        let alice = alice.clone();
        async move { alice.wait(id, None).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    fixture.open();
    alice.cancel(id).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().state, "cancelled");
    let unknown = alice.wait(JobRef::from(AllocationId(999)), short).await;
    assert!(matches!(
        unknown,
        Err(WaitError::Client(ClientError::NotFound(_)))
    ));
    // An unknown project has no allocations to list.
    let filter = AllocationFilter {
        project: Some("atlas/nothing".to_owned()),
        ..AllocationFilter::default()
    };
    let none = alice.allocations(&filter).await.unwrap_err();
    assert_eq!(none.exit_code(), 4);
}

#[tokio::test]
async fn default_file_of_site_applies_to_streams_without_file() {
    let fixture = ApiFixture::with_default_output("lattice-%j.out").await;
    let alice = fixture.client("alice");
    let files = async |request: &AllocationRequest| {
        let made = alice.submit(request, SubmitOptions::default()).await;
        let id = made.unwrap().id.unwrap();
        let places = alice.allocation(id).await.unwrap().output.unwrap();
        (id, places.stdout.file, places.stderr.file)
    };
    let (id, stdout, stderr) = files(&job("atlas/web", 1)).await;
    let file = Some(format!("lattice-{id}.out"));
    assert_eq!((&stdout, &stderr), (&file, &file));
    let (id, stdout, _) = files(&job("atlas/web", 2)).await;
    assert_eq!(stdout, Some(format!("lattice-{id}.out.%r")));
    let array = AllocationRequest {
        array: Some("3-4".to_owned()),
        ..job("atlas/web", 1)
    };
    let (id, stdout, _) = files(&array).await;
    assert_eq!(stdout, Some(format!("lattice-{id}_%a.out")));
    let element = format!("{id}_4").parse::<JobRef>().unwrap();
    let element = alice.allocation(element).await.unwrap().output.unwrap();
    assert_eq!(
        element.stdout.file,
        Some(format!("lattice-{id}_4.out")),
        "the name of the element"
    );
    // A file of the request takes precedence, also for the error output, and `-` leaves the output on the nodes.
    let mut request = job("atlas/web", 1);
    request.output = Some("mine.txt".to_owned());
    let mine = Some("mine.txt".to_owned());
    let (_, stdout, stderr) = files(&request).await;
    assert_eq!((&stdout, &stderr), (&mine, &mine));
    request.output = Some("-".to_owned());
    let (_, stdout, stderr) = files(&request).await;
    assert_eq!((stdout, stderr), (None, None));
    request.error = Some("errors".to_owned());
    let (_, stdout, stderr) = files(&request).await;
    assert_eq!((stdout, stderr), (None, Some("errors".to_owned())));
}

#[tokio::test]
async fn place_of_kept_output_has_a_date_after_the_end() {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let alice = fixture.client("alice");
    let shown = async || alice.allocation(id).await.unwrap();
    let stdout = async || shown().await.output.unwrap().stdout;
    assert_eq!(stdout().await, OutputPlaceView::default());
    fixture.assign(id, &["gpu001"]).await;
    fixture.begins(id, "gpu001").await;
    let running = OutputPlaceView {
        nodes: Some("gpu001".to_owned()),
        kept_for: Some("7d".to_owned()),
        ..OutputPlaceView::default()
    };
    assert_eq!(stdout().await, running);
    fixture
        .ends(id, "gpu001", RankExit::Exited { code: 0 })
        .await;
    let ended = shown().await;
    let until = ended.output.unwrap().stdout.kept_until.unwrap();
    let time = |text: &str| read_time(text).unwrap().0;
    let kept_ms = time(&until) - time(&ended.ended_at.unwrap());
    assert_eq!(kept_ms, 7 * 86_400_000);
    // The place of a file would reveal a part of the workload.
    let bob = fixture.client("bob").allocation(id).await.unwrap();
    assert_eq!((bob.workload, bob.output), (None, None));
}

#[tokio::test]
async fn output_of_rank_that_never_ran_is_explained() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let mut request = job("atlas/web", 1);
    request.output = Some("nosuchdir/x.out".to_owned());
    let made = alice.submit(&request, SubmitOptions::default()).await;
    let id = made.unwrap().id.unwrap();
    fixture.assign(id, &["gpu001"]).await;
    let reason = "output file /nonexistent/nosuchdir/x.out: No such file or directory (os error 2)";
    let exit = RankExit::SpawnFailed {
        reason: reason.to_owned(),
    };
    fixture.ends(id, "gpu001", exit).await;
    let Err(error) = alice.logs(id, LogOptions::default()).await else {
        panic!("there is no output");
    };
    assert_eq!(
        error.to_string(),
        format!("allocation {id} rank 0 wrote no standard output: could not start: {reason}")
    );
}
