//! Who is trusted, handed on: the trust bundle in force here is pushed to every agent that lives,
//! once it changes and whenever an agent was started anew. Agents ask for it themselves as well,
//! but seldom; what a bundle revokes must end soon.
//!
//! Every control pushes: it needs no lease, for agents judge a bundle by its signature and number.

use crate::{
    core::{Core, TrustNews},
    tasks::activation::Activation,
    view::NodeEntry,
};
use futures::StreamExt;
use lattice_mesh::{PushTrust, SignedBundle, TrustBundle, TrustedAuthority};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId,
    view::{Answer, Query, TrustView},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until, timeout};

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Revocations that come together are pushed together.
const SPACING: Duration = Duration::from_millis(100);
/// How long an agent may take to put a bundle in force.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// An agent that did not take it is told again after this long.
const TELL_AGAIN: Duration = Duration::from_secs(5);
/// A bundle that is not here yet is asked for again after this long; doubles.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Longest wait until it is asked for again.
const ASK_AGAIN_AT_LAST: Duration = Duration::from_secs(5);
/// Between two looks at our own certificate.
const OWN_PERIOD: Duration = Duration::from_secs(1);
/// Agents told at a time.
const MAX_CALLS: usize = 256;
/// Between two bundles that are pushed to everybody; the first one goes at once. Each name that is
/// taken over makes a bundle: when a thousand nodes boot without disks, this bounds what that costs.
/// Another authority waits for nothing: whoever has not heard of it refuses who is of it already.
const BETWEEN_PUSHES: Duration = Duration::from_secs(5);
/// A contradiction is looked at again this often.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What one run of an agent is known to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    generation: Option<u64>,
    number: u64,
    /// When it is told again, after it did not take this number.
    again: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Trust {
    core: Arc<Core>,
    told: BTreeMap<NodeId, Told>,
    /// The last bundle that was pushed, and since when.
    pushed: Option<Pushed>,
    /// Until when the bundle in force waits.
    held_back: Option<Instant>,
}

#[derive(Debug)]
struct Pushed {
    number: u64,
    authorities: Vec<TrustedAuthority>,
    at: Instant,
}

impl Pushed {
    fn of(bundle: TrustBundle, at: Instant) -> Self {
        Self {
            number: bundle.number,
            authorities: bundle.authorities,
            at,
        }
    }
    /// Until when another bundle waits.
    fn holds_back(&self, bundle: &TrustBundle, now: Instant) -> Option<Instant> {
        let until = self.at + BETWEEN_PUSHES;
        (self.authorities == bundle.authorities && until > now).then_some(until)
    }
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrustReport {
    /// Agents that have the bundle now.
    pub(crate) told: usize,
    /// Agents that did not take it.
    pub(crate) failed: usize,
}

impl Trust {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            told: BTreeMap::new(),
            pushed: None,
            held_back: None,
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
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

