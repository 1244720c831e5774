//! Proof behind the assignment of a sensitive job to one node.

use super::signed_attestation::SignedAttestation;
use lattice_conformance::{ClassMark, Digest, EarlierDigest};
use lattice_quorum_types::{
    attestation::{BaselineVersion, ClassAttestation, CompletedClass, Proof, SchemaDigest},
    baseline::SensitivePolicy,
};
use lattice_view::{NodeEntry, View, baselines::BaselineChoice};

/// Builds the proof for this node: its attestation, the values completed from BMC readings, and the baselines with a
/// strict rule for sensitive jobs that apply to the node. The node must have been compared with its baselines in its
/// current state, and its attestation must match its gossip.
pub(super) fn proof(view: &View, entry: &NodeEntry, said: SignedAttestation) -> Proof {
    // A completed value that was derived from another base does not complete this attestation.
    let of_now = entry.merged_marks.iter();
    let of_now = of_now.filter(|(class, merged)| entry.published(**class) == merged.base);
    let completed = of_now.filter_map(|(class, merged)| {
        let made = CompletedClass {
            base: said.attestation.classes.get(class.name()).copied(),
            whole: class_claim(merged.mark, merged.earlier)?,
        };
        Some((class.to_string(), made))
    });
    let chosen = view
        .baselines
        .choose_for(&entry.id, entry.cohort().as_ref());
    let conforms = chosen.into_iter().filter_map(|(class, chosen)| {
        let BaselineChoice::One(kept) = chosen else {
            return None;
        };
        let rule = kept.record.definition.classes.get(class.name())?;
        let of = BaselineVersion {
            name: kept.record.name.clone(),
            version: kept.record.version,
        };
        (rule.sensitive == SensitivePolicy::Strict).then(|| (class.to_string(), of))
    });
    Proof {
        completed: completed.collect(),
        conforms: conforms.collect(),
        attestation: said.attestation,
        signature: said.signature,
    }
}

fn class_claim(mark: ClassMark, earlier: Option<EarlierDigest>) -> Option<ClassAttestation> {
    let ClassMark::Complete { schema, digest } = mark else {
        return None;
    };
    Some(ClassAttestation {
        now: schema_digest(schema, digest),
        earlier: earlier.map(|earlier| schema_digest(earlier.schema, earlier.digest)),
    })
}

pub(super) const fn schema_digest(schema: u16, digest: Digest) -> SchemaDigest {
    let digest = digest.0;
    SchemaDigest { schema, digest }
}
