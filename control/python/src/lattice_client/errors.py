"""Why a call did not return what was asked for.

Everything that this package raises on its own is a `LatticeError`. What the server says is a
`Problem`, of the class that a caller can act on: `Refused`, `NotFound`, `NotAllowed`, `Invalid`,
`Unavailable` or `ServerFault`.
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
    """A call that failed."""


class Problem(LatticeError):
    """The server's "no" (`application/problem+json`). Its text is the server's own: what is wrong,
    and what to do next."""

    document: ProblemDocument
    retry_after: float | None

    def __init__(self, document: ProblemDocument, retry_after: float | None = None) -> None:
        super().__init__(document, retry_after)
        self.document = document
        """What the server sent."""
        self.retry_after = retry_after
        """After how many seconds it may be worth another try, where the server says so."""

    def __str__(self) -> str:
        return self.document.detail

    @property
    def type(self) -> str:
        """`urn:lattice:problem:` and the code."""
        return self.document.type

    @property
    def title(self) -> str:
        """The kind in words."""
        return self.document.title

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.document.status

    @property
    def detail(self) -> str:
        """What is wrong and what to do next."""
        return self.document.detail

    @property
    def code(self) -> str:
        """Stable word for machines, such as `limit_exceeded`."""
        return self.document.code

    @property
    def field(self) -> str | None:
        """The field that is wrong, when it is one."""
        return self.document.field

    @property
    def violations(self) -> list[Violation]:
        """The violated levels, the project first."""
        return self.document.violations or []


class Refused(Problem):
    """Understood, judged and refused: a limit, a conflict with the present state, what no nodes
    could ever satisfy, what is no longer kept, too often."""


class NotFound(Problem):
    """No such thing."""


class NotAllowed(Problem):
    """The token is unknown, or its role does not permit it."""


class Invalid(Problem):
    """The request cannot be read, or can never be right."""


class Unavailable(Problem):
    """The server answers, but the quorum or a node behind it does not. Trying again may help."""


class ServerFault(Problem):
    """The server reports a fault of its own."""


class Unreachable(LatticeError):
    """No answer: nothing listens there, the connection broke, or the time ran out. What happened
    is the `__cause__`."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        """Where the server was expected."""
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.url} cannot be reached: {self.reason}"


class Untrusted(Unreachable):
    """Something answers there, and its certificate is not the one to trust. Nothing was sent to
    it, the token neither."""

    def __str__(self) -> str:
        return f"{self.url} is not trusted: {self.reason}"


class ProtocolError(LatticeError):
    """The answer is not what this version understands."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        """What was asked."""
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.url} sent an unexpected response: {self.reason}"


class EndpointError(LatticeError):
    """The address, certificate, token or context file cannot be used, or there is none."""


class TimedOut(LatticeError, TimeoutError):
    """It had not ended in time. It goes on: nothing was cancelled."""

    def __init__(self, seconds: float, last: AllocationView | DagView) -> None:
        super().__init__(seconds, last)
        self.seconds = seconds
        self.last = last
        """As it was when it was last looked at."""

    def __str__(self) -> str:
        what = "graph" if isinstance(self.last, DagView) else "allocation"
        return f"{what} {self.last.id} is {self.last.state} after {self.seconds:g} s"


def of_status(status: int) -> type[Problem]:
    """The class that belongs to a problem's status."""
    if status in (401, 403):
        return NotAllowed
    if status == 404:
        return NotFound
    if status in (409, 410, 422, 429):
        return Refused
    if status == 503:
        return Unavailable
    return Invalid if 400 <= status < 500 else ServerFault
