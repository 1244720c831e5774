//! Nodes: hardware, history and health.

use super::non_empty;
use crate::{
    nodes::{
        claim::{ClaimResult, ClaimView, ReleaseResult},
        health::{ClearRequest, NodeHealthView, ReasonView},
        history::{HistoryEntryView, KeyChangeView, NodeEventView},
        node::{
            BmcReadResult, ClassView, DrainView, HealthView, NodeView, PowerView, ReprobeResult,
            ResourcesView,
        },
    },
    page::Page,
    v1,
};

field_by_field! {
    ClassView => ClassState { state, digest, last_digest, complete_until }
    BmcReadResult => BmcReadResult { error, differs }
    ClaimView => NodeClaim { user, project, purpose, since, state, reason }
    DrainView => DrainReason { owner, reason, since }
    PowerView => Power {
        draw_watts, draw_state, reason, limit_watts, limit_state, limit_min_watts, limit_max_watts,
        exception_action, source, read_at,
    }
    ReasonView => HealthReason {
        source, code, entity, evidence, severity, action, observe_only, first_seen,
        last_seen, count,
    }
    KeyChangeView => KeyChange { key, from, to }
    NodeEventView => NodeEvent {
        state, entity, address, code, xid, detail, source, severity, action, observe_only,
        by, count, first_at, left_out, late, bmc_time, read_at,
    }
}

impl From<NodeView> for v1::Node {
    fn from(n: NodeView) -> Self {
        let HealthView { verdict, reasons } = n.health;
        let ResourcesView {
            vendor,
            product,
            gpu_model,
            gpu_count,
            gpu_memory_bytes,
            memory_bytes,
            sockets,
            cores,
            threads,
            numa_nodes,
            rdma_count,
            features,
        } = n.resources;
        let classes = n.classes.into_iter();
        Self {
            name: n.name,
            status: n.status,
            lifecycle: n.lifecycle,
            drain: n.drain.into_iter().map(Into::into).collect(),
            allocation: n.holder.as_ref().map(|h| h.allocation.0),
            element: n
                .holder
                .as_ref()
                .and_then(|h| h.element.clone())
                .map(Into::into),
            attempt: n.holder.map(|h| h.attempt),
            vcluster: n.vcluster,
            liveness: n.liveness,
            liveness_reason: n.liveness_reason,
            last_seen: n.last_seen,
            health: verdict,
            health_reasons: reasons,
            cell: n.cell,
            group: n.group,
            vendor,
            product,
            gpu_model,
            gpu_count,
            gpu_memory_bytes,
            memory_bytes,
            sockets,
            cores,
            threads,
            numa_nodes,
            rdma_count,
            features,
            fingerprint: n.fingerprint,
            classes: classes.map(|(name, class)| (name, class.into())).collect(),
            drifted_keys: n.drifted_keys,
            boot_id: n.boot_id,
            agent_version: n.agent_version,
            attestation_fault: n.attestation_fault,
            claim: n.claim.map(Into::into),
            lent_by: n.lent_by,
            power: n.power.map(Into::into),
            certificate: n.certificate.map(Into::into),
            revision: n.revision.0,
        }
    }
}

impl From<ClaimResult> for v1::ClaimNodesResponse {
    fn from(claimed: ClaimResult) -> Self {
        Self {
            revision: claimed.revision.0,
            nodes: claimed.nodes,
        }
    }
}

impl From<ReleaseResult> for v1::ReleaseNodesResponse {
    fn from(released: ReleaseResult) -> Self {
        Self {
            revision: released.revision.0,
            nodes: released.nodes,
        }
    }
}

impl From<ReprobeResult> for v1::ReprobeResponse {
    fn from(r: ReprobeResult) -> Self {
        let classes = r.classes.into_iter();
        Self {
            node: r.node,
            fingerprint: r.fingerprint,
            classes: classes.map(|(name, class)| (name, class.into())).collect(),
            differs: r.differs,
            bmc: r.bmc.map(Into::into),
        }
    }
}

impl From<v1::ClearHealthRequest> for ClearRequest {
    fn from(r: v1::ClearHealthRequest) -> Self {
        Self {
            code: r.code,
            entity: r.entity.and_then(non_empty),
        }
    }
}

impl From<NodeHealthView> for v1::NodeHealth {
    fn from(h: NodeHealthView) -> Self {
        Self {
            node: h.node,
            table: h.table,
            reasons: h.reasons.into_iter().map(Into::into).collect(),
            cleared: h.cleared,
            agent_error: h.agent_error,
            bmc_read_at: h.bmc_read_at,
            as_of: h.as_of,
        }
    }
}

impl From<HistoryEntryView> for v1::HistoryLine {
    fn from(line: HistoryEntryView) -> Self {
        Self {
            number: line.number,
            at: line.at,
            kind: line.kind,
            what: line.what,
            source: line.source,
            boot_id: line.boot_id,
            cause: line.cause,
            occasion: line.occasion,
            class: line.class,
            from: line.from,
            to: line.to,
            changes: line.changes.into_iter().map(Into::into).collect(),
            more: line.more,
            event: line.event.map(Into::into),
        }
    }
}

impl From<Page<HistoryEntryView>> for v1::NodeHistoryResponse {
    fn from(page: Page<HistoryEntryView>) -> Self {
        let items = page.items.into_iter().map(Into::into).collect();
        Self {
            items,
            next_cursor: page.next_cursor,
        }
    }
}
