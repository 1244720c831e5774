"""Reading server-sent events from bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MAX_EVENT_BYTES = 16 << 20
"""Largest event: one revision's records, or a few hundred nodes seen anew."""


class Oversize(Exception):
    """The stream holds an event that is larger than anything a server sends."""


@dataclass(frozen=True)
class Frame:
    """One event with its fields."""

    event: str
    data: str


class Decoder:
    """Puts frames together from chunks that may end anywhere."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def push(self, chunk: bytes) -> Iterator[Frame]:
        """Takes the next bytes; gives the events that they make whole.

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
        # The id is the revision, which is in the data too; an empty name is a comment.
