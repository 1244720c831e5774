//! Trust distribution: pushes the trust bundle in force to every alive agent, when the bundle changes and whenever an
//! agent has restarted.
//!
//! Agents also fetch the bundle themselves, but rarely, and a revocation must take effect soon.
//!
//! Every control pushes. No lease is needed, because agents verify a bundle by its signature and number.

use crate::{
    core::{Core, TrustNews},
    tasks::activation::Activation,
};
use futures::StreamExt;
use lattice_mesh::{PushTrust, SignedBundle, TrustBundle, TrustedAuthority};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId,
    view::{Answer, Query, TrustView},
};
use lattice_view::NodeEntry;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// Longest time between two rounds.
const PERIOD: Duration = Duration::from_secs(5);
/// Shortest time between two rounds; revocations within this time are pushed together.
const SPACING: Duration = Duration::from_millis(100);
/// Timeout for an agent to put a bundle in force.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before a bundle is pushed again to an agent that did not accept it.
const REPUSH_DELAY: Duration = Duration::from_secs(5);
/// First delay before a missing bundle is requested again; the delay doubles.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Longest delay before a missing bundle is requested again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Time between two checks of this control's own certificate.
const OWN_PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of concurrent pushes.
const MAX_CALLS: usize = 256;
/// Shortest time between two bundles pushed to every agent; the first one is pushed at once. Each takeover of a name
/// makes a bundle, and this limits the cost when a thousand diskless nodes boot. A change of authorities does not wait:
/// agents without it already reject peers with a certificate of the new authority.
const BETWEEN_PUSHES: Duration = Duration::from_secs(5);
/// Time between two checks of a contradiction.
const CONTRADICTION_CHECK_PERIOD: Duration = Duration::from_secs(30);

/// Last push of a bundle to one run of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AgentPush {
    generation: Option<u64>,
    number: u64,
    /// Time of the next push, if the agent did not accept this number.
    retry_at: Option<Instant>,
}

/// Trust distribution; see the module.
#[derive(Debug)]
pub struct Trust {
    core: Arc<Core>,
    pushes: BTreeMap<NodeId, AgentPush>,
    /// Last bundle pushed, and the time of the push.
    pushed: Option<PushedBundle>,
    /// Time until which the bundle in force is held back.
    held_back: Option<Instant>,
}

#[derive(Debug)]
struct PushedBundle {
    number: u64,
    authorities: Vec<TrustedAuthority>,
    at: Instant,
}

impl PushedBundle {
    fn of(bundle: TrustBundle, at: Instant) -> Self {
        Self {
            number: bundle.number,
            authorities: bundle.authorities,
            at,
        }
    }
    /// Time until which another bundle must wait; `None` if it may be pushed at once.
    fn holds_back(&self, bundle: &TrustBundle, now: Instant) -> Option<Instant> {
        let until = self.at + BETWEEN_PUSHES;
        (self.authorities == bundle.authorities && until > now).then_some(until)
    }
}

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrustReport {
    /// Agents that now have the bundle.
    pub(crate) pushed: usize,
    /// Agents that did not answer or refused the bundle.
    pub(crate) failed: usize,
}

