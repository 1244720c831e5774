"""Decoding of JSON into models.

Unknown fields are kept in `extra`. A missing field or a wrong type raises an error with its place
in the JSON. The decoder of a type is built once, from its annotations. The entry point is `decode`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import (
    Any,
    Callable,
    Generic,
    Literal,
    Optional,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")

NOTHING: Mapping[str, Any] = types.MappingProxyType({})
"""Value of `extra` if every field is known."""
# Before Python 3.14, `int | str` has a different type than `Union[int, str]`.
UNIONS = (Union, getattr(types, "UnionType", Union))


class DecodeError(ValueError):
    """JSON that does not match the model."""


class Model:
    """Base class of all models, which are frozen dataclasses."""

    extra: Mapping[str, Any] = NOTHING
    """Fields that a newer server sends and this version does not define."""

    def __repr__(self) -> str:
        # Most fields of most objects are `None`, so they are left out.
        model: Any = type(self)
        names = (name for name, _ in wire_names(model))
        said = ((name, getattr(self, name)) for name in names)
        shown = (f"{name}={value!r}" for name, value in said if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the object as JSON data, unknown fields included.

        A field that is `None` is left out.
        """
        out: dict[str, Any] = {}
        model: Any = type(self)
        for name, wire in wire_names(model):
            value = getattr(self, name)
            if value is not None:
                out[wire] = _encode(value)
        out.update(self.extra)
        return out


@dataclasses.dataclass(frozen=True, repr=False)
class Reading(Generic[T]):
    """A measured value, or the reason why it was not read.

    A value that was not read is never zero: check `state` first.
    """

    state: str
    """`present`, `absent`, `unsupported`, `denied`, `failed`, `timeout` or `disabled`."""
    value: T | None = None
    """Measured value, if `state` is `present`."""
    why: str | None = None
    """Reason why the value was not read, if one was reported."""
    after_ms: int | None = None
    """Missed deadline in milliseconds, if `state` is `timeout`."""

    def __repr__(self) -> str:
        said = (("value", self.value), ("why", self.why), ("after_ms", self.after_ms))
        shown = "".join(f", {name}={value!r}" for name, value in said if value is not None)
        return f"Reading({self.state!r}{shown})"

    def to_json(self) -> Any:
        """Return the reading as JSON data."""
        if self.state == "present":
            return {"present": _encode(self.value)}
        if self.after_ms is not None:
            return {self.state: {"after_ms": self.after_ms}}
        return self.state if self.why is None else {self.state: {"why": self.why}}


@dataclasses.dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    """Items, in the order of the list."""
    next_cursor: str | None = None
    """`cursor` of the next page; `None` on the last page."""


def _encode(value: Any) -> Any:
    if isinstance(value, Model):
        return value.to_dict()
    if isinstance(value, Reading):
        return value.to_json()
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    return value


@cache
def wire_names(model: Any) -> tuple[tuple[str, str], ...]:
    """Return the name of each field of a model: in Python and in JSON."""
    fields = dataclasses.fields(model)
    return tuple((field.name, field.metadata.get("wire", field.name)) for field in fields)


def decode(kind: type[T], value: Any) -> T:
    """Decode JSON data as `kind`.

    Raises `DecodeError` with the place of the first mismatch.
    """
    return cast(T, _decoder(cast(Any, kind))(value, ""))


def decode_page(kind: type[T], value: Any) -> Page[T]:
    """Decode one page of a list."""
    value = _expect(Mapping, value, "")
    items = _decoder(list[kind])(value.get("items"), "items")  # type: ignore[valid-type]
    return Page(items, _decoder(cast(Any, Optional[str]))(value.get("next_cursor"), "next_cursor"))


Decoder = Callable[[Any, str], Any]


def _wrong(place: str, wanted: str, value: Any) -> DecodeError:
    found = "null" if value is None else type(value).__name__
    return DecodeError(f"{place or 'the whole'}: {wanted} expected, {found} found")


