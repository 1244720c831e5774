//! The audit as it is shown and exported: the chain can be checked on what is written here.

mod words;

pub use words::summary;

use crate::text;
use lattice_quorum_types::{
    NodeId, Revision,
    audit::{AuditAction, AuditEntry},
    command::{Power, Principal},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Every action there is, as filters name it.
pub const ACTIONS: [&str; AuditAction::WORDS.len()] = AuditAction::WORDS;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditView {
    /// Its number, from 1 without a gap.
    pub number: u64,
    /// The revision that made it.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// State time.
    pub at: String,
    /// Who did it.
    pub by: String,
    /// As what: `user`, `operator`, `admin` or `service`.
    #[schema(value_type = String)]
    pub power: Power,
    /// What was done: the action's word, and what belongs to it.
    #[schema(value_type = Object)]
    pub action: AuditAction,
    /// The same in words.
    pub summary: String,
    /// blake3 over the hash before it and this entry, 64 hex digits.
    pub hash: String,
}

impl From<&AuditEntry> for AuditView {
    fn from(entry: &AuditEntry) -> Self {
        Self {
            number: entry.number,
            revision: entry.revision,
            at: text::time(entry.at),
            by: entry.by.name.clone(),
            power: entry.by.power,
            summary: summary(&entry.action),
            action: entry.action.clone(),
            hash: blake3::Hash::from_bytes(entry.hash).to_hex().to_string(),
        }
    }
}

/// A line of an export that no entry was written as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {number} is not as it was written: {reason}")]
pub struct Altered {
    /// The number it gives itself.
    pub number: u64,
    /// What is wrong.
    pub reason: &'static str,
}

impl TryFrom<&AuditView> for AuditEntry {
    type Error = Altered;
    /// The entry it was written from. What is derived from other fields must agree with them.
    fn try_from(view: &AuditView) -> Result<Self, Altered> {
        let altered = |reason| Altered {
            number: view.number,
            reason,
        };
        let at = text::read_time(&view.at).ok_or_else(|| altered("its time cannot be read"))?;
        let hash = blake3::Hash::from_hex(&view.hash)
            .map_err(|_| altered("its hash is not 64 hex digits"))?;
        let entry = AuditEntry {
            number: view.number,
            revision: view.revision,
            at,
            by: Principal {
                name: view.by.clone(),
                power: view.power,
            },
            action: view.action.clone(),
            hash: *hash.as_bytes(),
        };
        if AuditView::from(&entry) != *view {
            return Err(altered("its words say something else than its fields"));
        }
        Ok(entry)
    }
}

/// The action's word.
pub fn word(action: &AuditAction) -> &'static str {
    action.word()
}

/// Whether an entry is about this node.
pub fn is_about_node(action: &AuditAction, wanted: &NodeId) -> bool {
    action.subjects().nodes.contains(&wanted.as_str())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_quorum_types::{AllocationId, UnixMillis, rpc::Role};

    fn entry(action: AuditAction) -> AuditEntry {
        AuditEntry {
            number: 3,
            revision: Revision(17),
            at: UnixMillis(1_700_000_000_123),
            by: Principal {
                name: "root".to_owned(),
                power: Power::Admin,
            },
            action,
            hash: [7; 32],
        }
    }

    fn every_action() -> Vec<AuditAction> {
        let (id, pin) = ("0123456789ab".to_owned(), "ab".repeat(32));
        vec![
            AuditAction::ForceReleased {
                node: NodeId::new("gpu007").unwrap(),
                allocation: Some(AllocationId(17)),
                attempt: 2,
                reason: "cage is dark".to_owned(),
            },
            AuditAction::TokenCreated {
                id: id.clone(),
                role: Role::Agent,
                uses: 512,
                replace: true,
            },
            AuditAction::TokenRevoked { id: id.clone() },
            AuditAction::Enrolled {
                role: Role::Agent,
                name: "gpu007".to_owned(),
                token: id,
                replaced: false,
                held: None,
            },
            AuditAction::CertificatesRevoked {
                role: Role::Agent,
                name: "gpu007".to_owned(),
                reason: "disk was sold".to_owned(),
            },
            AuditAction::AuthorityAdded { pin: pin.clone() },
            AuditAction::AuthorityPromoted { pin: pin.clone() },
            AuditAction::AuthorityRetired { pin },
            AuditAction::GateSkipped {
                node: NodeId::new("gpu007").unwrap(),
                cleared: vec!["root: firmware".to_owned()],
            },
        ]
    }

    #[test]
    fn an_entry_survives_its_json_and_its_word_is_its_tag() {
        for (action, named) in every_action().into_iter().zip(ACTIONS) {
            assert_eq!(word(&action), named);
            let entry = entry(action);
            let json = serde_json::to_value(AuditView::from(&entry)).unwrap();
            assert!(json["action"].get(named).is_some(), "{json}");
            let read: AuditView = serde_json::from_value(json).unwrap();
            assert_eq!(AuditEntry::try_from(&read).unwrap(), entry);
        }
    }

    #[test]
    fn words_that_do_not_belong_to_the_entry_are_noticed() {
        let action = every_action().remove(0);
        let mut view = AuditView::from(&entry(action));
        view.summary = "nothing happened".to_owned();
        let altered = AuditEntry::try_from(&view).unwrap_err();
        assert!(altered.to_string().starts_with("entry 3 "), "{altered}");
        view.at = "noon".to_owned();
        assert!(AuditEntry::try_from(&view).is_err());
    }

    #[test]
    fn an_entry_is_found_by_its_node_and_allocation() {
        let node = NodeId::new("gpu007").unwrap();
        let about: Vec<_> = every_action()
            .iter()
            .filter(|a| is_about_node(a, &node))
            .map(word)
            .collect();
        assert_eq!(
            about,
            [
                "force_released",
                "enrolled",
                "certificates_revoked",
                "gate_skipped"
            ]
        );
        let about = |id| {
            let all = every_action();
            all.iter()
                .filter(|a| a.subjects().allocations.contains(&id))
                .count()
        };
        assert_eq!((about(AllocationId(17)), about(AllocationId(18))), (1, 0));
    }
}
