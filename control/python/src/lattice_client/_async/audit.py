"""Audit entries."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import AuditHeadView, AuditView
from .pages import AsyncPages
from .transport import AsyncTransport


class Audit(AsyncTransport):
    """Calls of the audit."""

    def list_audit(
        self,
        *,
        by: str | None = None,
        user: str | None = None,
        node: str | None = None,
        allocation: int | None = None,
        project: str | None = None,
        action: str | Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
        newest_first: bool = False,
    ) -> AsyncPages[AuditView]:
        """List audit entries, oldest first by default.

        The parameters restrict the list to entries: of actions by the principal `by`; about a user,
        the nodes of a hostlist, an allocation, or a project and its descendants; of these actions;
        from `since` on; before `until`.

        The cursor of a page is a sequence number. The next page begins after that number, or below
        it with `newest_first`.
        """
        query = {
            "by": by,
            "user": user,
            "node": node,
            "allocation": allocation,
            "project": project,
            "action": action,
            "since": since,
            "until": until,
            "newest_first": True if newest_first else None,
        }
        return self._list(AuditView, "/audit", {}, query=query, cursor="after")

    async def sign_audit(self) -> AuditHeadView:
        """Sign the current audit head, unless it is signed already, and return the signed head.

        For operators of the whole cluster.
        """
        return await self._write(AuditHeadView, "POST", "/audit/checkpoint", {})