def _expect(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(place, {Mapping: "object", list: "array"}[kind], value)
    return value


@cache
def _decoder(kind: Any) -> Decoder:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value, place: value
    if origin in UNIONS:
        return _of_union(args)
    if origin is Literal:
        return _of_literal(args)
    if origin is list:
        return _of_list(_decoder(args[0]))
    if origin is dict:
        return _of_dict(_decoder(args[1]))
    if origin is Reading:
        return _of_reading(_decoder(args[0]))
    if isinstance(kind, type) and issubclass(kind, Model):
        return _of_model(kind)
    return _of_scalar(kind)


def _of_scalar(kind: Any) -> Decoder:
    # In Python a bool is an int; in JSON it is not a number.
    takes: tuple[Any, ...] = (int, float) if kind is float else (kind,)

    def scalar(value: Any, place: str) -> Any:
        if not isinstance(value, takes) or (isinstance(value, bool) and kind is not bool):
            raise _wrong(place, kind.__name__, value)
        return float(value) if kind is float else value

    return scalar


def _of_literal(words: tuple[Any, ...]) -> Decoder:
    def literal(value: Any, place: str) -> Any:
        if value not in words:
            raise DecodeError(f"{place}: {value!r} is not one of {', '.join(map(repr, words))}")
        return value

    return literal


def _of_list(item: Decoder) -> Decoder:
    def array(value: Any, place: str) -> list[Any]:
        items = _expect(list, value, place)
        return [item(one, f"{place}[{n}]") for n, one in enumerate(items)]

    return array


def _of_dict(item: Decoder) -> Decoder:
    def mapping(value: Any, place: str) -> dict[str, Any]:
        members = _expect(Mapping, value, place).items()
        return {key: item(one, f"{place}.{key}") for key, one in members}

    return mapping


def _of_reading(item: Decoder) -> Decoder:
    def reading(value: Any, place: str) -> Reading[Any]:
        if isinstance(value, str):
            return Reading(value)
        if not isinstance(value, Mapping) or len(value) != 1:
            raise _wrong(place, "a reading", value)
        ((state, inner),) = value.items()
        if state == "present":
            return Reading(state, item(inner, f"{place}.present"))
        inner = _expect(Mapping, inner, f"{place}.{state}")
        return Reading(state, why=inner.get("why"), after_ms=inner.get("after_ms"))

    return reading


def _kind_of(model: type[Any]) -> str | None:
    """Return the value of `kind` that selects this model; `None` if the model accepts any value."""
    hint = get_type_hints(model).get("kind")
    return get_args(hint)[0] if get_origin(hint) is Literal else None


def _of_kinds(models: tuple[type[Any], ...]) -> Decoder:
    by_kind = {_kind_of(model): _of_model(model) for model in models}

    def tagged(value: Any, place: str) -> Any:
        kind = _expect(Mapping, value, place).get("kind")
        decoder = by_kind.get(kind) or by_kind.get(None)
        if decoder is None:
            raise DecodeError(f"{place}.kind: {kind!r} is not known")
        return decoder(value, place)

    return tagged


def _of_union(args: tuple[Any, ...]) -> Decoder:
    if all(isinstance(arg, type) and issubclass(arg, Model) for arg in args):
        return _of_kinds(args)
    nullable = type(None) in args
    kinds = [_decoder(arg) for arg in args if arg is not type(None)]

    def union(value: Any, place: str) -> Any:
        if value is None and nullable:
            return None
        for kind in kinds[:-1]:
            try:
                return kind(value, place)
            except DecodeError:
                continue
        return kinds[-1](value, place)

    return union


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _of_model(model: Any) -> Decoder:
    # The plan is built at first use, because a model may contain itself.
    plan: list[tuple[str, str, Decoder, bool]] = []

    def make() -> list[tuple[str, str, Decoder, bool]]:
        hints = get_type_hints(model)
        fields = {field.name: field for field in dataclasses.fields(model)}
        return [
            (name, wire, _decoder(hints[name]), _is_needed(fields[name]))
            for name, wire in wire_names(model)
        ]

    def read(value: Any, place: str) -> Any:
        if not plan:
            plan[:] = make()
        members = _expect(Mapping, value, place)
        found: dict[str, Any] = {}
        for name, wire, decoder, needed in plan:
            if wire in members:
                found[name] = decoder(members[wire], f"{place}.{wire}" if place else wire)
            elif needed:
                raise DecodeError(f"{place}.{wire} is missing" if place else f"{wire} is missing")
        made = model(**found)
        known = {wire for _, wire, _, _ in plan}
        extra = {key: value for key, value in members.items() if key not in known}
        if extra:
            object.__setattr__(made, "extra", extra)
        return made

    return read
