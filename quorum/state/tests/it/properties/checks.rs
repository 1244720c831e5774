//! Invariants of a state, recomputed from its records.

use super::*;

pub fn certificates(state: &State) -> Vec<CertificateView> {
    match state.query(&Query::Certificates) {
        Answer::Certificates(all) => all,
        other => panic!("{other:?}"),
    }
}

pub fn trust(state: &State) -> TrustView {
    match state.query(&Query::Trust) {
        Answer::Trust(trust) => trust,
        other => panic!("{other:?}"),
    }
}

pub fn audit(state: &State) -> Vec<AuditEntry> {
    let (after, limit) = (0, u32::MAX);
    match state.query(&Query::Audit { after, limit }) {
        Answer::Audit(entries) => entries,
        other => panic!("{other:?}"),
    }
}

/// Usage, counts and sums recomputed from the records.
pub fn check_sums(state: &State) {
    let mut own: BTreeMap<ProjectPath, (u64, u64)> = BTreeMap::new();
    for a in state.live_allocations().filter(|a| a.state.holds()) {
        let usage = own.entry(a.spec.project.clone()).or_default();
        usage.0 += u64::from(a.spec.nodes);
        usage.1 += 1;
    }
    for project in state.projects() {
        let mine = own.get(&project.path).copied().unwrap_or_default();
        let below = own
            .iter()
            .filter(|(p, _)| **p != project.path && p.is_within(&project.path));
        let below = below.fold((0, 0), |sum, (_, u)| (sum.0 + u.0, sum.1 + u.1));
        assert_eq!(
            (project.own.nodes, project.own.allocations),
            mine,
            "own of {}",
            project.path
        );
        assert_eq!((project.subtree.nodes, project.subtree.allocations), below);
    }
    let everything = Query::Allocations {
        after: AllocationId(0),
        limit: u32::MAX,
        states: Vec::new(),
        within: None,
    };
    let Answer::Allocations(all) = state.query(&everything) else {
        panic!("allocations")
    };
    assert!(
        all.windows(2).all(|pair| pair[0].id < pair[1].id),
        "in id order, each once"
    );
    let Answer::Counts(counts) = state.query(&Query::Counts) else {
        panic!("counts")
    };
    for (kind, count) in counts {
        let found = all.iter().filter(|a| a.state == kind).count() as u64;
        assert_eq!(count, found, "number of {kind} allocations");
    }
}

/// Excess of the children's limits over their parent's: the number of children without a limit, and the amount by which
/// the others exceed it. Zero if the parent has no limit.
fn excess(state: &State, parent: &Project, resource: Resource) -> (usize, u64) {
    let Some(limit) = parent.limits.get(resource) else {
        return (0, 0);
    };
    let children = state
        .projects()
        .filter(|p| p.path.parent().as_ref() == Some(&parent.path));
    let limits: Vec<Option<u64>> = children.map(|c| c.limits.get(resource)).collect();
    let sum: u64 = limits.iter().flatten().sum();
    let unlimited = limits.iter().filter(|limit| limit.is_none()).count();
    (unlimited, sum.saturating_sub(limit))
}

/// Without force, the excess of children's limits never grows.
pub fn check_no_worse(before: &State, after: &State) {
    let strict = |state: &State| state.system().limit_policy == LimitPolicy::Strict;
    for project in after.projects().filter(|_| strict(after)) {
        let then = before.project(&project.path).filter(|_| strict(before));
        for resource in Resource::ALL {
            let is = excess(after, project, resource);
            let was = then.map_or((0, 0), |then| excess(before, then, resource));
            assert!(
                is.0 <= was.0 && is.1 <= was.1,
                "{resource:?} below {}: from {was:?} to {is:?} without force",
                project.path
            );
        }
    }
}

/// Children's limits fit their parent's unless it is marked. A node has at most one holder, and both records agree on
/// it.
pub fn check_tree_and_nodes(state: &State) {
    let strict = state.system().limit_policy == LimitPolicy::Strict;
    assert!(strict || state.projects().all(|project| !project.overcommitted));
    for project in state.projects().filter(|_| strict) {
        let is_over = Resource::ALL
            .into_iter()
            .any(|resource| excess(state, project, resource) != (0, 0));
        assert_eq!(project.overcommitted, is_over, "{project:?}");
    }
    let released: BTreeSet<_> = audit(state).into_iter().filter_map(released).collect();
    let mut held = BTreeSet::new();
    for a in state.live_allocations().filter(|a| a.state.holds()) {
        assert_eq!(a.kept_nodes().count(), a.spec.nodes as usize);
        for rank in &a.ranks {
            let (id, holder) = (&rank.node, state.node(&rank.node).unwrap().holder);
            let holder = holder.map(|h| (h.allocation, h.attempt));
            if let RankPhase::Left { .. } = rank.phase {
                assert_ne!(holder, Some((a.id, a.attempt)), "{id} is kept");
            } else if released.contains(&(id.clone(), a.id, a.attempt)) {
                assert!(
                    matches!(rank.phase, RankPhase::Ended { .. }),
                    "{id} may run"
                );
                assert_ne!(holder, Some((a.id, a.attempt)), "{id} is held again");
            } else {
                assert!(held.insert(id.clone()), "node {id} has two holders");
                assert_eq!(holder, Some((a.id, a.attempt)), "{id} is free too early");
            }
        }
    }
    for node in state.nodes() {
        assert_eq!(
            node.holder.is_some(),
            held.contains(&node.id),
            "holder of {}",
            node.id
        );
        assert!(node.lifecycle != Lifecycle::Drained || node.holder.is_none());
        assert!(node.lifecycle != Lifecycle::Retired || node.holder.is_none());
    }
}