impl Trust {
    /// New [`Trust`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            pushes: BTreeMap::new(),
            pushed: None,
            held_back: None,
        }
    }

    /// Runs forever.
    pub async fn run(mut self) {
        let period = PERIOD.min(self.core.timings.trust_every);
        let mut activation = Activation::new(&self.core, period, SPACING);
        let mut in_force = self.core.agents.mesh().watch_trust();
        loop {
            let held_back = self.held_back;
            tokio::select! {
                () = activation.next() => {}
                Ok(()) = in_force.changed() => {}
                () = sleep_until(held_back.unwrap_or_else(Instant::now)), if held_back.is_some() => {}
            }
            let report = self.reconcile().await;
            if report != TrustReport::default() {
                let number = self.core.agents.mesh().trust_state().number;
                tracing::debug!(number, ?report, "trust bundle pushed");
            }
        }
    }

    /// Pushes the bundle in force to every alive agent that does not have it.
    pub(crate) async fn reconcile(&mut self) -> TrustReport {
        let Some(bundle) = self.core.agents.mesh().bundle() else {
            return TrustReport::default();
        };
        let number = self.core.agents.mesh().trust_state().number;
        let view = self.core.view();
        self.pushes.retain(|node, _| view.node(node).is_some());
        let now = Instant::now();
        self.held_back = None;
        // A bundle may name thousands of certificates, so it is decoded only when its number changes.
        if self
            .pushed
            .as_ref()
            .is_none_or(|pushed| pushed.number != number)
        {
            let Ok(says) = bundle.decode_unverified() else {
                return TrustReport::default();
            };
            let pushed = self.pushed.as_ref();
            self.held_back = pushed.and_then(|pushed| pushed.holds_back(&says, now));
            if self.held_back.is_some() {
                return TrustReport::default();
            }
            self.pushed = Some(PushedBundle::of(says, now));
        }
        let due = |entry: &&Arc<NodeEntry>| {
            let last_push = self.pushes.get(&entry.id);
            entry.liveness == Liveness::Alive && is_due(last_push, generation(entry), number, now)
        };
        let due: Vec<Arc<NodeEntry>> = view.nodes.values().filter(due).cloned().collect();
        let (core, view, bundle) = (&self.core, &view, &bundle);
        let tell = |entry: Arc<NodeEntry>| {
            let (node, generation) = (entry.id.clone(), generation(&entry));
            async move {
                let has = push(core, view, &node, bundle.clone()).await;
                (node, generation, has)
            }
        };
        let mut answers =
            futures::stream::iter(due.into_iter().map(tell)).buffer_unordered(MAX_CALLS);
        let mut report = TrustReport::default();
        while let Some((node, generation, has)) = answers.next().await {
            let again = match has {
                Ok(has) if has >= number => {
                    report.pushed += 1;
                    None
                }
                Ok(_) => Some(Instant::now() + REPUSH_DELAY),
                Err(reason) => {
                    tracing::info!(%node, reason, "trust bundle not accepted by agent");
                    report.failed += 1;
                    Some(Instant::now() + REPUSH_DELAY)
                }
            };
            let last_push = AgentPush {
                generation,
                number,
                retry_at: again,
            };
            self.pushes.insert(node, last_push);
        }
        report
    }
}

/// Fetches the bundle that the quorum state requires. A quorum member may receive that bundle later than this control
/// receives its number, so the request repeats until the bundle arrives.
pub async fn catch_up(core: Arc<Core>) {
    let mut news = core.trust_news();
    let mut pause = FIRST_RETRY_DELAY;
    loop {
        let latest_news = *news.borrow_and_update();
        let mesh = core.agents.mesh();
        // Read before the state, so that the state is at least as new.
        let (number, bundle) = (mesh.trust_state().number, mesh.bundle());
        let stands = match latest_news {
            TrustNews::Number(wanted) if wanted.0 > number => Some(BundleRelation::Behind),
            TrustNews::Number(_) | TrustNews::Unknown => match core.read(Query::Trust).await {
                Ok(Answer::Trust(state)) => {
                    let bundle = bundle.and_then(|bundle| bundle.decode_unverified().ok());
                    Some(relation(number, bundle.as_ref(), &state))
                }
                Ok(_) | Err(_) => None,
            },
        };
        let contradicts = stands == Some(BundleRelation::Contradicts);
        if contradicts && !core.trust_contradicts() {
            tracing::error!(
                in_force = number,
                "the quorum's state requires an older or different trust bundle than the one in \
                 force here: the cluster was recreated or restored. Revocations of the quorum's \
                 bundle are not in force. Stop this control and every agent, remove trust.bundle \
                 from the folder of their certificates, and start them; or create the cluster with \
                 a new authority and enrol every node and control again"
            );
        }
        if stands.is_some() {
            core.finds_trust_contradicting(contradicts);
        }
        match stands {
            Some(BundleRelation::Same) => {
                if news.changed().await.is_err() {
                    return;
                }
                pause = FIRST_RETRY_DELAY;
            }
            Some(BundleRelation::Contradicts) => {
                if let Ok(Err(_)) = timeout(CONTRADICTION_CHECK_PERIOD, news.changed()).await {
                    return;
                }
            }
            Some(BundleRelation::Behind) | None => {
                core.asks_for_trust();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            }
        }
    }
}

