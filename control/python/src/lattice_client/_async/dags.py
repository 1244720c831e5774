"""Graphs of work: members that begin when others have ended."""

from __future__ import annotations

from time import monotonic

import anyio

from ..errors import TimedOut
from ..models import DagJudged, DagSubmitted, DagView, GraphView
from ..requests import DagRequest
from .pages import AsyncPages
from .transport import AsyncTransport


class Dags(AsyncTransport):
    """See the module."""

    def list_dags(self, tenant: str | None = None) -> AsyncPages[DagView]:
        """Graphs that run, and the last ones that ended, without their members."""
        return self._list(DagView, "/dags", {}, query={"tenant": tenant})

    async def get_dag(self, id: int) -> DagView:
        """One graph with its members and where each stands."""
        return await self._ask(DagView, "/dags/{id}", {"id": id})

    async def submit_dag(
        self, request: DagRequest | str, *, key: str | None = None
    ) -> DagSubmitted:
        """Submits a graph, all its members or none; a text is YAML. A problem of a member names its
        field as `members.NAME.field`."""
        return await self._write(DagSubmitted, "POST", "/dags", {}, body=request, key=key)

    async def dry_run_dag(self, request: DagRequest | str) -> DagJudged:
        """Has a submit judged as the graph stands, and changes nothing."""
        query = {"dry_run": True}
        return await self._write(DagJudged, "POST", "/dags", {}, query=query, body=request)

    async def cancel_dag(self, id: int, *, key: str | None = None) -> DagView:
        """Cancels every member that has not ended."""
        return await self._write(DagView, "DELETE", "/dags/{id}", {"id": id}, key=key)

    async def wait_dag(
        self, id: int, *, timeout: float | None = None, interval: float = 2.0
    ) -> DagView:
        """Waits until every member has ended: `state` says how. Raises `TimedOut`; nothing is
        cancelled then."""
        began, pause = monotonic(), min(0.1, interval)
        while True:
            seen = await self.get_dag(id)
            if seen.ended_at is not None:
                return seen
            left = None if timeout is None else timeout - (monotonic() - began)
            if left is not None and left <= 0:
                raise TimedOut(monotonic() - began, seen)
            await anyio.sleep(pause if left is None else min(pause, left))
            pause = min(interval, pause * 1.5)

    async def dag_graph(self, id: int) -> GraphView:
        """Its members as points and lines."""
        return await self._ask(GraphView, "/dags/{id}/graph", {"id": id}, query={"format": "json"})

    async def dag_dot(self, id: int) -> str:
        """The same in the language of Graphviz."""
        return await self._text("/api/v1/dags/{id}/graph", {"id": id}, query={"format": "dot"})
