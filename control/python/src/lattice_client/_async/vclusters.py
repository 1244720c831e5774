"""vClusters, and reservations."""

from __future__ import annotations

from ..models import Changed, ReservationView, VclusterNodes, VclusterView
from ..requests import ReservationRequest, VclusterRequest
from .pages import AsyncPages
from .transport import AsyncTransport


class Vclusters(AsyncTransport):
    """See the module."""

    def list_vclusters(self) -> AsyncPages[VclusterView]:
        """All vClusters by name."""
        return self._list(VclusterView, "/vclusters", {})

    async def get_vcluster(self, name: str) -> VclusterView:
        """One vCluster: for whom it is, its nodes, and how it schedules."""
        return await self._ask(VclusterView, "/vclusters/{name}", {"name": name})

    async def set_vcluster(
        self, name: str, request: VclusterRequest, *, key: str | None = None
    ) -> VclusterView:
        """Says what a vCluster is, the first time too: a field left out stays, `None` as `tenants`
        opens it to all. For administrators."""
        return await self._write(
            VclusterView, "PUT", "/vclusters/{name}", {"name": name}, body=request, key=key
        )

    async def delete_vcluster(
        self, name: str, *, expected_version: int | None = None, key: str | None = None
    ) -> Changed:
        """What was said of a vCluster holds no more. Refused while it has nodes. For
        administrators."""
        query = {"expected_version": expected_version}
        return await self._write(
            Changed, "DELETE", "/vclusters/{name}", {"name": name}, query=query, key=key
        )

    async def assign_nodes(
        self, vcluster: str, nodes: str, *, from_: str | None = None, key: str | None = None
    ) -> VclusterNodes:
        """The nodes of a hostlist belong to a vCluster from now on, all of them or none. Those of
        another one that somebody defined are moved only `from_` that one. For administrators."""
        body = {"nodes": nodes, "from": from_}
        return await self._write(
            VclusterNodes, "POST", "/vclusters/{name}/nodes", {"name": vcluster}, body=body, key=key
        )

    def list_reservations(self) -> AsyncPages[ReservationView]:
        """Reservations by name, those to come too."""
        return self._list(ReservationView, "/reservations", {})

    async def get_reservation(self, name: str) -> ReservationView:
        """One reservation."""
        return await self._ask(ReservationView, "/reservations/{name}", {"name": name})

    async def set_reservation(
        self, name: str, request: ReservationRequest, *, key: str | None = None
    ) -> ReservationView:
        """Keeps nodes for some, or for nobody, for a time; or changes the whole of what is kept
        under this name. For operators of the whole cluster."""
        return await self._write(
            ReservationView, "PUT", "/reservations/{name}", {"name": name}, body=request, key=key
        )

    async def delete_reservation(self, name: str, *, key: str | None = None) -> Changed:
        """Nothing is kept under this name any more. For operators of the whole cluster."""
        return await self._write(Changed, "DELETE", "/reservations/{name}", {"name": name}, key=key)
