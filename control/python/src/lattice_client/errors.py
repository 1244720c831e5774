"""Errors of calls.

Every error of a call is a `LatticeError`; only an invalid name in a path raises `ValueError`,
before any request. An error response of the server is a `Problem`, of the class that a caller can
react to: `Refused`, `NotFound`, `NotAllowed`, `Invalid`, `Unavailable` or `ServerFault`.
"""

from __future__ import annotations

from .models import AllocationView, DagView, ProblemDocument, Violation

__all__ = [
    "EndpointError",
    "Invalid",
    "LatticeError",
    "NotAllowed",
    "NotFound",
    "Problem",
    "ProtocolError",
    "Refused",
    "ServerFault",
    "TimedOut",
    "Unavailable",
    "Unreachable",
    "Untrusted",
]


class LatticeError(Exception):
    """A call failed."""


class Problem(LatticeError):
    """The server returned an error (`application/problem+json`).

    Its text is the server's own: the cause, and what to do next.
    """

    document: ProblemDocument
    retry_after: float | None

    def __init__(self, document: ProblemDocument, retry_after: float | None = None) -> None:
        super().__init__(document, retry_after)
        self.document = document
        """Problem document of the server."""
        self.retry_after = retry_after
        """Seconds after which a retry may succeed, if the server returned them."""

    def __str__(self) -> str:
        return self.document.detail

    @property
    def type(self) -> str:
        """`urn:lattice:problem:` and the code."""
        return self.document.type

    @property
    def title(self) -> str:
        """Kind of the problem in words."""
        return self.document.title

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.document.status

    @property
    def detail(self) -> str:
        """Cause, and what to do next."""
        return self.document.detail

    @property
    def code(self) -> str:
        """Stable machine-readable code, such as `limit_exceeded`."""
        return self.document.code

    @property
    def field(self) -> str | None:
        """Invalid field of the request, if the problem concerns one field."""
        return self.document.field

    @property
    def violations(self) -> list[Violation]:
        """Violated limits, the project first."""
        return self.document.violations or []


class Refused(Problem):
    """The request is valid but refused.

    Causes: a limit, a conflict with the present state, an unsatisfiable request, data that is no
    longer kept, or too many requests.
    """


class NotFound(Problem):
    """The object does not exist."""


class NotAllowed(Problem):
    """The token is unknown, or its role does not permit the call."""


class Invalid(Problem):
    """The request cannot be parsed, or can never be valid."""


class Unavailable(Problem):
    """The server answers, but the quorum or a node behind it does not. A retry may succeed."""


class ServerFault(Problem):
    """The server reports an internal error."""


class Unreachable(LatticeError):
    """No response: no server listens at the address, the connection broke, or the timeout expired.

    The original error is the `__cause__`.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        """Address of the server."""
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.url} cannot be reached: {self.reason}"


class Untrusted(Unreachable):
    """A server answers at the address, but its certificate is not trusted.

    No data and no token was sent to it.
    """

    def __str__(self) -> str:
        return f"{self.url} is not trusted: {self.reason}"


class ProtocolError(LatticeError):
    """The response does not match the protocol of this version."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        """URL of the request."""
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.url} sent an unexpected response: {self.reason}"


class EndpointError(LatticeError):
    """The address, certificate, token or context file is unusable or missing."""


class TimedOut(LatticeError, TimeoutError):
    """The allocation or DAG had not ended in time. It continues: nothing was cancelled."""

    def __init__(self, seconds: float, last: AllocationView | DagView) -> None:
        super().__init__(seconds, last)
        self.seconds = seconds
        self.last = last
        """Last state read of the allocation or DAG."""

    def __str__(self) -> str:
        what = "graph" if isinstance(self.last, DagView) else "allocation"
        return f"{what} {self.last.id} is {self.last.state} after {self.seconds:g} s"


def of_status(status: int) -> type[Problem]:
    """Return the class of a problem by its HTTP status."""
    if status in (401, 403):
        return NotAllowed
    if status == 404:
        return NotFound
    if status in (409, 410, 422, 429):
        return Refused
    if status == 503:
        return Unavailable
    return Invalid if 400 <= status < 500 else ServerFault
