"""Connection pool of one server, and decoding of its responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import anyio
import httpx

from .. import _request
from .._decode import Page
from .._request import API, Attempts, Call, Name, Query, Retry
from ..endpoint import Endpoint
from ..errors import LatticeError, ProtocolError
from .pages import AsyncPages

T = TypeVar("T")


class AsyncTransport:
    """Sending of requests, common to all calls."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeout: float,
        retry: Retry,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._endpoint = endpoint
        self._retry = retry
        self._view_age: float | None = None
        self._timeout = httpx.Timeout(timeout, connect=_request.CONNECT_TIMEOUT)
        # Proxies and certificates of the environment are ignored, and no redirect is followed, so
        # that the token is sent to this server only.
        self._http = httpx.AsyncClient(
            base_url=endpoint.url,
            headers={
                "authorization": f"Bearer {endpoint.token}",
                "user-agent": f"lattice-client-python/{_request.VERSION}",
            },
            timeout=self._timeout,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            verify=endpoint.tls(),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )

    async def _send(self, call: Call) -> httpx.Response:
        """Send a call, with retries, and return the complete successful response."""
        attempts = Attempts(self._retry, call)
        while True:
            try:
                response = await self._once(call, self._timeout)
                try:
                    await response.aread()
                    return response
                except httpx.TransportError as error:
                    raise self._unreachable(error) from error
                finally:
                    await response.aclose()
            except LatticeError as error:
                wait = attempts.wait(error)
            await anyio.sleep(wait)

    async def _once(self, call: Call, timeout: httpx.Timeout) -> httpx.Response:
        """Send a call once, and return a successful response.

        The caller reads the body and closes the response.
        """
        request = self._http.build_request(
            call.method,
            call.path,
            params=call.params,
            headers=call.headers,
            content=call.content,
            timeout=timeout,
        )
        try:
            response = await self._http.send(request, stream=True)
            age = response.headers.get(_request.VIEW_AGE, "")
            self._view_age = int(age) / 1000 if age.isdecimal() else None
            if response.is_success:
                return response
            try:
                await response.aread()
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        raise _request.refusal(response, self._url(call))

    def _unreachable(self, error: httpx.TransportError) -> LatticeError:
        return _request.unreachable(self._endpoint.url, error)

    def _url(self, call: Call) -> str:
        return f"{self._endpoint.url}{call.path}"

    async def _ask(
        self, model: type[T], path: str, names: Mapping[str, Name], *, query: Query | None = None
    ) -> T:
        """Read one object."""
        call = _request.reading(API + path, names, query or {})
        response = await self._send(call)
        return _request.understood(model, response.content, self._url(call))

    async def _text(
        self, path: str, names: Mapping[str, Name], *, query: Query | None = None
    ) -> str:
        """Read text, at a path outside the API prefix unless the path includes it."""
        response = await self._send(_request.reading(path, names, query or {}))
        try:
            return response.content.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(str(response.url), str(error)) from error

    async def _write(
        self,
        model: type[T],
        method: str,
        path: str,
        names: Mapping[str, Name],
        *,
        query: Query | None = None,
        body: object = None,
        key: str | None = None,
        repeatable: bool = True,
    ) -> T:
        """Send a write, and return the decoded response."""
        call = _request.writing(method, API + path, names, query or {}, body, key, repeatable)
        response = await self._send(call)
        return _request.understood(model, response.content, self._url(call))

    async def _page(
        self,
        model: type[T],
        path: str,
        names: Mapping[str, Name],
        query: Query,
    ) -> Page[T]:
        """Request one page of a list."""
        call = _request.reading(API + path, names, query)
        response = await self._send(call)
        return _request.understood_page(model, response.content, self._url(call))

    def _list(
        self,
        model: type[T],
        path: str,
        names: Mapping[str, Name],
        *,
        query: Query | None = None,
        cursor: str = "cursor",
    ) -> AsyncPages[T]:
        """Return a list; no request is sent yet."""
        return AsyncPages(self, model, path, names, query or {}, cursor)