    /// Tells every agent that lives and does not have what is in force here.
    pub(crate) async fn reconcile(&mut self) -> TrustReport {
        let Some(bundle) = self.core.agents.mesh().bundle() else {
            return TrustReport::default();
        };
        let number = self.core.agents.mesh().trust_state().number;
        let view = self.core.view();
        self.told.retain(|node, _| view.node(node).is_some());
        let now = Instant::now();
        self.held_back = None;
        // Read only when it is another one: it may name thousands.
        if self
            .pushed
            .as_ref()
            .is_none_or(|pushed| pushed.number != number)
        {
            let Ok(says) = bundle.peek() else {
                return TrustReport::default();
            };
            let pushed = self.pushed.as_ref();
            self.held_back = pushed.and_then(|pushed| pushed.holds_back(&says, now));
            if self.held_back.is_some() {
                return TrustReport::default();
            }
            self.pushed = Some(Pushed::of(says, now));
        }
        let due = |entry: &&Arc<NodeEntry>| {
            let told = self.told.get(&entry.id);
            entry.liveness == Liveness::Alive && is_due(told, generation(entry), number, now)
        };
        let due: Vec<Arc<NodeEntry>> = view.nodes.values().filter(due).cloned().collect();
        let (core, view, bundle) = (&self.core, &view, &bundle);
        let tell = |entry: Arc<NodeEntry>| {
            let (node, generation) = (entry.id.clone(), generation(&entry));
            async move {
                let has = tell(core, view, &node, bundle.clone()).await;
                (node, generation, has)
            }
        };
        let mut answers =
            futures::stream::iter(due.into_iter().map(tell)).buffer_unordered(MAX_CALLS);
        let mut report = TrustReport::default();
        while let Some((node, generation, has)) = answers.next().await {
            let again = match has {
                Ok(has) if has >= number => {
                    report.told += 1;
                    None
                }
                Ok(_) => Some(Instant::now() + TELL_AGAIN),
                Err(reason) => {
                    tracing::info!(%node, reason, "an agent did not take the trust bundle");
                    report.failed += 1;
                    Some(Instant::now() + TELL_AGAIN)
                }
            };
            let told = Told {
                generation,
                number,
                again,
            };
            self.told.insert(node, told);
        }
        report
    }
}

/// Fetches the bundle that the quorum's state demands: a member may have heard of it later than we,
/// so it is asked for until it is here.
pub(crate) async fn catch_up(core: Arc<Core>) {
    let mut news = core.trust_news();
    let mut pause = ASK_AGAIN;
    loop {
        let heard = *news.borrow_and_update();
        let mesh = core.agents.mesh();
        // Before the state is read: what it says then is as new or newer.
        let (number, bundle) = (mesh.trust_state().number, mesh.bundle());
        let stands = match heard {
            TrustNews::Number(wanted) if wanted.0 > number => Some(Stands::Behind),
            TrustNews::Number(_) | TrustNews::Unknown => match core.read(Query::Trust).await {
                Ok(Answer::Trust(state)) => {
                    let bundle = bundle.and_then(|bundle| bundle.peek().ok());
                    Some(stands(number, bundle.as_ref(), &state))
                }
                Ok(_) | Err(_) => None,
            },
        };
        let contradicts = stands == Some(Stands::Contradicts);
        if contradicts && !core.trust_contradicts() {
            tracing::error!(
                in_force = number,
                "the quorum's state demands an older, or another, trust bundle than is in force \
                 here: it was founded anew or restored. What it revokes is not in force. Stop this \
                 control and every agent, remove trust.bundle beside their certificates, and start \
                 them; or found the cluster with a new authority and enrol everybody anew"
            );
        }
        if stands.is_some() {
            core.finds_trust_contradicting(contradicts);
        }
        match stands {
            Some(Stands::Same) => {
                if news.changed().await.is_err() {
                    return;
                }
                pause = ASK_AGAIN;
            }
            Some(Stands::Contradicts) => {
                if let Ok(Err(_)) = timeout(LOOK_AGAIN, news.changed()).await {
                    return;
                }
            }
            Some(Stands::Behind) | None => {
                core.asks_for_trust();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ASK_AGAIN_AT_LAST);
            }
        }
    }
}

/// How what is in force here stands to what the quorum's state demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Same,
    Behind,
    /// The state knows nothing of what is in force: no bundle of it will be accepted.
    Contradicts,
}

fn stands(number: u64, bundle: Option<&TrustBundle>, state: &TrustView) -> Stands {
    if state.number.0 != number {
        return match state.number.0 > number {
            true => Stands::Behind,
            false => Stands::Contradicts,
        };
    }
    let Some(bundle) = bundle else {
        return Stands::Same;
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
        true => Stands::Same,
        false => Stands::Contradicts,
    }
}

/// Says in the log when this control's own certificate needs somebody's attention. Nothing else
/// follows here: a revoked control is let in by nobody, so its leases run out and another one
/// takes over; to enrol anew is an operator's decision.
pub(crate) async fn watch_own(core: Arc<Core>) {
    let mut said = None;
    loop {
        let problem = core.certificate_problem();
        if said != problem {
            let state = core.certificate();
            let error = state.as_ref().and_then(|state| state.last_error.clone());
            match problem {
                Some(reason) => tracing::error!(reason, ?error, "this control's certificate"),
                None => tracing::info!("this control's certificate is good again"),
            }
            said = problem;
        }
        tokio::time::sleep(OWN_PERIOD).await;
    }
}

