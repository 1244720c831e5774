//! For any order of setting, deleting, planning and committing: no sensitive allocation on a node with an attestation
//! that contradicts a strict baseline in force.

use super::*;
use proptest::prelude::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CLASSES: [&str; 3] = ["nic", "gpu", "bios"];
const NODES: usize = 6;

#[derive(Debug, Clone)]
enum Step {
    Set {
        name: usize,
        /// Nodes from this number on, or a cohort by some parts.
        nodes: Option<usize>,
        cohort: usize,
        class: usize,
        strict: bool,
        /// `None`: some keys only.
        digest: Option<u8>,
    },
    Delete {
        name: usize,
    },
    /// A plan is made from the present state, and kept.
    Plan(AttestationContents),
    /// A kept plan is committed.
    Commit {
        nth: usize,
    },
    /// A running allocation ends.
    End,
    Wait {
        ms: u64,
    },
}

/// Contents of the attestations in a plan.
#[derive(Debug, Clone)]
struct AttestationContents {
    nodes: u32,
    digests: Vec<(usize, u8)>,
    cohort: usize,
    age_ms: u64,
    completes: Option<(usize, u8, u8)>,
    /// Whether control confirms the version that it compared with.
    judges: bool,
}

fn selector(which: usize) -> CohortSelector {
    match which {
        0 => product("XE9680", None),
        1 => product("XE9680", Some(8)),
        2 => CohortSelector {
            gpu_model: Some("H100".to_owned()),
            ..CohortSelector::default()
        },
        _ => product("R760", None),
    }
}

