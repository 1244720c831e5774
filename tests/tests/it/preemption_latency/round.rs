//! One round: a preemption, with the times that both jobs record.

use super::NODE;
use lattice_api::{AllocationRequest, allocation::CheckpointBody};
use lattice_client::SubmitOptions;
use lattice_quorum_types::AllocationId;
use lattice_tests::{site::Site, wait::until};
use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Times since the submit of the job of the higher class.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// The victim started its checkpoint.
    pub begun: Duration,
    /// The victim completed its checkpoint.
    pub written: Duration,
    /// The job's own process runs.
    pub runs: Duration,
    /// Time until a job on a free node runs.
    pub alone: Duration,
}

impl Round {
    /// Length of the checkpoint, by the clock of its writer.
    pub fn length(&self) -> Duration {
        self.written - self.begun
    }

    /// Wait beyond the checkpoint.
    pub fn ours(&self) -> Duration {
        self.runs - self.length()
    }
}

/// Script that counts, and writes checkpoints of this length. It records start and end of each.
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

/// Script that records its start.
fn runs(file: &Path) -> String {
    let at = file.display();
    format!("date +%s%N > {at}.new && mv {at}.new {at}\n")
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Time that a job recorded, relative to `from`. All jobs share the machine's clock.
fn since(from: Duration, file: PathBuf) -> Duration {
    let text = std::fs::read_to_string(&file).unwrap();
    Duration::from_nanos(text.trim().parse().unwrap()) - from
}

/// Submits a job and waits until it completes; returns the time of the submit.
async fn done(site: &Site, request: &AllocationRequest) -> Duration {
    let submitted = now();
    let asked = site.api().submit(request, SubmitOptions::default());
    let id: AllocationId = asked.await.unwrap().id.unwrap();
    let view = site.reaches(id, &["completed", "failed"]).await;
    assert_eq!(view.state, "completed", "{:?}", view.stop);
    submitted
}

/// Runs one round.
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
