//! One job that makes room for another, each of which writes down when.

use super::NODE;
use lattice_api::{AllocationRequest, allocation::CheckpointBody};
use lattice_client::SubmitOptions;
use lattice_quorum_types::AllocationId;
use lattice_tests::{site::Site, wait::until};
use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// When what came about, from the submit of the job of the higher class on.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// The other began to write.
    pub begun: Duration,
    /// Had written.
    pub written: Duration,
    /// The job's own process runs.
    pub runs: Duration,
    /// The same of one that found the node free.
    pub alone: Duration,
}

impl Round {
    /// Of the checkpoint, by its writer's clock.
    pub fn length(&self) -> Duration {
        self.written - self.begun
    }

    /// What it waited beyond that.
    pub fn ours(&self) -> Duration {
        self.runs - self.length()
    }
}

/// Counts, and takes so long for each checkpoint. It says when it began and ended one.
fn writes(folder: &Path, length: Duration) -> String {
    let at = folder.display();
    let seconds = length.as_secs_f64();
    let wait = match length.is_zero() {
        true => String::new(),
        false => format!("sleep {seconds}\n"),
    };
    format!(
        r#"checkpoint() {{
date +%s%N > {at}/begun.new
while IFS='=' read -r key value; do
    case $key in
        number) number=$value ;;
        folder) folder=$value ;;
        complete) complete=$value ;;
    esac
done < "$LATTICE_CHECKPOINT_REQUEST"
{wait}echo "$n" > "$folder/state" && sync "$folder/state"
mv {at}/begun.new {at}/begun
date +%s%N > {at}/written.new && mv {at}/written.new {at}/written
echo "$number" > "$complete.new" && mv "$complete.new" "$complete"
}}
n=0
test -z "$LATTICE_RESTORE_DIR" || touch {at}/goes-on
trap checkpoint USR1
touch {at}/counts
while [ ! -e {at}/may-end ]; do n=$((n + 1)); sleep 0.05 & wait $!; done
"#
    )
}

/// Says when it runs.
fn runs(file: &Path) -> String {
    let at = file.display();
    format!("date +%s%N > {at}.new && mv {at}.new {at}\n")
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// What a job wrote down, since `from`. One machine has one clock.
fn since(from: Duration, file: PathBuf) -> Duration {
    let text = std::fs::read_to_string(&file).unwrap();
    Duration::from_nanos(text.trim().parse().unwrap()) - from
}

/// Submits it, and waits until it is done; when it was submitted.
async fn done(site: &Site, request: &AllocationRequest) -> Duration {
    let submitted = now();
    let asked = site.api().submit(request, SubmitOptions::default());
    let id: AllocationId = asked.await.unwrap().id.unwrap();
    let view = site.reaches(id, &["completed", "failed"]).await;
    assert_eq!(view.state, "completed", "{:?}", view.stop);
    submitted
}

/// Plays one.
pub async fn play(site: &Site, length: Duration) -> Round {
    let number = site.path("rounds").read_dir().unwrap().count();
    let folder = site.path(&format!("rounds/{number}"));
    std::fs::create_dir(&folder).unwrap();
    lattice_tests::open_to_others(&folder);
    let urgent = |file: &Path| AllocationRequest {
        class: Some(8),
        ..site.request(Some(NODE), &runs(file))
    };
    let file = folder.join("alone");
    let submitted = done(site, &urgent(&file)).await;
    let alone = since(submitted, file);
    site.are_ready(&[NODE.to_owned()]).await;

    let victim = AllocationRequest {
        class: Some(2),
        checkpoint: Some(CheckpointBody {
            mode: "signal".to_owned(),
            trigger: Some("manual".to_owned()),
            directory: Some(folder.display().to_string()),
        }),
        checkpoint_time: Some("1s".to_owned()),
        ..site.request(Some(NODE), &writes(&folder, length))
    };
    let asked = site.api().submit(&victim, SubmitOptions::default());
    let victim = asked.await.unwrap().id.unwrap();
    site.reaches(victim, &["running"]).await;
    until("it counts", || folder.join("counts").exists()).await;

    let file = folder.join("runs");
    let submitted = done(site, &urgent(&file)).await;
    until("it goes on", || folder.join("goes-on").exists()).await;
    let round = Round {
        begun: since(submitted, folder.join("begun")),
        written: since(submitted, folder.join("written")),
        runs: since(submitted, file),
        alone,
    };
    assert!(round.written <= round.runs, "{round:?}");
    std::fs::write(folder.join("may-end"), "").unwrap();
    let view = site.reaches(victim, &["completed", "failed"]).await;
    assert_eq!((view.state.as_str(), view.preempted), ("completed", 1));
    site.are_ready(&[NODE.to_owned()]).await;
    round
}
