//! Attestations: signed statements of nodes about themselves, and the proof for an assignment of sensitive allocations.
//!
//! The signature context contains the former term `claim`. A user's claim on nodes is a
//! [`node_claim`](crate::node_claim).

use crate::{NodeId, UnixMillis, baseline::Cohort, id::BaselineName, text::truncated};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest age of a reading for sensitive allocations, and largest time by which the reading may be ahead, milliseconds
/// of state time.
///
/// State time may be 30 s ahead of the leader's clock, and a control uses an attestation for 30 s. The rest covers the
/// difference between two hosts' clocks.
pub const MAX_AGE_MS: u64 = 120_000;
/// Largest number of conformance classes in an attestation, with room for future classes.
pub const MAX_CLASSES: usize = 32;
/// Longest name of a class, bytes.
const MAX_CLASS_BYTES: usize = 64;
/// Longest boot id, bytes. The Linux kernel's boot ids have 36.
const MAX_BOOT_BYTES: usize = 128;
/// Longest text of a cohort, bytes; the same as in a baseline's selector.
const MAX_COHORT_BYTES: usize = 1024;
/// Longest signature with its certificates, bytes. Signatures of Lattice agents have about 1,100.
const MAX_SIGNATURE_BYTES: usize = 40 << 10;

/// Attestation: a node's signed statement about itself, made on request. Sensitive allocations may rely on an
/// attestation but not on gossip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    /// Name of the node.
    pub node: NodeId,
    /// Boot id of the node.
    pub boot_id: String,
    /// Cohort of the node, which selects its baselines; `None` while a part of the cohort is not known.
    pub cohort: Option<Cohort>,
    /// Digests of the node's conformance classes. Incomplete and disabled classes are absent.
    pub classes: BTreeMap<String, ClassAttestation>,
    /// Time of the reading, by the node's clock.
    pub read_at: UnixMillis,
    /// Nonce of the request, so that an old attestation cannot be replayed.
    pub nonce: [u8; 16],
}

/// Digests of one class record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassAttestation {
    /// Digest under the present schema.
    pub now: SchemaDigest,
    /// Digest of the same record under the previous schema, while a cluster is upgraded.
    pub earlier: Option<SchemaDigest>,
}

/// A digest with the schema of the record's keys. Digests of different schemas are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaDigest {
    /// Schema of the keys.
    pub schema: u16,
    /// Content address of the record.
    pub digest: [u8; 32],
}

impl ClassAttestation {
    /// Creates digests of one schema only.
    pub const fn of_schema(schema: u16, digest: [u8; 32]) -> Self {
        Self {
            now: SchemaDigest { schema, digest },
            earlier: None,
        }
    }

    /// Digest under this schema, if the attestation contains it.
    pub fn digest_of_schema(&self, schema: u16) -> Option<[u8; 32]> {
        let said = [Some(self.now), self.earlier].into_iter().flatten();
        let mut said = said.filter(|said| said.schema == schema);
        said.next().map(|said| said.digest)
    }
}

/// A conformance class that control completes from its own sources (BMCs), or takes entirely from them. The node's
/// signature does not cover the added part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedClass {
    /// Digests in the node's attestation; `None` if the attestation lacks the class. The completion is void for an
    /// attestation with other digests.
    pub base: Option<ClassAttestation>,
    /// Digests of the complete class.
    pub whole: ClassAttestation,
}

/// One version of a baseline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BaselineVersion {
    /// Name of the baseline.
    pub name: BaselineName,
    /// Version number.
    pub version: u32,
}

/// Proof that a node qualifies for sensitive allocations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Attestation of the node.
    pub attestation: Attestation,
    /// Signature of the node over the postcard encoding of the attestation, as `lattice-mesh` encodes it. The leader
    /// verifies and removes the signature, so it is empty in the log.
    pub signature: Bytes,
    /// Classes that control's sources complete.
    pub completed: BTreeMap<String, CompletedClass>,
    /// Baseline version by class, for classes that digests cannot decide: the baseline constrains only some keys, or
    /// has a schema that the attestation lacks. Control has compared the class record with this version and found that
    /// it conforms.
    pub conforms: BTreeMap<String, BaselineVersion>,
}

