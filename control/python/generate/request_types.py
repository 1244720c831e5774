"""Generator of `requests.py`: requests as typed dictionaries.

Requests are dictionaries because a field left out differs from a field that is `None`.
"""

from __future__ import annotations

import keyword

from models import _about
from types_of import Types, docstring, python_name

from document import Document, Schema

HEAD = '''"""Request bodies as typed dictionaries.

Written by `generate` from the served OpenAPI document: do not edit. A field that is left out stays
as it is, or takes its default; `None` is JSON's `null`, which lifts a limit.
"""

from __future__ import annotations

from typing import Any, Literal, Optional, TypedDict, Union
'''


def write(document: Document) -> str:
    """Return the text of `requests.py`."""
    types = Types(document, answers=False)
    names = sorted(document.requests())
    own = [name for name in names if types.is_class(name)]
    aliases = [name for name in names if types.is_alias(name)]
    listed = "".join(f'    "{name}",\n' for name in sorted(map(python_name, own + aliases)))
    parts = [f"{HEAD}\n__all__ = [\n{listed}]"]
    parts.extend(_alias(types, name) for name in aliases)
    for name in own:
        parts.extend(_classes(types, name))
    return "\n\n\n".join(parts) + "\n"


def _alias(types: Types, name: str) -> str:
    schema = types.document.schemas[name]
    about = "\n".join(docstring(schema.get("description", f"{name}."), ""))
    return f"{name} = {types.of(dict(schema))}\n{about}"


def _classes(types: Types, name: str) -> list[str]:
    fields, required, about = types.properties(name)
    needed = {wire: schema for wire, schema in fields.items() if wire in required}
    optional = {wire: schema for wire, schema in fields.items() if wire not in required}
    # A field named like a Python keyword needs the functional form of `TypedDict`.
    words = {wire: schema for wire, schema in optional.items() if keyword.iskeyword(wire)}
    optional = {wire: schema for wire, schema in optional.items() if wire not in words}
    parts: list[str] = []
    bases: list[str] = []
    if needed and (optional or words):
        bases.append(f"_{name}Needed")
        parts.append(_class(types, bases[-1], "TypedDict", "Required fields.", needed))
    if words:
        bases.append(f"_{name}Words")
        kinds = ", ".join(f'"{wire}": "{types.of(schema)}"' for wire, schema in words.items())
        made = f'TypedDict(\n    "{bases[-1]}", {{{kinds}}}, total=False\n)'
        parts.append(f"{bases[-1]} = {made}")
        told = "; ".join(f"`{wire}`: {_about(schema)}" for wire, schema in words.items())
        about = f"{about}\n\n{told}"
    rest = optional if needed and (optional or words) else {**needed, **optional}
    total = "" if needed and not (optional or words) else ", total=False"
    base = ", ".join(bases) or "TypedDict"
    parts.append(_class(types, python_name(name), base + total, about, rest))
    return parts


def _class(types: Types, name: str, base: str, about: str, fields: dict[str, Schema]) -> str:
    lines = [f"class {name}({base}):", *docstring(about, "    "), ""]
    for wire, schema in sorted(fields.items()):
        lines.append(f"    {wire}: {types.of(schema)}")
        if _about(schema):
            lines.extend(docstring(_about(schema), "    "))
    return "\n".join(lines).rstrip()
