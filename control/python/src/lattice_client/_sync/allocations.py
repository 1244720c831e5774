# Written by `generate` from `_async/`: do not edit.
"""Allocations and their output."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Literal

import time

from .. import _request
from .._request import API, Name
from ..errors import ProtocolError, TimedOut
from ..models import AllocationView, ExplanationView, SubmitResult
from ..requests import AllocationRequest, CheckpointRequest
from .bytestream import ByteStream
from .pages import Pages
from .transport import Transport

ENDED = frozenset({"completed", "failed", "cancelled"})
"""Final states."""


class Allocations(Transport):
    """Calls of allocations.

    An `id` is an allocation number, or an array element such as `"12_7"`.
    """

    def list_allocations(
        self,
        *,
        state: str | Sequence[str] | None = None,
        project: str | None = None,
        user: str | None = None,
    ) -> Pages[AllocationView]:
        """List allocations by number, including ended ones.

        The parameters restrict the list to these states, to this project and its descendants, and
        to this user.
        """
        query = {"state": state, "project": project, "user": user}
        return self._list(AllocationView, "/allocations", {}, query=query)

    def get_allocation(self, id: Name) -> AllocationView:
        """Show an allocation, including an ended one."""
        return self._ask(AllocationView, "/allocations/{id}", {"id": id})

    def submit(
        self, request: AllocationRequest, *, dry_run: bool = False, key: str | None = None
    ) -> SubmitResult:
        """Submit an allocation.

        A limit that would be exceeded raises `Refused` with every violated level.

        A dry run creates nothing: `id` is `None`, and `outlook` predicts the result. A second
        submission with the same `key` returns the first result, for 24 hours. With a `key`, give
        `begin` and `deadline` as absolute times, because a relative time makes a different request.
        """
        query = {"dry_run": True if dry_run else None}
        return self._write(
            SubmitResult, "POST", "/allocations", {}, query=query, body=request, key=key
        )

    def submit_and_wait(
        self,
        request: AllocationRequest,
        *,
        timeout: float | None = None,
        key: str | None = None,
    ) -> AllocationView:
        """Submit an allocation and wait until it has ended; `state` gives the result.

        Raises `TimedOut` after `timeout` seconds; nothing is cancelled then.
        """
        began = monotonic()
        made = self.submit(request, key=key)
        if made.id is None:
            raise ProtocolError(f"{self._endpoint.url}{API}/allocations", "no allocation id")
        left = None if timeout is None else max(0.0, timeout - (monotonic() - began))
        return self.wait(made.id, timeout=left)

    def wait(
        self, id: Name, *, timeout: float | None = None, interval: float = 2.0
    ) -> AllocationView:
        """Wait until an allocation has ended.

        The allocation is polled often at first, and at last every `interval` seconds. Raises
        `TimedOut` after `timeout` seconds; nothing is cancelled then.
        """
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
        """Cancel an allocation.

        An allocation without nodes ends at once; otherwise its processes are stopped first.
        """
        return self._write(AllocationView, "DELETE", "/allocations/{id}", {"id": id}, key=key)

    def hold(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Hold a pending allocation, so that it does not start."""
        return self._write(
            AllocationView, "POST", "/allocations/{id}/hold", {"id": id}, key=key
        )

    def release(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Release a held allocation."""
        return self._write(
            AllocationView, "POST", "/allocations/{id}/release", {"id": id}, key=key
        )

    def requeue(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Requeue an allocation that holds nodes.

        Its processes are ended, and it waits for nodes again. It restarts from its last checkpoint,
        if it has one.
        """
        return self._write(
            AllocationView, "POST", "/allocations/{id}/requeue", {"id": id}, key=key
        )

    def suspend(
        self, id: Name, *, checkpoint: bool = False, key: str | None = None
    ) -> AllocationView:
        """Suspend an allocation that holds nodes.

        Its processes are ended and its nodes released; with `checkpoint`, it writes a checkpoint
        first. It waits until it is resumed, and restarts from its last checkpoint, if it has one.
        For its user and for operators.
        """
        query = {"checkpoint": True if checkpoint else None}
        return self._write(
            AllocationView, "POST", "/allocations/{id}/suspend", {"id": id}, query=query, key=key
        )

    def resume(self, id: Name, *, key: str | None = None) -> AllocationView:
        """Resume a suspended allocation: it waits for nodes again, if limits allow it now."""
        return self._write(
            AllocationView, "POST", "/allocations/{id}/resume", {"id": id}, key=key
        )

    def extend(self, id: Name, walltime: str, *, key: str | None = None) -> AllocationView:
        """Change the walltime of an allocation that has not ended: `2h`, or `+30m` to add time.

        Only operators may extend it.
        """
        body = {"walltime": walltime}
        return self._write(
            AllocationView, "POST", "/allocations/{id}/extend", {"id": id}, body=body, key=key
        )

    def checkpoint(
        self, id: Name, request: CheckpointRequest | None = None, *, key: str | None = None
    ) -> AllocationView:
        """Write a checkpoint of a running allocation, which then continues.

        For its user and for operators.
        """
        body = request or {}
        return self._write(
            AllocationView, "POST", "/allocations/{id}/checkpoint", {"id": id}, body=body, key=key
        )

    def explain(self, id: Name) -> ExplanationView:
        """Explain the state of an allocation: the number of nodes each constraint removed, and the
        expected start."""
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
        """Read the captured output of a rank, from the byte `offset` on.

        With `follow`, the stream returns output as it is written, until the rank ends. After a
        broken connection it continues at the same byte. For the submitting user, administrators of
        the project or tenant, and operators.
        """
        query = {"rank": rank, "stream": stream, "follow": follow}
        call = _request.reading(f"{API}/allocations/{{id}}/logs", {"id": id}, query)
        return ByteStream(self, call, offset, patient=follow)

    def decisions(self, since: str | None = None) -> ByteStream:
        """Stream the recorded inputs and decisions of the schedulers, one JSON line each.

        The stream begins at `since`, or with the oldest record that is kept. For operators of the
        whole cluster.
        """
        call = _request.reading(f"{API}/decisions", {}, {"since": since})
        return ByteStream(self, call, None, patient=True)
