"""Which nodes are alike, which differ, what they should be, and the brake on draining."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import (
    BaselineSet,
    BaselineView,
    BrakeState,
    Changed,
    ChangesView,
    DiffView,
    DriftReportView,
    GroupsView,
)
from ..requests import BaselineRequest
from .pages import AsyncPages
from .transport import AsyncTransport


class Conformance(AsyncTransport):
    """See the module."""

    async def conformance_groups(self, classes: str | Sequence[str] | None = None) -> GroupsView:
        """Groups of equal nodes, by all classes or by these."""
        return await self._ask(GroupsView, "/conformance/groups", {}, query={"class": classes})

    async def conformance_drift(self) -> DriftReportView:
        """Which nodes differ from their baseline or cohort, in what."""
        return await self._ask(DriftReportView, "/conformance/drift", {})

    async def conformance_changes(self, since: str | None = None) -> ChangesView:
        """What changed anywhere since a moment; in the last day without one."""
        return await self._ask(ChangesView, "/conformance/changes", {}, query={"since": since})

    def list_baselines(self) -> AsyncPages[BaselineView]:
        """The baselines in force, by name. They come on one page."""
        return self._list(BaselineView, "/conformance/baselines", {})

    async def get_baseline(self, name: str) -> BaselineView:
        """One baseline whole: its name, or `name@3` for a version that was."""
        return await self._ask(BaselineView, "/conformance/baselines/{name}", {"name": name})

    async def set_baseline(
        self,
        name: str,
        request: BaselineRequest,
        *,
        dry_run: bool = False,
        key: str | None = None,
    ) -> BaselineSet:
        """Makes a new version of a baseline, the first one too; a dry run says what it would be,
        and for whom. For operators of the whole cluster."""
        return await self._write(
            BaselineSet,
            "PUT",
            "/conformance/baselines/{name}",
            {"name": name},
            query={"dry_run": True if dry_run else None},
            body=request,
            key=key,
        )

    async def delete_baseline(
        self, name: str, *, expected_version: int | None = None, key: str | None = None
    ) -> Changed:
        """Deletes a baseline: nobody is judged by it any more. For operators of the whole
        cluster."""
        return await self._write(
            Changed,
            "DELETE",
            "/conformance/baselines/{name}",
            {"name": name},
            query={"expected_version": expected_version},
            key=key,
        )

    async def diff_baseline(self, name: str, other: str) -> DiffView:
        """A baseline beside a node, or beside another baseline, key by key."""
        return await self._ask(
            DiffView,
            "/conformance/baselines/{name}/diff",
            {"name": name},
            query={"with": other},
        )

    async def get_brake(self) -> BrakeState:
        """Whether automatic draining stands still, and why."""
        return await self._ask(BrakeState, "/conformance/brake", {})

    async def release_brake(self, reason: str, *, key: str | None = None) -> Changed:
        """Lets automatic draining go on after a person has looked. For operators of the whole
        cluster."""
        body = {"reason": reason}
        return await self._write(
            Changed, "POST", "/conformance/brake/release", {}, body=body, key=key
        )