/// An attestation or proof that is not well formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidAttestation {
    /// Name of the field.
    pub field: String,
    /// Description of the error, with the bound.
    pub reason: String,
}

impl Attestation {
    /// Context of the attestation's signature.
    pub const CONTEXT: &'static str = "lattice node claim 2";

    /// Checks that an attestation is well formed. The size is bounded because a node writes the attestation and the
    /// quorum stores it.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), InvalidAttestation> {
        within("boot_id", self.boot_id.len(), MAX_BOOT_BYTES, "bytes")?;
        if self.boot_id.is_empty() {
            return Err(invalid("boot_id", "it is empty".to_owned()));
        }
        classes("classes", self.classes.keys())?;
        let Some(cohort) = &self.cohort else {
            return Ok(());
        };
        let texts = [
            ("cohort.vendor", &cohort.vendor),
            ("cohort.product", &cohort.product),
            ("cohort.gpu_model", &cohort.gpu_model),
        ];
        texts.into_iter().try_for_each(|(field, text)| {
            let bytes = text.as_ref().map_or(0, String::len);
            within(field, bytes, MAX_COHORT_BYTES, "bytes")
        })
    }

    /// Distance of the reading from `now`, milliseconds, in either direction.
    pub fn skew_ms(&self, now: UnixMillis) -> u64 {
        now.since(self.read_at).max(self.read_at.since(now))
    }
}

impl Proof {
    /// Checks that a proof is well formed.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), InvalidAttestation> {
        self.attestation
            .check()
            .map_err(|error| InvalidAttestation {
                field: format!("attestation.{}", error.field),
                ..error
            })?;
        within(
            "signature",
            self.signature.len(),
            MAX_SIGNATURE_BYTES,
            "bytes",
        )?;
        classes("completed", self.completed.keys())?;
        classes("conforms", self.conforms.keys())
    }

    /// Digests of a class: those in the node's attestation, or those of the class that control completed.
    ///
    /// # Errors
    /// [`CompletionMismatch`] if control completed the class from other digests than those in the attestation.
    pub fn class(&self, class: &str) -> Result<Option<ClassAttestation>, CompletionMismatch> {
        let own = self.attestation.classes.get(class).copied();
        match self.completed.get(class) {
            None => Ok(own),
            Some(made) if made.base == own => Ok(Some(made.whole)),
            Some(_) => Err(CompletionMismatch),
        }
    }
}

/// Control completed a class from other digests than those in the node's present attestation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionMismatch;

fn classes<'a>(
    field: &str,
    names: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), InvalidAttestation> {
    within(field, names.len(), MAX_CLASSES, "classes")?;
    for name in names {
        let is_name = (1..=MAX_CLASS_BYTES).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if !is_name {
            let shown = truncated(name, MAX_CLASS_BYTES);
            return Err(invalid(field, format!("{shown:?} is not a valid class")));
        }
    }
    Ok(())
}

fn within(field: &str, found: usize, most: usize, unit: &str) -> Result<(), InvalidAttestation> {
    if found <= most {
        return Ok(());
    }
    Err(invalid(
        field,
        format!("has {found} {unit}; at most {most} are allowed"),
    ))
}

