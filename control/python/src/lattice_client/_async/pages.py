"""Lists come a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from .._decode import Page
from .._request import PAGE, Name, Query

if TYPE_CHECKING:
    from .transport import AsyncTransport

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """A list. Iterate over it, and each page is asked for when its turn comes; `all()` has all of
    it; `page()` asks for one page alone. Nothing is asked before, and each time it is asked anew.
    """

    def __init__(
        self,
        transport: AsyncTransport,
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

    async def page(self, limit: int | None = None, cursor: str | None = None) -> Page[T]:
        """One page: so many items at most, from `next_cursor` of the page before on. It may hold
        fewer and still have a next."""
        query = {**self._query, "limit": limit, self._cursor: cursor}
        return await self._transport._page(self._model, self._path, self._names, query)

    async def __aiter__(self) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self.page(PAGE, cursor)
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    async def all(self) -> list[T]:
        """All of it."""
        return [item async for item in self]
