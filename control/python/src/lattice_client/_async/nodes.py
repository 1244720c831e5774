"""Nodes: inventory, health, history, drain and node claims."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import (
    ClaimResult,
    DiffView,
    DrainResult,
    HistoryEntryView,
    InventoryView,
    NodeHealthView,
    NodeView,
    ReleaseResult,
    ReprobeResult,
    UndrainResult,
)
from ..requests import ClearRequest, ReleaseRequest
from .pages import AsyncPages
from .transport import AsyncTransport


class Nodes(AsyncTransport):
    """Calls of nodes."""

    def list_nodes(self) -> AsyncPages[NodeView]:
        """List all nodes by name."""
        return self._list(NodeView, "/nodes", {})

    async def get_node(self, name: str) -> NodeView:
        """Show a node.

        For operators of the whole cluster the response includes its certificate, while the quorum
        answers.
        """
        return await self._ask(NodeView, "/nodes/{id}", {"id": name})

    async def get_inventory(self, name: str, *, fresh: bool = False) -> InventoryView:
        """Show the complete inventory of a node.

        The records of its agent are merged with the last readings of its BMC. `fresh` reads again
        instead, for operators, because it causes load on the node.
        """
        query = {"fresh": True if fresh else None}
        return await self._ask(InventoryView, "/nodes/{id}/inventory", {"id": name}, query=query)

    async def get_node_health(self, name: str, *, fresh: bool = False) -> NodeHealthView:
        """Show the health checks of a node.

        Each reason has its component, evidence, start time and remedy. `fresh` reads again, for
        operators, because it causes load on the node.
        """
        query = {"fresh": True if fresh else None}
        return await self._ask(NodeHealthView, "/nodes/{id}/health", {"id": name}, query=query)

    async def clear_node_health(self, name: str, request: ClearRequest) -> NodeHealthView:
        """Clear the health reasons of one code after a repair.

        A persisting fault returns with the next pass. For operators.
        """
        return await self._write(
            NodeHealthView, "POST", "/nodes/{id}/health/clear", {"id": name}, body=request
        )

    def list_node_history(
        self,
        name: str,
        *,
        since: str | None = None,
        class_: str | None = None,
        kind: str | Sequence[str] | None = None,
        around: str | None = None,
        within: str | None = None,
    ) -> AsyncPages[HistoryEntryView]:
        """List changes and events of a node, newest first.

        They cover boots, drivers, XIDs, health, drains and liveness.
        """
        query = {
            "since": since,
            "class": class_,
            "kind": kind,
            "around": around,
            "within": within,
        }
        return self._list(HistoryEntryView, "/nodes/{id}/history", {"id": name}, query=query)

    async def diff_nodes(
        self, left: str, right: str | None = None, *, since: str | None = None
    ) -> DiffView:
        """Compare nodes and groups, key by key.

        `right` is another node, a conformance group (at least 8 digits of its digest), or
        `majority`, the majority of the node's cohort. With `since` instead, the node is compared
        with its earlier state.
        """
        query = {"with": right, "since": since}
        return await self._ask(DiffView, "/nodes/{id}/diff", {"id": left}, query=query)

    async def reprobe_node(self, name: str) -> ReprobeResult:
        """Probe a node again.

        For operators, because it causes load on the node.
        """
        return await self._write(ReprobeResult, "POST", "/nodes/{id}/reprobe", {"id": name})

    async def drain_node(
        self, name: str, reason: str, *, force_release: bool = False, key: str | None = None
    ) -> DrainResult:
        """Drain a node.

        It receives no new jobs, and running jobs continue. For operators.

        With `force_release` the node is also taken from the allocation that holds it, although its
        processes are not known to be gone. The rank counts as lost, the reason is recorded in the
        audit, and the node stays drained by the caller.
        """
        body = {"reason": reason, "force_release": force_release}
        return await self._write(
            DrainResult, "POST", "/nodes/{id}/drain", {"id": name}, body=body, key=key
        )

    async def undrain_node(
        self, name: str, *, skip_gate: bool = False, key: str | None = None
    ) -> UndrainResult:
        """Undrain a node.

        Clears the caller's own drain reason, and that of a failed site hook; reasons of other
        owners stay. If no reason remains, the node's health gate is checked first, unless an
        administrator skips it with `skip_gate`. For operators.
        """
        query = {"skip_gate": True if skip_gate else None}
        return await self._write(
            UndrainResult, "POST", "/nodes/{id}/undrain", {"id": name}, query=query, key=key
        )

    async def claim_nodes(
        self, nodes: str, project: str, *, purpose: str = "", key: str | None = None
    ) -> ClaimResult:
        """Claim the nodes of a hostlist for the caller's sensitive jobs, until they are released:
        all or none."""
        body = {"project": project, "purpose": purpose}
        return await self._write(
            ClaimResult, "POST", "/nodes/{id}/claim", {"id": nodes}, body=body, key=key
        )

    async def release_nodes(
        self,
        nodes: str,
        request: ReleaseRequest | None = None,
        *,
        key: str | None = None,
    ) -> ReleaseResult:
        """Release the claimed nodes of a hostlist, all or none.

        Each node is wiped, and is free once the wipe is confirmed. For the owner of the claim, and
        for administrators, which must give a reason.
        """
        body = request or {}
        return await self._write(
            ReleaseResult, "POST", "/nodes/{id}/release", {"id": nodes}, body=body, key=key
        )