fn cohort(which: usize) -> Option<Cohort> {
    match which {
        0 => None,
        1 => Some(Cohort {
            product: Some("R760".to_owned()),
            gpu_count: Some(0),
            ..Cohort::default()
        }),
        _ => Some(xe9680()),
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let words = (
        1..3u32,
        prop::collection::vec((0..CLASSES.len(), 1..3u8), 1..5),
        0..4usize,
        prop_oneof![4 => Just(0), 1 => Just(MAX_AGE_MS), 1 => Just(MAX_AGE_MS + 1)],
        prop::option::weighted(0.2, (0..CLASSES.len(), 0..3u8, 1..3u8)),
        prop::bool::weighted(0.8),
    );
    let words =
        words.prop_map(
            |(nodes, digests, cohort, age_ms, completes, judges)| AttestationContents {
                nodes,
                digests,
                cohort,
                age_ms,
                completes,
                judges,
            },
        );
    let set = (
        0..NAMES.len(),
        prop::option::weighted(0.6, 0..NODES),
        0..4usize,
        0..CLASSES.len(),
        prop::bool::weighted(0.8),
        prop::option::weighted(0.7, 1..3u8),
    );
    prop_oneof![
        4 => set.prop_map(|(name, nodes, cohort, class, strict, digest)| Step::Set {
            name, nodes, cohort, class, strict, digest
        }),
        1 => (0..NAMES.len()).prop_map(|name| Step::Delete { name }),
        6 => words.prop_map(Step::Plan),
        6 => (0..4usize).prop_map(|nth| Step::Commit { nth }),
        2 => Just(Step::End),
        1 => (1..200_000u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// Observed outcomes, to prove coverage.
type Coverage = BTreeSet<String>;

struct Run {
    c: Cluster,
    plans: Vec<Command>,
    met: Coverage,
}

impl Run {
    fn new() -> Self {
        let mut c = founded(NODES);
        c.clock = 1_000_000;
        Self {
            c,
            plans: Vec::new(),
            met: Coverage::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Set {
                name: n,
                nodes,
                cohort,
                class,
                strict,
                digest,
            } => {
                let sensitive = match strict {
                    true => SensitivePolicy::Strict,
                    false => SensitivePolicy::Ignore,
                };
                let rule = digest.map_or_else(|| partial("28"), exact);
                let nodes = nodes.map(|from| format!("n{from:03},n{:03}", from + 1));
                let cohort = nodes.is_none().then(|| selector(*cohort));
                let rules = [(CLASSES[*class], sensitive, rule)];
                let definition = of(&nodes.unwrap_or_default(), cohort, &rules);
                let set = Command::SetBaseline {
                    name: name(NAMES[*n]),
                    definition: Box::new(definition),
                    expected_version: None,
                };
                // An ambiguous baseline is rejected.
                let _ = self.c.propose("olga", Privilege::Operator, set);
            }
            Step::Delete { name: n } => {
                let delete = Command::DeleteBaseline {
                    name: name(NAMES[*n]),
                    expected_version: None,
                };
                let _ = self.c.admin(delete);
            }
            Step::Plan(words) => self.plan(words),
            Step::Commit { nth } => {
                if !self.plans.is_empty() {
                    let nth = nth % self.plans.len();
                    let plan = self.plans.remove(nth);
                    self.commit(plan);
                }
            }
            Step::End => {
                let live: Vec<AllocationId> =
                    self.c.state.live_allocations().map(|a| a.id).collect();
                for id in live {
                    self.c.end_all(id, RankExit::Exited { code: 0 });
                }
            }
            Step::Wait { ms } => self.c.clock += ms,
        }
    }

    fn plan(&mut self, words: &AttestationContents) {
        let id = self.c.submit_sensitive(words.nodes);
        let in_force = self.c.in_force();
        let c = &self.c;
        let command = c.plan(id, &|node| {
            let digests = words.digests.iter();
            let digests: Vec<(&str, u8)> =
                digests.map(|(class, d)| (CLASSES[*class], *d)).collect();
            let mut proof = proof(c, node, &digests);
            proof.attestation.cohort = cohort(words.cohort);
            proof.attestation.read_at = UnixMillis(c.now().0 - words.age_ms);
            if let Some((class, base, digest)) = words.completes {
                let made = CompletedClass {
                    base: (base > 0).then(|| said(base)),
                    whole: said(digest),
                };
                proof.completed.insert(CLASSES[class].to_owned(), made);
            }
            for class in CLASSES.into_iter().filter(|_| words.judges) {
                let one = sole(&in_force, node, proof.attestation.cohort.as_ref(), class);
                if let Some((baseline, _)) = one {
                    let of = BaselineVersion {
                        name: baseline.name.clone(),
                        version: baseline.version,
                    };
                    proof.conforms.insert(class.to_owned(), of);
                }
            }
            proof
        });
        self.plans.push(command);
    }

    fn commit(&mut self, plan: Command) {
        let Command::AssignSensitive { id, nodes } = plan.clone() else {
            panic!("{plan:?}")
        };
        let in_force = self.c.in_force();
        let now = self.c.now().max(self.c.state.now());
        match self.c.admin(plan) {
            Ok(_) => {
                self.met.insert("assigned".to_owned());
                for claimed in &nodes {
                    check_assigned(&in_force, now, claimed, &mut self.met);
                }
                self.c.start_all(id);
            }
            Err(Refusal::Unproven { faults, .. }) => {
                for fault in faults {
                    let text = format!("{:?}", fault.fault);
                    let kind = text.split([' ', '{']).next().unwrap_or_default();
                    self.met.insert(kind.to_owned());
                }
            }
            Err(Refusal::OwnershipConflict { .. } | Refusal::WrongState { .. }) => {}
            Err(Refusal::Invalid { reason, .. }) if reason.contains("nodes given") => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// The one baseline that applies to a class of a node: by the text of the rule, not by its code.
fn sole<'a>(
    in_force: &'a [Baseline],
    node: &NodeId,
    cohort: Option<&Cohort>,
    class: &str,
) -> Option<(&'a Baseline, &'a ClassRule)> {
    let named = |b: &&Baseline| {
        let mut list = b.definition.nodes.split(',').map(str::to_owned);
        // Folded: `n[001-002]`, or a single name.
        list.any(|item| {
            lattice_quorum_types::hostlist::expand(&item).is_ok_and(|l| l.contains(node))
        }) || lattice_quorum_types::hostlist::expand(&b.definition.nodes)
            .is_ok_and(|l| l.contains(node))
    };
    let of_class = |b: &&Baseline| b.definition.classes.contains_key(class);
    let all = || in_force.iter().filter(of_class);
    let mut speak: Vec<&Baseline> = all().filter(named).collect();
    for parts in (1..=4).rev() {
        if !speak.is_empty() {
            break;
        }
        let chosen = |b: &&Baseline| {
            let (Some(wanted), Some(is)) = (&b.definition.cohort, cohort) else {
                return false;
            };
            wanted.parts() == parts
                && (wanted.product.is_none() || wanted.product == is.product)
                && (wanted.gpu_model.is_none() || wanted.gpu_model == is.gpu_model)
                && (wanted.gpu_count.is_none() || wanted.gpu_count == is.gpu_count)
        };
        speak = all().filter(chosen).collect();
    }
    match speak.as_slice() {
        [one] => Some((one, &one.definition.classes[class])),
        _ => None,
    }
}

/// Invariants of a node with a sensitive allocation.
fn check_assigned(
    in_force: &[Baseline],
    now: UnixMillis,
    claimed: &AttestedNode,
    met: &mut Coverage,
) {
    let (node, proof) = (&claimed.expected.node, &claimed.proof);
    assert_eq!(proof.attestation.node, *node);
    assert!(now.0.abs_diff(proof.attestation.read_at.0) <= MAX_AGE_MS);
    for class in CLASSES {
        let one = sole(in_force, node, proof.attestation.cohort.as_ref(), class);
        let Some((baseline, rule)) = one else {
            continue;
        };
        if rule.sensitive != SensitivePolicy::Strict {
            met.insert("ignored".to_owned());
            continue;
        }
        let said = proof.attestation.classes.get(class).copied();
        let made = proof.completed.get(class);
        if let Some(made) = made {
            assert_eq!(made.base, said, "{node} {class}: made of another word");
        }
        let found = made.map(|made| made.whole).or(said);
        let found = found.map(|found| found.now.digest);
        match &rule.rule {
            Rule::Exact { digest, .. } => {
                assert_eq!(
                    found,
                    Some(*digest),
                    "{node} is not what {} asks",
                    baseline.name
                );
                met.insert("exact".to_owned());
            }
            Rule::Partial { .. } => {
                assert!(found.is_some(), "{node} {class} is not known");
                let judged = &proof.conforms[class];
                assert_eq!(
                    (&judged.name, judged.version),
                    (&baseline.name, baseline.version)
                );
                met.insert("partial".to_owned());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::common::cases(256), ..ProptestConfig::default() })]

    #[test]
    fn no_sensitive_work_on_a_node_that_contradicts_a_strict_baseline(
        steps in prop::collection::vec(steps(), 1..80),
    ) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.take(step));
        // Any log replays to the same bytes, also through a snapshot in its middle.
        let log = &run.c.log;
        let (mut whole, mut cut) = (State::new(), State::new());
        for (index, envelope) in (1..).zip(log) {
            let _ = whole.apply(index, envelope);
            if index as usize == log.len() / 2 {
                cut = State::restore(&cut.snapshot()).unwrap();
            }
            let _ = cut.apply(index, envelope);
        }
        prop_assert_eq!(run.c.state.digest(), whole.digest());
        prop_assert_eq!(run.c.state.digest(), cut.digest());
    }
}

/// The random steps are meaningful only if they reach every fault and kind of rule.
#[test]
fn random_steps_meet_every_fault_and_every_kind_of_rule() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(steps(), 80);
    let mut met = Coverage::new();
    for _ in 0..60 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let mut run = Run::new();
        steps.iter().for_each(|step| run.take(step));
        met.extend(run.met);
    }
    println!("{met:?}");
    let wanted = [
        "assigned",
        "exact",
        "partial",
        "ignored",
        "Age",
        "NoCohort",
        "Ambiguous",
        "Unknown",
        "Differs",
        "NotJudged",
        "MadeOfAnother",
    ];
    for wanted in wanted {
        assert!(met.contains(wanted), "{wanted}: {met:?}");
    }
}
