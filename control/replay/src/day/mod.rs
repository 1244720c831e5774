//! One day of a cluster on a virtual clock: mixed work that borrows, makes room, writes checkpoints and scales
//! while nodes fail and storage is gone for an hour.
//!
//! The state is the real one, and everything that changes it is a real command. Nodes, their agents and the
//! work on them are made here, of a seed. Who decides is whoever implements [`Control`]: it proposes to the
//! [`Site`], and asks the site's agents. What must hold whoever decides is checked with every command that is
//! committed, by code that shares no rule with those who decide; what work has really done is known to its
//! processes alone, and compared with what is on record.
//!
//! Begin with [`run`]; what happens on a day is in [`Scene`].

mod agents;
mod checks;
mod deeds;
mod machine;
mod nature;
mod plant;
mod report;
mod scene;
mod site;
#[cfg(test)]
mod tests;
mod truth;

pub use nature::{Answers, Nature};
pub use plant::Plant;
pub use report::{Report, Sum};
pub use scene::{BORROWER, DAY_MS, Deed, OWNER, Part, SENSITIVE, SERVICES, START, Scene};
pub use site::{Heard, Site};

use lattice_quorum_types::UnixMillis;

/// What changes is looked at so soon at the earliest, milliseconds.
const SOONEST_MS: u64 = 10_000;
/// Who decides looks so often at least, milliseconds: evaluations are a minute apart, and what is weighed half
/// a minute.
const OFTEN_MS: u64 = 30_000;
/// After the last submit, until everything has ended.
const DRAIN_MS: u64 = 2 * DAY_MS;
/// Nodes may take so long to go home after that, milliseconds.
const HOME_MS: u64 = 20 * 60_000;

/// Who decides: what a control service does with one pass of each of its reconcilers.
pub trait Control {
    /// Looks at what is, and proposes what follows.
    fn look(&mut self, now: UnixMillis);
}

/// The whole day, and as long as its work takes after that.
pub fn run(site: &Site, control: &mut dyn Control) -> Report {
    let mut looked_at = START;
    let mut empty_since = None;
    let until = site.scene().until;
    loop {
        let soon = UnixMillis((site.now().0 / SOONEST_MS + 1) * SOONEST_MS);
        let look_at = match site.has_news() {
            true => soon,
            false => looked_at.after(OFTEN_MS).max(soon),
        };
        match site.next_at() {
            Some(at) if at < look_at => site.step(),
            _ => {
                site.is(look_at);
                control.look(look_at);
                site.looked();
                looked_at = look_at;
                let is_over = looked_at > until && site.is_empty();
                let since = is_over.then(|| empty_since.unwrap_or(looked_at));
                empty_since = since;
                let has_settled = since.is_some_and(|since| looked_at > since.after(HOME_MS));
                if has_settled || looked_at > until.after(DRAIN_MS) {
                    return site.end();
                }
                if site.is_hopeless() {
                    return site.end();
                }
            }
        }
    }
}