/// Relation between the bundle in force and the one the quorum state requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BundleRelation {
    Same,
    Behind,
    /// The quorum state does not contain the bundle in force, so no bundle of that state will be accepted.
    Contradicts,
}

fn relation(number: u64, bundle: Option<&TrustBundle>, state: &TrustView) -> BundleRelation {
    if state.number.0 != number {
        return match state.number.0 > number {
            true => BundleRelation::Behind,
            false => BundleRelation::Contradicts,
        };
    }
    let Some(bundle) = bundle else {
        return BundleRelation::Same;
    };
    let authorities = bundle.authorities.iter();
    let same_authorities = authorities
        .map(|authority| (&authority.certificate, authority.issuing))
        .eq(state
            .authorities
            .iter()
            .map(|a| (&a.certificate, a.issuing)));
    let revoked = bundle.revoked.iter();
    let same_revoked = revoked.map(|r| (r.role, &r.name, r.issued_before)).eq(state
        .revoked
        .iter()
        .map(|r| (r.role, &r.name, r.issued_before)));
    match same_authorities && same_revoked {
        true => BundleRelation::Same,
        false => BundleRelation::Contradicts,
    }
}

/// Logs problems with this control's own certificate. No other action follows: every peer rejects a revoked control, so
/// its leases expire and another control takes over. Enrolling again is a decision of the operator.
pub async fn watch_own(core: Arc<Core>) {
    let mut said = None;
    loop {
        let problem = core.certificate_problem();
        if said != problem {
            let state = core.certificate();
            let error = state.as_ref().and_then(|state| state.last_error.clone());
            match problem {
                Some(reason) => tracing::error!(
                    reason,
                    ?error,
                    "certificate of this control needs attention"
                ),
                None => tracing::info!("certificate of this control is valid again"),
            }
            said = problem;
        }
        tokio::time::sleep(OWN_PERIOD).await;
    }
}

async fn push(
    core: &Core,
    view: &lattice_view::View,
    node: &NodeId,
    bundle: SignedBundle,
) -> Result<u64, String> {
    let request = PushTrust { bundle };
    let called = core.agents.call(view, node, &request, CALL_TIMEOUT).await;
    called
        .map_err(|error| error.to_string())?
        .map_err(|refused| refused.to_string())
}

fn generation(entry: &NodeEntry) -> Option<u64> {
    entry.gossip.as_ref().map(|seen| seen.generation)
}

