//! Observer of a member: passes the commands that the member applies, and the snapshots that it installs, to the agreed
//! history.

use crate::{agreed_history::CommandPosition, disk::Power, simulated_run::SimulatedRun};
use lattice_quorum::Observer;
use lattice_quorum_state::State;
use lattice_quorum_types::{Applied, Envelope, Refusal};
use parking_lot::Mutex;
use std::sync::Arc;

/// Observer of one member process.
pub struct MemberObserver {
    /// Run that receives the observations.
    pub world: Arc<SimulatedRun>,
    /// Number of the member.
    pub id: u64,
    /// Power of the process. Actions without power are ignored.
    pub power: Arc<Power>,
    /// Position of the last applied command.
    pub at: Mutex<Option<CommandPosition>>,
}

impl Observer for MemberObserver {
    fn applied(
        &self,
        index: u64,
        envelope: &Envelope,
        result: &Result<Applied, Refusal>,
        state: &State,
    ) {
        if !self.power.is_on() {
            return;
        }
        let place = {
            let mut at = self.at.lock();
            let nth = match *at {
                Some((last, nth)) if last == index => nth + 1,
                _ => 0,
            };
            *at = Some((index, nth));
            (index, nth)
        };
        self.world.add_to_digest(&[self.id as u8, place.1 as u8]);
        self.world.add_to_digest(&index.to_le_bytes());
        let truth = &self.world.agreed_history;
        if let Err(violation) = truth.check_applied(self.id, place, envelope, result, state) {
            self.world.violation(violation);
        }
    }

    fn installed(&self, index: u64, _: &State) {
        if self.power.is_on() {
            self.world.agreed_history.snapshot_installed();
            self.world
                .trace(|| format!("m{} installed a snapshot up to {index}", self.id));
        }
    }
}
