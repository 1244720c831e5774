"""The client: begin here."""

from __future__ import annotations

from types import TracebackType

import httpx

from .. import _request
from .._request import Retry
from ..context import AnyPath
from ..endpoint import Endpoint, endpoint
from ..models import StatusView
from .admin import Admin
from .allocations import Allocations
from .audit import Audit
from .conformance import Conformance
from .dags import Dags
from .nodes import Nodes
from .tenants import Tenants
from .vclusters import Vclusters
from .watch import AsyncWatch


class AsyncClient(Tenants, Allocations, Dags, Nodes, Conformance, Vclusters, Audit, Admin):
    """One cluster, by its REST interface. Close it at the end, or use it in a `with`.

    Give `url` and `token`, and why to trust the server: the authority that signed its certificate
    (`ca_pem`, or `ca_file`: no other is trusted), or the certificate itself (`pin`: `sha256:` and
    64 hex digits), or both; without any, authorities of the system are trusted. Or give a `context`
    file, or nothing at all: then the cluster is found as the `lattice` command finds it.

    `timeout` is for one answer, in seconds. Each write is sent with an idempotency key, so it can
    be sent again, and is, as `retry` says. `transport` is httpx's, for tests of what uses this.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ca_pem: str | None = None,
        ca_file: AnyPath | None = None,
        pin: str | None = None,
        context: AnyPath | None = None,
        timeout: float = 60.0,
        retry: Retry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        found = endpoint(url, token, ca_pem, ca_file, pin, context)
        super().__init__(found, timeout, retry or Retry(), transport)

    @property
    def endpoint(self) -> Endpoint:
        """Where the server is, why it is trusted, and as whom this speaks."""
        return self._endpoint

    @property
    def view_age(self) -> float | None:
        """How old, in seconds, the view was that the last answer was made from: below one while the
        quorum answers. `None` before the first answer."""
        return self._view_age

    async def status(self) -> StatusView:
        """Counts, and the state of the services."""
        return await self._ask(StatusView, "/status", {})

    def watch(self, since: int | None = None) -> AsyncWatch:
        """Everything after a revision, or from now on, as it happens."""
        return AsyncWatch(self, since)

    async def healthz(self) -> None:
        """Raises unless the server is up; it may not have a view yet."""
        await self._probe("/healthz")

    async def readyz(self) -> None:
        """Raises unless the server has a view of the cluster and hears the quorum: `Unavailable`
        says what is missing."""
        await self._probe("/readyz")

    async def _probe(self, path: str) -> None:
        # As it is now: nothing is asked again.
        response = await self._once(_request.reading(path, {}, {}), self._timeout)
        await response.aclose()

    async def metrics(self) -> str:
        """Metrics in the text form of Prometheus."""
        return await self._text("/metrics", {})

    async def openapi(self) -> str:
        """The OpenAPI document of the server, JSON."""
        return await self._text("/openapi.json", {})

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
