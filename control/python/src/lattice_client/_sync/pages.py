# Written by `generate` from `_async/`: do not edit.
"""Lists come a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from .._decode import Page
from .._request import PAGE, Name, Query

if TYPE_CHECKING:
    from .transport import Transport

T = TypeVar("T")


class Pages(Generic[T]):
    """A list. Iterate over it, and each page is asked for when its turn comes; `all()` has all of
    it; `page()` asks for one page alone. Nothing is asked before, and each time it is asked anew.
    """

    def __init__(
        self,
        transport: Transport,
        model: type[T],
        path: str,
        names: Mapping[str, Name],
        query: Query,
        cursor: str,
    ) -> None:
        self._transport = transport
        self._model = model
        self._path = path
        self._names = names
        self._query = query
        self._cursor = cursor

    def page(self, limit: int | None = None, cursor: str | None = None) -> Page[T]:
        """One page: so many items at most, from `next_cursor` of the page before on. It may hold
        fewer and still have a next."""
        query = {**self._query, "limit": limit, self._cursor: cursor}
        return self._transport._page(self._model, self._path, self._names, query)

    def __iter__(self) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self.page(PAGE, cursor)
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    def all(self) -> list[T]:
        """All of it."""
        return [item for item in self]
