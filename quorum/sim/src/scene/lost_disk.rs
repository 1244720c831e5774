//! Scenes: a member that lost its disk is connected to a leader that was cut off. See `leadership/vote_guard.rs` of the
//! quorum.

use super::founded_cluster::{FoundedCluster, MemberIndex, WRITES_BEYOND_LOG};
use crate::member::Order;
use lattice_quorum_types::Revision;
use std::ops::RangeInclusive;

/// Number of log entries after a leader's snapshot: at least some, but too few for the next snapshot.
const ENTRIES_AFTER_SNAPSHOT: RangeInclusive<u64> = 3..=15;

/// A leader that is cut off while the other two members continue.
struct IsolatedLeader {
    old: MemberIndex,
    /// The new leader, and the member that follows it.
    leads: MemberIndex,
    follows: MemberIndex,
    /// Last acknowledged revision, which the old leader lacks.
    acknowledged: Revision,
    /// Log index that the other two members have applied.
    upto: u64,
}

async fn cut_off(stage: &mut FoundedCluster, writes: u64) -> Result<IsolatedLeader, String> {
    for value in 0..writes {
        stage.write(value).await?;
    }
    let all = [0, 1, 2];
    stage.wait_until_level(&all).await?;
    let (old, term) = stage.leader(&all, 0).await?;
    let two: Vec<MemberIndex> = all.into_iter().filter(|place| *place != old).collect();
    stage.connect_only(&[(two[0], two[1])]);
    let (leads, _) = stage.leader(&two, term).await?;
    let follows = if leads == two[0] { two[1] } else { two[0] };
    let acknowledged = stage.write(writes).await?.revision;
    let upto = stage.wait_until_level(&two).await?;
    Ok(IsolatedLeader {
        old,
        leads,
        follows,
        acknowledged,
        upto,
    })
}

/// Wipes a member's disk while all links between members are cut, and waits until the member is up again.
async fn lose_disk(stage: &FoundedCluster, place: MemberIndex) -> Result<(), String> {
    stage.connect_only(&[]);
    stage.members[place].order(Order::LoseDisk);
    stage
        .until("a member is there again without its disk", |standings| {
            let standing = standings.get(place)?.as_ref()?;
            (standing.applied == 0).then_some(())
        })
        .await
}

/// Checks that the acknowledged write is still in effect, at the same revision, for the final leader.
async fn check_write_kept(
    stage: &mut FoundedCluster,
    writes: u64,
    at: Revision,
) -> Result<(), String> {
    stage.mend();
    let again = stage.write(writes).await?.revision;
    if again == at {
        return Ok(());
    }
    Err(format!(
        "the write acknowledged at {at} took effect at {again}"
    ))
}

/// Plays [`super::Scenario::OldLeaderWithLostDisk`].
pub async fn old_leader(stage: &mut FoundedCluster, of_leader: bool) -> Result<(), String> {
    let now = cut_off(stage, 1).await?;
    let lost = if of_leader { now.leads } else { now.follows };
    lose_disk(stage, lost).await?;
    stage.connect_only(&[(now.old, lost)]);
    stage.read_from(&[now.old, lost], now.acknowledged).await;
    // After a restart, the member still counts as one without a log.
    stage.members[lost].order(Order::Kill);
    stage.read_from(&[now.old, lost], now.acknowledged).await;
    check_write_kept(stage, 1, now.acknowledged).await
}

/// Plays [`super::Scenario::LostDiskHalfCaughtUp`].
pub async fn half_way(stage: &mut FoundedCluster, cut_at: Option<u64>) -> Result<(), String> {
    // The member receives a snapshot, and the acknowledged write is after that snapshot.
    let mut last = WRITES_BEYOND_LOG;
    let mut now = cut_off(stage, last).await?;
    while !ENTRIES_AFTER_SNAPSHOT.contains(&(now.upto - stage.snapshot(now.leads).await?)) {
        last += 1;
        now.acknowledged = stage.write(last).await?.revision;
        now.upto = stage.wait_until_level(&[now.leads, now.follows]).await?;
    }
    lose_disk(stage, now.follows).await?;
    if let Some(nth) = cut_at {
        stage.members[now.follows].order(Order::CutPowerAt(nth));
    }
    // The old leader sends the member its term, and the member follows the new leader.
    stage.connect_only(&[(now.old, now.follows), (now.leads, now.follows)]);
    let is_cut = stage
        .until("it is brought up to date, or ends", |standings| {
            if stage.has_lost_power(now.follows) {
                return Some(true);
            }
            match standings.get(now.follows)?.as_ref()?.applied {
                applied if applied >= now.upto => Some(false),
                1.. if cut_at.is_none() => Some(true),
                _ => None,
            }
        })
        .await?;
    stage.connect_only(&[(now.old, now.follows)]);
    if is_cut {
        stage.world.count("cut half way");
    }
    if cut_at.is_none() {
        stage.members[now.follows].order(Order::Kill);
    }
    stage
        .read_from(&[now.old, now.follows], now.acknowledged)
        .await;
    check_write_kept(stage, last, now.acknowledged).await
}
