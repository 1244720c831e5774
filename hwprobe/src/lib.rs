//! Inventory of a node: probes, conformance records, digests, differences and drift.
//!
//! A probe reads one facet of the machine and returns a [`ClassRecord`] of `(key, Reading)` pairs. Records are encoded
//! canonically. Nodes publish the digest of those bytes (the *preimage*) by gossip, so equal nodes share one digest.
//! Two records with different digests can always be compared key by key.
//!
//! The planes never mix: *conformance* (values that nodes of one design must share, [`ClassRecord`]), *identity*
//! (serials, addresses, names, [`Identity`], and the connection of devices, [`Topology`]), resources for placement
//! ([`Facts`]), and live values (counters, temperatures, power draw: [`Vitals`], [`Power`]). Each value is in exactly
//! one plane.
//!
//! This crate must not depend on gossip, the network, the quorum or async. It interacts only with files below
//! [`Host::root`], kernel calls ([`net`], [`ipmi`]), a few external programs ([`commands`]) and the GPU driver. Each
//! has a deadline, and a daemon runs all of it in disposable processes ([`child`]).
//!
//! Start at [`probe_all`], then [`ClassRecord`], then [`drift`].

#![deny(unsafe_code)]

pub mod baseline;
mod blocking_call;
pub mod capture;
pub mod child;
mod class;
pub mod cmdline;
mod cohort;
pub mod commands;
mod debounce;
mod diff;
mod digest;
mod document;
mod encode;
mod facts;
mod finding;
pub mod gpu_events;
mod groups;
pub mod health;
pub mod history;
mod host;
mod identity;
mod inventory;
mod ioctl;
pub mod ipmi;
pub mod keys;
mod levels;
mod mark;
pub mod net;
pub mod pci;
mod power;
pub mod probe;
mod process;
mod reading;
mod record;
mod root;
mod schema;
pub mod smbios;
mod source;
pub mod text;
mod topology;
pub mod uevent;
mod value;
mod vitals;

pub use child::probe_isolated;
pub use class::{Class, UnknownClass};
pub use cohort::{
    COHORT_MIN, Cohort, CohortKey, Drift, DriftReport, NoMajority, NodeView, Preimages,
    UnknownClassOf, cohorts, drift,
};
pub use commands::Commands;
pub use debounce::{Debounce, Publication};
pub use diff::{Difference, Verdict, diff, diff_by_parts, diff_under};
pub use digest::{BadDigest, Digest};
pub use document::{DocumentError, NODE_DOCUMENT_VERSION, NodeDocument};
pub use encode::PreimageError;
pub use facts::Facts;
pub use finding::FindingCode;
pub use groups::{Group, Groups, Scope, groups, union_digest};
pub use host::{Host, NvmlSource};
pub use identity::{DiskIdentity, GpuIdentity, Identity, NicIdentity};
pub use inventory::{Finding, Inventory, Loss, Outcome, ProbeOutcome};
pub use ipmi::IpmiSource;
pub use levels::Levels;
pub use mark::{BadMark, ClassMark, Fingerprint, fingerprint};
pub use net::EthtoolSource;
pub use power::{LimitState, Milliwatts, Power};
pub use probe::{PROBES, Probe, Probed, probe_all};
pub use reading::{Reading, State};
pub use record::{ClassRecord, ClassState, verify};
pub use root::{LONGEST_FILE, MOST_ACCESSES, MOST_BYTES, MOST_ENTRIES, Root};
pub use schema::{Earlier, NotUnder, Schemas, Written};
pub use source::{Answers, Source};
pub use topology::{Distance, GpuPlace, NvlinkPeer, Pair, Topology};
pub use value::Value;
pub use vitals::Vitals;
