//! Restore: creates a data directory from a backup, without other members. Every member of the new cluster restores the
//! same file, and no member is special. See `../../0009-backup.md`.

use crate::{
    Settings, StartError,
    backup::{STATE, restore_plan::RestorePlan},
    platform::Platform,
    raft::types::{LogId, Membership, SnapshotMeta, Vote},
    store::{DataDir, OpenError, RestoredContent as Data},
};
use bytes::Bytes;
use lattice_quorum_state::{SegmentFault, SegmentId, Segments, State};
use lattice_quorum_types::{
    Command, Envelope, VoterId,
    audit::AuditAction,
    backup::{BackupFault, BackupHeader, BackupVerifier, RESTORER},
    command::{Principal, Privilege, SCHEMA},
    membership::Incarnation,
    view::TrustView,
};
use openraft::{BasicNode, CommittedLeaderId};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Number of the rules by which the first state of a restored cluster follows from the backup. It changes with these
/// rules, such as the distance of allocation numbers, so that members restored by two versions refuse each other.
const RESTORE_RULES: u64 = 2;

/// Reason why a backup could not be restored. Nothing was changed, except that [`RestoreFailed::Data`] may leave an
/// incomplete directory, which no member opens.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFailed {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    File {
        /// Path of the backup.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not a complete backup.
    #[error("{}: {fault}", .path.display())]
    Fault {
        /// Path of the backup.
        path: PathBuf,
        /// Defect of the file.
        fault: BackupFault,
    },
    /// The backup is complete, but one of its parts cannot be used.
    #[error("{}: part {part:?} cannot be used: {reason}", .path.display())]
    Part {
        /// Path of the backup.
        path: PathBuf,
        /// Name of the part.
        part: String,
        /// Reason in words.
        reason: String,
    },
    /// The backup is from another cluster.
    #[error(
        "{} is a backup of cluster {found:?}, and `cluster` of the configuration is {configured:?}; \
         take the backup of that cluster, or correct the configuration",
        .path.display()
    )]
    OtherCluster {
        /// Path of the backup.
        path: PathBuf,
        /// Cluster in the backup.
        found: String,
        /// Configured cluster.
        configured: String,
    },
    /// The requested incarnation is not later than the backup's.
    #[error(
        "--incarnation {given} is not higher than the backup's incarnation {found}; use a higher \
         number, equal on every member, or omit the option"
    )]
    OldIncarnation {
        /// Requested number.
        given: u64,
        /// Incarnation of the backup.
        found: Incarnation,
    },
    /// This member joins a cluster and does not found one.
    #[error(
        "`join: true`: a joining member receives its data from the others; restore the members that \
         form the cluster, and list all of them in `members`"
    )]
    Joins,
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// The log could not be written.
    #[error("the log cannot be written: {reason}")]
    Log {
        /// Reason in words.
        reason: String,
    },
}

impl From<RestoreFailed> for StartError {
    fn from(failed: RestoreFailed) -> Self {
        match failed {
            RestoreFailed::Data(error) => Self::Data(error),
            other => Self::Raft {
                reason: other.to_string(),
            },
        }
    }
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreResult {
    /// Header of the backup.
    pub header: BackupHeader,
    /// New incarnation.
    pub incarnation: Incarnation,
    /// Members that found the restored cluster.
    pub members: BTreeMap<VoterId, SocketAddr>,
    /// Trust of the backup, which applies in the restored cluster.
    pub trust: TrustView,
}

/// Backup with every byte verified.
struct VerifiedBackup<'a> {
    path: &'a Path,
    header: BackupHeader,
    /// Offsets of the parts.
    part_offsets: Vec<u64>,
}

