//! Lease commands: acquire, renew, release.

use super::{Case, invalid, vcluster};
use crate::{
    change::{Change, Verdict},
    clock::MAX_LEASE_MS,
    lease::Lease,
};
use lattice_quorum_types::{Outcome, Refusal, UnixMillis, id::LeaseName};

/// Grants a free lease, or renews the holder's own lease with the same epoch. A longer `ttl_ms` is cut to
/// [`MAX_LEASE_MS`]; the outcome contains the expiry.
pub(super) fn acquire(
    case: Case<'_>,
    name: &LeaseName,
    holder: &str,
    ttl_ms: u64,
) -> Result<Verdict, Refusal> {
    if ttl_ms == 0 {
        return Err(invalid("ttl_ms", "a lease lasts at least 1 ms"));
    }
    if holder.is_empty() {
        return Err(invalid("holder", "name the holder of the lease"));
    }
    let present = case.state.leases.get(name.as_str());
    let running = present.filter(|lease| ends_at(case, lease) > case.now);
    let epoch = match running.and_then(|lease| lease.holder.as_deref()) {
        Some(other) if other != holder => {
            return Err(Refusal::LeaseHeld {
                lease: name.clone(),
                holder: other.to_owned(),
            });
        }
        Some(_) => present.map_or(1, |lease| lease.epoch),
        None => case.state.leases.next_epoch(name),
    };
    let announce = present.is_none_or(|lease| lease.epoch != epoch);
    let expires_at = case.now.after(ttl_ms.min(MAX_LEASE_MS));
    let lease = Lease {
        holder: Some(holder.to_owned()),
        epoch,
        expires_at,
    };
    Ok(Verdict {
        outcome: Outcome::Leased { epoch, expires_at },
        changes: vec![Change::Lease {
            name: name.clone(),
            lease,
            announce,
        }],
    })
}

/// Releases a lease and ends its epoch. No change when the lease is not held. The scheduler lease of a deleted vCluster
/// is removed, since no service acquires it again.
pub(super) fn release(case: Case<'_>, name: &LeaseName, holder: &str) -> Result<Verdict, Refusal> {
    let Some(present) = case.state.leases.get(name.as_str()) else {
        return Ok(Verdict::unchanged());
    };
    match present.holder.as_deref() {
        None => Ok(Verdict::unchanged()),
        Some(other) if other != holder => Err(Refusal::LeaseHeld {
            lease: name.clone(),
            holder: other.to_owned(),
        }),
        Some(_) if is_orphaned(case, name) => {
            Ok(Verdict::done(vec![Change::RemoveLease(name.clone())]))
        }
        Some(_) => {
            let lease = Lease {
                holder: None,
                epoch: present.epoch + 1,
                expires_at: case.now,
            };
            Ok(Verdict::done(vec![Change::Lease {
                name: name.clone(),
                lease,
                announce: true,
            }]))
        }
    }
}

/// Returns whether the lease belongs to the scheduler of a vCluster that does not exist.
fn is_orphaned(case: Case<'_>, name: &LeaseName) -> bool {
    name.scheduled()
        .is_some_and(|vcluster| !vcluster::exists(case, &vcluster))
}

/// End of a lease, with the grace for a step of state time.
fn ends_at(case: Case<'_>, lease: &Lease) -> UnixMillis {
    lease
        .expires_at
        .after(case.state.clock.lease_grace(case.now))
}
