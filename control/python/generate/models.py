"""Generator of `models.py`: responses as frozen dataclasses."""

from __future__ import annotations

from types_of import Types, docstring, field_name, python_name

from document import PAGE, Document, Schema

HEAD = '''"""Models of the answers of a server.

Written by `generate` from the served OpenAPI document: do not edit. A field that this version does
not know is in `extra`.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as _field
from typing import Any, Literal, Optional, Union

from ._decode import Model, Page, Reading
'''


def write(document: Document) -> str:
    """Return the text of `models.py`."""
    types = Types(document, answers=True)
    names = sorted(document.answers())
    written = {python_name(name) for name in names if types.is_class(name)}
    chunks = [_class(types, name) for name in names if _is_own(types, name)]
    aliases: list[str] = []
    for name in names:
        if types.is_alias(name):
            variants, alias = _alias(types, name)
            chunks.extend(variants.values())
            written.update(variants)
            aliases.append(alias)
            written.add(python_name(name))
    written = {name for name in written if not name.startswith(PAGE)} | {"Page", "Reading"}
    listed = "".join(f'    "{name}",\n' for name in sorted(written))
    parts = [f"{HEAD}\n__all__ = [\n{listed}]", *chunks, *aliases]
    return "\n\n\n".join(parts) + "\n"


def _is_own(types: Types, name: str) -> bool:
    # All pages share one generic class.
    return types.is_class(name) and not name.startswith(PAGE)


def _class(types: Types, name: str) -> str:
    fields, required, about = types.properties(name)
    return _dataclass(types, python_name(name), about, fields, required)


def _dataclass(
    types: Types, name: str, about: str, fields: dict[str, Schema], required: set[str]
) -> str:
    lines = [
        "@dataclass(frozen=True, repr=False)",
        f"class {name}(Model):",
        *docstring(about, "    "),
    ]
    lines.append("")
    # Fields without a default come first.
    for wire in sorted(fields, key=lambda field: (field not in required, field)):
        lines.extend(_field(types, wire, fields[wire], wire in required))
    return "\n".join(lines)


def _field(types: Types, wire: str, schema: Schema, required: bool) -> list[str]:
    kind, name = types.of(schema), field_name(wire)
    if wire == "kind" and len(schema.get("enum", [])) == 1:
        kind = f'Literal["{schema["enum"][0]}"]'
    line = f"    {name}: {kind}"
    if not required:
        kind, default = _default(kind)
        given = default if name == wire else f"_field(default=None, metadata={_wire(wire)})"
        line = f"    {name}: {kind} = {given}"
    elif name != wire:
        line += f" = _field(metadata={_wire(wire)})"
    about = _about(schema)
    return [line, *docstring(about, "    ")] if about else [line]


def _wire(name: str) -> str:
    """Return the metadata with the JSON name of a field named like a Python keyword."""
    return f'{{"wire": "{name}"}}'


def _default(kind: str) -> tuple[str, str]:
    """Return the type and the default of an optional field."""
    for empty in ("list", "dict"):
        if kind.startswith(f"{empty}["):
            return kind, f"_field(default_factory={empty})"
    if kind == "bool":
        return kind, "False"
    return (kind if kind.startswith("Optional[") else f"Optional[{kind}]"), "None"


def _about(schema: Schema) -> str:
    for part in (schema, *schema.get("oneOf", [])):
        if part.get("description"):
            return str(part["description"])
    return ""


def _alias(types: Types, name: str) -> tuple[dict[str, str], str]:
    """Return the variants and the definition of a union type.

    Each variant with a `kind` of its own becomes a class.
    """
    schema = types.document.schemas[name]
    variants: dict[str, str] = {}
    for one in schema["oneOf"]:
        kinds = one.get("properties", {}).get("kind", {}).get("enum")
        if kinds:
            words = "".join(word.title() for word in kinds[0].split("_"))
            fields, required = dict(sorted(one["properties"].items())), set(one["required"])
            about = one.get("description", "")
            made = _dataclass(types, f"{words}{name}", about, fields, required)
            variants[f"{words}{name}"] = made
    about = "\n".join(docstring(schema.get("description", f"{name}."), ""))
    if not variants:
        return {}, f"{name} = {types.of(dict(schema))}\n{about}"
    other = f"Unknown{name}"
    kind: Schema = {"kind": {"type": "string", "description": "Kind unknown to this client."}}
    variants[other] = _dataclass(
        types, other, "A kind that this version does not know; it is in `extra`.", kind, {"kind"}
    )
    joined = ",\n    ".join(variants)
    return variants, f"{name} = Union[\n    {joined},\n]\n{about}"
