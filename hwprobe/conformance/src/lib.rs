//! Conformance of nodes: records of a node's hardware and software, their digests, differences and drift.
//!
//! A [`ClassRecord`] holds the `(key, Reading)` pairs of one facet of a machine. Records are encoded canonically. Nodes
//! publish the digest of those bytes (the *preimage*) by gossip, so equal nodes share one digest. Two records with
//! different digests can always be compared key by key.
//!
//! Four kinds of values never mix: *conformance* (values that nodes of one design must share, [`ClassRecord`]),
//! *identity* (serials, addresses, names, [`Identity`], and the connection of devices, [`Topology`]), resources for
//! placement ([`NodeResources`]), and live values (counters, temperatures, power draw: [`Vitals`], [`Power`]). Each
//! value has exactly one kind.
//!
//! This crate is pure: no clock, no file, no process, no randomness. The probes that read a machine are another crate;
//! time and readings are arguments here. So control, which compares thousands of nodes, links no probe.
//!
//! Start at [`ClassRecord`], then [`diff`] and [`drift`], then [`Inventory`].

#![forbid(unsafe_code)]

pub mod baseline;
mod class;
mod compare;
mod digest;
pub mod driver_events;
pub mod health;
pub mod history;
mod inventory;
pub mod keys;
mod reading;
mod record;
pub mod text;

pub use class::{Class, UnknownClass, WrittenSchemas};
pub use compare::{
    COHORT_MIN, Cohort, CohortKey, Difference, Drift, DriftReport, Group, Groups, KeyVerdict,
    Levels, NoMajority, NodeView, Preimages, Scope, UnknownClassState, cohorts, diff,
    diff_by_parts, diff_under, drift, groups, union_digest,
};
pub use digest::{Digest, InvalidDigest};
pub use history::{Debounce, Publication};
pub use inventory::{
    DiskIdentity, Distance, DocumentError, Finding, FindingCode, GpuIdentity, GpuPlace, Identity,
    Inventory, LimitState, Milliwatts, NODE_DOCUMENT_VERSION, NicIdentity, NodeDocument,
    NodeResources, NvlinkPeer, Pair, Power, ProbeFailure, ProbeOutcome, ProbeResult, ProbeStatus,
    Topology, Vitals,
};
pub use reading::{Reading, ReadingState, Value};
pub use record::{
    ClassMark, ClassRecord, ClassState, EarlierDigest, Fingerprint, InvalidMark, PreimageError,
    SchemaMismatch, Schemas, fingerprint, verify,
};
