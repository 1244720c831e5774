"""vClusters and reservations."""

from __future__ import annotations

from ..models import ChangeResult, ReservationView, VclusterNodes, VclusterView
from ..requests import ReservationRequest, VclusterRequest
from .pages import AsyncPages
from .transport import AsyncTransport


class Vclusters(AsyncTransport):
    """Calls of vClusters and reservations."""

    def list_vclusters(self) -> AsyncPages[VclusterView]:
        """List all vClusters by name: defined ones, undefined ones with nodes, and `default`."""
        return self._list(VclusterView, "/vclusters", {})

    async def get_vcluster(self, name: str) -> VclusterView:
        """Show a vCluster: its tenants and its nodes."""
        return await self._ask(VclusterView, "/vclusters/{name}", {"name": name})

    async def set_vcluster(
        self, name: str, request: VclusterRequest, *, key: str | None = None
    ) -> VclusterView:
        """Define a vCluster, or change its definition.

        A field left out stays; `None` as `tenants` opens the vCluster to all tenants. For
        administrators of the whole cluster; recorded in the audit.
        """
        return await self._write(
            VclusterView, "PUT", "/vclusters/{name}", {"name": name}, body=request, key=key
        )

    async def delete_vcluster(
        self, name: str, *, expected_version: int | None = None, key: str | None = None
    ) -> ChangeResult:
        """Delete the definition of a vCluster.

        Raises `Refused` while the vCluster has nodes, because they would be open to every tenant.
        For administrators of the whole cluster; recorded in the audit.
        """
        query = {"expected_version": expected_version}
        return await self._write(
            ChangeResult, "DELETE", "/vclusters/{name}", {"name": name}, query=query, key=key
        )

    async def assign_nodes(
        self, vcluster: str, nodes: str, *, from_: str | None = None, key: str | None = None
    ) -> VclusterNodes:
        """Assign the nodes of a hostlist to a vCluster, all or none.

        The nodes then belong to the vCluster and serve it. A node of another defined vCluster is
        moved only if `from_` names that vCluster. For administrators of the whole cluster; recorded
        in the audit.
        """
        body = {"nodes": nodes, "from": from_}
        return await self._write(
            VclusterNodes, "POST", "/vclusters/{name}/nodes", {"name": vcluster}, body=body, key=key
        )

    def list_reservations(self) -> AsyncPages[ReservationView]:
        """List reservations by name, including future ones."""
        return self._list(ReservationView, "/reservations", {})

    async def get_reservation(self, name: str) -> ReservationView:
        """Show a reservation."""
        return await self._ask(ReservationView, "/reservations/{name}", {"name": name})

    async def set_reservation(
        self, name: str, request: ReservationRequest, *, key: str | None = None
    ) -> ReservationView:
        """Create or replace a reservation.

        Running jobs continue; a job that would run into the reserved time is not placed there. For
        operators of the whole cluster; recorded in the audit.
        """
        return await self._write(
            ReservationView, "PUT", "/reservations/{name}", {"name": name}, body=request, key=key
        )

    async def delete_reservation(self, name: str, *, key: str | None = None) -> ChangeResult:
        """Delete a reservation.

        For operators of the whole cluster; recorded in the audit.
        """
        return await self._write(
            ChangeResult, "DELETE", "/reservations/{name}", {"name": name}, key=key
        )
