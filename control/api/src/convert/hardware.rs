//! What a node's hardware is, was, and what is wrong with it.

use super::filled;
use crate::{
    health::{ClearRequest, NodeHealthView, ReasonView},
    history::{HistoryEntryView, KeyChangeView, NodeEventView},
    node::{BmcLooked, ClassView, Reprobed},
    page::Page,
    v1,
};

impl From<ClassView> for v1::ClassState {
    fn from(c: ClassView) -> Self {
        Self {
            state: c.state,
            digest: c.digest,
        }
    }
}

impl From<BmcLooked> for v1::BmcLooked {
    fn from(looked: BmcLooked) -> Self {
        Self {
            error: looked.error,
            differs: looked.differs,
        }
    }
}

impl From<Reprobed> for v1::ReprobeResponse {
    fn from(r: Reprobed) -> Self {
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
            entity: r.entity.and_then(filled),
        }
    }
}

impl From<ReasonView> for v1::HealthReason {
    fn from(r: ReasonView) -> Self {
        Self {
            source: r.source,
            code: r.code,
            entity: r.entity,
            evidence: r.evidence,
            severity: r.severity,
            action: r.action,
            observe_only: r.observe_only,
            first_seen: r.first_seen,
            last_seen: r.last_seen,
            count: r.count,
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
        }
    }
}

impl From<KeyChangeView> for v1::KeyChange {
    fn from(c: KeyChangeView) -> Self {
        Self {
            key: c.key,
            from: c.from,
            to: c.to,
        }
    }
}

impl From<NodeEventView> for v1::NodeEvent {
    fn from(e: NodeEventView) -> Self {
        Self {
            state: e.state,
            entity: e.entity,
            address: e.address,
            code: e.code,
            xid: e.xid,
            detail: e.detail,
            told_by: e.told_by,
            severity: e.severity,
            action: e.action,
            observe_only: e.observe_only,
            by: e.by,
            count: e.count,
            first_at: e.first_at,
            left_out: e.left_out,
            late: e.late,
            bmc_time: e.bmc_time,
            read_at: e.read_at,
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