/// Reads a backup and verifies all of it.
fn verify_file(path: &Path) -> Result<VerifiedBackup<'_>, RestoreFailed> {
    let unread = |source| RestoreFailed::File {
        path: path.to_owned(),
        source,
    };
    let faulty = |fault| RestoreFailed::Fault {
        path: path.to_owned(),
        fault,
    };
    let mut file = File::open(path).map_err(unread)?;
    let (mut verifier, mut length) = (BackupVerifier::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece).map_err(unread)?;
        let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        verifier.feed(bytes).map_err(faulty)?;
        length += bytes.len() as u64;
    }
    let header = verifier.finish().map_err(faulty)?;
    let sizes: u64 = header.parts.iter().map(|part| part.bytes).sum();
    let mut at = length.saturating_sub(sizes);
    let begins = header.parts.iter().map(|part| {
        at += part.bytes;
        at - part.bytes
    });
    Ok(VerifiedBackup {
        path,
        part_offsets: begins.collect(),
        header,
    })
}

impl VerifiedBackup<'_> {
    /// Reads one part.
    fn part(&self, name: &str) -> Result<Vec<u8>, String> {
        let at = self.header.parts.iter().position(|part| part.name == name);
        let (part, begins) = at
            .and_then(|at| self.header.parts.get(at).zip(self.part_offsets.get(at)))
            .ok_or("it is missing")?;
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.path)?;
            file.seek(SeekFrom::Start(*begins))?;
            let mut bytes = Vec::new();
            file.take(part.bytes).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| error.to_string())
    }

    /// Restores the state, and checks that every segment that it names is present.
    fn state(&self) -> Result<State, RestoreFailed> {
        let unusable = |part: &str, reason: String| RestoreFailed::Part {
            path: self.path.to_owned(),
            part: part.to_owned(),
            reason,
        };
        let bytes = self.part(STATE).map_err(|reason| unusable(STATE, reason))?;
        let state = State::restore(&bytes);
        let state = state.map_err(|error| unusable(STATE, error.to_string()))?;
        let parts = self.header.parts.iter();
        let parts: BTreeMap<&str, u64> = parts.map(|p| (p.name.as_str(), p.bytes)).collect();
        for segment in state.segments() {
            let name = segment.id.to_string();
            if parts.get(name.as_str()) != Some(&segment.bytes) {
                return Err(unusable(
                    &name,
                    "it is missing, or of another length".to_owned(),
                ));
            }
        }
        Ok(state)
    }
}

impl Segments for VerifiedBackup<'_> {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        let bytes = self.part(&id.to_string()).map(Bytes::from);
        bytes.map_err(|reason| id.fault(reason))
    }
}

/// Verifies a complete backup, from its first byte to its last.
///
/// # Errors
/// The file cannot be read, is not a complete backup, or its state cannot be used.
pub fn verify_backup(path: &Path) -> Result<BackupHeader, RestoreFailed> {
    let checked = verify_file(path)?;
    checked.state()?;
    Ok(checked.header)
}

/// Verifies a complete backup, and describes what a restore from it changes.
///
/// # Errors
/// The file cannot be read, is not a complete backup, or its state cannot be used.
pub fn plan_restore(path: &Path) -> Result<RestorePlan, RestoreFailed> {
    let checked = verify_file(path)?;
    let state = checked.state()?;
    Ok(RestorePlan::new(checked.header, &state))
}

/// Checks that this member can restore the backup, and describes what the restore changes. Nothing is written, and the
/// data directory is not examined.
///
/// # Errors
/// See the variants of [`RestoreFailed`].
pub fn check_restore(
    settings: &Settings,
    path: &Path,
    number: Option<u64>,
) -> Result<RestorePlan, RestoreFailed> {
    let plan = plan_restore(path)?;
    check_settings(settings, path, &plan.header, number)?;
    Ok(plan)
}

/// Rejects a member that joins a cluster, a backup of another cluster, and an earlier incarnation. Returns the new
/// incarnation.
fn check_settings(
    settings: &Settings,
    path: &Path,
    header: &BackupHeader,
    number: Option<u64>,
) -> Result<Incarnation, RestoreFailed> {
    if settings.join {
        return Err(RestoreFailed::Joins);
    }
    if header.cluster != settings.cluster {
        return Err(RestoreFailed::OtherCluster {
            path: path.to_owned(),
            found: header.cluster.clone(),
            configured: settings.cluster.clone(),
        });
    }
    incarnation(header, &settings.members, number)
}

