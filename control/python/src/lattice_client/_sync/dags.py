# Written by `generate` from `_async/`: do not edit.
"""DAGs: jobs that start when the jobs they depend on have ended."""

from __future__ import annotations

from time import monotonic

import time

from ..errors import TimedOut
from ..models import DagDryRunResult, DagSubmitResult, DagView, GraphView
from ..requests import DagRequest
from .pages import Pages
from .transport import Transport


class Dags(Transport):
    """Calls of DAGs."""

    def list_dags(self, tenant: str | None = None) -> Pages[DagView]:
        """List running DAGs and the last ended ones, by number and without their members."""
        return self._list(DagView, "/dags", {}, query={"tenant": tenant})

    def get_dag(self, id: int) -> DagView:
        """Show a DAG with its members and their states, including ended ones."""
        return self._ask(DagView, "/dags/{id}", {"id": id})

    def submit_dag(
        self, request: DagRequest | str, *, key: str | None = None
    ) -> DagSubmitResult:
        """Submit a DAG: all its members or none. A string is sent as YAML.

        An error in a member is rejected with the field, as `members.NAME.field`.
        """
        return self._write(DagSubmitResult, "POST", "/dags", {}, body=request, key=key)

    def dry_run_dag(self, request: DagRequest | str) -> DagDryRunResult:
        """Check a submission of a DAG, and change nothing."""
        query = {"dry_run": True}
        return self._write(DagDryRunResult, "POST", "/dags", {}, query=query, body=request)

    def cancel_dag(self, id: int, *, key: str | None = None) -> DagView:
        """Cancel every member that has not ended."""
        return self._write(DagView, "DELETE", "/dags/{id}", {"id": id}, key=key)

    def wait_dag(
        self, id: int, *, timeout: float | None = None, interval: float = 2.0
    ) -> DagView:
        """Wait until every member has ended; `state` gives the result.

        Raises `TimedOut` after `timeout` seconds; nothing is cancelled then.
        """
        began, pause = monotonic(), min(0.1, interval)
        while True:
            seen = self.get_dag(id)
            if seen.ended_at is not None:
                return seen
            left = None if timeout is None else timeout - (monotonic() - began)
            if left is not None and left <= 0:
                raise TimedOut(monotonic() - began, seen)
            time.sleep(pause if left is None else min(pause, left))
            pause = min(interval, pause * 1.5)

    def dag_graph(self, id: int) -> GraphView:
        """Show the members as nodes and edges."""
        return self._ask(GraphView, "/dags/{id}/graph", {"id": id}, query={"format": "json"})

    def dag_dot(self, id: int) -> str:
        """Show the members as nodes and edges, in the language of Graphviz."""
        return self._text("/api/v1/dags/{id}/graph", {"id": id}, query={"format": "dot"})
