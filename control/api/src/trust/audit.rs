//! Audit entries as shown and exported. The hash chain can be verified from these fields alone.

mod summary;

pub use summary::summary;

use super::authority::AuthorityView;
use crate::notation::text;
use lattice_quorum_types::{
    Revision,
    audit::{AuditAction, AuditEntry, AuditHead},
    command::{Principal, Privilege},
    view::Authority,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All actions, by the names that filters use.
pub const ACTIONS: [&str; AuditAction::WORDS.len()] = AuditAction::WORDS;

/// Audit entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditView {
    /// Audit sequence number, starting at 1, without gaps.
    pub number: u64,
    /// Revision that wrote the entry.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// State time of the entry.
    pub at: String,
    /// Principal that acted.
    pub by: String,
    /// Role in which the principal acted: `user`, `operator`, `admin`, `service` or `accounting`.
    #[schema(value_type = String)]
    pub privilege: Privilege,
    /// Action: its name and its fields.
    #[schema(value_type = Object)]
    pub action: AuditAction,
    /// The action as a sentence.
    pub summary: String,
    /// blake3 over the previous hash and this entry, 64 hex digits.
    pub hash: String,
}

/// End of the audit, the newest signed head, and the trusted CAs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHeadView {
    /// Name of the cluster.
    pub cluster: String,
    /// Number of the last entry; 0 if there is none.
    pub number: u64,
    /// Hash of the last entry, 64 hex digits.
    pub hash: String,
    /// Entry number of the newest signed head; 0 if there is none.
    pub signed_head: u64,
    /// CAs that are trusted now.
    pub authorities: Vec<AuthorityView>,
}

impl AuditHeadView {
    /// Creates the view for this cluster.
    pub fn new(cluster: &str, head: &AuditHead, authorities: &[Authority]) -> Self {
        let shown = authorities.iter().map(|a| AuthorityView::new(a, None));
        Self {
            cluster: cluster.to_owned(),
            number: head.number,
            hash: blake3::Hash::from_bytes(head.hash).to_hex().to_string(),
            signed_head: head.signed_head,
            authorities: shown.collect(),
        }
    }
}

impl From<&AuditEntry> for AuditView {
    fn from(entry: &AuditEntry) -> Self {
        Self {
            number: entry.number,
            revision: entry.revision,
            at: text::time(entry.at),
            by: entry.by.name.clone(),
            privilege: entry.by.privilege,
            summary: summary(&entry.action),
            action: entry.action.clone(),
            hash: blake3::Hash::from_bytes(entry.hash).to_hex().to_string(),
        }
    }
}

/// Line of an export with fields that are invalid or contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {number} was altered: {reason}")]
pub struct AlteredEntry {
    /// Entry number in the line.
    pub number: u64,
    /// Fault of the line.
    pub reason: &'static str,
}

impl TryFrom<&AuditView> for AuditEntry {
    type Error = AlteredEntry;
    /// Recovers the entry from its view. Fields that are derived from other fields must agree with them.
    fn try_from(view: &AuditView) -> Result<Self, AlteredEntry> {
        let altered = |reason| AlteredEntry {
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
                privilege: view.privilege,
            },
            action: view.action.clone(),
            hash: *hash.as_bytes(),
        };
        if AuditView::from(&entry) != *view {
            return Err(altered("its summary does not match its fields"));
        }
        Ok(entry)
    }
}

