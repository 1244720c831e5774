# Written by `generate` from `_async/`: do not edit.
"""Event stream, resumed after the last returned revision when a connection breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType

import time
import httpx

from .. import _request
from .._request import RESUMES, SILENCE
from .._sse import Decoder, Frame, Oversize
from ..errors import LatticeError, ProtocolError, Unavailable, Unreachable
from ..events import Event, position, read
from .transport import Transport


class Watch:
    """Events in order. No revision is missing or repeated, also after a broken connection.

    `ObservedChanges` belongs to no revision. On the same control, a resumed stream includes the
    observations made since; on another control, only new ones. A client that shows liveness, health
    or digests must read the nodes again after a reconnect.

    After `CompactedEvents` the lists must be read again; the stream itself continues.

    `with` connects at once, so that no later event is missed, and closes the stream at the end.
    Without `with`, the stream connects when the first event is requested.
    """

    def __init__(self, transport: Transport, since: int | None) -> None:
        self._transport = transport
        self._revision = since
        self._timeout = httpx.Timeout(SILENCE, connect=_request.CONNECT_TIMEOUT)
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] | None = None
        self._decoder = Decoder()
        self._ready: deque[Frame] = deque()
        self._failures = 0
        self._closed = False

    @property
    def revision(self) -> int | None:
        """Revision after which the stream would resume; `None` before the first one is known."""
        return self._revision

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Event:
        """Return the next event.

        Raises the error if the stream cannot be resumed: access was revoked, or the server has been
        unreachable for about eight seconds.
        """
        while not self._closed:
            while self._ready:
                event = self._read(self._ready.popleft())
                if event is not None:
                    return event
            try:
                self._fill()
                continue
            except (httpx.TransportError, LatticeError) as error:
                wait = self._wait(error)
            self._drop()
            time.sleep(wait)
        raise StopIteration

    def _wait(self, error: Exception) -> float:
        if isinstance(error, httpx.TransportError):
            error = self._transport._unreachable(error)
        passing = isinstance(error, (Unreachable, Unavailable))
        if not passing or self._failures >= len(RESUMES):
            self._closed = True
            raise error
        self._failures += 1
        return RESUMES[self._failures - 1]

    def _fill(self) -> None:
        if self._chunks is None:
            self._connect()
        assert self._chunks is not None
        try:
            chunk = self._chunks.__next__()
        except StopIteration:
            # The server closes streams when it stops.
            raise self._broken("the event stream ended") from None
        self._failures = 0
        try:
            self._ready.extend(self._decoder.push(chunk))
        except Oversize:
            raise self._not_understood("an event is too large") from None

    def _connect(self) -> None:
        call = _request.reading(f"{_request.API}/events", {}, {"since": self._revision})
        call.headers["accept"] = "text/event-stream"
        self._response = self._transport._once(call, self._timeout)
        # Without `since`, a broken connection resumes after the revision current at connection.
        named = self._response.headers.get("lattice-revision", "")
        if self._revision is None and named.isdecimal():
            self._revision = int(named)
        self._decoder = Decoder()
        self._ready.clear()
        self._chunks = self._response.iter_bytes()

    def _read(self, frame: Frame) -> Event | None:
        try:
            event = read(frame.event, frame.data)
        except ValueError as error:
            raise self._not_understood(f"event {frame.event!r}: {error}") from error
        if event is not None:
            self._revision = position(event, self._revision)
        return event

    def _broken(self, reason: str) -> Unreachable:
        return Unreachable(self._transport._endpoint.url, reason)

    def _not_understood(self, reason: str) -> ProtocolError:
        return ProtocolError(f"{self._transport._endpoint.url}{_request.API}/events", reason)

    def _drop(self) -> None:
        response, self._response, self._chunks = self._response, None, None
        if response is not None:
            response.close()

    def close(self) -> None:
        """Close the stream; it returns no more events."""
        self._closed = True
        self._drop()

    def __enter__(self) -> Watch:
        while self._chunks is None:
            try:
                self._connect()
            except LatticeError as error:
                time.sleep(self._wait(error))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