/// Computes the new incarnation. Members restored from another file, with other members, or by other rules get another
/// incarnation.
fn incarnation(
    header: &BackupHeader,
    members: &BTreeMap<VoterId, SocketAddr>,
    number: Option<u64>,
) -> Result<Incarnation, RestoreFailed> {
    let found = header.incarnation;
    let number = number.unwrap_or(found.number + 1);
    if number <= found.number {
        let given = number;
        return Err(RestoreFailed::OldIncarnation { given, found });
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header.digest());
    for id in members.keys() {
        hasher.update(&id.to_le_bytes());
    }
    hasher.update(&RESTORE_RULES.to_le_bytes());
    let mut origin = [0; 8];
    hasher.finalize_xof().fill(&mut origin);
    Ok(Incarnation {
        number,
        // Origin 0 denotes a founded cluster.
        origin: u64::from_le_bytes(origin).max(1),
    })
}

/// Creates the data directory of one member. The directory must be missing or empty. `number` is the number of the new
/// incarnation, by default the backup's number plus one.
///
/// # Errors
/// See the variants of [`RestoreFailed`].
pub async fn restore(
    settings: &Settings,
    path: &Path,
    number: Option<u64>,
) -> Result<RestoreResult, RestoreFailed> {
    let checked = verify_file(path)?;
    let header = checked.header.clone();
    let incarnation = check_settings(settings, path, &header, number)?;
    let mut state = checked.state()?;
    let trust = state.trust();
    let segments: Vec<SegmentId> = state.segments().map(|segment| segment.id).collect();
    let noted = state.begin_restored(&restore_record(&header));
    noted.map_err(|refusal| RestoreFailed::Part {
        path: path.to_owned(),
        part: STATE.to_owned(),
        reason: refusal.to_string(),
    })?;
    let last = LogId::new(
        CommittedLeaderId::new(header.term, header.led_by),
        header.index,
    );
    let data = Data {
        incarnation,
        // An uncommitted vote for itself in the backup's term: this member stands for election in the next term.
        vote: Vote::new(header.term, settings.id),
        meta: SnapshotMeta {
            last_log_id: Some(last),
            last_membership: membership(last, &settings.members),
            snapshot_id: format!("restored-{}-{}", header.term, header.index),
        },
        state: state.snapshot(),
        sealed: state.take_sealed(),
        segments,
        source: &checked,
    };
    let (ground, folder) = (Platform::default(), &settings.data_dir);
    DataDir::restore(&ground, folder, &settings.cluster, settings.id, data).await?;
    Ok(RestoreResult {
        header,
        incarnation,
        members: settings.members.clone(),
        trust,
    })
}

/// Returns the first record of the restored cluster. All its values come from the backup, so that all members write the
/// same record.
fn restore_record(header: &BackupHeader) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: RESTORER.to_owned(),
            privilege: Privilege::Admin,
        },
        key: None,
        at: header.at,
        fence: None,
        command: Command::NoteQuorum {
            action: Box::new(AuditAction::Restored {
                cluster: header.cluster.clone(),
                revision: header.revision,
                number: header.audit_number,
                digest: header.digest().into(),
            }),
        },
    }
}

/// Returns the configured members as a membership committed with the backup's last entry.
fn membership(last: LogId, members: &BTreeMap<VoterId, SocketAddr>) -> Membership {
    let nodes: BTreeMap<VoterId, BasicNode> = members
        .iter()
        .map(|(id, addr)| (*id, BasicNode::new(addr)))
        .collect();
    let voters = members.keys().copied().collect();
    Membership::new(Some(last), openraft::Membership::new(vec![voters], nodes))
}
