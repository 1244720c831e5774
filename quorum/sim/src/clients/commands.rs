//! Random commands of clients: some fit the state that the client read last, others do not.

use super::{Client, NODES, PROJECTS, node, path};
use lattice_mesh::{Clock as _, Role};
use lattice_quorum_types::{
    Allocation, AllocationState, Command, Envelope, VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    command::{ExpectedNode, Fence, LimitChange, Privilege, RankReport, TokenGrant},
    id::LeaseName,
    limit::{LimitPatch, Limits, Patch},
    node::Lifecycle,
    spec::{AllocationSpec, Requeue, Workload},
};

impl Client {
    /// Returns the next command; `None` if the drawn command needs an object that does not exist.
    pub(super) fn choose(&mut self) -> Option<Envelope> {
        let service = format!("service:control/{}", self.nth + 1);
        let lease = LeaseName::new("schedule.main").ok()?;
        let which = self.rng.below(100);
        let mut fenced = false;
        let (name, power, command) = match which {
            0..24 => ("alice", Privilege::User, self.submit()?),
            24..45 => {
                fenced = self.rng.chance(800);
                let power = if fenced {
                    Privilege::Service
                } else {
                    Privilege::Admin
                };
                (service.as_str(), power, self.assign()?)
            }
            45..65 => (service.as_str(), Privilege::Service, self.report()?),
            65..68 => (
                "root",
                Privilege::Admin,
                Command::Cancel {
                    id: self.pick_allocation()?.id,
                },
            ),
            68..77 => ("root", Privilege::Admin, self.limits()?),
            77..84 => {
                let holder = format!("control/{}", self.nth + 1);
                let command = match self.rng.chance(150) {
                    true => Command::ReleaseLease {
                        lease: lease.clone(),
                        holder,
                    },
                    false => Command::AcquireLease {
                        lease: lease.clone(),
                        holder,
                        ttl_ms: self.rng.range(500, 6000),
                    },
                };
                (service.as_str(), Privilege::Service, command)
            }
            84..88 => ("olga", Privilege::Operator, self.drain()?),
            88..94 => {
                fenced = true;
                (service.as_str(), Privilege::Service, self.resize()?)
            }
            94 => {
                fenced = true;
                let (id, cause) = (self.pick_allocation()?.id, StopCause::Walltime);
                (
                    service.as_str(),
                    Privilege::Service,
                    Command::Stop { id, cause },
                )
            }
            95..97 => ("root", Privilege::Admin, self.token()),
            97..99 => ("root", Privilege::Admin, self.project()?),
            _ => {
                let node = node(self.rng.below(NODES))?;
                let reason = "gone".to_owned();
                let expected = None;
                let command = Command::ForceRelease {
                    node,
                    reason,
                    expected,
                };
                ("olga", Privilege::Operator, command)
            }
        };
        let mut envelope = self.envelope(name, power, command);
        if fenced {
            let epoch = self.epoch;
            envelope.fence = Some(Fence { lease, epoch });
        }
        Some(envelope)
    }

    fn submit(&mut self) -> Option<Command> {
        let (project, _, _) = *self.rng.pick(&PROJECTS)?;
        let requeue = [Requeue::Never, Requeue::Once, Requeue::Always];
        let spec = AllocationSpec {
            requeue: *self.rng.pick(&requeue)?,
            hold: self.rng.chance(30),
            ..AllocationSpec::new(
                path(project)?,
                VclusterName::new("main").ok()?,
                self.rng.range(1, 5) as u32,
                Workload {
                    argv: vec!["true".to_owned()],
                    ..Workload::default()
                },
            )
        };
        let spec = Box::new(spec);
        Some(Command::Submit { spec })
    }

    fn pick_allocation(&mut self) -> Option<Allocation> {
        self.rng.pick(&self.hot.allocations).cloned()
    }

    fn assign(&mut self) -> Option<Command> {
        let pending = |a: &&Allocation| a.state == AllocationState::Pending;
        let waiting: Vec<&Allocation> = self.hot.allocations.iter().filter(pending).collect();
        let allocation = *self.rng.pick(&waiting)?;
        let (id, wanted) = (allocation.id, allocation.spec.nodes as usize);
        // Sometimes selects nodes that are not free. The client's view is stale in any case.
        let careless = self.rng.chance(100);
        let mut free: Vec<_> = self.hot.nodes.iter().collect();
        free.retain(|node| careless || node.is_assignable());
        let from = self.rng.below(free.len().max(1));
        free.rotate_left(from);
        let nodes = free.into_iter().take(wanted).map(|n| ExpectedNode {
            node: n.id.clone(),
            version: n.version,
            boot: None,
        });
        let nodes = nodes.collect();
        Some(Command::Assign { id, nodes })
    }

