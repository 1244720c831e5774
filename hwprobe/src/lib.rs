//! Probes of a node: they read one machine and write its conformance records.
//!
//! A probe reads one facet of the machine and returns a [`ProbeResult`] with the class record of the facet. The crate
//! `lattice-conformance` defines records and their comparison.
//!
//! This crate must not depend on gossip, the network, the quorum or async. It interacts only with files below
//! [`Host::root`], kernel calls ([`kernel`]), the kernel log ([`gpu_events`]), a few external programs ([`commands`])
//! and the GPU driver ([`gpu_driver`]). Calls, programs and driver queries have deadlines, and a daemon runs the probes
//! in disposable processes ([`child`]).
//!
//! Start at [`probe_all`].
//!
//! [`ProbeResult`]: lattice_conformance::ProbeResult

#![deny(unsafe_code)]

pub mod capture;
pub mod child;
pub mod cmdline;
pub mod commands;
pub mod gpu_driver;
pub mod gpu_events;
mod host;
mod host_identifiers;
pub mod kernel;
pub mod pci;
pub mod probe;
mod process;
mod root;
pub mod smbios;
mod source;

pub use child::probe_isolated;
pub use commands::Commands;
pub use gpu_driver::NvmlSource;
pub use host::Host;
pub use host_identifiers::HostIdentifiers;
pub use kernel::ipmi::IpmiSource;
pub use kernel::net::EthtoolSource;
pub use probe::{PROBES, Probe, probe_all};
pub use root::{MAX_FILE_BYTES, MAX_FOLDER_ENTRIES, MAX_PROBE_ACCESSES, MAX_PROBE_BYTES, Root};
pub use source::{Answers, Source};
