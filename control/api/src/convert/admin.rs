//! Administration: tokens, certificates, CAs, drains, audit.

use crate::{
    nodes::node::{DrainResult, UndrainResult},
    page::Page,
    tenancy::project::ChangeResult,
    trust::{
        audit::{self, AuditHeadView, AuditView},
        authority::AuthorityView,
        certificate::CertificateView,
        token::{TokenCreated, TokenRequest, TokenView, default_uses},
    },
    v1,
};

impl From<ChangeResult> for v1::ChangedResponse {
    fn from(changed: ChangeResult) -> Self {
        Self {
            revision: changed.revision.0,
        }
    }
}

impl From<UndrainResult> for v1::UndrainNodeResponse {
    fn from(undrained: UndrainResult) -> Self {
        Self {
            revision: undrained.revision.0,
            cleared: undrained.cleared,
        }
    }
}

impl From<v1::CreateTokenRequest> for TokenRequest {
    fn from(r: v1::CreateTokenRequest) -> Self {
        Self {
            role: r.role,
            ttl: r.ttl,
            uses: r.uses.unwrap_or_else(default_uses),
            // A node list that is given but empty is rejected later: an empty list must never mean "any name".
            nodes: r.nodes,
            cidrs: r.cidrs,
            replace: r.replace,
        }
    }
}

impl From<TokenCreated> for v1::CreatedToken {
    fn from(made: TokenCreated) -> Self {
        Self {
            token: made.token,
            id: made.id,
            expires_at: made.expires_at,
            uses: made.uses,
        }
    }
}

impl From<Vec<TokenView>> for v1::ListTokensResponse {
    fn from(tokens: Vec<TokenView>) -> Self {
        let items = tokens.into_iter().map(|t| v1::Token {
            id: t.id,
            role: t.role,
            nodes: t.nodes.unwrap_or_default(),
            cidrs: t.cidrs,
            uses_left: t.uses_left,
            replace: t.replace,
            expires_at: t.expires_at,
            by: t.by,
        });
        Self {
            items: items.collect(),
        }
    }
}

impl From<CertificateView> for v1::Certificate {
    fn from(c: CertificateView) -> Self {
        let (before, reason, by) = match c.revoked {
            Some(r) => (Some(r.issued_before), Some(r.reason), Some(r.by)),
            None => (None, None, None),
        };
        Self {
            role: c.role,
            name: c.name,
            state: c.state.as_str().to_owned(),
            issued_at: c.issued_at,
            expires_at: c.expires_at,
            revoked_before: before,
            revoked_reason: reason,
            revoked_by: by,
        }
    }
}

impl From<Page<CertificateView>> for v1::ListCertificatesResponse {
    fn from(page: Page<CertificateView>) -> Self {
        Self {
            items: page.items.into_iter().map(Into::into).collect(),
            next_cursor: page.next_cursor,
        }
    }
}

impl From<Vec<AuthorityView>> for v1::ListAuthoritiesResponse {
    fn from(all: Vec<AuthorityView>) -> Self {
        Self {
            items: all.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<AuthorityView> for v1::Authority {
    fn from(a: AuthorityView) -> Self {
        Self {
            pin: a.pin,
            phase: a.phase,
            since: a.since,
            subject: a.subject,
            expires_at: a.expires_at,
            certificates: a.certificates,
            certificate: a.certificate,
        }
    }
}

impl From<DrainResult> for v1::DrainNodeResponse {
    fn from(drained: DrainResult) -> Self {
        Self {
            revision: drained.revision.0,
            allocation: drained
                .force_released_from
                .as_ref()
                .map(|held| held.allocation.0),
            attempt: drained.force_released_from.map_or(0, |held| held.attempt),
        }
    }
}

impl From<AuditView> for v1::AuditRecord {
    fn from(entry: AuditView) -> Self {
        Self {
            number: entry.number,
            revision: entry.revision.0,
            at: entry.at.clone(),
            by: entry.by.clone(),
            action: audit::action_name(&entry.action).to_owned(),
            summary: entry.summary.clone(),
            // The entry has plain values only, so writing it cannot fail. If it did, `json` would be empty and the hash
            // present.
            json: serde_json::to_string(&entry).unwrap_or_default(),
            hash: entry.hash,
        }
    }
}

impl From<AuditHeadView> for v1::AuditHead {
    fn from(head: AuditHeadView) -> Self {
        Self {
            cluster: head.cluster,
            number: head.number,
            hash: head.hash,
            signed_head: head.signed_head,
            authorities: head.authorities.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Page<AuditView>> for v1::QueryAuditResponse {
    fn from(page: Page<AuditView>) -> Self {
        Self {
            next_after: page.next_cursor.and_then(|cursor| cursor.parse().ok()),
            items: page.items.into_iter().map(Into::into).collect(),
        }
    }
}
