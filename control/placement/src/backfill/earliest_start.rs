//! Lower bounds on job starts. Within a plan, nodes are only taken and held back. A job that requests at least as many
//! nodes for at least as long as another job therefore starts no earlier than that job could.

/// Time before which `nodes` nodes were not free together for `walltime_ms`.
#[derive(Debug, Clone, Copy)]
struct StartBound {
    nodes: u32,
    walltime_ms: u64,
    at: u64,
}

/// Lower bounds for the jobs of one set of nodes; times in milliseconds. A job without an end has the walltime
/// `u64::MAX`.
#[derive(Debug, Default)]
pub struct StartBounds(Vec<StartBound>);

/// Maximum number of bounds kept. A dropped bound costs only a search.
const MAX_BOUNDS: usize = 64;

impl StartBounds {
    /// Earliest time at which the job must be tried.
    pub fn of(&self, nodes: u32, walltime_ms: u64) -> u64 {
        let asks_less =
            |floor: &&StartBound| floor.nodes <= nodes && floor.walltime_ms <= walltime_ms;
        let times = self.0.iter().filter(asks_less).map(|floor| floor.at);
        times.max().unwrap_or(0)
    }

    /// Records that `nodes` nodes were not free together for `walltime_ms` before `at`; `u64::MAX`: at no foreseeable
    /// time.
    pub fn add(&mut self, nodes: u32, walltime_ms: u64, at: u64) {
        let says_less = |floor: &StartBound| {
            floor.nodes >= nodes && floor.walltime_ms >= walltime_ms && floor.at <= at
        };
        self.0.retain(|floor| !says_less(floor));
        if self.0.len() == MAX_BOUNDS {
            self.0.remove(0);
        }
        self.0.push(StartBound {
            nodes,
            walltime_ms,
            at,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_request_may_start_earlier() {
        let mut floors = StartBounds::default();
        floors.add(8, 100, 50);
        floors.add(4, 200, 70);
        assert_eq!(floors.of(8, 100), 50);
        assert_eq!(floors.of(9, 300), 70);
        assert_eq!(
            (floors.of(7, 100), floors.of(8, 99), floors.of(3, 500)),
            (0, 0, 0)
        );
        floors.add(4, 100, 90);
        assert_eq!((floors.of(8, 100), floors.0.len()), (90, 1));
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut floors = StartBounds::default();
        for n in 0..200_u32 {
            floors.add(n, u64::from(200 - n), u64::from(n));
        }
        assert_eq!(floors.0.len(), MAX_BOUNDS);
        assert_eq!(floors.of(199, 1), 199);
    }
}
