//! Probes of a node: they read one machine and write its conformance records.
//!
//! A probe reads one facet of the machine and returns a [`Probed`] with the class record of the facet. What records
//! are, and how they compare, is `lattice-conformance`.
//!
//! This crate must not depend on gossip, the network, the quorum or async. It interacts only with files below
//! [`Host::root`], kernel calls ([`net`], [`ipmi`]), a few external programs ([`commands`]) and the GPU driver. Each
//! has a deadline, and a daemon runs all of it in disposable processes ([`child`]).
//!
//! Start at [`probe_all`].
//!
//! [`Probed`]: lattice_conformance::Probed

#![deny(unsafe_code)]

mod blocking_call;
pub mod capture;
pub mod child;
pub mod cmdline;
pub mod commands;
pub mod gpu_events;
mod host;
mod ioctl;
pub mod ipmi;
pub mod net;
pub mod pci;
pub mod probe;
mod process;
mod root;
pub mod smbios;
mod source;
pub mod uevent;

pub use child::probe_isolated;
pub use commands::Commands;
pub use host::{Host, NvmlSource};
pub use ipmi::IpmiSource;
pub use net::EthtoolSource;
pub use probe::{PROBES, Probe, probe_all};
pub use root::{LONGEST_FILE, MOST_ACCESSES, MOST_BYTES, MOST_ENTRIES, Root};
pub use source::{Answers, Source};
