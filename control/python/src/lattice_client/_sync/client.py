# Written by `generate` from `_async/`: do not edit.
"""Client of one cluster: the entry point of the package."""

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
from .watch import Watch


class Client(Tenants, Allocations, Dags, Nodes, Conformance, Vclusters, Audit, Admin):
    """Client of the REST interface of one cluster. Close it at the end, or use it in a `with`.

    Either give `url` and `token`, or a `context` file. Without both, the client finds the cluster
    like the `lattice` command.

    With `url`, the server is verified by the CA that signed its certificate (`ca_pem` or `ca_file`;
    no other CA is trusted), by the certificate itself (`pin`: `sha256:` and 64 hex digits), or by
    both. Without them, the CAs of the system are trusted.

    `timeout` applies to one response, in seconds. Each write carries an idempotency key, so it can
    be sent again; `retry` sets when. `transport` is an httpx transport, for tests of code that uses
    this client.
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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        found = endpoint(url, token, ca_pem, ca_file, pin, context)
        super().__init__(found, timeout, retry or Retry(), transport)

    @property
    def endpoint(self) -> Endpoint:
        """Address, trusted certificate and token of the server."""
        return self._endpoint

    @property
    def view_age(self) -> float | None:
        """Age, in seconds, of the view that the last response was made from.

        It is below 1 while the quorum answers. `None` before the first response, and if the
        response contains no age.
        """
        return self._view_age

    def status(self) -> StatusView:
        """Show the cluster status, and the principal and roles of the caller."""
        return self._ask(StatusView, "/status", {})

    def watch(self, since: int | None = None) -> Watch:
        """Stream changes as they happen.

        The stream contains every change after the revision `since`, or from now on.
        """
        return Watch(self, since)

    def healthz(self) -> None:
        """Check that the server process answers; it may not have a view yet. Raises otherwise."""
        self._probe("/healthz")

    def readyz(self) -> None:
        """Check that the quorum is reached and a view is available.

        Raises `Unavailable` otherwise, with the missing part.
        """
        self._probe("/readyz")

    def _probe(self, path: str) -> None:
        # A probe reports the present state, so it is not retried.
        response = self._once(_request.reading(path, {}, {}), self._timeout)
        response.close()

    def metrics(self) -> str:
        """Return metrics in the Prometheus exposition format."""
        return self._text("/metrics", {})

    def openapi(self) -> str:
        """Return the OpenAPI document of the server, as JSON."""
        return self._text("/openapi.json", {})

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
