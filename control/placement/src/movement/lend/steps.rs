//! The four steps of a lending decision.

use super::{
    BorrowRefusal, Input, LendingMoves, Loan, NodeReturn, Reclaim,
    balance::{BorrowRequest, LendingBalance, Pools},
    reclaim::cheapest,
};
use crate::bits::BitSet;
use lattice_quorum_types::AllocationId;
use std::collections::BTreeMap;

/// Nodes for a job that fits on its vCluster's own nodes; each list is of nodes that the vCluster owns.
struct NodeClaimStep<'a> {
    job: BorrowRequest<'a>,
    /// Nodes that are idle and not lent.
    own: Vec<usize>,
    /// Nodes that are lent, in use and already reclaimed.
    recalled: Vec<usize>,
    /// Nodes that are lent and idle.
    idle: Vec<usize>,
    /// Nodes that are lent and in use: their jobs are stopped.
    busy: Vec<usize>,
}

/// Results of the decision so far.
#[derive(Default)]
struct LendingSteps {
    loans: Vec<(usize, AllocationId, usize)>,
    returns: BTreeMap<usize, Option<AllocationId>>,
    /// By job to stop and owner of its nodes: nodes to reclaim, each with the waiting job that gets it.
    reclaims: BTreeMap<(AllocationId, usize), Vec<(usize, AllocationId)>>,
    moves: LendingMoves,
}

pub(super) fn decide(input: Input<'_>) -> LendingMoves {
    let mut ledger = LendingBalance::new(input);
    let mut lending_steps = LendingSteps::default();
    let wanting = ledger.waiting_jobs();
    let (mut claims, mut others) = (Vec::new(), Vec::new());
    for job in wanting {
        match claim(&mut ledger, job) {
            Some(claim) => claims.push(claim),
            None => others.push(job),
        }
    }
    claims.sort_by_key(|claim| claim.job.service_order(&input));
    others.sort_by_key(|job| job.service_order(&input));
    for claim in claims {
        record_claim(&mut ledger, claim, &mut lending_steps);
    }
    for job in others {
        borrow(&mut ledger, job, &mut lending_steps);
    }
    for n in ledger.unneeded_borrowed_nodes() {
        lending_steps.returns.entry(n).or_insert(None);
    }
    lending_steps.moves.withdrawn = ledger.unneeded_reclaims(lending_steps.returns.keys().copied());
    lending_steps.finish(&ledger)
}

/// The first `most` members of a set.
fn first_members(set: &BitSet, most: usize) -> Vec<usize> {
    // Members come in the order of node numbers, so a node outside the first `most` does not affect the choice.
    set.iter().take(most).collect()
}

/// Assigns nodes of its own vCluster to a job; `None` if the vCluster owns too few nodes that fit.
fn claim<'a>(ledger: &mut LendingBalance<'a>, job: BorrowRequest<'a>) -> Option<NodeClaimStep<'a>> {
    let needed = job.view.nodes as usize;
    let pools = ledger.pools(&job);
    let mine = [
        &pools.own,
        &pools.reclaimed,
        &pools.idle_loans,
        &pools.busy_loans,
    ];
    let all: usize = mine.into_iter().map(|pool| pool.count() as usize).sum();
    if all < needed {
        return None;
    }
    let own = first_members(&pools.own, needed);
    let mut missing = needed - own.len();
    let mut idle: Vec<usize> = pools.idle_loans.iter().collect();
    idle.sort_by_key(|n| (ledger.is_planned(*n), *n));
    idle.truncate(missing);
    missing -= idle.len();
    let coming = first_members(&pools.reclaimed, missing);
    missing -= coming.len();
    let busy = choose_reclaimed(ledger, &pools.busy_loans, missing, job.vcluster);
    [&own, &coming, &idle, &busy]
        .into_iter()
        .for_each(|nodes| ledger.take(nodes));
    Some(NodeClaimStep {
        job,
        own,
        recalled: coming,
        idle,
        busy,
    })
}

/// Chooses `needed` lent nodes of the owner that are in use, held by the borrowers' jobs that cost least to stop.
fn choose_reclaimed(
    ledger: &LendingBalance<'_>,
    busy: &BitSet,
    needed: usize,
    owner: usize,
) -> Vec<usize> {
    let (nodes, items): (Vec<_>, Vec<_>) =
        ledger.reclaim_candidates(busy, owner).into_iter().unzip();
    let chosen = u32::try_from(needed)
        .ok()
        .and_then(|needed| cheapest(&items, needed));
    let chosen = chosen.unwrap_or_default().into_iter();
    let mut given: Vec<usize> = chosen.flat_map(|place| &nodes[place]).copied().collect();
    given.truncate(needed);
    given
}

/// Records the nodes of a claim: idle lent nodes are returned, and lent nodes in use are reclaimed. No job is stopped
/// if borrowed nodes let this job start at once.
///
/// A job that must wait for any node of its own vCluster gets all nodes from that vCluster. Borrowed nodes could be
/// reclaimed before the job starts, and its own nodes would then come later than guaranteed.
fn record_claim(
    ledger: &mut LendingBalance<'_>,
    mut claim: NodeClaimStep<'_>,
    steps: &mut LendingSteps,
) {
    if let Err(why) = replace_busy_nodes(ledger, &mut claim, steps) {
        steps.moves.refused.insert(claim.job.id(), why);
    }
    let NodeClaimStep {
        job, idle, busy, ..
    } = claim;
    steps.recall(ledger, &job, &idle);
    for n in busy {
        if let Some(holder) = ledger.holder(n) {
            let nodes = steps.reclaims.entry((holder, job.vcluster)).or_default();
            nodes.push((n, job.id()));
        }
    }
}