async fn tell(
    core: &Core,
    view: &crate::View,
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
    entry.seen.as_ref().map(|seen| seen.generation)
}

fn is_due(told: Option<&Told>, generation: Option<u64>, number: u64, now: Instant) -> bool {
    let same = |told: &&Told| told.generation == generation && told.number == number;
    match told.filter(same) {
        None => true,
        Some(told) => told.again.is_some_and(|again| again <= now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_mesh::Role;
    use lattice_quorum_types::{Revision, UnixMillis, view::Revoked};

    /// A bundle and the state's account of it, with these names revoked.
    fn known(number: u64, names: &[&str]) -> (TrustBundle, TrustView) {
        let revoked = |name: &&str| lattice_mesh::Revoked {
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
    fn a_quorum_that_counts_anew_is_not_taken_for_caught_up_with() {
        let (bundle, same) = known(7, &["a"]);
        assert_eq!(stands(7, Some(&bundle), &same), Stands::Same);
        assert_eq!(stands(7, Some(&bundle), &known(8, &[]).1), Stands::Behind);
        let lower = known(3, &["a"]).1;
        assert_eq!(stands(7, Some(&bundle), &lower), Stands::Contradicts);
        let other = known(7, &["a", "b"]).1;
        assert_eq!(stands(7, Some(&bundle), &other), Stands::Contradicts);
        assert_eq!(stands(0, None, &TrustView::default()), Stands::Same);
    }

    #[test]
    fn a_storm_of_bundles_costs_a_bounded_number_of_pushes() {
        let start = Instant::now();
        let bundle = |number| known(number, &[]).0;
        let mut pushed = Pushed::of(bundle(1), start);
        let mut at = vec![1];
        // A minute in which there is another bundle every 100 ms.
        for number in 2..=600 {
            let now = start + Duration::from_millis(100 * (number - 1));
            if pushed.holds_back(&bundle(number), now).is_none() {
                pushed = Pushed::of(bundle(number), now);
                at.push(number);
            }
        }
        assert_eq!(at[..3], [1, 51, 101]);
        assert_eq!(at.len(), 12);
        // The last one is held back for no longer.
        let now = start + Duration::from_millis(59_900);
        let until = pushed.holds_back(&bundle(601), now);
        assert_eq!(until, Some(pushed.at + BETWEEN_PUSHES));
    }

    #[test]
    fn another_authority_is_not_held_back() {
        let start = Instant::now();
        let pushed = Pushed::of(known(1, &[]).0, start);
        let (mut next, _) = known(2, &[]);
        assert!(pushed.holds_back(&next, start).is_some());
        next.authorities.push(TrustedAuthority {
            certificate: b"another".as_slice().into(),
            issuing: false,
        });
        assert_eq!(pushed.holds_back(&next, start), None);
        // That it issues now is as urgent.
        let pushed = Pushed::of(next.clone(), start);
        next.number = 3;
        next.authorities[0].issuing = true;
        assert_eq!(pushed.holds_back(&next, start), None);
    }

    #[test]
    fn an_agent_is_told_when_it_or_the_bundle_is_another_one() {
        let now = Instant::now();
        let has = Told {
            generation: Some(1),
            number: 7,
            again: None,
        };
        assert!(is_due(None, Some(1), 7, now));
        assert!(!is_due(Some(&has), Some(1), 7, now));
        assert!(is_due(Some(&has), Some(2), 7, now));
        assert!(is_due(Some(&has), Some(1), 8, now));
        let failed = Told {
            again: Some(now + TELL_AGAIN),
            ..has
        };
        assert!(!is_due(Some(&failed), Some(1), 7, now));
        assert!(is_due(Some(&failed), Some(1), 7, now + TELL_AGAIN));
        assert!(is_due(Some(&failed), Some(1), 8, now));
    }
}
