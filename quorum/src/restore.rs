//! A data directory made of a backup, with nobody's help: each member of the new cluster makes its
//! own of the same file, and none of them is special. See `../0009-backup.md`.

use crate::{
    Settings, StartError,
    backup::STATE,
    ground::Ground,
    store::{DataDir, OpenError, Restored as Data},
    types::{LogId, Membership, SnapshotMeta, Vote},
};
use bytes::Bytes;
use lattice_quorum_state::{SegmentFault, SegmentId, Segments, State};
use lattice_quorum_types::{
    Command, Envelope, VoterId,
    audit::AuditAction,
    backup::{BackupFault, Header, Verifier},
    command::{Power, Principal, SCHEMA},
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
/// In whose name the first entry of the restored cluster is written down.
const RESTORER: &str = "restore";

/// Why no data directory was made of a backup. Nothing was changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFailed {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no whole backup.
    #[error("{}: {fault}", .path.display())]
    Fault {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: BackupFault,
    },
    /// It is whole, and its state cannot be used.
    #[error("{}: part {part:?} cannot be used: {reason}", .path.display())]
    Part {
        /// The file.
        path: PathBuf,
        /// Which part.
        part: String,
        /// Why.
        reason: String,
    },
    /// It is another cluster's.
    #[error(
        "{} is a backup of cluster {found:?}, and `cluster` of the configuration is {configured:?}; \
         take the backup of that cluster, or correct the configuration",
        .path.display()
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// As in the backup.
        found: String,
        /// As configured.
        configured: String,
    },
    /// The incarnation that was asked for is not a later one.
    #[error(
        "--incarnation {given}: the backup is of incarnation {found}; give a higher number, the \
         same on every member, or none"
    )]
    OldIncarnation {
        /// As given.
        given: u64,
        /// As in the backup.
        found: Incarnation,
    },
    /// This member does not found anything.
    #[error(
        "`join: true`: a member that joins gets everything from the others; restore the members \
         that found the cluster, and list all of them in `members`"
    )]
    Joins,
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// The log could not be written.
    #[error("the log cannot be written: {reason}")]
    Log {
        /// Why.
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

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What the backup says of itself.
    pub header: Header,
    /// The new incarnation.
    pub incarnation: Incarnation,
    /// The members that found the cluster.
    pub members: BTreeMap<VoterId, SocketAddr>,
    /// Who is trusted in it.
    pub trust: TrustView,
}

/// A backup of which every byte was checked.
struct Checked<'a> {
    path: &'a Path,
    header: Header,
    /// Where its parts begin.
    begins: Vec<u64>,
}

/// Reads a backup and checks all of it.
fn check(path: &Path) -> Result<Checked<'_>, RestoreFailed> {
    let unread = |source| RestoreFailed::File {
        path: path.to_owned(),
        source,
    };
    let faulty = |fault| RestoreFailed::Fault {
        path: path.to_owned(),
        fault,
    };
    let mut file = File::open(path).map_err(unread)?;
    let (mut verifier, mut length) = (Verifier::new(), 0);
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
    Ok(Checked {
        path,
        begins: begins.collect(),
        header,
    })
}

impl Checked<'_> {
    /// One part.
    fn part(&self, name: &str) -> Result<Vec<u8>, String> {
        let at = self.header.parts.iter().position(|part| part.name == name);
        let (part, begins) = at
            .and_then(|at| self.header.parts.get(at).zip(self.begins.get(at)))
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

    /// The state, with every segment that it names.
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

impl Segments for Checked<'_> {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        let bytes = self.part(&id.to_string()).map(Bytes::from);
        bytes.map_err(|reason| id.fault(reason))
    }
}

/// Checks a backup from its first byte to its last.
///
/// # Errors
/// When the file is no whole backup.
pub fn verify_backup(path: &Path) -> Result<Header, RestoreFailed> {
    let checked = check(path)?;
    checked.state()?;
    Ok(checked.header)
}

/// Which life of the cluster is restored. Members that were restored from another file, or with other
/// members, belong to another one.
fn incarnation(
    header: &Header,
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
    let mut origin = [0; 8];
    hasher.finalize_xof().fill(&mut origin);
    Ok(Incarnation {
        number,
        // 0 is the origin of what was founded.
        origin: u64::from_le_bytes(origin).max(1),
    })
}

/// Makes the data directory of one member, which must be missing or empty. `number` is that of the new
/// incarnation; `None` stands for the one after the backup's.
///
/// # Errors
/// When the backup is damaged, newer or another cluster's, or the directory is in use.
pub async fn restore(
    settings: &Settings,
    path: &Path,
    number: Option<u64>,
) -> Result<Restored, RestoreFailed> {
    if settings.join {
        return Err(RestoreFailed::Joins);
    }
    let checked = check(path)?;
    let header = checked.header.clone();
    if header.cluster != settings.cluster {
        return Err(RestoreFailed::OtherCluster {
            path: path.to_owned(),
            found: header.cluster,
            configured: settings.cluster.clone(),
        });
    }
    let incarnation = incarnation(&header, &settings.members, number)?;
    let mut state = checked.state()?;
    let trust = state.trust();
    let segments: Vec<SegmentId> = state.segments().map(|segment| segment.id).collect();
    let noted = state.begin_anew(&note(&header));
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
        // Of the same term, and not granted to anybody: this member stands for election in the next.
        vote: Vote::new(header.term, settings.id),
        meta: SnapshotMeta {
            last_log_id: Some(last),
            last_membership: membership(last, &settings.members),
            snapshot_id: format!("restored-{}-{}", header.term, header.index),
        },
        state: state.snapshot(),
        sealed: state.take_sealed(),
        segments,
        from: &checked,
    };
    let (ground, folder) = (Ground::default(), &settings.data_dir);
    DataDir::restore(&ground, folder, &settings.cluster, settings.id, data).await?;
    Ok(Restored {
        header,
        incarnation,
        members: settings.members.clone(),
        trust,
    })
}

/// The first thing that the restored cluster writes down. Everything in it is the backup's, so that all
/// members write the same.
fn note(header: &Header) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: RESTORER.to_owned(),
            power: Power::Admin,
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

/// The members of the configuration, as if they had been agreed on with the backup's last entry.
fn membership(last: LogId, members: &BTreeMap<VoterId, SocketAddr>) -> Membership {
    let nodes: BTreeMap<VoterId, BasicNode> = members
        .iter()
        .map(|(id, addr)| (*id, BasicNode::new(addr)))
        .collect();
    let voters = members.keys().copied().collect();
    Membership::new(Some(last), openraft::Membership::new(vec![voters], nodes))
}
