"""Events of the event stream."""

from __future__ import annotations

import json
from typing import Any, Union

from ._decode import decode
from .models import Changes, CompactedEvents, ObservedChanges

Event = Union[Changes, ObservedChanges, CompactedEvents]
"""One event: `Changes` holds one revision with all its changes; `ObservedChanges` holds
observations outside of revisions; `CompactedEvents` reports that the start revision is no longer
kept."""

_MODELS: dict[str, Any] = {
    "changes": Changes,
    "observed": ObservedChanges,
    "compacted": CompactedEvents,
}


def read(name: str, data: str) -> Event | None:
    """Decode an event by its name; `None` for a name that this version does not define.

    Raises `ValueError` if the data does not match the name.
    """
    model = _MODELS.get(name)
    if model is None:
        return None
    event: Event = decode(model, json.loads(data))
    return event


def position(event: Event, before: int | None) -> int | None:
    """Return the revision to resume after, once this event was returned."""
    if isinstance(event, Changes):
        return event.revision
    if isinstance(event, CompactedEvents):
        return event.oldest
    return before
