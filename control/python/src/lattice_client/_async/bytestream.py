"""Responses that are streams of bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

import anyio
import httpx

from .._request import RESUMES, Call
from ..errors import LatticeError, Unavailable, Unreachable
from .transport import AsyncTransport


class AsyncByteStream:
    """Bytes as the server sends them.

    Iterate over the stream, or `read()` all of it. No request is sent before.

    If `offset` is given, the stream resumes at the same byte after a broken connection. To stop
    before the end of the stream, close it: `with`, or `close`.
    """

    def __init__(
        self, transport: AsyncTransport, call: Call, offset: int | None, patient: bool
    ) -> None:
        self._transport = transport
        self._call = call
        self._offset = offset
        # The server sends nothing while there is no new output.
        timeout = transport._timeout.as_dict()
        self._timeout = httpx.Timeout(**{**timeout, "read": None if patient else timeout["read"]})
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._failures = 0

    def __aiter__(self) -> AsyncByteStream:
        return self

    async def __anext__(self) -> bytes:
        while True:
            try:
                if self._chunks is None:
                    await self._connect()
                assert self._chunks is not None
                chunk = await self._chunks.__anext__()
            except StopAsyncIteration:
                await self.aclose()
                raise
            except (httpx.TransportError, LatticeError) as error:
                wait = self._wait(error)
            else:
                self._failures = 0
                if self._offset is not None:
                    self._offset += len(chunk)
                return chunk
            await self._drop()
            await anyio.sleep(wait)

    def _wait(self, error: Exception) -> float:
        """Return the seconds to wait before the stream is resumed, or raise the error if it is not
        resumed."""
        if isinstance(error, httpx.TransportError):
            error = self._transport._unreachable(error)
        begun = self._response is not None
        may = self._offset is not None or not begun
        passing = isinstance(error, (Unreachable, Unavailable))
        if not (may and passing) or self._failures >= len(RESUMES):
            raise error
        self._failures += 1
        return RESUMES[self._failures - 1]

    async def _connect(self) -> None:
        call = self._call
        if self._offset is not None:
            params = [*call.params, ("offset", str(self._offset))]
            call = Call(call.method, call.path, params, call.headers)
        self._response = await self._transport._once(call, self._timeout)
        self._chunks = self._response.aiter_bytes()

    async def _drop(self) -> None:
        response, self._response, self._chunks = self._response, None, None
        if response is not None:
            await response.aclose()

    async def read(self) -> bytes:
        """Return all bytes up to the end of the stream. With `follow` the stream ends with the
        rank."""
        return b"".join([chunk async for chunk in self])

    async def aclose(self) -> None:
        """Close the stream."""
        await self._drop()

    async def __aenter__(self) -> AsyncByteStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
