//! Backup: the state at one revision, taken after a read barrier, without interrupting the service.
//! `lattice_quorum_types::backup` describes the file, which contains no key.

pub(crate) mod confirmation;
pub(crate) mod restore;
pub(crate) mod restore_plan;
pub(crate) mod restored_trust;

use crate::{
    audit_signer::Signer, segments, service::Service, state_machine::replica::CapturedState,
};
use bytes::Bytes;
use lattice_mesh::{HandlerFailed, ItemSender};
use lattice_quorum_state::SegmentId;
use lattice_quorum_types::{
    Command, Envelope, UnixMillis, VoterId,
    audit::AuditAction,
    backup::{BackupHeader, part, part_of},
    command::SCHEMA,
    membership::{GetBackup, Incarnation},
};

/// Bytes of a backup in one stream item.
const PIECE_BYTES: usize = 1 << 20;
/// Name of the part that holds the state. The other parts are the segments that the state lists, under their names.
pub(crate) const STATE: &str = "state";

/// Member that writes the backup, and the time.
struct Writer {
    cluster: String,
    incarnation: Incarnation,
    id: VoterId,
    at: UnixMillis,
}

/// Takes a backup, records it in the audit log, and sends it.
pub(crate) async fn send(
    service: &Service,
    request: &GetBackup,
    items: ItemSender<Bytes>,
) -> Result<(), HandlerFailed> {
    let member = &service.member;
    // Includes every command that was acknowledged before the request.
    service.reads.barrier().await.map_err(HandlerFailed::new)?;
    // A backup without a current signed audit head is better than none.
    if let Err(error) = Signer::of(service).sign().await {
        tracing::warn!(%error, "the audit in the backup is not signed up to its end");
    }
    let captured = member.replica.capture();
    let writer = Writer {
        cluster: member.incarnation.cluster().to_owned(),
        incarnation: member.incarnation.current(),
        id: member.id,
        at: member.clock.now(),
    };
    let encoding = service.workers.run(move || encode(&captured, writer)).await;
    let (header, state, segments) = encoding.map_err(HandlerFailed::new)?;
    let action = AuditAction::BackedUp {
        revision: header.revision,
        number: header.audit_number,
        digest: header.digest().into(),
    };
    let envelope = Envelope {
        schema: SCHEMA,
        principal: request.by.clone(),
        // A retry takes another backup, so its key differs.
        key: Some(format!(
            "{}/{}",
            request.key,
            blake3::Hash::from(header.digest()).to_hex()
        )),
        at: member.clock.now(),
        fence: None,
        command: Command::NoteQuorum {
            action: Box::new(action),
        },
    };
    let noted = service.proposals.submit(member, vec![envelope]).await;
    for reply in noted.map_err(HandlerFailed::new)? {
        reply.map_err(HandlerFailed::new)?;
    }
    items.send(&Bytes::from(header.encode())).await?;
    let mut state = state;
    while !state.is_empty() {
        let piece = state.split_to(PIECE_BYTES.min(state.len()));
        items.send(&piece).await?;
    }
    for id in segments {
        let mut bytes = segments::read(member, id)
            .await
            .map_err(HandlerFailed::new)?;
        while !bytes.is_empty() {
            let piece = bytes.split_to(PIECE_BYTES.min(bytes.len()));
            items.send(&piece).await?;
        }
    }
    Ok(())
}

fn encode(captured: &CapturedState, writer: Writer) -> (BackupHeader, Bytes, Vec<SegmentId>) {
    let bytes = Bytes::from(captured.state.snapshot());
    let segments = captured.state.segments();
    let files = segments.map(|s| part_of(s.id.to_string(), s.bytes, s.id.digest));
    let parts = std::iter::once(part(STATE, &bytes)).chain(files);
    let (at, revision) = captured.state.time_and_revision();
    let membership = captured.membership.membership();
    let members = membership.nodes();
    let header = BackupHeader {
        cluster: writer.cluster,
        incarnation: writer.incarnation,
        revision,
        at,
        term: captured.applied.map_or(0, |id| id.leader_id.term),
        led_by: captured.applied.map_or(0, |id| id.leader_id.node_id),
        index: captured.applied.map_or(0, |id| id.index),
        audit_number: captured.state.audit_number(),
        members: members.map(|(id, node)| (*id, node.addr.clone())).collect(),
        written_at: writer.at,
        written_by: writer.id,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        state_format: lattice_quorum_state::FORMAT_VERSION,
        parts: parts.collect(),
    };
    let segments = captured.state.segments().map(|segment| segment.id);
    (header, bytes, segments.collect())
}
