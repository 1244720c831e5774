//! Damaged, missing or foreign files: the member refuses to start and names the file and the remedy, or serves with all
//! data.

use super::{PROGRAM, all_there_whoever_leads, others};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::VoterId;
use lattice_tests::{
    members::{IDS, Members, caught_up, files, led},
    recorder::{Acknowledged, Recorder, prepare},
    wait::eventually,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A quorum with some history; its first follower has been killed.
struct DamagedQuorum {
    members: Members,
    client: QuorumClient,
    acknowledged: Vec<Acknowledged>,
    victim: VoterId,
}

impl DamagedQuorum {
    async fn prepare() -> Self {
        let mut members = Members::prepare(PROGRAM, "snapshot_every: 100\n");
        members.start_all();
        let client = members.client("c1");
        prepare(&client, &[]).await;
        let recorder = Recorder::start(&client, "damage", 4);
        let (leader, _) = led(&client, &IDS).await;
        let victim = others(leader)[0];
        let folder = members.data(victim).join("snapshots");
        eventually("two snapshots are kept", || async {
            let kept = fs::read_dir(&folder).map_or(0, Iterator::count);
            (kept >= 2).then_some(())
        })
        .await;
        recorder.writes(50).await;
        members.member(victim).kill();
        let acknowledged = recorder.stop().await;
        Self {
            members,
            client,
            acknowledged,
            victim,
        }
    }

    fn data(&self) -> PathBuf {
        self.members.data(self.victim)
    }

    /// Starts the victim. `Err`: the member refused to start, with this output.
    async fn starts(&mut self) -> Result<(), String> {
        let id = self.victim;
        let listens = |said: &str| said.matches("listens on UDP").count();
        let before = self.members.member(id).said();
        let (times, length) = (listens(&before), before.len());
        self.members.member(id).start();
        let members = std::cell::RefCell::new(&mut self.members);
        let is_up = eventually("it serves or refuses", || async {
            let mut members = members.borrow_mut();
            if !members.member(id).is_running() {
                return Some(false);
            }
            (listens(&members.member(id).said()) > times).then_some(true)
        })
        .await;
        if is_up {
            return Ok(());
        }
        let (code, said) = self.members.ends(id).await;
        let said = said[length..].to_owned();
        assert_eq!(code, Some(1), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        Err(said)
    }

    /// Checks that the member refuses to start with these words, also the second time. It changes nothing except the
    /// repairs of redb in its own file after a kill.
    async fn is_refused(&mut self, file: &str, parts: &[&str]) {
        let kept = |mut all: Vec<(PathBuf, Vec<u8>)>| {
            all.retain(|(path, _)| !path.ends_with("log.redb"));
            all
        };
        let before = kept(files(&self.data()));
        for _ in 0..2 {
            let said = self.starts().await.expect_err("it serves");
            for part in [&[file], parts].concat() {
                assert!(said.contains(part), "{part:?} is missing in: {said}");
            }
            assert!(kept(files(&self.data())) == before, "files were changed");
        }
    }

    /// Starts the victim with damage that may lie in an unused part of the log. Returns whether the member refused to
    /// start; otherwise it has all data, and it is killed again.
    async fn is_refused_or_complete(&mut self) -> bool {
        if let Err(output) = self.starts().await {
            assert!(output.contains("log.redb is damaged"), "{output}");
            assert!(output.contains(ADVICE), "{output}");
            return true;
        }
        caught_up(&self.client, self.victim).await;
        let Self {
            members,
            client,
            acknowledged,
            victim,
        } = self;
        all_there_whoever_leads(members, client, acknowledged).await;
        members.member(*victim).kill();
        false
    }

    /// Follows the advice of the refusal: the member starts with an empty data directory, and then its vote counts.
    async fn begins_anew(mut self) {
        self.members.begin_anew(self.victim);
        self.starts().await.unwrap();
        caught_up(&self.client, self.victim).await;
        let Self {
            members,
            client,
            acknowledged,
            ..
        } = &mut self;
        all_there_whoever_leads(members, client, acknowledged).await;
    }
}

/// Advice in every refusal because of damage.
const ADVICE: &str = "move the data directory away and start again";

fn snapshots(data: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(data.join("snapshots")).unwrap();
    let mut found: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Flips the bits of one byte in the middle.
fn spoil(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(file, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_changed_bytes_is_refused_or_was_not_read_there() {
    let mut quorum = DamagedQuorum::prepare().await;
    let log = quorum.data().join("log.redb");
    let whole = fs::read(&log).unwrap();
    let at = |part: usize| whole.len() * part / 16;
    let (mut refused, mut served) = (0, 0);
    for part in 0..16 {
        // Damages a page, as a disk does.
        let mut bytes = whole.clone();
        let end = (at(part) + 4096).min(bytes.len());
        for byte in &mut bytes[at(part)..end] {
            *byte ^= 0xa5;
        }
        fs::write(&log, bytes).unwrap();
        match quorum.is_refused_or_complete().await {
            true => refused += 1,
            false => served += 1,
        }
    }
    println!("16 pages changed, one at a time: {refused} refused, {served} not in use");
    assert!(refused > 0, "no damage was found");
    quorum.begins_anew().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_its_end_is_refused() {
    let mut quorum = DamagedQuorum::prepare().await;
    let log = quorum.data().join("log.redb");
    let whole = fs::read(&log).unwrap();
    // The database may have left the last page unused; redb then rebuilds its layout from the length of the file.
    fs::write(&log, &whole[..whole.len() - 4096]).unwrap();
    quorum.is_refused_or_complete().await;
    for kept in [whole.len() / 2, 100] {
        fs::write(&log, &whole[..kept]).unwrap();
        quorum.is_refused("log.redb is damaged", &[ADVICE]).await;
    }
    quorum.begins_anew().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_damaged_snapshot_without_log() {
    let mut quorum = DamagedQuorum::prepare().await;
    let found = snapshots(&quorum.data());
    let newest = found.last().unwrap();
    let name = newest.file_name().unwrap().to_str().unwrap();
    spoil(newest);
    quorum.is_refused(name, &["is damaged", ADVICE]).await;
    found[..found.len() - 1].iter().for_each(|file| spoil(file));
    quorum.is_refused(name, &["is damaged", ADVICE]).await;
    fs::remove_dir_all(quorum.data().join("snapshots")).unwrap();
    fs::create_dir(quorum.data().join("snapshots")).unwrap();
    let missing = "the snapshot that the log begins with is missing";
    quorum.is_refused("snapshots", &[missing, ADVICE]).await;
    quorum.begins_anew().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_without_its_log_or_of_another_member_is_refused() {
    let mut quorum = DamagedQuorum::prepare().await;
    let data = quorum.data();
    let (log, aside) = (data.join("log.redb"), data.with_extension("log"));
    fs::rename(&log, &aside).unwrap();
    quorum
        .is_refused("log.redb", &["it is missing", ADVICE])
        .await;
    fs::write(&log, b"").unwrap();
    quorum
        .is_refused("log.redb", &["it is empty", ADVICE])
        .await;
    fs::rename(&aside, &log).unwrap();

    let marker = data.join("FORMAT");
    let own = fs::read_to_string(&marker).unwrap();
    let id = quorum.victim;
    let others = own.replace(&format!("\"voter\":{id}"), "\"voter\":9");
    assert_ne!(own, others);
    fs::write(&marker, others).unwrap();
    let words = format!("belongs to voter 9 of cluster \"faults\", not to voter {id}");
    quorum
        .is_refused("data directory", &[&words, "correct `data_dir`"])
        .await;
    fs::write(&marker, own.replace("faults", "elsewhere")).unwrap();
    let words = format!("belongs to voter {id} of cluster \"elsewhere\"");
    quorum
        .is_refused("data directory", &[&words, "correct `data_dir`"])
        .await;

    // With its own files it serves as before.
    fs::write(&marker, own).unwrap();
    quorum.starts().await.unwrap();
    caught_up(&quorum.client, id).await;
    let DamagedQuorum {
        members,
        client,
        acknowledged,
        ..
    } = &mut quorum;
    all_there_whoever_leads(members, client, acknowledged).await;
}
