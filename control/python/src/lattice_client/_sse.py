"""Decoder of server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MAX_EVENT_BYTES = 16 << 20
"""Maximum size of an event in bytes: the records of one revision, or new observations of a few
hundred nodes."""


class Oversize(Exception):
    """The stream contains an event larger than `MAX_EVENT_BYTES`."""


@dataclass(frozen=True)
class Frame:
    """One event with its fields."""

    event: str
    data: str


class Decoder:
    """Assembles frames from chunks that may end at any byte."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def push(self, chunk: bytes) -> Iterator[Frame]:
        """Add the next bytes, and yield the events that they complete.

        Raises `Oversize`.
        """
        for part in chunk.splitlines(keepends=True) if b"\n" in chunk else [chunk]:
            yield from self._part(part)

    def _part(self, part: bytes) -> Iterator[Frame]:
        self._line += part
        if len(self._line) + self._size > MAX_EVENT_BYTES:
            raise Oversize
        if part.endswith(b"\n"):
            line = self._line.decode("utf-8", "replace").rstrip("\r\n")
            self._line.clear()
            yield from self._whole(line)

    def _whole(self, line: str) -> Iterator[Frame]:
        if not line:
            if self._data:
                yield Frame(self._event, "\n".join(self._data))
            self._event, self._data, self._size = "", [], 0
            return
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
            self._size += len(value)
        # The id is ignored: it is the revision, which the data contains too. An empty name is a
        # comment.
