# Written by `generate` from `_async/`: do not edit.
"""vClusters, and reservations."""

from __future__ import annotations

from ..models import Changed, ReservationView, VclusterNodes, VclusterView
from ..requests import ReservationRequest, VclusterRequest
from .pages import Pages
from .transport import Transport


class Vclusters(Transport):
    """See the module."""

    def list_vclusters(self) -> Pages[VclusterView]:
        """All vClusters by name."""
        return self._list(VclusterView, "/vclusters", {})

    def get_vcluster(self, name: str) -> VclusterView:
        """One vCluster: for whom it is, its nodes, and how it schedules."""
        return self._ask(VclusterView, "/vclusters/{name}", {"name": name})

    def set_vcluster(
        self, name: str, request: VclusterRequest, *, key: str | None = None
    ) -> VclusterView:
        """Says what a vCluster is, the first time too: a field left out stays, `None` as `tenants`
        opens it to all. For administrators."""
        return self._write(
            VclusterView, "PUT", "/vclusters/{name}", {"name": name}, body=request, key=key
        )

    def delete_vcluster(
        self, name: str, *, expected_version: int | None = None, key: str | None = None
    ) -> Changed:
        """What was said of a vCluster holds no more. Refused while it has nodes. For
        administrators."""
        query = {"expected_version": expected_version}
        return self._write(
            Changed, "DELETE", "/vclusters/{name}", {"name": name}, query=query, key=key
        )

    def assign_nodes(
        self, vcluster: str, nodes: str, *, from_: str | None = None, key: str | None = None
    ) -> VclusterNodes:
        """The nodes of a hostlist belong to a vCluster from now on, all of them or none. Those of
        another one that somebody defined are moved only `from_` that one. For administrators."""
        body = {"nodes": nodes, "from": from_}
        return self._write(
            VclusterNodes, "POST", "/vclusters/{name}/nodes", {"name": vcluster}, body=body, key=key
        )

    def list_reservations(self) -> Pages[ReservationView]:
        """Reservations by name, those to come too."""
        return self._list(ReservationView, "/reservations", {})

    def get_reservation(self, name: str) -> ReservationView:
        """One reservation."""
        return self._ask(ReservationView, "/reservations/{name}", {"name": name})

    def set_reservation(
        self, name: str, request: ReservationRequest, *, key: str | None = None
    ) -> ReservationView:
        """Keeps nodes for some, or for nobody, for a time; or changes the whole of what is kept
        under this name. For operators of the whole cluster."""
        return self._write(
            ReservationView, "PUT", "/reservations/{name}", {"name": name}, body=request, key=key
        )

    def delete_reservation(self, name: str, *, key: str | None = None) -> Changed:
        """Nothing is kept under this name any more. For operators of the whole cluster."""
        return self._write(Changed, "DELETE", "/reservations/{name}", {"name": name}, key=key)
