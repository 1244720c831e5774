"""What the event stream carries."""

from __future__ import annotations

import json
from typing import Any, Union

from ._decode import decode
from .models import Changes, Compacted, Observed

Event = Union[Changes, Observed, Compacted]
"""A revision and everything it changed; something seen that belongs to none; or that the revision
to start from is no longer kept."""

_MODELS: dict[str, Any] = {"changes": Changes, "observed": Observed, "compacted": Compacted}


def read(name: str, data: str) -> Event | None:
    """Reads an event by its name; `None` for a name that this version does not know.

    Raises `ValueError` for data that is not what the name says.
    """
    model = _MODELS.get(name)
    if model is None:
        return None
    event: Event = decode(model, json.loads(data))
    return event


def position(event: Event, before: int | None) -> int | None:
    """The revision to resume after, once this event was given."""
    if isinstance(event, Changes):
        return event.revision
    if isinstance(event, Compacted):
        return event.oldest
    return before
