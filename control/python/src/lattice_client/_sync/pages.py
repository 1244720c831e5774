# Written by `generate` from `_async/`: do not edit.
"""Lists, read a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from .._decode import Page
from .._request import PAGE, Name, Query

if TYPE_CHECKING:
    from .transport import Transport

T = TypeVar("T")


class Pages(Generic[T]):
    """A list, read a page at a time.

    Iteration requests each page as needed, `all()` returns the whole list, and `page()` requests
    one page. No request is sent before, and each iteration requests the pages again.
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
        """Request one page of at most `limit` items.

        `cursor` is the `next_cursor` of the previous page. A page may hold fewer items than `limit`
        and still have a next page.
        """
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
        """Return the whole list."""
        return [item for item in self]
