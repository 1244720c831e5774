# Written by `generate` from `_async/`: do not edit.
"""Conformance groups, drift, baselines, and the brake on automatic draining."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import (
    BaselineResult,
    BaselineView,
    BrakeState,
    ChangeResult,
    ChangesView,
    DiffView,
    DriftReportView,
    GroupsView,
)
from ..requests import BaselineRequest
from .pages import Pages
from .transport import Transport


class Conformance(Transport):
    """Calls of conformance."""

    def conformance_groups(self, classes: str | Sequence[str] | None = None) -> GroupsView:
        """List groups of nodes that share a digest, largest group first: of all classes, or of
        `classes`."""
        return self._ask(GroupsView, "/conformance/groups", {}, query={"class": classes})

    def conformance_drift(self) -> DriftReportView:
        """List drifting nodes and their differences.

        A node is compared with the baseline that applies to it, or else with the majority of its
        cohort.
        """
        return self._ask(DriftReportView, "/conformance/drift", {})

    def conformance_changes(self, since: str | None = None) -> ChangesView:
        """List changes of all nodes since a time, by default of the last day.

        Equal changes of several nodes are combined.
        """
        return self._ask(ChangesView, "/conformance/changes", {}, query={"since": since})

    def list_baselines(self) -> Pages[BaselineView]:
        """List the baselines in force, by name.

        They fit on one page.
        """
        return self._list(BaselineView, "/conformance/baselines", {})

    def get_baseline(self, name: str) -> BaselineView:
        """Show one complete baseline, by its name, or by `name@3` for a stored version."""
        return self._ask(BaselineView, "/conformance/baselines/{name}", {"name": name})

    def set_baseline(
        self,
        name: str,
        request: BaselineRequest,
        *,
        dry_run: bool = False,
        key: str | None = None,
    ) -> BaselineResult:
        """Create a new version of a baseline, the first one included.

        A dry run returns the resulting version and the nodes it applies to. For operators of the
        whole cluster; recorded in the audit.
        """
        return self._write(
            BaselineResult,
            "PUT",
            "/conformance/baselines/{name}",
            {"name": name},
            query={"dry_run": True if dry_run else None},
            body=request,
            key=key,
        )

    def delete_baseline(
        self, name: str, *, expected_version: int | None = None, key: str | None = None
    ) -> ChangeResult:
        """Delete a baseline.

        No node is compared with the baseline afterwards. For operators of the whole cluster;
        recorded in the audit.
        """
        return self._write(
            ChangeResult,
            "DELETE",
            "/conformance/baselines/{name}",
            {"name": name},
            query={"expected_version": expected_version},
            key=key,
        )

    def diff_baseline(self, name: str, other: str) -> DiffView:
        """Compare a baseline with a node or another baseline, key by key.

        The baseline is on the left.
        """
        return self._ask(
            DiffView,
            "/conformance/baselines/{name}/diff",
            {"name": name},
            query={"with": other},
        )

    def get_brake(self) -> BrakeState:
        """Show whether automatic draining is stopped, and why."""
        return self._ask(BrakeState, "/conformance/brake", {})

    def release_brake(self, reason: str, *, key: str | None = None) -> ChangeResult:
        """Release the brake on automatic draining, after an operator's check.

        For operators of the whole cluster; recorded in the audit.
        """
        body = {"reason": reason}
        return self._write(
            ChangeResult, "POST", "/conformance/brake/release", {}, body=body, key=key
        )
