//! Results of the registers, which have concurrent writers and readers: a limit, and a baseline that is set with an
//! expected version.
//!
//! The results and their times must be linearizable. An independent checker decides this (`todc-utils`, after Wing and
//! Gong, and Lowe).

use parking_lot::{Mutex, MutexGuard};
use todc_utils::{
    linearizability::{
        WGLChecker,
        history::{
            Action::{Call, Response},
            History,
        },
    },
    specifications::Specification,
};

/// Name of both registers: the tenant with the node limit, which is created as 0, and the baseline.
pub const TENANT: &str = "register";
/// Operation on the limit.
#[derive(Debug, Clone)]
pub enum LimitOperation {
    Read(u64),
    Write(u64),
}

struct PlainSpec;

impl Specification for PlainSpec {
    type State = u64;
    type Operation = LimitOperation;
    fn init() -> u64 {
        0
    }
    fn apply(operation: &LimitOperation, state: &u64) -> (bool, u64) {
        match operation {
            LimitOperation::Read(value) => (value == state, *state),
            LimitOperation::Write(value) => (true, *value),
        }
    }
}

/// Result of a write with an expected version.
#[derive(Debug, Clone, Copy)]
pub enum WriteResult {
    Written(u32),
    Refused,
    NotKnown,
}

/// Operation on the baseline: its version, and the value written with it. A write requires an expected version.
#[derive(Debug, Clone)]
pub enum BaselineOperation {
    Read(u32, u64),
    Write {
        expected: u32,
        value: u64,
        result: WriteResult,
    },
}

struct VersionedSpec;

impl Specification for VersionedSpec {
    type State = (u32, u64);
    type Operation = BaselineOperation;
    fn init() -> (u32, u64) {
        (0, 0)
    }
    fn apply(operation: &BaselineOperation, state: &(u32, u64)) -> (bool, (u32, u64)) {
        match operation {
            BaselineOperation::Read(version, value) => ((*version, *value) == *state, *state),
            BaselineOperation::Write {
                expected,
                value,
                result: came,
            } => {
                let fits = *expected == state.0;
                let next = (state.0 + 1, *value);
                match came {
                    WriteResult::Written(version) if fits && *version == next.0 => (true, next),
                    WriteResult::Written(_) => (false, *state),
                    WriteResult::Refused => (!fits, *state),
                    WriteResult::NotKnown => (true, if fits { next } else { *state }),
                }
            }
        }
    }
}

/// Operations in the order of their starts and ends.
pub struct OperationHistory<T> {
    /// Operation number, and its result; `None` at its start.
    steps: Vec<(usize, Option<T>)>,
    begun: usize,
    /// Number of operations with an unknown outcome.
    pub unknown: usize,
}

impl<T> Default for OperationHistory<T> {
    fn default() -> Self {
        let (steps, begun, unknown) = (Vec::new(), 0, 0);
        Self {
            steps,
            begun,
            unknown,
        }
    }
}

impl<T: Clone> OperationHistory<T> {
    pub fn begin(&mut self) -> usize {
        self.begun += 1;
        self.steps.push((self.begun, None));
        self.begun
    }
    pub fn end(&mut self, which: usize, how: T) {
        self.steps.push((which, Some(how)));
    }
    /// Removes an operation that had no effect.
    pub fn forget(&mut self, which: usize) {
        self.steps.retain(|(other, _)| *other != which);
    }
    /// History in the form of the checker, with one process for each operation. Operations with an unknown outcome end
    /// last, with the results in `unended`.
    fn history(&self, unended: &[(usize, T)]) -> Option<History<T>> {
        let ends = |which: usize| {
            let ended = self.steps.iter().filter(|(other, _)| *other == which);
            let ended = ended.filter_map(|(_, how)| how.clone()).next();
            let late = unended.iter().find(|(other, _)| *other == which);
            ended.or_else(|| late.map(|(_, how)| how.clone()))
        };
        let mut actions = Vec::new();
        for (which, how) in &self.steps {
            actions.push(match how {
                None => (*which, Call(ends(*which)?)),
                Some(how) => (*which, Response(how.clone())),
            });
        }
        actions.extend(
            unended
                .iter()
                .map(|(which, how)| (*which, Response(how.clone()))),
        );
        (!actions.is_empty()).then(|| History::from_actions(actions))
    }
}

/// Histories of both registers.
#[derive(Default)]
pub struct Histories {
    pub plain: OperationHistory<LimitOperation>,
    pub plain_unknown: Vec<(usize, LimitOperation)>,
    pub versioned: OperationHistory<BaselineOperation>,
    pub versioned_unknown: Vec<(usize, BaselineOperation)>,
    pub values: u64,
}

/// All registers of a run.
#[derive(Default)]
pub struct Registers(Mutex<Histories>);

impl Registers {
    /// Locks the histories.
    pub fn lock(&self) -> MutexGuard<'_, Histories> {
        self.0.lock()
    }

    /// Checks that the results are linearizable. Returns the number of operations, or a description of the violation.
    pub fn check(&self) -> Result<usize, String> {
        let histories = self.lock();
        let not = |what: &str, steps: String| Err(format!("{what} is not linearizable: {steps}"));
        let plain = histories.plain.history(&histories.plain_unknown);
        if plain.is_some_and(|history| !WGLChecker::<PlainSpec>::is_linearizable(history)) {
            return not("a limit", format!("{:?}", histories.plain.steps));
        }
        let versioned = histories.versioned.history(&histories.versioned_unknown);
        if versioned.is_some_and(|h| !WGLChecker::<VersionedSpec>::is_linearizable(h)) {
            return not("a baseline", format!("{:?}", histories.versioned.steps));
        }
        Ok(histories.plain.begun + histories.versioned.begun)
    }
}
