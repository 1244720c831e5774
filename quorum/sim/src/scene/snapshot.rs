//! Scene: a power cut of a member while it receives a snapshot. See `Replica::store_received_snapshot` of the quorum.

use super::founded_cluster::{FoundedCluster, WRITES_BEYOND_LOG};
use crate::member::Order;

/// Plays [`super::Scenario::SnapshotCutShort`].
pub async fn cut_short(stage: &mut FoundedCluster, cut_at: u64) -> Result<(), String> {
    let all = [0, 1, 2];
    stage.wait_until_level(&all).await?;
    let (leads, _) = stage.leader(&all, 0).await?;
    let (away, stays) = ((leads + 1) % 3, (leads + 2) % 3);
    stage.connect_only(&[(leads, stays)]);
    for value in 0..WRITES_BEYOND_LOG {
        stage.write(value).await?;
    }
    let upto = stage.wait_until_level(&[leads, stays]).await?;
    stage.members[away].order(Order::CutPowerAt(cut_at));
    stage.mend();
    let is_cut = stage
        .until("it is brought up to date, or its power goes", |standings| {
            if stage.has_lost_power(away) {
                return Some(true);
            }
            let standing = standings.get(away)?.as_ref()?;
            (standing.applied >= upto).then_some(false)
        })
        .await?;
    if is_cut {
        stage.world.count("cut half way");
    }
    stage
        .until("it is brought up to date", |standings| {
            let standing = standings.get(away)?.as_ref()?;
            (standing.applied >= upto).then_some(())
        })
        .await
}
