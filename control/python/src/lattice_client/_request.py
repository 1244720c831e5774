"""Construction of requests, retry rules, and interpretation of responses.

This module does no I/O.
"""

from __future__ import annotations

import json
import random
import ssl
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Callable, TypeVar, Union
from urllib.parse import quote

import httpx

from . import errors
from ._decode import DecodeError, Page, decode, decode_page
from .models import ProblemDocument

T = TypeVar("T")

VERSION = "0.1.0"
API = "/api/v1"
PROBLEM = "application/problem+json"
VIEW_AGE = "lattice-view-age-ms"
CONNECT_TIMEOUT = 5.0
"""Timeout of a connection in seconds, TLS handshake included."""
PAGE = 1_000
"""Items per page when a whole list is read."""
SILENCE = 45.0
"""Timeout of a silent event stream in seconds. The server sends a comment every 15 s."""
RESUMES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each attempt to resume a stream. After the last attempt the stream raises the
error."""

Name = Union[int, str]
Params = list[tuple[str, Union[str, int, float, bool, None]]]
Query = Mapping[str, Union[bool, int, str, Sequence[str], None]]


@dataclass(frozen=True)
class Retry:
    """Retry rules of requests.

    A request is sent again if no response came, on 429, and on 503, always with the same
    idempotency key. `Retry(attempts=1)` disables retries.
    """

    attempts: int = 5
    """Maximum number of attempts, the first one included."""
    first_wait: float = 0.1
    """Bound of the wait before the second attempt, in seconds; it doubles with each attempt. The
    actual wait is random, between half the bound and the bound."""
    longest_wait: float = 5.0
    """Maximum wait in seconds, unless the server requests a longer one with `Retry-After`."""
    within: float = 30.0
    """Seconds after the first attempt beyond which no retry starts."""

    def wait(self, sent: int, retry_after: float | None, elapsed: float) -> float | None:
        """Return the seconds to wait after `sent` attempts; `None` to give up."""
        if sent >= self.attempts:
            return None
        longest = min(self.longest_wait, self.first_wait * 2.0 ** (sent - 1))
        # The random part keeps clients from retrying at the same moment.
        wait = max(retry_after or 0.0, random.uniform(longest / 2, longest))
        return wait if elapsed + wait <= self.within else None


@dataclass(frozen=True)
class Call:
    """One request, which may be sent several times."""

    method: str
    path: str
    params: Params
    headers: dict[str, str]
    content: bytes | None = None
    repeatable: bool = True
    """Whether a repeated request has no further effect, because the server stores its idempotency
    key."""


def fill(template: str, names: Mapping[str, Name]) -> str:
    """Fill the percent-encoded names into a path template.

    The `path` of a project may have several segments. Raises `ValueError` for an invalid name.
    """
    for key, name in names.items():
        text = str(name)
        parts = text.split("/") if key == "path" else [text]
        # An empty segment, `.` or `..` would select a different path.
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{text!r} is not a valid name")
        template = template.replace(f"{{{key}}}", "/".join(quote(p, safe="") for p in parts))
    return template


def params(query: Query) -> Params:
    """Return the query parameters. `None` is left out; a list is joined by commas."""
    out: Params = []
    for name, value in query.items():
        if isinstance(value, bool):
            out.append((name, "true" if value else "false"))
        elif isinstance(value, (int, str)):
            out.append((name, str(value)))
        elif value:
            out.append((name, ",".join(value)))
    return out


def reading(path: str, names: Mapping[str, Name], query: Query) -> Call:
    """Return a read request."""
    return Call("GET", fill(path, names), params(query), {})


def writing(
    method: str,
    path: str,
    names: Mapping[str, Name],
    query: Query,
    body: object,
    key: str | None,
    repeatable: bool,
) -> Call:
    """Return a write request with its idempotency key. A string as `body` is YAML."""
    headers = {"idempotency-key": key if key is not None else str(uuid.uuid4())}
    content = None
    if isinstance(body, str):
        headers["content-type"] = "application/yaml"
        content = body.encode()
    elif body is not None:
        headers["content-type"] = "application/json"
        content = json.dumps(body, allow_nan=False).encode()
    return Call(method, fill(path, names), params(query), headers, content, repeatable)


class Attempts:
    """Attempts of one call, and the decision whether to retry."""

    def __init__(self, retry: Retry, call: Call, clock: Callable[[], float] = monotonic) -> None:
        self._retry, self._call, self._clock = retry, call, clock
        self._since = clock()
        self._sent = 0

    def wait(self, error: errors.LatticeError) -> float:
        """Return the seconds to wait after this error; raise it if no retry is allowed."""
        self._sent += 1
        after = error.retry_after if isinstance(error, errors.Problem) else None
        elapsed = self._clock() - self._since
        wait = self._retry.wait(self._sent, after, elapsed) if self._may(error) else None
        if wait is None:
            raise error
        return wait

    def _may(self, error: errors.LatticeError) -> bool:
        if isinstance(error, errors.Problem) and error.status == 429:
            return True
        if isinstance(error, errors.Untrusted):
            return False
        if isinstance(error, errors.Unreachable):
            unsent = isinstance(error.__cause__, (httpx.ConnectError, httpx.ConnectTimeout))
            return unsent or self._call.repeatable
        return isinstance(error, errors.Unavailable) and self._call.repeatable


def unreachable(url: str, error: httpx.TransportError) -> errors.Unreachable:
    """Return the error for a missing response: `Untrusted` after a failed certificate check, else
    `Unreachable`."""
    reason = str(error) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            # `verify_message` omits the source position in the TLS library. The error of a pin
            # check has no `verify_message`.
            reason = getattr(cause, "verify_message", "") or str(cause.args[-1])
            made: errors.Unreachable = errors.Untrusted(url, reason)
            break
        cause = cause.__cause__ or cause.__context__
    else:
        made = errors.Unreachable(url, reason)
    made.__cause__ = error
    return made


def refusal(response: httpx.Response, url: str) -> errors.LatticeError:
    """Return the error for an unsuccessful response. The caller has already read its body."""
    media = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if media == PROBLEM:
        try:
            document = decode(ProblemDocument, response.json())
            after = _seconds(response.headers.get("retry-after"))
            return errors.of_status(response.status_code)(document, after)
        except ValueError:
            pass
    reason = f"{response.status_code} without a problem document; is this a Lattice server?"
    return errors.ProtocolError(url, reason)


def _seconds(text: str | None) -> float | None:
    # The server sends seconds, never a date.
    return float(text) if text is not None and text.isdecimal() else None


def understood(model: type[T], content: bytes, url: str) -> T:
    """Decode the response body as its model."""
    try:
        return decode(model, json.loads(content))
    except (DecodeError, ValueError) as error:
        raise errors.ProtocolError(url, str(error)) from error


def understood_page(model: type[T], content: bytes, url: str) -> Page[T]:
    """Decode the response body as one page."""
    try:
        return decode_page(model, json.loads(content))
    except (DecodeError, ValueError) as error:
        raise errors.ProtocolError(url, str(error)) from error
