//! Commands that random moves stand for when they are taken.

use super::*;

pub fn nth(state: &State, nth: usize) -> Option<&Allocation> {
    let count = state.live_allocations().count();
    if count == 0 {
        None
    } else {
        state.live_allocations().nth(nth % count)
    }
}

pub fn enrolled(name: usize) -> String {
    format!("n{:03}", name + 5)
}

/// Certificate as the proposer stamps it.
pub fn certificate(c: &Cluster, name: &str, lifetime_ms: u64) -> IssuedCertificate {
    let earliest = c.state.next_issue(Role::Agent, name).max(c.state.now());
    let now = c.now().min(c.state.now().after(80_000_000));
    let issued_at = UnixMillis(earliest.max(now).0.div_ceil(1000) * 1000);
    IssuedCertificate {
        issued_at,
        expires_at: issued_at.after(lifetime_ms),
    }
}

pub fn lease() -> LeaseName {
    LeaseName::new("schedule.main").unwrap()
}

/// Commands that a move stands for in the present state.
pub fn resolve(c: &Cluster, step: &Move) -> Vec<(&'static str, Privilege, Command)> {
    let state = &c.state;
    let id_of = |i: usize| nth(state, i).map_or(AllocationId(9_999), |a| a.id);
    let admin = |command| vec![("root", Privilege::Admin, command)];
    let service = |command| vec![("service:control/c1", Privilege::Service, command)];
    let report = |a: &Allocation, rank: usize, report: RankReport| {
        let node = a
            .ranks
            .get(rank)
            .map_or_else(|| node("elsewhere"), |r| r.node.clone());
        Command::Report {
            id: a.id,
            attempt: a.attempt,
            node,
            report,
        }
    };
    match step {
        Move::Create {
            project,
            nodes,
            allocations,
        } => admin(Command::CreateProject {
            path: path(PROJECTS[*project]),
            limits: nodes.map(|n| Limits {
                max_nodes: Some(n),
                max_concurrent_allocations: *allocations,
            }),
            admins: vec!["alice".to_owned()],
            description: String::new(),
        }),
        Move::Delete { project } => admin(Command::DeleteProject {
            path: path(PROJECTS[*project]),
        }),
        Move::Limit { changes, force } => {
            let changes = changes.iter().map(|(project, resource, limit)| {
                let to = limit.map_or(Patch::Unlimited, Patch::Set);
                let mut patch = LimitPatch::default();
                match resource {
                    Resource::Nodes => patch.max_nodes = to,
                    Resource::Allocations => patch.max_concurrent_allocations = to,
                }
                let path = path(PROJECTS[*project]);
                LimitChange { path, patch }
            });
            let changes = changes.collect();
            admin(match force {
                true => Command::ForceLimits { changes },
                false => Command::SetLimits { changes },
            })
        }
        Move::Submit {
            project,
            nodes,
            requeue,
            hold,
        } => {
            let spec = common::spec(PROJECTS[*project], *nodes);
            let spec = lattice_quorum_types::spec::AllocationSpec {
                requeue: *requeue,
                hold: *hold,
                // Half of them have a demand, so that both kinds of record are replayed.
                demand: match *nodes % 2 {
                    0 => Demand::default(),
                    _ => Demand {
                        data_ready_ppm: Some(*nodes * 1_000),
                        checkpoint_ms: Some(60_000),
                        storage_mb_s: [("scratch".to_owned(), 500)].into(),
                    },
                },
                ..spec
            };
            vec![(
                "alice",
                Privilege::User,
                Command::Submit {
                    spec: Box::new(spec),
                },
            )]
        }
        Move::Cancel { nth, owner } => {
            let user = if *owner { "alice" } else { "mallory" };
            vec![(user, Privilege::User, Command::Cancel { id: id_of(*nth) })]
        }
        Move::Hold { nth } => admin(Command::Hold { id: id_of(*nth) }),
        Move::Release { nth } => admin(Command::Release { id: id_of(*nth) }),
        Move::Assign {
            nth: i,
            shift,
            stale,
            fenced,
        } => {
            let Some(allocation) = nth(state, *i) else {
                return Vec::new();
            };
            let all: Vec<_> = state.nodes().collect();
            let free = all.iter().filter(|n| n.is_assignable()).skip(*shift % 2);
            // With shift 2, nodes that may be held already are requested too.
            let chosen: Vec<_> = if *shift == 2 {
                all.iter().collect()
            } else {
                free.collect()
            };
            let nodes = chosen
                .iter()
                .take(allocation.spec.nodes as usize)
                .map(|n| ExpectedNode {
                    node: n.id.clone(),
                    version: n.version - u64::from(*stale),
                    boot: stale.then(|| "boot-1".to_owned()),
                });
            let command = Command::Assign {
                id: allocation.id,
                nodes: nodes.collect(),
            };
            if *fenced {
                service(command)
            } else {
                admin(command)
            }
        }
        Move::Stop { nth, suspend } => {
            let cause = if *suspend {
                StopCause::Suspended
            } else {
                StopCause::Walltime
            };
            service(Command::Stop {
                id: id_of(*nth),
                cause,
            })
        }
        Move::Start { nth: i, rank } => nth(state, *i).map_or_else(Vec::new, |a| {
            service(report(a, *rank, RankReport::Started { at: c.now() }))
        }),
        Move::StartAll { nth: i } => nth(state, *i).map_or_else(Vec::new, |a| {
            let started = || RankReport::Started { at: c.now() };
            (0..a.ranks.len())
                .flat_map(|rank| service(report(a, rank, started())))
                .collect()
        }),
        Move::End { nth: i, rank, exit } => nth(state, *i).map_or_else(Vec::new, |a| {
            service(report(
                a,
                *rank,
                RankReport::Ended {
                    at: c.now(),
                    exit: exit.clone(),
                    fault: None,
                },
            ))
        }),
        Move::EndAll { nth: i } => nth(state, *i).map_or_else(Vec::new, |a| {
            let ended = || RankReport::Ended {
                at: c.now(),
                exit: RankExit::Exited { code: 0 },
                fault: None,
            };
            (0..a.ranks.len())
                .flat_map(|rank| service(report(a, rank, ended())))
                .collect()
        }),
        Move::Drain { node: i, set } => {
            let reason = set.then(|| "noisy fan".to_owned());
            service(Command::Drain {
                node: node(&format!("n{i:03}")),
                reason,
                expected: None,
            })
        }
        Move::Lifecycle { node: i, to } => {
            let node = node(&format!("n{i:03}"));
            service(Command::SetLifecycle {
                node,
                lifecycle: *to,
            })
        }
        Move::Register { node: i } => {
            let vcluster = VclusterName::new("main").unwrap();
            service(Command::RegisterNode {
                node: node(&format!("n{i:03}")),
                vcluster,
            })
        }
        Move::Lease {
            control,
            ttl_ms,
            give_back,
        } => {
            let holder = format!("control/c{control}");
            service(if *give_back {
                Command::ReleaseLease {
                    lease: lease(),
                    holder,
                }
            } else {
                Command::AcquireLease {
                    lease: lease(),
                    holder,
                    ttl_ms: *ttl_ms,
                }
            })
        }
        Move::Force { node: i, power } => {
            let command = Command::ForceRelease {
                node: node(&format!("n{i:03}")),
                reason: "pulled the plug".to_owned(),
                expected: None,
            };
            vec![("olga", *power, command)]
        }
        Move::EndFaulty {
            nth: i,
            rank,
            spawned,
        } => nth(state, *i).map_or_else(Vec::new, |a| {
            let exit = if *spawned {
                RankExit::Exited { code: 0 }
            } else {
                let reason = "the prolog failed".to_owned();
                RankExit::SpawnFailed { reason }
            };
            let fault = Some("the disk is read-only".to_owned());
            let at = c.now();
            service(report(a, *rank, RankReport::Ended { at, exit, fault }))
        }),
        Move::NeverStarted { nth: i, rank } => nth(state, *i).map_or_else(Vec::new, |a| {
            let evidence = "nothing was sent".to_owned();
            let exit = RankExit::NeverStarted { evidence };
            let (at, fault) = (c.now(), None);
            service(report(a, *rank, RankReport::Ended { at, exit, fault }))
        }),
        Move::UndrainUnchecked { node: i } => {
            let (node, expected) = (node(&format!("n{i:03}")), None);
            let reason = Some("firmware".to_owned());
            let drain = Command::Drain {
                node: node.clone(),
                reason,
                expected,
            };
            let unchecked = Command::UndrainUnchecked { node, expected };
            [admin(drain), admin(unchecked)].concat()
        }
        Move::Accept { node: i } => admin(Command::SetLifecycle {
            node: node(&format!("n{i:03}")),
            lifecycle: Lifecycle::Ready,
        }),
        Move::Token { uses, replace } => admin(Command::CreateToken {
            grant: TokenGrant {
                hash: "ab".repeat(32),
                role: Role::Agent,
                names: None,
                cidrs: Vec::new(),
                uses: *uses,
                replace: *replace,
                expires_at: c.now().after(3_600_000),
            },
        }),
        Move::RevokeToken => admin(Command::RevokeToken { id: "ab".repeat(6) }),
        Move::Enrol {
            name,
            replace,
            lifetime_ms,
        } => {
            let name = enrolled(*name);
            vec![(
                "service:quorum",
                Privilege::Service,
                Command::ConsumeToken {
                    hash: "ab".repeat(32),
                    role: Role::Agent,
                    from: None,
                    replace: *replace,
                    certificate: certificate(c, &name, *lifetime_ms),
                    name,
                },
            )]
        }
        Move::Renew { name, older } => {
            let name = enrolled(*name);
            let newest = certificates(state).into_iter().find(|v| v.name == name);
            let newest = newest.and_then(|view| view.issued_at).unwrap_or(c.now());
            let command = Command::RenewCertificate {
                role: Role::Agent,
                shown_issued_at: UnixMillis(newest.0 - if *older { 1000 } else { 0 }),
                certificate: certificate(c, &name, 3_600_000),
                name,
            };
            vec![("service:quorum", Privilege::Service, command)]
        }
        Move::RevokeName { name } => admin(Command::RevokeCertificates {
            name: enrolled(*name),
            role: Role::Agent,
            reason: "lost".to_owned(),
        }),
        Move::Authority { which, what } => {
            let certificate = Bytes::from(vec![*which; 100]);
            let pin = blake3::hash(&certificate).to_hex().to_string();
            admin(match what {
                0 => Command::AddAuthority { certificate },
                1 => Command::PromoteAuthority { pin },
                _ => Command::RetireAuthority { pin },
            })
        }
        Move::Baseline {
            name,
            from,
            class,
            expected,
            delete,
        } => vec![(
            "olga",
            Privilege::Operator,
            baseline(c, *name, *from, *class, *expected, *delete),
        )],
        Move::Brake { hold: true } => {
            let reason = "3 of 8 nodes differ".to_owned();
            vec![(
                "service:control/c1",
                Privilege::Service,
                Command::HoldBrake { reason },
            )]
        }
        Move::Brake { hold: false } => {
            let reason = "meant".to_owned();
            vec![(
                "olga",
                Privilege::Operator,
                Command::ReleaseBrake { reason },
            )]
        }
        Move::Grow {
            nth: i,
            by,
            any,
            stale,
        } => nth(state, *i).map_or_else(Vec::new, |a| {
            let held = |id: &NodeId| a.nodes().any(|node| node == id);
            let wanted = state
                .nodes()
                .filter(|n| *any || n.is_assignable() && !held(&n.id));
            let nodes = wanted.take(*by).map(|n| ExpectedNode {
                node: n.id.clone(),
                version: n.version - u64::from(*stale),
                boot: None,
            });
            service(Command::Grow {
                id: a.id,
                nodes: nodes.collect(),
            })
        }),
        Move::Shrink {
            nth: i,
            from,
            by,
            owner,
        } => nth(state, *i).map_or_else(Vec::new, |a| {
            let nodes = a.nodes().skip(*from).take(*by).cloned().collect();
            let command = Command::Shrink { id: a.id, nodes };
            match owner {
                true => vec![("alice", Privilege::User, command)],
                false => service(command),
            }
        }),
        Move::Suspend { nth, owner } => {
            let command = Command::Suspend { id: id_of(*nth) };
            let user = if *owner { "alice" } else { "mallory" };
            vec![(user, Privilege::User, command)]
        }
        Move::Resume { nth } => service(Command::Resume { id: id_of(*nth) }),
        Move::NewProject {
            project,
            nodes,
            lifted,
        } => admin(Command::NewProject {
            path: path(PROJECTS[*project]),
            limits: LimitPatch {
                max_nodes: nodes.map_or(Patch::Unchanged, Patch::Set),
                max_concurrent_allocations: match lifted {
                    true => Patch::Unlimited,
                    false => Patch::Unchanged,
                },
            },
            admins: vec!["alice".to_owned()],
            description: String::new(),
        }),
        Move::System { pool, flat } => {
            let policy = match flat {
                true => LimitPolicy::Flat,
                false => LimitPolicy::Strict,
            };
            let patch = SystemLimitPatch {
                sensitive_pool_size: pool.map_or(Patch::Unlimited, Patch::Set),
            };
            [
                admin(Command::SetLimitPolicy { policy }),
                admin(Command::SetSystemLimits { patch }),
            ]
            .concat()
        }
        Move::Movement(step) => movement::resolve(c, step),
        Move::Wait { .. } => Vec::new(),
    }
}

/// Two nodes from `from` on, so that baselines sometimes overlap.
fn baseline(
    c: &Cluster,
    name: usize,
    from: u32,
    class: usize,
    expected: bool,
    delete: bool,
) -> Command {
    let name = BaselineName::new(["h100", "a100", "login"][name]).unwrap();
    let current = c.state.baseline(&name).map_or(0, |b| b.version);
    let expected_version = expected.then_some(current);
    if delete {
        return Command::DeleteBaseline {
            name,
            expected_version,
        };
    }
    let constraint = Constraint {
        key: "nic.*.firmware".to_owned(),
        any_of: vec![Scalar::Text(format!("28.{from}"))],
        or_absent: false,
    };
    let rule = ClassRule {
        policy: DriftPolicy::Drain,
        sensitive: SensitivePolicy::Strict,
        rule: Rule::Partial {
            constraints: vec![constraint],
        },
    };
    let definition = BaselineDefinition {
        nodes: format!("n{from:03},n{:03}", from + 1),
        classes: BTreeMap::from([(["nic", "bios"][class].to_owned(), rule)]),
        ..BaselineDefinition::default()
    };
    Command::SetBaseline {
        name,
        definition: Box::new(definition),
        expected_version,
    }
}
