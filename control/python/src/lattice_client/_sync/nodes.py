# Written by `generate` from `_async/`: do not edit.
"""Nodes: what they are, how they are, whose they are."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import (
    Claimed,
    DiffView,
    Drained,
    HistoryEntryView,
    InventoryView,
    NodeHealthView,
    NodeView,
    Released,
    Reprobed,
    Undrained,
)
from ..requests import ClearRequest, ReleaseRequest
from .pages import Pages
from .transport import Transport


class Nodes(Transport):
    """See the module."""

    def list_nodes(self) -> Pages[NodeView]:
        """Every node by name."""
        return self._list(NodeView, "/nodes", {})

    def get_node(self, name: str) -> NodeView:
        """One node. Operators are told of its certificate too."""
        return self._ask(NodeView, "/nodes/{id}", {"id": name})

    def get_inventory(self, name: str, *, fresh: bool = False) -> InventoryView:
        """Everything its probes read, as the node tells it; `fresh` looks again, for operators."""
        query = {"fresh": True if fresh else None}
        return self._ask(InventoryView, "/nodes/{id}/inventory", {"id": name}, query=query)

    def get_node_health(self, name: str, *, fresh: bool = False) -> NodeHealthView:
        """Its health reasons, with evidence; `fresh` looks again, for operators."""
        query = {"fresh": True if fresh else None}
        return self._ask(NodeHealthView, "/nodes/{id}/health", {"id": name}, query=query)

    def clear_node_health(self, name: str, request: ClearRequest) -> NodeHealthView:
        """Somebody repaired it: ends reasons of a node. For operators."""
        return self._write(
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
    ) -> Pages[HistoryEntryView]:
        """What changed on a node, and what else happened there, newest first."""
        query = {
            "since": since,
            "class": class_,
            "kind": kind,
            "around": around,
            "within": within,
        }
        return self._list(HistoryEntryView, "/nodes/{id}/history", {"id": name}, query=query)

    def diff_nodes(
        self, left: str, right: str | None = None, *, since: str | None = None
    ) -> DiffView:
        """Two nodes key by key; or a node and a conformance group (8 digits of its digest or more),
        or the `majority` of its cohort; or, with `since`, a node as it was and is."""
        query = {"with": right, "since": since}
        return self._ask(DiffView, "/nodes/{id}/diff", {"id": left}, query=query)

    def reprobe_node(self, name: str) -> Reprobed:
        """Probes a node anew. For operators."""
        return self._write(Reprobed, "POST", "/nodes/{id}/reprobe", {"id": name})

    def drain_node(
        self, name: str, reason: str, *, force_release: bool = False, key: str | None = None
    ) -> Drained:
        """Gives it no new work; what runs there goes on. For operators.

        With `force_release` it is also taken from the allocation that holds it, although nobody
        knows that its processes are gone: the caller answers for that.
        """
        body = {"reason": reason, "force_release": force_release}
        return self._write(
            Drained, "POST", "/nodes/{id}/drain", {"id": name}, body=body, key=key
        )

    def undrain_node(
        self, name: str, *, skip_gate: bool = False, key: str | None = None
    ) -> Undrained:
        """Clears the caller's own drain reason. Where none is left the node's health gate is asked
        first, unless an administrator skips it."""
        query = {"skip_gate": True if skip_gate else None}
        return self._write(
            Undrained, "POST", "/nodes/{id}/undrain", {"id": name}, query=query, key=key
        )

    def claim_nodes(
        self, nodes: str, project: str, *, purpose: str = "", key: str | None = None
    ) -> Claimed:
        """Makes the nodes of a hostlist the caller's own for sensitive work, all of them or none,
        until they are released."""
        body = {"project": project, "purpose": purpose}
        return self._write(
            Claimed, "POST", "/nodes/{id}/claim", {"id": nodes}, body=body, key=key
        )

    def release_nodes(
        self,
        nodes: str,
        request: ReleaseRequest | None = None,
        *,
        key: str | None = None,
    ) -> Released:
        """Gives claimed nodes back, all or none. Each is free once its wipe is confirmed."""
        body = request or {}
        return self._write(
            Released, "POST", "/nodes/{id}/release", {"id": nodes}, body=body, key=key
        )