/// Attempt that lost a node by force.
pub fn released(entry: AuditEntry) -> Option<(NodeId, AllocationId, u32)> {
    match entry.action {
        AuditAction::ForceReleased {
            node,
            allocation,
            attempt,
            ..
        } => Some((node, allocation?, attempt)),
        _ => None,
    }
}

/// A certificate that was issued, as recorded by the test.
#[derive(Debug, Clone)]
pub struct Issued {
    name: String,
    certificate: IssuedCertificate,
    is_void: bool,
}

/// The trust number determines its content, and the audit is only appended to. A revocation lasts as long as the
/// certificate would be valid, and no other certificate is revoked.
pub fn check_trust(before: &State, after: &State, issued: &[Issued]) {
    let (was, is) = (trust(before), trust(after));
    assert_eq!(
        was.number == is.number,
        was == is,
        "one number, one content"
    );
    assert!(was.number <= is.number);
    let issuing = is.authorities.iter().filter(|a| a.issuing).count();
    assert_eq!(issuing, usize::from(!is.authorities.is_empty()));
    let entries = audit(after);
    assert!(entries.starts_with(&audit(before)), "the audit was changed");
    verify_chain(&entries).unwrap();
    let mut seconds = BTreeSet::new();
    for Issued {
        name,
        certificate,
        is_void,
    } in issued
    {
        let is_new = seconds.insert((name, certificate.issued_at));
        assert!(is_new, "two certificates of {name} share a second");
        let refused = is
            .revoked
            .iter()
            .any(|r| r.name == *name && certificate.issued_at < r.issued_before);
        if certificate.expires_at > after.now() {
            assert_eq!(refused, *is_void, "{name} {certificate:?}");
        }
    }
}

/// Records the certificates that a step issued or revoked.
pub fn note(issued: &mut Vec<Issued>, c: &Cluster, from: usize, entries: usize) {
    for entry in audit(&c.state).into_iter().skip(entries) {
        match entry.action {
            AuditAction::Enrolled {
                name,
                replaced: true,
                ..
            }
            | AuditAction::CertificatesRevoked { name, .. } => {
                let of_name = issued.iter_mut().filter(|one| one.name == name);
                of_name.for_each(|one| one.is_void = true);
            }
            _ => {}
        }
    }
    for envelope in &c.log[from..] {
        let (Command::ConsumeToken {
            name, certificate, ..
        }
        | Command::RenewCertificate {
            name, certificate, ..
        }) = &envelope.command
        else {
            continue;
        };
        let view = certificates(&c.state).into_iter().find(|v| v.name == *name);
        let is_newest = view.is_some_and(|v| v.issued_at == Some(certificate.issued_at));
        let is_known =
            |one: &Issued| one.name == *name && one.certificate.issued_at == certificate.issued_at;
        if is_newest && !issued.iter().any(is_known) {
            issued.push(Issued {
                name: name.clone(),
                certificate: *certificate,
                is_void: false,
            });
        }
    }
}

/// Usage exceeds a limit only if the limit was lowered, and then it does not grow.
pub fn check_limits(before: &State, after: &State) {
    let rules = after.system().limit_policy.rules();
    let counted = |p: &Project| {
        let counted = rules.counted(&p.path, p.own, p.subtree, true);
        counted.unwrap_or_default()
    };
    for project in after.projects() {
        let (is, was) = (counted(project), before.project(&project.path));
        let was = was.map_or(Usage::default(), counted);
        for resource in Resource::ALL {
            let Some(limit) = project.limits.get(resource) else {
                continue;
            };
            let (usage, was) = (is.get(resource), was.get(resource));
            assert!(
                usage <= limit || usage <= was,
                "{} grew to {usage} of {limit}",
                project.path
            );
        }
    }
}

/// No node has two baselines for a class, versions only grow, and the number of kept versions is bounded.
pub fn check_baselines(before: &State, state: &State) {
    let all = |state: &State| match state.query(&Query::Baselines) {
        Answer::Baselines(view) => view.baselines,
        other => panic!("{other:?}"),
    };
    let mut spoken_for = BTreeSet::new();
    for baseline in all(state) {
        let name = baseline.name.clone();
        for class in baseline.definition.classes.keys() {
            for node in hostlist::expand(&baseline.definition.nodes).unwrap() {
                assert!(
                    spoken_for.insert((node, class.clone())),
                    "{name} is ambiguous"
                );
            }
        }
        let Answer::BaselineVersions(kept) = state.query(&Query::BaselineVersions { name }) else {
            panic!("versions")
        };
        assert!(kept.len() <= MAX_VERSIONS);
        assert!(
            kept.windows(2)
                .all(|pair| pair[0].version < pair[1].version)
        );
        assert_eq!(kept.last().map(|v| v.version), Some(baseline.version));
    }
    for old in all(before) {
        if let Some(new) = state.baseline(&old.name) {
            assert!(new.version >= old.version);
            assert!(
                new.version > old.version || *new == old,
                "a version was changed"
            );
        }
    }
}
