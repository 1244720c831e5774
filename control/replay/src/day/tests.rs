//! Simulated days with a simple control: first come, first served on the first free nodes, without preemption.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_agent_rpc::{AttemptKey, CheckpointSetup, Launch, Restore};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Applied, Command, Envelope, NodeId, Outcome,
    Refusal,
    allocation::{RankPhase, StopCause},
    attestation::{Attestation, Proof},
    command::{AttestedNode, ExpectedNode, Fence, Principal, Privilege, SCHEMA},
    id::LeaseName,
};
use std::collections::BTreeSet;

struct Plain {
    site: Site,
    silent: BTreeSet<NodeId>,
    fence: Option<Fence>,
}

impl Plain {
    fn of(site: &Site) -> Self {
        Self {
            site: site.clone(),
            silent: BTreeSet::new(),
            fence: None,
        }
    }

    fn propose(&self, command: Command) -> Result<Applied, Refusal> {
        let principal = Principal {
            name: "service:control/c1".to_owned(),
            privilege: Privilege::Service,
        };
        self.site.propose(&Envelope {
            schema: SCHEMA,
            principal,
            key: None,
            at: self.site.now(),
            fence: self.fence.clone(),
            command,
        })
    }

    fn takes(&mut self, lease: LeaseName) {
        self.fence = None;
        let acquire = Command::AcquireLease {
            lease: lease.clone(),
            holder: "c1".to_owned(),
            ttl_ms: 60_000,
        };
        let Outcome::Leased { epoch, .. } = self.propose(acquire).unwrap().outcome else {
            panic!("no lease")
        };
        self.fence = Some(Fence { lease, epoch });
    }

    fn live(&self) -> Vec<Allocation> {
        self.site
            .read(|state| state.live_allocations().cloned().collect())
    }

    fn nodes_for(&self, held: &Allocation) -> Option<Vec<ExpectedNode>> {
        let now = self.site.now();
        let free = self.site.read(|state| {
            let of_it = state.nodes().filter(|node| {
                let is_kept = ["r0", "r1"].iter().any(|name| {
                    let kept = state.reservation(&name.parse().unwrap());
                    kept.is_some_and(|kept| {
                        let is_over = kept.spec.until.is_some_and(|until| until <= now);
                        kept.spec.nodes.contains(&node.id) && !is_over
                    })
                });
                node.current == held.spec.vcluster && node.is_assignable() && !is_kept
            });
            let of_it = of_it.filter(|node| !self.silent.contains(&node.id));
            of_it
                .map(|node| (node.id.clone(), node.version))
                .collect::<Vec<_>>()
        });
        let named = free.into_iter().filter_map(|(node, version)| {
            Some(ExpectedNode {
                boot: Some(self.site.ping(&node)?),
                node,
                version,
            })
        });
        let chosen: Vec<_> = named.take(held.spec.nodes as usize).collect();
        (chosen.len() == held.spec.nodes as usize).then_some(chosen)
    }

    fn assign(&self, id: AllocationId, held: &Allocation) {
        let Some(nodes) = self.nodes_for(held) else {
            return;
        };
        let command = match held.spec.sensitive {
            false => Command::Assign { id, nodes },
            true => Command::AssignSensitive {
                id,
                nodes: nodes.into_iter().map(|node| self.claimed(node)).collect(),
            },
        };
        // Refused when limits are reached.
        let _ = self.propose(command);
    }

    fn claimed(&self, expected: ExpectedNode) -> AttestedNode {
        let attestation = Attestation {
            node: expected.node.clone(),
            boot_id: expected.boot.clone().unwrap(),
            cohort: None,
            classes: Default::default(),
            read_at: self.site.now(),
            nonce: [0; 16],
        };
        let proof = Proof {
            attestation,
            signature: Default::default(),
            completed: Default::default(),
            conforms: Default::default(),
        };
        AttestedNode { expected, proof }
    }

