//! Access to the BMCs of a plan, for `--check-config --online`: one login and one resource each.

use super::config::{BmcPlan, BmcTarget, client};
use futures::StreamExt as _;
use lattice_config::online::{OnCheck, OnlineCheck};
use lattice_conformance::Reading;
use lattice_host::error_text::with_causes;
use lattice_redfish::ResourcePath;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Resource that every Redfish service has and returns after a login only.
const SYSTEMS: &str = "/redfish/v1/Systems";
/// BMCs tried at the same time.
const AT_A_TIME: usize = 64;
/// Longest duration of a login, the resource and the logout.
const BMC_TIMEOUT: Duration = Duration::from_secs(15);

/// Logs in to each BMC of the plan, reads its list of systems, and logs out. Passes on each check as it ends, and ends
/// within `limit`.
pub async fn check_access(plan: &BmcPlan, limit: Duration, on_check: OnCheck<'_>) {
    let until = Instant::now() + limit;
    let at_a_time = AT_A_TIME.min(plan.at_a_time.max(1));
    futures::stream::iter(&plan.targets)
        .for_each_concurrent(at_a_time, |target| async move {
            on_check(check(target, until).await);
        })
        .await;
}

async fn check(target: &BmcTarget, until: Instant) -> OnlineCheck {
    let subject = format!("bmcs {}", target.endpoint.0.address());
    let late = "check the address, the route to the management network and its firewall";
    if Instant::now() >= until {
        let reason = "not tried: the time of all online checks is used up";
        return OnlineCheck::skipped(subject, reason);
    }
    let bmc = match client(&target.endpoint) {
        Ok(bmc) => bmc,
        Err(error) => {
            return OnlineCheck::failed(subject, with_causes(&error), "correct the entry");
        }
    };
    let Some(systems) = ResourcePath::parse(SYSTEMS) else {
        return OnlineCheck::failed(subject, format!("{SYSTEMS} is not a valid path"), late);
    };
    let until = until.min(Instant::now() + BMC_TIMEOUT);
    let read = timeout_at(until, bmc.fetch(&systems)).await;
    // A session that stays open counts against the limit of the BMC.
    let _ = timeout_at(until + Duration::from_secs(1), bmc.close()).await;
    let next = match &read {
        Ok(Reading::Present(_)) => return OnlineCheck::passed(subject, "login accepted"),
        Ok(Reading::Denied { .. }) => "correct `user` and the password file",
        Ok(Reading::Absent | Reading::Unsupported) => "check that the address is that of a BMC",
        Ok(_) | Err(_) => late,
    };
    let cause = match read {
        Ok(reading) => reading.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    OnlineCheck::failed(subject, cause, next)
}