fn invalid(field: &str, reason: String) -> InvalidAttestation {
    InvalidAttestation {
        field: field.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ONE: ClassAttestation = ClassAttestation::of_schema(1, [1; 32]);

    fn proof() -> Proof {
        Proof {
            attestation: Attestation {
                node: NodeId::new("gpu001").unwrap(),
                boot_id: "b1".to_owned(),
                cohort: Some(Cohort::default()),
                classes: BTreeMap::from([("gpu".to_owned(), ONE)]),
                read_at: UnixMillis(1_000),
                nonce: [0; 16],
            },
            signature: Bytes::new(),
            completed: BTreeMap::new(),
            conforms: BTreeMap::new(),
        }
    }

    #[test]
    fn what_no_claim_can_be_is_refused_with_its_field() {
        assert_eq!(proof().check(), Ok(()));
        let said = |edit: &dyn Fn(&mut Proof)| {
            let mut proof = proof();
            edit(&mut proof);
            proof.check().unwrap_err().to_string()
        };
        let long = || "x".repeat(1 << 20);
        let many = |n: usize| (0..n).map(|i| "x".repeat(i + 1));
        let fault_texts = [
            said(&|p| p.attestation.boot_id = long()),
            said(&|p| p.attestation.boot_id.clear()),
            said(&|p| p.attestation.classes = many(33).map(|name| (name, ONE)).collect()),
            said(&|p| p.attestation.classes = BTreeMap::from([(long(), ONE)])),
            said(&|p| p.attestation.classes = BTreeMap::from([("GPU".to_owned(), ONE)])),
            said(&|p| p.attestation.classes = BTreeMap::from([("gpu.1".to_owned(), ONE)])),
            said(&|p| p.attestation.cohort.as_mut().unwrap().product = Some(long())),
            said(&|p| p.signature = vec![0; 1 << 20].into()),
            said(&|p| {
                let made = CompletedClass {
                    base: None,
                    whole: ONE,
                };
                p.completed = BTreeMap::from([(String::new(), made)]);
            }),
            said(&|p| {
                let name = BaselineName::new("h100").unwrap();
                let of = BaselineVersion { name, version: 1 };
                p.conforms = many(40).map(|name| (name, of.clone())).collect();
            }),
        ];
        let begins = [
            "attestation.boot_id: has 1048576 bytes; at most 128 are allowed",
            "attestation.boot_id: it is empty",
            "attestation.classes: has 33 classes; at most 32 are allowed",
            "attestation.classes: \"xxxx",
            "attestation.classes: \"GPU\" is not a valid class",
            "attestation.classes: \"gpu.1\" is not a valid class",
            "attestation.cohort.product: has 1048576 bytes; at most 1024 are allowed",
            "signature: has 1048576 bytes; at most 40960 are allowed",
            "completed: \"\" is not a valid class",
            "conforms: has 40 classes; at most 32 are allowed",
        ];
        for (fault, begins) in fault_texts.iter().zip(begins) {
            assert!(fault.starts_with(begins) && fault.len() < 160, "{fault}");
        }
    }

    #[test]
    fn a_whole_counts_only_with_the_word_it_was_made_of() {
        let mut proof = proof();
        let (two, whole) = (
            ClassAttestation::of_schema(1, [2; 32]),
            ClassAttestation::of_schema(1, [9; 32]),
        );
        assert_eq!(proof.class("gpu"), Ok(Some(ONE)));
        assert_eq!(proof.class("bmc"), Ok(None));
        let made = |base| CompletedClass { base, whole };
        proof.completed.insert("gpu".to_owned(), made(Some(ONE)));
        proof.completed.insert("bmc".to_owned(), made(None));
        assert_eq!(proof.class("gpu"), Ok(Some(whole)));
        assert_eq!(proof.class("bmc"), Ok(Some(whole)));
        proof.attestation.classes.insert("gpu".to_owned(), two);
        proof.attestation.classes.insert("bmc".to_owned(), two);
        assert_eq!(proof.class("gpu"), Err(CompletionMismatch));
        assert_eq!(proof.class("bmc"), Err(CompletionMismatch));
    }

    #[test]
    fn digests_are_compared_within_a_schema() {
        let earlier = SchemaDigest {
            schema: 1,
            digest: [1; 32],
        };
        let upgraded = ClassAttestation {
            earlier: Some(earlier),
            ..ClassAttestation::of_schema(2, [2; 32])
        };
        assert_eq!(upgraded.digest_of_schema(2), Some([2; 32]));
        assert_eq!(upgraded.digest_of_schema(1), Some([1; 32]));
        assert_eq!(upgraded.digest_of_schema(3), None);
        assert_eq!(ONE.digest_of_schema(2), None);
    }

    #[test]
    fn its_age_counts_in_both_directions() {
        let claim = proof().attestation;
        assert_eq!(claim.skew_ms(UnixMillis(1_500)), 500);
        assert_eq!(claim.skew_ms(UnixMillis(400)), 600);
    }
}
