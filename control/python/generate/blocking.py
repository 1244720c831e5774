"""Generator of `_sync/`, the blocking form of `_async/`."""

from __future__ import annotations

import re

HEAD = "# Written by `generate` from `_async/`: do not edit.\n"

WORDS = {
    "AsyncClient": "Client",
    "AsyncPages": "Pages",
    "AsyncWatch": "Watch",
    "AsyncByteStream": "ByteStream",
    "AsyncTransport": "Transport",
    "AsyncIterator": "Iterator",
    "AsyncBaseTransport": "BaseTransport",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "anyio": "time",
}


def write(source: str) -> str:
    """Return the blocking form of a source file of `_async/`."""
    out = re.sub(r"\basync (def|with|for)\b", r"\1", source)
    out = re.sub(r"\bawait ", "", out)
    return HEAD + re.sub(r"\b[A-Za-z_]+\b", lambda m: WORDS.get(m.group(), m.group()), out)