/// Replaces all nodes in use of a claim by borrowed nodes: idle ones that its vCluster already borrows, then new loans.
/// Further idle borrowed nodes replace lent idle nodes. Changes nothing if the loans are refused.
///
/// Nodes already reclaimed for the job stay reclaimed until the job has started.
fn replace_busy_nodes(
    ledger: &mut LendingBalance<'_>,
    claim: &mut NodeClaimStep<'_>,
    lending_steps: &mut LendingSteps,
) -> Result<(), BorrowRefusal> {
    let NodeClaimStep {
        job,
        own,
        recalled: coming,
        idle,
        busy,
    } = claim;
    let in_use = coming.len() + busy.len();
    let borrowed = first_members(&ledger.pools(job).borrowed, idle.len() + in_use);
    let missing = in_use.saturating_sub(borrowed.len());
    if missing > 0 {
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let beside = [own.as_slice(), &borrowed, idle].concat();
        let nodes = ledger.choose_loans(job, missing, &beside)?;
        lending_steps.lend(ledger, job, nodes);
    }
    ledger.take(&borrowed);
    ledger.release(busy);
    busy.clear();
    let instead_of_idle = borrowed.len().saturating_sub(in_use);
    ledger.release(&idle.split_off(idle.len() - instead_of_idle));
    Ok(())
}

/// Assigns to a job the free nodes of its vCluster, and lends it the missing ones. Assigns nothing if the loan is
/// refused.
fn borrow(
    ledger: &mut LendingBalance<'_>,
    job: BorrowRequest<'_>,
    lending_steps: &mut LendingSteps,
) {
    let needed = job.view.nodes as usize;
    let Pools {
        own,
        reclaimed: coming,
        mut idle_loans,
        borrowed,
        ..
    } = ledger.pools(&job);
    for n in idle_loans.clone().iter() {
        // This job does not fit on its vCluster's own nodes, so lent nodes in a borrower's plan are not returned for
        // it.
        if ledger.is_planned(n) || !ledger.is_settled(n) {
            idle_loans.remove(n);
        }
    }
    let mut here = Vec::new();
    for pool in [own, borrowed, coming] {
        here.extend(first_members(&pool, needed - here.len()));
    }
    let idle = first_members(&idle_loans, needed - here.len());
    let missing = u32::try_from(needed - here.len() - idle.len()).unwrap_or(u32::MAX);
    let beside: Vec<usize> = here.iter().chain(&idle).copied().collect();
    if missing > 0 {
        match ledger.choose_loans(&job, missing, &beside) {
            Ok(nodes) => lending_steps.lend(ledger, &job, nodes),
            Err(why) => {
                lending_steps.moves.refused.insert(job.id(), why);
                return;
            }
        }
    }
    ledger.take(&beside);
    lending_steps.recall(ledger, &job, &idle);
}

impl LendingSteps {
    fn lend(
        &mut self,
        ledger: &mut LendingBalance<'_>,
        job: &BorrowRequest<'_>,
        nodes: Vec<usize>,
    ) {
        ledger.lend(&nodes, job.vcluster);
        let loans = nodes.into_iter().map(|n| (n, job.id(), job.vcluster));
        self.loans.extend(loans);
    }

    fn recall(
        &mut self,
        ledger: &mut LendingBalance<'_>,
        job: &BorrowRequest<'_>,
        nodes: &[usize],
    ) {
        ledger.count_return(nodes);
        let returns = nodes.iter().map(|n| (*n, Some(job.id())));
        self.returns.extend(returns);
    }

    fn finish(self, ledger: &LendingBalance<'_>) -> LendingMoves {
        let LendingSteps {
            mut loans,
            returns,
            reclaims,
            mut moves,
        } = self;
        loans.sort_unstable();
        let loan = |(n, job, to): (usize, AllocationId, usize)| {
            let (node, owner, _) = ledger.owner_and_user(n)?;
            let borrower = ledger.names[to].clone();
            Some(Loan {
                node,
                owner,
                borrower,
                job,
            })
        };
        moves.loans = loans.into_iter().filter_map(loan).collect();
        let go_home = |(n, job): (usize, Option<AllocationId>)| {
            let (node, owner, borrower) = ledger.owner_and_user(n)?;
            Some(NodeReturn {
                node,
                owner,
                borrower,
                job,
            })
        };
        moves.returns = returns.into_iter().filter_map(go_home).collect();
        let reclaim =
            |((from, owner), nodes): ((AllocationId, usize), Vec<(usize, AllocationId)>)| {
                let (how, back_by, cost) = ledger.return_path(from, owner);
                let (_, home, borrower) = ledger.owner_and_user(nodes.first()?.0)?;
                let mut names: Vec<_> = nodes
                    .iter()
                    .filter_map(|(n, _)| Some(ledger.owner_and_user(*n)?.0))
                    .collect();
                names.sort();
                Some(Reclaim {
                    from,
                    owner: home,
                    borrower,
                    nodes: names,
                    jobs: nodes.iter().map(|(_, job)| *job).collect(),
                    how,
                    cost,
                    back_by,
                })
            };
        moves.reclaims = reclaims.into_iter().filter_map(reclaim).collect();
        moves
    }
}
