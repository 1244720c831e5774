"""OpenAPI document of a server: operations, and the schemas of responses and requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import overlay

Schema = dict[str, Any]
REF = "#/components/schemas/"
PAGE = "Page_"


def ref_of(schema: Schema) -> str | None:
    """Return the name of the referenced schema; `None` if the schema is not a reference."""
    ref = schema.get("$ref")
    return None if ref is None else str(ref)[len(REF) :]


def refs(part: Any) -> Iterator[str]:
    """Yield the name of every schema that this part of a document references."""
    if isinstance(part, dict):
        name = ref_of(part)
        if name is not None:
            yield name
        for value in part.values():
            yield from refs(value)
    elif isinstance(part, list):
        for value in part:
            yield from refs(value)


class Document:
    """OpenAPI document of one server."""

    def __init__(self, text: str) -> None:
        self.served: Schema = json.loads(text)
        self.schemas: dict[str, Schema] = self.served["components"]["schemas"]

    def operations(self) -> Iterator[tuple[str, str, Schema]]:
        """Yield method, path and operation."""
        for path, methods in self.served["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def answers(self) -> set[str]:
        """Return the schemas of responses, referenced ones included."""
        roots = set(overlay.ANSWERS)
        for _, _, operation in self.operations():
            roots.update(refs(operation["responses"]))
        return self._closure(roots)

    def requests(self) -> set[str]:
        """Return the schemas of requests, referenced ones included."""
        roots: set[str] = set()
        for _, _, operation in self.operations():
            roots.update(refs(operation.get("requestBody", {})))
        return self._closure(roots)

    def _closure(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(refs(self.schemas[name]))
                # A page contains the schema of its items inline, without a reference to its name.
                if name.startswith(PAGE):
                    left.append(name[len(PAGE) :])
        return found