    fn dispatch(&self, held: &Allocation) {
        let key = AttemptKey {
            allocation: held.id,
            attempt: held.attempt,
        };
        let is_stopping = held.state == AllocationState::Stopping;
        let array = held.progress.element.map(|element| element.array);
        let workload = array.and_then(|id| {
            self.site
                .read(|state| Some(state.allocation(id)?.spec.workload.clone()))
        });
        for (rank, of) in (0..).zip(&held.ranks) {
            match of.phase {
                RankPhase::Assigned if !is_stopping => {
                    let setup = held.spec.terms.checkpoint.as_ref();
                    let checkpoint = setup.map(|terms| CheckpointSetup {
                        mode: terms.mode,
                        directory: "/scratch".to_owned(),
                        restore: held.progress.kept.as_ref().map(|kept| Restore {
                            number: kept.number,
                            directory: kept.directory.clone(),
                        }),
                    });
                    let launch = Launch {
                        key,
                        epoch: 1,
                        revision: held.revision,
                        user: held.user.clone(),
                        project: held.spec.project.to_string(),
                        name: None,
                        element: None,
                        nodes: held.nodes().cloned().collect(),
                        rank,
                        workload: workload.clone().unwrap_or(held.spec.workload.clone()),
                        walltime_ms: held.walltime_left_ms(),
                        boot: of.boot.clone(),
                        sensitive: held.spec.sensitive,
                        gpus: 0,
                        checkpoint,
                    };
                    self.site.launch(&of.node, &launch);
                }
                RankPhase::Assigned | RankPhase::Running { .. } if is_stopping => {
                    self.site.terminate(&of.node, key);
                }
                _ => {}
            }
        }
    }
}

impl Control for Plain {
    fn run_pass(&mut self, _: UnixMillis) {
        for (node, ping_state) in self.site.take_pings() {
            match ping_state {
                PingState::Alive(_) => self.silent.remove(&node),
                PingState::Suspect | PingState::Unreachable => self.silent.insert(node),
            };
        }
        self.site.take_events();
        for held in self.live() {
            let lost = held
                .nodes()
                .find(|node| self.silent.contains(*node))
                .cloned();
            self.takes(LeaseName::of_scheduler(&held.spec.vcluster));
            match (held.state, lost) {
                (AllocationState::Pending, _) => match &held.progress.tally {
                    None => self.assign(held.id, &held),
                    Some(tally) => {
                        let numbers = held.element_numbers().unwrap();
                        let first = tally.pending.iter().next();
                        if let Some(element) = first.and_then(|index| numbers.id_of(index)) {
                            self.assign(element, &held);
                        }
                    }
                },
                (state, Some(node)) if state.holds() && state != AllocationState::Stopping => {
                    let cause = StopCause::NodeLost { node };
                    self.propose(Command::Stop { id: held.id, cause }).unwrap();
                }
                _ => {}
            }
        }
        for held in self.live().iter().filter(|held| held.state.holds()) {
            self.dispatch(held);
        }
    }
}

fn plainly(seed: u64, plant: Option<PlantedBug>, hours: u64) -> Report {
    let site = Site::of_hours(seed, plant, hours);
    run(&site, &mut Plain::of(&site))
}

#[test]
fn no_moves_break_nothing() {
    for seed in 0..2 {
        let report = plainly(seed, None, 2);
        assert!(report.violations.is_empty(), "{seed}: {report:#?}");
        assert!(
            report.counts.by_kind["allocations: completed"] > 5,
            "{report:#?}"
        );
    }
    assert_eq!(plainly(1, None, 2), plainly(1, None, 2));
}

#[test]
fn a_bug_that_needs_no_moves_is_found() {
    for plant in [PlantedBug::EndedTooSoon, PlantedBug::LimitsDoubled] {
        let is_found = (0..6).any(|seed| {
            let found = plainly(seed, Some(plant), 4).violations;
            found
                .iter()
                .any(|what| what.contains(plant.violation_text()))
        });
        assert!(is_found, "{plant:?}");
    }
}

#[test]
fn idle_policy_leaves_work() {
    struct Idle;
    impl Control for Idle {
        fn run_pass(&mut self, _: UnixMillis) {}
    }
    let report = run(&Site::of_hours(0, None, 2), &mut Idle);
    let has_violation = |what: &str| report.violations.iter().any(|of| of.contains(what));
    assert!(has_violation("has nodes for it"), "{report:#?}");
}