    fn report(&mut self) -> Option<Command> {
        let holding = |a: &&Allocation| a.state.holds();
        let holding: Vec<&Allocation> = self.hot.allocations.iter().filter(holding).collect();
        let allocation = *self.rng.pick(&holding)?;
        let waits = allocation.ranks.iter().find(|rank| !rank.phase.is_over())?;
        let clock = &self.world.clocks[self.world.members.len() + self.nth as usize];
        let at = clock.now();
        let exits = [
            RankExit::Exited { code: 0 },
            RankExit::Exited { code: 1 },
            RankExit::Signaled { signal: 9 },
            RankExit::Lost {
                evidence: "rebooted".to_owned(),
            },
        ];
        let started = matches!(waits.phase, RankPhase::Assigned) && self.rng.chance(500);
        let (id, attempt, node) = (allocation.id, allocation.attempt, waits.node.clone());
        let report = match started {
            true => RankReport::Started { at },
            false => RankReport::Ended {
                at,
                exit: self.rng.pick(&exits)?.clone(),
                fault: self.rng.chance(20).then(|| "the epilog failed".to_owned()),
            },
        };
        Some(Command::Report {
            id,
            attempt,
            node,
            report,
        })
    }

    /// Grows, shrinks, suspends or resumes an allocation.
    fn resize(&mut self) -> Option<Command> {
        let allocation = self.pick_allocation()?;
        let id = allocation.id;
        if allocation.state == AllocationState::Suspended {
            return Some(Command::Resume { id });
        }
        Some(match self.rng.below(3) {
            0 => {
                let mut free: Vec<_> = self.hot.nodes.iter().collect();
                free.retain(|node| node.is_assignable());
                let from = self.rng.below(free.len().max(1));
                free.rotate_left(from);
                let nodes = free.into_iter().take(self.rng.range(1, 3) as usize);
                let nodes = nodes.map(|n| ExpectedNode {
                    node: n.id.clone(),
                    version: n.version,
                    boot: None,
                });
                let nodes = nodes.collect();
                Command::Grow { id, nodes }
            }
            1 => {
                let rank = self.rng.pick(&allocation.ranks)?;
                let nodes = vec![rank.node.clone()];
                Command::Shrink { id, nodes }
            }
            _ => Command::Suspend { id },
        })
    }

    fn limits(&mut self) -> Option<Command> {
        let mut changes = Vec::new();
        for _ in 0..self.rng.range(1, 4) {
            let (project, nodes, allocations) = *self.rng.pick(&PROJECTS)?;
            let patch = LimitPatch {
                max_nodes: Patch::Set(self.rng.range(0, nodes + 2)),
                max_concurrent_allocations: match self.rng.chance(300) {
                    true => Patch::Set(self.rng.range(0, allocations + 2)),
                    false => Patch::default(),
                },
            };
            let path = path(project)?;
            changes.push(LimitChange { path, patch });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes.dedup_by(|a, b| a.path == b.path);
        Some(Command::SetLimits { changes })
    }

    fn drain(&mut self) -> Option<Command> {
        let node = node(self.rng.below(NODES))?;
        if self.rng.chance(500) {
            let lifecycle = Lifecycle::Ready;
            return Some(Command::SetLifecycle { node, lifecycle });
        }
        let reason = self.rng.chance(300).then(|| "looked at".to_owned());
        Some(Command::Drain {
            node,
            reason,
            expected: None,
        })
    }

    fn token(&mut self) -> Command {
        if self.rng.chance(300)
            && let Some(hash) = self.revoked.pop()
        {
            let id = hash.chars().take(12).collect();
            return Command::RevokeToken { id };
        }
        let hash = format!("{:016x}{:048x}", self.rng.next(), self.nth);
        self.revoked.push(hash.clone());
        let clock = &self.world.clocks[self.world.members.len() + self.nth as usize];
        Command::CreateToken {
            grant: TokenGrant {
                hash,
                role: Role::Agent,
                names: None,
                cidrs: Vec::new(),
                uses: 2,
                replace: false,
                expires_at: clock.now().after(3_600_000),
            },
        }
    }

    fn project(&mut self) -> Option<Command> {
        let path = path(&format!("u/p{}", self.rng.below(4)))?;
        if self.rng.chance(400) {
            return Some(Command::DeleteProject { path });
        }
        Some(Command::CreateProject {
            path,
            limits: Some(Limits {
                max_nodes: Some(self.rng.range(0, 3)),
                max_concurrent_allocations: Some(self.rng.range(0, 3)),
            }),
            admins: vec!["alice".to_owned()],
            description: format!("of client {}", self.nth),
        })
    }
}
