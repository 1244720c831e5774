//! Node state as published to control and peers.
//!
//! [`Publication`] is the rule that determines the announcement after a read. [`Prober`] is the loop that reads.
//! [`NodeView`] serves the mesh's handlers. [`NodeHistory`] holds what was published earlier, with causes.
//! [`NodeEvents`] records other events. [`DeviceEvents`] receives the kernel's device events.

mod causes;
mod events;
mod history;
mod prober;
mod publication;
mod triggers;
mod view;

pub use events::{NodeEvents, SharedPublication};
pub use history::{HistorySettings, HistoryStatus, Limits, NodeHistory, RestoredHistory};

pub use prober::{ProbeSettings, Prober, ProberDependencies, Reader};
pub use publication::{Announcement, Observation, Publication, Step};
pub use triggers::{DeviceEvents, KernelNotice};
pub use view::{InventoryUnavailable, NodeView};
