//! Certificate authorities that the cluster trusts, and their pins.

use super::{read, unexpected};
use lattice_api::problem::Problem;
use lattice_engine::Core;
use lattice_mesh::Pin;
use lattice_quorum_types::view::{Answer, Authority, Query};

/// Every trusted authority.
pub(super) async fn trusted(core: &Core) -> Result<Vec<Authority>, Problem> {
    match read(core, Query::Trust).await? {
        Answer::Trust(trust) => Ok(trust.authorities),
        _ => Err(unexpected()),
    }
}

/// CA pins for joining members: that of the issuing authority, and those of all other trusted ones. `None` if the state
/// has no authority.
pub(super) async fn pins(core: &Core) -> Result<Option<(Pin, Vec<Pin>)>, Problem> {
    let mut all = trusted(core).await?;
    all.sort_by_key(|authority| !authority.issuing);
    let pins: Result<Vec<Pin>, _> = all.iter().map(|a| a.pin.parse()).collect();
    let mut pins = pins.map_err(|_| unexpected())?.into_iter();
    Ok(pins.next().map(|first| (first, pins.collect())))
}
