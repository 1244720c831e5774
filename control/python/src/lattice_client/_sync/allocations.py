# Written by `generate` from `_async/`: do not edit.
"""Allocations, and their output."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Literal

import time

from .. import _request
from .._request import API, Name
from ..errors import ProtocolError, TimedOut
from ..models import AllocationView, ExplanationView, Submitted
from ..requests import AllocationRequest, CheckpointRequest
from .bytestream import ByteStream
from .pages import Pages
from .transport import Transport

ENDED = frozenset({"completed", "failed", "cancelled"})
"""States that nothing follows."""


class Allocations(Transport):
    """Where an `id` is asked for it is a number, or an element of an array as `"12_7"`."""

    def list_allocations(
        self,
        *,
        state: str | Sequence[str] | None = None,
        project: str | None = None,
        user: str | None = None,
    ) -> Pages[AllocationView]:
        """Allocations by number, ended ones included: only in these states, only of this project
        and what is below it, only of this user."""
        query = {"state": state, "project": project, "user": user}
        return self._list(AllocationView, "/allocations", {}, query=query)

    def get_allocation(self, id: Name) -> AllocationView:
        """One allocation, ended ones included."""
        return self._ask(AllocationView, "/allocations/{id}", {"id": id})

    def submit(
        self, request: AllocationRequest, *, dry_run: bool = False, key: str | None = None
    ) -> Submitted:
        """Asks for nodes. A limit that would be exceeded is `Refused`, with every violated level.

        Of a dry run nothing is made, and `id` is `None`; `outlook` says what would become of it. A
        second submit with the same `key` is answered with the first outcome, for 24 hours; so
        write times for `begin` and `deadline` there, and not how long from now.
        """
        query = {"dry_run": True if dry_run else None}
        return self._write(
            Submitted, "POST", "/allocations", {}, query=query, body=request, key=key
        )

    def submit_and_wait(
        self,
        request: AllocationRequest,
        *,
        timeout: float | None = None,
        key: str | None = None,
    ) -> AllocationView:
        """Asks for nodes, and waits until it has ended: `state` says how. Raises `TimedOut` when
        that takes longer than so many seconds; nothing is cancelled then."""
        began = monotonic()
        made = self.submit(request, key=key)
        if made.id is None:
            raise ProtocolError(f"{self._endpoint.url}{API}/allocations", "no number")
        left = None if timeout is None else max(0.0, timeout - (monotonic() - began))
        return self.wait(made.id, timeout=left)

    def wait(
        self, id: Name, *, timeout: float | None = None, interval: float = 2.0
    ) -> AllocationView:
        """Waits until it has ended. It is looked at often at first, and every so many seconds in
        the end. Raises `TimedOut`; nothing is cancelled then."""
        began, pause = monotonic(), min(0.1, interval)
        while True:
            seen = self.get_allocation(id)
            if seen.state in ENDED:
                return seen
            left = None if timeout is None else timeout - (monotonic() - began)
            if left is not None and left <= 0:
                raise TimedOut(monotonic() - began, seen)
            time.sleep(pause if left is None else min(pause, left))
            pause = min(interval, pause * 1.5)

    def cancel(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Ends it: at once if it holds nothing, else what runs is stopped first."""
        return self._write(AllocationView, "DELETE", "/allocations/{id}", {"id": id}, key=key)

    def hold(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Keeps a pending one from starting."""
        return self._write(
            AllocationView, "POST", "/allocations/{id}/hold", {"id": id}, key=key
        )

    def release(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Takes it off hold."""
        return self._write(
            AllocationView, "POST", "/allocations/{id}/release", {"id": id}, key=key
        )

    def requeue(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Ends the processes of one that holds nodes; it waits for nodes again."""
        return self._write(
            AllocationView, "POST", "/allocations/{id}/requeue", {"id": id}, key=key
        )

    def suspend(
        self, id: Name, *, checkpoint: bool = False, key: str | None = None
    ) -> AllocationView:
        """Ends the processes of one that holds nodes, after a checkpoint if that is wanted; it
        holds nothing and waits until it is resumed."""
        query = {"checkpoint": True if checkpoint else None}
        return self._write(
            AllocationView, "POST", "/allocations/{id}/suspend", {"id": id}, query=query, key=key
        )

    def resume(self, id: Name, *, key: str | None = None) -> AllocationView:
        """A suspended one waits for nodes again, if limits allow it now."""
        return self._write(
            AllocationView, "POST", "/allocations/{id}/resume", {"id": id}, key=key
        )

    def extend(self, id: Name, walltime: str, *, key: str | None = None) -> AllocationView:
        """Gives it another walltime: `2h`, or `+30m` more. A longer one is for operators."""
        body = {"walltime": walltime}
        return self._write(
            AllocationView, "POST", "/allocations/{id}/extend", {"id": id}, body=body, key=key
        )

    def checkpoint(
        self, id: Name, request: CheckpointRequest | None = None, *, key: str | None = None
    ) -> AllocationView:
        """Has a running one write a checkpoint and go on."""
        body = request or {}
        return self._write(
            AllocationView, "POST", "/allocations/{id}/checkpoint", {"id": id}, body=body, key=key
        )

    def explain(self, id: Name) -> ExplanationView:
        """Why it is where it is: which constraint removed how many nodes, and when it may start."""
        return self._ask(ExplanationView, "/allocations/{id}/explanation", {"id": id})

    def logs(
        self,
        id: Name,
        *,
        rank: int = 0,
        stream: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        follow: bool = False,
    ) -> ByteStream:
        """A rank's captured output from a byte on; with `follow` as it comes, until the rank
        ends. It goes on where a connection broke."""
        query = {"rank": rank, "stream": stream, "follow": follow}
        call = _request.reading(f"{API}/allocations/{{id}}/logs", {"id": id}, query)
        return ByteStream(self, call, offset, patient=follow)

    def decisions(self, since: str | None = None) -> ByteStream:
        """What the schedulers were told and decided, as lines of JSON: from a moment on, or all
        that is kept. For administrators."""
        call = _request.reading(f"{API}/decisions", {}, {"since": since})
        return ByteStream(self, call, None, patient=True)
