# Written by `generate` from `_async/`: do not edit.
"""Who did what, to whom and when."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import AuditHeadView, AuditView
from .pages import Pages
from .transport import Transport


class Audit(Transport):
    """See the module."""

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
    ) -> Pages[AuditView]:
        """What was written down, oldest first: only what this principal did, only what is about
        this person, these nodes, this allocation, this project, only these actions, only from a
        moment on, only before one. The cursor of a page is the number that the next comes behind.
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

    def sign_audit(self) -> AuditHeadView:
        """Has the audit signed as far as it reaches; where it ends then. For operators of the whole
        cluster."""
        return self._write(AuditHeadView, "POST", "/audit/checkpoint", {})
