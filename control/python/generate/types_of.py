"""Python types of OpenAPI schemas."""

from __future__ import annotations

import keyword
import re
import textwrap
from typing import Any

import overlay
from document import Document, Schema, ref_of

WIDTH = 100
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
READING = "ReadingView_"


def python_name(name: str) -> str:
    """Return the Python class name of a schema."""
    return overlay.NAMES.get(name, name)


def field_name(name: str) -> str:
    """Return the Python name of a field: a Python keyword gets a trailing underscore."""
    return f"{name}_" if keyword.iskeyword(name) else name


class Types:
    """Python types of the schemas of responses (`answers`) or of requests."""

    def __init__(self, document: Document, answers: bool) -> None:
        self.document = document
        self.answers = answers

    def of(self, schema: Schema) -> str:
        """Return the type annotation of a schema."""
        name = ref_of(schema)
        if name is not None:
            return self._of_name(name)
        if "oneOf" in schema:
            return self._union([self.of(one) for one in schema["oneOf"]])
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([self.of({**schema, "type": one}) for one in kind])
        return self._of_kind(kind, schema)

    def _of_kind(self, kind: Any, schema: Schema) -> str:
        if kind == "null":
            return "None"
        if kind == "array":
            return f"list[{self.of(schema['items'])}]"
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return f"dict[str, {self.of(schema['additionalProperties'])}]"
        if kind == "object":
            return "dict[str, Any]"
        # A response of a newer server may contain values outside of this enum.
        if "enum" in schema and not self.answers:
            return f"Literal[{', '.join(map(_quoted, schema['enum']))}]"
        return SCALARS.get(kind, "Any")

    def _of_name(self, name: str) -> str:
        if name.startswith(READING):
            return f"Reading[{self.of(self._read(name))}]"
        if self.is_class(name) or self.is_alias(name):
            return python_name(name)
        return self.of(self.document.schemas[name])

    def _read(self, name: str) -> Schema:
        present = self.document.schemas[name]["oneOf"][0]["properties"]["present"]
        return dict(present)

    def is_class(self, name: str) -> bool:
        """Return whether a schema becomes a class: it has fields."""
        schema = self.document.schemas[name]
        return "properties" in schema or "allOf" in schema

    def is_alias(self, name: str) -> bool:
        """Return whether a schema becomes a named union type."""
        schema = self.document.schemas[name]
        return "oneOf" in schema and not name.startswith(READING)

    def _union(self, parts: list[str]) -> str:
        seen: list[str] = []
        for part in parts:
            if part not in seen:
                seen.append(part)
        words = [part for part in seen if part.startswith("Literal[")]
        if len(words) > 1:
            joined = ", ".join(word[len("Literal[") : -1] for word in words)
            seen = [f"Literal[{joined}]", *(part for part in seen if part not in words)]
        some = [part for part in seen if part != "None"]
        inner = some[0] if len(some) == 1 else f"Union[{', '.join(some)}]"
        return inner if len(some) == len(seen) else f"Optional[{inner}]"

    def properties(self, name: str) -> tuple[dict[str, Schema], set[str], str]:
        """Return the fields of a schema, the names of its required fields, and its description."""
        schema = self.document.schemas[name]
        fields: dict[str, Schema] = {}
        required: set[str] = set()
        for part in schema.get("allOf", [schema]):
            inner = ref_of(part)
            part = self.document.schemas[inner] if inner else part
            fields.update(part["properties"])
            required.update(part.get("required", []))
        about = schema.get("description") or f"{name}."
        return dict(sorted(fields.items())), required, about


def _quoted(word: str) -> str:
    return f'"{word}"'


def tidy(text: str) -> str:
    """Turn intra-doc links into code, and escape the text for a docstring."""
    text = re.sub(r"\[`([^`\]]*)`?\]", r"`\1`", text)
    return text.replace("\\", "\\\\").replace('"""', "'''")


def docstring(text: str, indent: str) -> list[str]:
    """Return the lines of a wrapped docstring."""
    paragraphs = [" ".join(part.split()) for part in tidy(text).split("\n\n")]
    lines: list[str] = []
    for paragraph in paragraphs:
        first = f'{indent}"""' if not lines else indent
        width = WIDTH - 3
        wrapped = textwrap.wrap(
            paragraph,
            width,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        if lines:
            lines.append("")
        lines.extend(wrapped)
    if lines[-1].endswith('"'):
        lines[-1] += " "
    lines[-1] += '"""'
    return lines