fn is_due(
    last_push: Option<&AgentPush>,
    generation: Option<u64>,
    number: u64,
    now: Instant,
) -> bool {
    let same =
        |last_push: &&AgentPush| last_push.generation == generation && last_push.number == number;
    match last_push.filter(same) {
        None => true,
        Some(last_push) => last_push.retry_at.is_some_and(|again| again <= now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_mesh::Role;
    use lattice_quorum_types::{Revision, UnixMillis, view::Revoked};

    /// A bundle and the matching state, with these names revoked.
    fn bundle_and_state(number: u64, names: &[&str]) -> (TrustBundle, TrustView) {
        let revoked = |name: &&str| lattice_mesh::Revocation {
            role: Role::Agent,
            name: (*name).to_owned(),
            issued_before: UnixMillis(5),
            forget_at: UnixMillis(9),
        };
        let bundle = TrustBundle {
            cluster: "test".to_owned(),
            number,
            authorities: Vec::new(),
            revoked: names.iter().map(revoked).collect(),
        };
        let revoked = bundle.revoked.iter().map(|r| Revoked {
            role: r.role,
            name: r.name.clone(),
            issued_before: r.issued_before,
            forget_at: r.forget_at,
        });
        let state = TrustView {
            number: Revision(number),
            authorities: Vec::new(),
            revoked: revoked.collect(),
        };
        (bundle, state)
    }

    #[test]
    fn restarted_counter_is_not_caught_up() {
        let (bundle, same) = bundle_and_state(7, &["a"]);
        assert_eq!(relation(7, Some(&bundle), &same), BundleRelation::Same);
        assert_eq!(
            relation(7, Some(&bundle), &bundle_and_state(8, &[]).1),
            BundleRelation::Behind
        );
        let lower = bundle_and_state(3, &["a"]).1;
        assert_eq!(
            relation(7, Some(&bundle), &lower),
            BundleRelation::Contradicts
        );
        let other = bundle_and_state(7, &["a", "b"]).1;
        assert_eq!(
            relation(7, Some(&bundle), &other),
            BundleRelation::Contradicts
        );
        assert_eq!(
            relation(0, None, &TrustView::default()),
            BundleRelation::Same
        );
    }

    #[test]
    fn a_storm_of_bundles_costs_a_bounded_number_of_pushes() {
        let start = Instant::now();
        let bundle = |number| bundle_and_state(number, &[]).0;
        let mut pushed = PushedBundle::of(bundle(1), start);
        let mut at = vec![1];
        // One minute with a new bundle every 100 ms.
        for number in 2..=600 {
            let now = start + Duration::from_millis(100 * (number - 1));
            if pushed.holds_back(&bundle(number), now).is_none() {
                pushed = PushedBundle::of(bundle(number), now);
                at.push(number);
            }
        }
        assert_eq!(at[..3], [1, 51, 101]);
        assert_eq!(at.len(), 12);
        // The last bundle waits no longer than the interval.
        let now = start + Duration::from_millis(59_900);
        let until = pushed.holds_back(&bundle(601), now);
        assert_eq!(until, Some(pushed.at + BETWEEN_PUSHES));
    }

    #[test]
    fn another_authority_is_not_held_back() {
        let start = Instant::now();
        let pushed = PushedBundle::of(bundle_and_state(1, &[]).0, start);
        let (mut next, _) = bundle_and_state(2, &[]);
        assert!(pushed.holds_back(&next, start).is_some());
        next.authorities.push(TrustedAuthority {
            certificate: b"another".as_slice().into(),
            issuing: false,
        });
        assert_eq!(pushed.holds_back(&next, start), None);
        // A change of the issuing authority is as urgent.
        let pushed = PushedBundle::of(next.clone(), start);
        next.number = 3;
        next.authorities[0].issuing = true;
        assert_eq!(pushed.holds_back(&next, start), None);
    }

    #[test]
    fn agent_gets_changed_bundle() {
        let now = Instant::now();
        let has = AgentPush {
            generation: Some(1),
            number: 7,
            retry_at: None,
        };
        assert!(is_due(None, Some(1), 7, now));
        assert!(!is_due(Some(&has), Some(1), 7, now));
        assert!(is_due(Some(&has), Some(2), 7, now));
        assert!(is_due(Some(&has), Some(1), 8, now));
        let failed = AgentPush {
            retry_at: Some(now + REPUSH_DELAY),
            ..has
        };
        assert!(!is_due(Some(&failed), Some(1), 7, now));
        assert!(is_due(Some(&failed), Some(1), 7, now + REPUSH_DELAY));
        assert!(is_due(Some(&failed), Some(1), 8, now));
    }
}
