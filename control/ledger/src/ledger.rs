//! Ledger of node-hours and GPU-hours for any time window, built from usage records. See `../0001-ledger.md`.
//!
//! Each account (a user in a project in a vCluster, with idle claims apart) has a curve: its cumulative usage at each
//! time at which a use began or ended. The usage between two times is the difference of two points of the curve. So
//! every use is clipped to the window exactly, and a query costs two binary searches for each account, however long the
//! history is.

#[cfg(test)]
mod tests;

use crate::{
    curve::{Curve, Rate, Step},
    usage::{Usage, UsageByKind},
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName,
    usage_record::{NodeUser, OpenUse, UsagePeriod, UsageRecord, UsageRecordKind},
};
use std::collections::{BTreeMap, BTreeSet};

/// Assumed number of GPUs of a node with an unknown GPU count.
pub const UNKNOWN_GPUS: u32 = 1;

/// Subject of a usage query.
#[derive(Debug, Clone, Copy)]
pub enum UsageScope<'a> {
    /// A tenant with all its projects.
    Tenant(&'a ProjectPath),
    /// A project without its subprojects.
    Project(&'a ProjectPath),
    /// A user in all projects.
    User(&'a str),
}

/// Allocations, or idle claims, of a user in a project in a vCluster: the smallest unit with a curve of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Account {
    user: String,
    project: ProjectPath,
    vcluster: VclusterName,
    idle: bool,
}

impl Account {
    fn of(user: &NodeUser) -> Self {
        let (name, project, vcluster, idle) = match user {
            NodeUser::Work(work) => (&work.user, &work.project, &work.vcluster, false),
            NodeUser::Claim(claim) => (&claim.user, &claim.project, &claim.vcluster, true),
        };
        Self {
            user: name.clone(),
            project: project.clone(),
            vcluster: vcluster.clone(),
            idle,
        }
    }
}

/// Period of use of a set of nodes.
#[derive(Debug, Clone)]
struct UsePeriod {
    account: u32,
    from: UnixMillis,
    /// End of the use; `None` while it continues.
    until: Option<UnixMillis>,
    nodes: Box<[u32]>,
}

/// User and start of an open use, by which its end is matched.
type OpenUseKey = (NodeUser, UnixMillis);

/// Usage ledger; see the module.
#[derive(Debug)]
pub struct Ledger {
    accounts: Vec<Account>,
    by_account: BTreeMap<Account, u32>,
    by_tenant: BTreeMap<ProjectPath, Vec<u32>>,
    by_user: BTreeMap<String, Vec<u32>>,
    curves: Vec<Curve>,
    nodes: BTreeMap<NodeId, u32>,
    /// GPU count by node index; `None` if unknown.
    gpus: Vec<Option<u32>>,
    /// Periods of use, in arbitrary order.
    periods: Vec<UsePeriod>,
    /// Open uses, with the index of each node's period in `periods`.
    open: BTreeMap<OpenUseKey, BTreeMap<NodeId, u32>>,
    /// Indices of ended periods of allocations that continue, such as those of earlier attempts.
    ended_periods: BTreeMap<AllocationId, Vec<u32>>,
    /// Number of the last usage record.
    last: u64,
    /// State time up to which the ledger is current.
    at: UnixMillis,
    /// Start of the retained period.
    since: UnixMillis,
    /// Whether the curves do not reflect the present periods and GPU counts.
    stale: bool,
}

impl Ledger {
    /// Creates a ledger with the present use `open`, as of the usage record `last`. Use that ended since `since` is
    /// then added by [`Ledger::add_ended`], and later records by [`Ledger::add`].
    pub fn new(since: UnixMillis, open: Vec<OpenUse>, last: u64, at: UnixMillis) -> Self {
        let mut ledger = Self {
            accounts: Vec::new(),
            by_account: BTreeMap::new(),
            by_tenant: BTreeMap::new(),
            by_user: BTreeMap::new(),
            curves: Vec::new(),
            nodes: BTreeMap::new(),
            gpus: Vec::new(),
            periods: Vec::new(),
            open: BTreeMap::new(),
            ended_periods: BTreeMap::new(),
            last,
            at,
            since,
            stale: true,
        };
        for OpenUse { by, nodes, from } in open {
            ledger.begin(&by, &nodes, from);
        }
        ledger
    }

    /// Number of the last usage record in the ledger.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// State time up to which the ledger is current.
    pub fn at(&self) -> UnixMillis {
        self.at
    }

    /// Start of the retained period.
    pub fn since(&self) -> UnixMillis {
        self.since
    }

    /// Number of periods of use in the ledger.
    pub fn len(&self) -> usize {
        self.periods.len()
    }

    /// Whether the ledger has no usage.
    pub fn is_empty(&self) -> bool {
        self.periods.is_empty()
    }

    /// Adds a usage record from before the creation of the ledger. Only ended use counts, because open use was passed
    /// to [`Ledger::new`]. Call [`Ledger::compute_curves`] after the last of these records.
    pub fn add_ended(&mut self, record: &UsageRecord) {
        let (by, uses) = match ended_uses(&record.kind) {
            Some(ended) => ended,
            None => return,
        };
        let account = self.account(&by);
        let since = self.since;
        for used in uses.iter().filter(|used| used.until > since) {
            let stretch = self.add_period(account, used.from, Some(used.until), &used.nodes);
            self.record_ended(&record.kind, stretch);
        }
        self.stale = true;
    }

    /// Adds the next usage record.
    pub fn add(&mut self, record: &UsageRecord) {
        if record.number <= self.last {
            return;
        }
        self.last = record.number;
        self.at = self.at.max(record.at);
        match &record.kind {
            UsageRecordKind::Started { work, nodes, .. }
            | UsageRecordKind::Grew { work, nodes } => {
                self.begin_now(&NodeUser::Work(work.clone()), nodes, record.at);
            }
            UsageRecordKind::Claimed { claim, nodes } | UsageRecordKind::Idles { claim, nodes } => {
                self.begin_now(&NodeUser::Claim(claim.clone()), nodes, record.at);
            }
            kind => {
                let Some((by, uses)) = ended_uses(kind) else {
                    return;
                };
                for used in uses {
                    self.end(&by, used, kind);
                }
            }
        }
    }

    /// Advances the state time without a usage record.
    pub fn advance(&mut self, at: UnixMillis) {
        self.at = self.at.max(at);
    }

    /// GPU count of a node; `None` if it is unknown and counts as one.
    pub fn gpus(&self, node: &NodeId) -> Option<u32> {
        let number = self.nodes.get(node)?;
        self.gpus[*number as usize]
    }

    /// Sets the GPU count of a node; `None` if unknown. [`Ledger::compute_curves`] then recomputes the curves.
    pub fn set_gpus(&mut self, node: &NodeId, gpus: Option<u32>) {
        let number = self.node(node);
        let known = &mut self.gpus[number as usize];
        if *known != gpus {
            let counted = known.unwrap_or(UNKNOWN_GPUS) != gpus.unwrap_or(UNKNOWN_GPUS);
            *known = gpus;
            self.stale |= counted;
        }
    }

    /// Recomputes all curves if needed: after [`Ledger::new`] or [`Ledger::add_ended`], or after a change of a GPU
    /// count. The cost is proportional to the number of periods of use.
    pub fn compute_curves(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut steps: Vec<Vec<Step>> = vec![Vec::new(); self.accounts.len()];
        for stretch in &self.periods {
            let rate = self.rate(&stretch.nodes);
            let steps = &mut steps[stretch.account as usize];
            steps.push(Step::up(stretch.from, rate));
            steps.extend(stretch.until.map(|until| Step::down(until, rate)));
        }
        self.curves = steps.into_iter().map(Curve::from_steps).collect();
    }

    /// Drops use that ended before `since`. Results for later windows do not change.
    pub fn forget_before(&mut self, since: UnixMillis) {
        if since <= self.since {
            return;
        }
        self.since = since;
        // The indices of periods change.
        let mut kept = Vec::with_capacity(self.periods.len());
        let mut places = BTreeMap::new();
        for (place, stretch) in (0..).zip(std::mem::take(&mut self.periods)) {
            if stretch.until.is_none_or(|until| until > since) {
                places.insert(place, kept.len() as u32);
                kept.push(stretch);
            }
        }
        self.periods = kept;
        for nodes in self.open.values_mut() {
            nodes.values_mut().for_each(|place| *place = places[place]);
        }
        self.ended_periods.retain(|_, all| {
            *all = all
                .iter()
                .filter_map(|place| places.get(place).copied())
                .collect();
            !all.is_empty()
        });
        self.stale = true;
        self.compute_curves();
    }

    /// Usage from `from` until before `until`. Open use counts up to `until`, even beyond the state time of the ledger.
    pub fn usage(&self, scope: UsageScope<'_>, from: UnixMillis, until: UnixMillis) -> UsageByKind {
        let none = Vec::new();
        let (numbers, only) = match scope {
            UsageScope::Tenant(tenant) => (self.by_tenant.get(tenant).unwrap_or(&none), None),
            UsageScope::Project(project) => {
                let of_tenant = self.by_tenant.get(&project.tenant());
                (of_tenant.unwrap_or(&none), Some(project))
            }
            UsageScope::User(user) => (self.by_user.get(user).unwrap_or(&none), None),
        };
        let mut sum = UsageByKind::default();
        for number in numbers {
            let account = &self.accounts[*number as usize];
            if only.is_none_or(|only| account.project == *only) {
                sum = sum.with(self.account_usage(*number, from, until));
            }
        }
        sum
    }

    /// Usage of a user in each tenant.
    pub fn usage_by_tenant(
        &self,
        user: &str,
        from: UnixMillis,
        until: UnixMillis,
    ) -> BTreeMap<ProjectPath, UsageByKind> {
        let mut sums: BTreeMap<ProjectPath, UsageByKind> = BTreeMap::new();
        for number in self.by_user.get(user).into_iter().flatten() {
            let tenant = self.accounts[*number as usize].project.tenant();
            let used = self.account_usage(*number, from, until);
            let sum = sums.entry(tenant).or_default();
            *sum = sum.with(used);
        }
        sums.retain(|_, used| *used != UsageByKind::default());
        sums
    }

    /// Usage of each project in each vCluster.
    pub fn totals(
        &self,
        from: UnixMillis,
        until: UnixMillis,
    ) -> BTreeMap<(ProjectPath, VclusterName), UsageByKind> {
        let mut sums: BTreeMap<_, UsageByKind> = BTreeMap::new();
        for (number, account) in (0..).zip(&self.accounts) {
            let used = self.account_usage(number, from, until);
            if used != UsageByKind::default() {
                let key = (account.project.clone(), account.vcluster.clone());
                let sum = sums.entry(key).or_default();
                *sum = sum.with(used);
            }
        }
        sums
    }

    /// Usage of an allocation that ended with these uses, including retained earlier attempts.
    pub fn consumed(&self, allocation: AllocationId, uses: &[UsagePeriod]) -> Usage {
        let earlier = self.ended_periods.get(&allocation).into_iter().flatten();
        let earlier = earlier.filter_map(|place| {
            let stretch = &self.periods[*place as usize];
            let ms = stretch.until?.since(stretch.from);
            Some(self.rate(&stretch.nodes).over(ms))
        });
        let last = uses.iter().map(|used| {
            let gpus = used
                .nodes
                .iter()
                .map(|node| u64::from(self.gpus(node).unwrap_or(UNKNOWN_GPUS)));
            let rate = Rate {
                nodes: used.nodes.len() as u64,
                gpus: gpus.sum(),
            };
            rate.over(used.until.since(used.from))
        });
        earlier.chain(last).fold(Usage::default(), Usage::with)
    }

    /// All users with usage.
    pub fn users(&self) -> BTreeSet<&str> {
        self.by_user.keys().map(String::as_str).collect()
    }

    fn account_usage(&self, number: u32, from: UnixMillis, until: UnixMillis) -> UsageByKind {
        let used = match self.curves.get(number as usize) {
            Some(curve) => curve.between(from, until),
            None => Usage::default(),
        };
        match self.accounts[number as usize].idle {
            true => UsageByKind {
                idle: used,
                ..UsageByKind::default()
            },
            false => UsageByKind {
                work: used,
                ..UsageByKind::default()
            },
        }
    }

    fn account(&mut self, by: &NodeUser) -> u32 {
        let account = Account::of(by);
        if let Some(number) = self.by_account.get(&account) {
            return *number;
        }
        let number = self.accounts.len() as u32;
        let tenant = account.project.tenant();
        self.by_tenant.entry(tenant).or_default().push(number);
        self.by_user
            .entry(account.user.clone())
            .or_default()
            .push(number);
        self.by_account.insert(account.clone(), number);
        self.accounts.push(account);
        self.curves.push(Curve::default());
        number
    }

    fn node(&mut self, node: &NodeId) -> u32 {
        if let Some(number) = self.nodes.get(node) {
            return *number;
        }
        let number = self.gpus.len() as u32;
        self.nodes.insert(node.clone(), number);
        self.gpus.push(None);
        number
    }

    fn rate(&self, nodes: &[u32]) -> Rate {
        let gpus = nodes.iter().map(|n| {
            let known = self.gpus[*n as usize];
            u64::from(known.unwrap_or(UNKNOWN_GPUS))
        });
        Rate {
            nodes: nodes.len() as u64,
            gpus: gpus.sum(),
        }
    }

    fn add_period(
        &mut self,
        account: u32,
        from: UnixMillis,
        until: Option<UnixMillis>,
        nodes: &[NodeId],
    ) -> u32 {
        let nodes = nodes.iter().map(|node| self.node(node)).collect();
        self.periods.push(UsePeriod {
            account,
            from,
            until,
            nodes,
        });
        self.periods.len() as u32 - 1
    }

    /// Adds an open period of use; the curve is computed later.
    fn begin(&mut self, by: &NodeUser, nodes: &[NodeId], from: UnixMillis) {
        let account = self.account(by);
        let place = self.add_period(account, from, None, nodes);
        let open = self.open.entry((by.clone(), from)).or_default();
        open.extend(nodes.iter().map(|node| (node.clone(), place)));
    }

    /// Adds a period of use that begins at `at`, and updates the curve.
    fn begin_now(&mut self, by: &NodeUser, nodes: &[NodeId], at: UnixMillis) {
        self.begin(by, nodes, at);
        let stretch = &self.periods[self.periods.len() - 1];
        let (account, rate) = (stretch.account as usize, self.rate(&stretch.nodes));
        self.curves[account].add(Step::up(at, rate));
    }

    /// Ends a use. Nodes of one open use may be released one after the other.
    fn end(&mut self, by: &NodeUser, used: &UsagePeriod, kind: &UsageRecordKind) {
        let account = self.account(by);
        let key = (by.clone(), used.from);
        let mut of_stretch: BTreeMap<u32, usize> = BTreeMap::new();
        let mut unknown = Vec::new();
        if let Some(open) = self.open.get_mut(&key) {
            for node in &used.nodes {
                match open.remove(node) {
                    Some(place) => *of_stretch.entry(place).or_default() += 1,
                    None => unknown.push(node.clone()),
                }
            }
            if open.is_empty() {
                self.open.remove(&key);
            }
        } else {
            unknown.clone_from(&used.nodes);
        }
        if !unknown.is_empty() {
            // No start of the use was recorded for these nodes. The open use of the others ends below.
            let stretch = self.add_period(account, used.from, Some(used.until), &unknown);
            self.record_ended(kind, stretch);
            let rate = self.rate(&self.periods[stretch as usize].nodes);
            let curve = &mut self.curves[account as usize];
            curve.insert(used.from, used.until, rate);
        }
        for (place, count) in of_stretch {
            let place = match count == self.periods[place as usize].nodes.len() {
                true => {
                    self.periods[place as usize].until = Some(used.until);
                    place
                }
                false => self.split(place, used),
            };
            let stretch = &self.periods[place as usize];
            let rate = self.rate(&stretch.nodes);
            self.curves[account as usize].add(Step::down(used.until, rate));
            self.record_ended(kind, place);
        }
    }

    /// Splits the nodes of `used` from a period of use, as a separate period that has ended.
    fn split(&mut self, place: u32, used: &UsagePeriod) -> u32 {
        let gone: BTreeSet<u32> = used.nodes.iter().map(|node| self.node(node)).collect();
        let stretch = &mut self.periods[place as usize];
        let (account, from) = (stretch.account, stretch.from);
        let (left, stay): (Vec<u32>, Vec<u32>) =
            stretch.nodes.iter().partition(|node| gone.contains(node));
        stretch.nodes = stay.into();
        self.periods.push(UsePeriod {
            account,
            from,
            until: Some(used.until),
            nodes: left.into(),
        });
        self.periods.len() as u32 - 1
    }

    /// Records an ended period of use if its allocation continues.
    fn record_ended(&mut self, kind: &UsageRecordKind, stretch: u32) {
        if let UsageRecordKind::Used { work, .. } = kind {
            self.ended_periods
                .entry(work.allocation)
                .or_default()
                .push(stretch);
        }
    }
}

/// Uses that end with a usage record.
fn ended_uses(kind: &UsageRecordKind) -> Option<(NodeUser, &[UsagePeriod])> {
    match kind {
        UsageRecordKind::Used { work, uses } | UsageRecordKind::Completed { work, uses, .. } => {
            Some((NodeUser::Work(work.clone()), uses))
        }
        UsageRecordKind::Idled { claim, uses } => Some((NodeUser::Claim(claim.clone()), uses)),
        _ => None,
    }
}