/// Returns the name of the action.
pub fn action_name(action: &AuditAction) -> &'static str {
    action.word()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_quorum_types::{
        AllocationId, AllocationState, NodeId, ProjectPath, UnixMillis, VclusterName,
        audit::{ChangedLimit, Hex, LevelLimits, NamedLimit, SignedHeadContent},
        id::{BaselineName, ReservationName},
        node::Lifecycle,
        origin::AttemptOrigin,
        rpc::Role,
    };

    fn entry(action: AuditAction) -> AuditEntry {
        AuditEntry {
            number: 3,
            revision: Revision(17),
            at: UnixMillis(1_700_000_000_123),
            by: Principal {
                name: "root".to_owned(),
                privilege: Privilege::Admin,
            },
            action,
            hash: [7; 32],
        }
    }

    fn every_action() -> Vec<AuditAction> {
        let (id, pin) = ("0123456789ab".to_owned(), "ab".repeat(32));
        let node = || NodeId::new("gpu007").unwrap();
        let nodes = || vec![node(), NodeId::new("gpu008").unwrap()];
        let project = || ProjectPath::new("ocean/deep").unwrap();
        let user = || "alice".to_owned();
        let reason = || "cage is dark".to_owned();
        let vcluster = |name: &str| VclusterName::new(name).unwrap();
        let reservation = || ReservationName::new("racks").unwrap();
        let baseline = || BaselineName::new("h100").unwrap();
        let (allocation, attempt) = (AllocationId(17), 2);
        let limits = || {
            vec![NamedLimit {
                name: "max_nodes".to_owned(),
                value: Some(8),
            }]
        };
        let changed = |name: &str| {
            vec![ChangedLimit {
                name: name.to_owned(),
                before: None,
                after: Some(8),
            }]
        };
        let hex = || Hex(vec![7; 32].into());
        vec![
            AuditAction::ForceReleased {
                node: node(),
                allocation: Some(allocation),
                element: None,
                attempt,
                reason: reason(),
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
                element: None,
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
                node: node(),
                cleared: vec!["root: firmware".to_owned()],
            },
            AuditAction::BaselineSet {
                name: baseline(),
                version: 3,
                classes: vec!["gpu: drain".to_owned()],
                digest: [7; 32],
            },
            AuditAction::BaselineDeleted {
                name: baseline(),
                version: 3,
            },
            AuditAction::BrakeHeld { reason: reason() },
            AuditAction::BrakeReleased {
                reason: reason(),
                held_for: reason(),
            },
            AuditAction::NodesClaimed {
                nodes: nodes(),
                user: user(),
                project: project(),
                purpose: "genomes".to_owned(),
                baselines: vec!["h100 v3".to_owned()],
            },
            AuditAction::NodesReleased {
                nodes: nodes(),
                user: user(),
                project: project(),
                reason: String::new(),
            },
            AuditAction::NodeWiped {
                node: node(),
                user: Some(user()),
                evidence: "exit code 0".to_owned(),
            },
            AuditAction::NodeQuarantined {
                node: node(),
                user: None,
                reason: reason(),
            },
            AuditAction::SensitiveAssigned {
                allocation,
                element: None,
                attempt,
                user: user(),
                project: project(),
                nodes: nodes(),
            },
            AuditAction::SensitiveStarted {
                allocation,
                element: None,
                attempt,
                user: user(),
                project: project(),
                nodes: nodes(),
            },
            AuditAction::SensitiveEnded {
                allocation,
                element: None,
                attempt,
                user: user(),
                project: project(),
                nodes: nodes(),
                state: AllocationState::Failed,
                cause: Some("node gpu007 lost".to_owned()),
            },
            AuditAction::SensitiveResized {
                allocation,
                element: None,
                attempt,
                user: user(),
                project: project(),
                taken: Vec::new(),
                given_back: vec![node()],
            },
            AuditAction::LimitsChanged {
                levels: vec![LevelLimits {
                    project: project(),
                    limits: changed("max_nodes"),
                }],
            },
            AuditAction::LimitPolicyChanged {
                before: "strict".to_owned(),
                after: "flat".to_owned(),
            },
            AuditAction::SystemLimitsChanged {
                limits: changed("sensitive_pool_size"),
            },
            AuditAction::ProjectCreated {
                project: project(),
                limits: limits(),
                admins: vec![user()],
            },
            AuditAction::ProjectDeleted {
                project: project(),
                limits: limits(),
            },
            AuditAction::LifecycleSet {
                node: node(),
                before: Lifecycle::Drained,
                after: Lifecycle::Ready,
                cleared: vec!["olga: fan".to_owned()],
            },
            AuditAction::Drained {
                node: node(),
                reason: reason(),
            },
            AuditAction::Undrained {
                node: node(),
                reason: reason(),
            },
            AuditAction::AllocationActedOn {
                allocation,
                element: None,
                user: user(),
                project: project(),
                what: "cancel".to_owned(),
            },
            AuditAction::VclusterSet {
                vcluster: vcluster("main"),
                before: Vec::new(),
                after: vec!["tenants: all".to_owned()],
            },
            AuditAction::VclusterDeleted {
                vcluster: vcluster("main"),
            },
            AuditAction::NodesMoved {
                nodes: nodes(),
                from: vcluster("main"),
                to: vcluster("night"),
                home: false,
            },
            AuditAction::MemberAdded {
                member: 4,
                addr: "10.0.0.4:7101".to_owned(),
            },
            AuditAction::MemberRemoved {
                member: 4,
                addr: "10.0.0.4:7101".to_owned(),
                reason: String::new(),
            },
            AuditAction::SteppedDown {
                member: 1,
                to: Some(2),
            },
            AuditAction::BackedUp {
                revision: Revision(17),
                number: 3,
                digest: hex(),
            },
            AuditAction::Restored {
                cluster: "site".to_owned(),
                revision: Revision(17),
                number: 3,
                digest: hex(),
            },
            AuditAction::SignedHead {
                of: SignedHeadContent {
                    cluster: "site".to_owned(),
                    number: 2,
                    hash: hex(),
                    at: UnixMillis(1_700_000_000_000),
                },
                signer: "quorum/2".to_owned(),
                signature: hex(),
                certificates: vec![hex(), hex()],
            },
            AuditAction::WipeRepeated {
                node: node(),
                user: user(),
                reason: reason(),
            },
            AuditAction::UnwipedAccepted {
                node: node(),
                user: user(),
                reason: reason(),
            },
            AuditAction::SensitiveAsked {
                allocation,
                element: None,
                attempt,
                user: user(),
                project: project(),
                what: "cancel".to_owned(),
                nodes: nodes(),
                state: AllocationState::Stopping,
                cause: Some("cancelled by alice".to_owned()),
            },
            AuditAction::LimitsForced {
                levels: vec![LevelLimits {
                    project: project(),
                    limits: changed("max_nodes"),
                }],
                overcommitted: vec![project()],
            },
            AuditAction::ReservationSet {
                name: reservation(),
                nodes: nodes(),
                before: Vec::new(),
                after: vec!["reason: new racks".to_owned()],
            },
            AuditAction::ReservationDeleted {
                name: reservation(),
                nodes: nodes(),
            },
            AuditAction::SensitiveCheckpointed {
                allocation,
                element: None,
                attempt,
                user: user(),
                project: project(),
                number: 3,
                bytes: Some(1 << 30),
            },
            AuditAction::NumbersSkipped {
                after: allocation,
                until: AllocationId(1_000_000_000),
                revision: Revision(17),
            },
            AuditAction::UnknownAttemptEnded {
                node: node(),
                allocation,
                attempt,
                origin: Some(AttemptOrigin {
                    user: user(),
                    project: project(),
                    name: Some("train".to_owned()),
                    element: None,
                }),
            },
            AuditAction::MonthAccepted {
                month: "2026-11".parse().unwrap(),
                differences: 2,
            },
        ]
    }

    #[test]
    fn an_entry_survives_its_json_and_its_word_is_its_tag() {
        assert_eq!(every_action().len(), ACTIONS.len());
        for (action, named) in every_action().into_iter().zip(ACTIONS) {
            assert_eq!(action_name(&action), named);
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
    fn handling_of_submits_has_words() {
        let action = AuditAction::LimitsChanged {
            levels: vec![LevelLimits {
                project: ProjectPath::new("ocean").unwrap(),
                limits: vec![ChangedLimit {
                    name: "on_limit".to_owned(),
                    before: Some(0),
                    after: Some(1),
                }],
            }],
        };
        assert_eq!(
            summary(&action),
            "changed limits: ocean on_limit from reject to wait"
        );
    }

    #[test]
    fn accepted_month_counts_its_totals() {
        let of = |differences| {
            summary(&AuditAction::MonthAccepted {
                month: "2026-11".parse().unwrap(),
                differences,
            })
        };
        assert!(
            of(1).starts_with("accepted that 1 total of 2026-11 in"),
            "{}",
            of(1)
        );
        assert!(
            of(3).starts_with("accepted that 3 totals of 2026-11 in"),
            "{}",
            of(3)
        );
    }

    #[test]
    fn summaries_name_array_elements() {
        let mut named = 0;
        for action in every_action() {
            let mut json = serde_json::to_value(&action).unwrap();
            let fields = &mut json[action.word()];
            for path in ["/element", "/origin/element"] {
                if let Some(element) = fields.pointer_mut(path) {
                    *element = serde_json::json!({"array": 232, "index": 50});
                }
            }
            let action: AuditAction = serde_json::from_value(json).unwrap();
            let text = summary(&action);
            assert!(!text.contains("allocation 17"), "{text}");
            named += usize::from(text.contains("allocation 232_50"));
        }
        assert_eq!(named, 9);
    }

    #[test]
    fn each_action_has_a_summary() {
        let summaries: Vec<String> = every_action().iter().map(summary).collect();
        let summaries = summaries.join("\n");
        assert_eq!(
            summaries,
            include_str!("audit/words.txt").trim_end(),
            "{summaries}"
        );
    }
}
