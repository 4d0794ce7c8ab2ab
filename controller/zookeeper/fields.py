"""Reading a JSON object field by field: every mistake is one RecordError with path, field and reason.

Unknown fields are let through: a record may be written by a newer version. Missing ones take their default
where there is one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from typing import Any, TypeVar

from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.znode import unpack

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
_REQUIRED: Any = object()


def loads(raw: bytes, path: str) -> Fields:
    """The object in a znode, compressed or not."""
    try:
        value = json.loads(unpack(raw), parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        raise RecordError(path, "$", f"is not JSON: {error}") from error
    return Fields(path, "$", value)


def _no_json(constant: str) -> float:
    """Python reads NaN and Infinity, which nobody else does, and which could not be written back."""
    raise ValueError(f"{constant} is no number of JSON")


def shallow(record: Any) -> dict[str, Any]:
    """The fields of a slotted dataclass.  `dataclasses.asdict` copies what is in them, too, which takes a hundred times
    as long."""
    return {name: getattr(record, name) for name in record.__slots__}


def dumps(value: Mapping[str, object]) -> bytes:
    """JSON; stable: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class Fields:
    """An object at `where` in the znode `path`."""

    path: str
    where: str
    value: Any

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise RecordError(self.path, self.where, f"must be an object, not {_kind(self.value)}")

    def wrong(self, name: str, reason: str) -> RecordError:
        return RecordError(self.path, f"{self.where}.{name}", reason)

    def get(self, name: str, default: Any = _REQUIRED) -> Any:
        if name in self.value:
            return self.value[name]
        if default is _REQUIRED:
            raise self.wrong(name, "is missing")
        return default

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        return self._typed(name, default, str, "a text")

    def maybe_text(self, name: str) -> str | None:
        return None if self.get(name, None) is None else self.text(name)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        return self._typed(name, default, bool, "true or false")

    def integer(self, name: str, default: Any = _REQUIRED) -> int:
        return as_integer(self, name, self.get(name, default))

    def maybe_integer(self, name: str) -> int | None:
        return None if self.get(name, None) is None else self.integer(name)

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        return as_number(self, name, self.get(name, default))

    def maybe_number(self, name: str) -> float | None:
        return None if self.get(name, None) is None else self.number(name)

    def choice(self, name: str, kinds: type[E]) -> E:
        text = self.text(name)
        try:
            return kinds(text)
        except ValueError:
            raise self.wrong(name, f"must be one of {', '.join(kinds)}, not {text!r}") from None

    def items(self, name: str, read: Callable[[Fields, str, Any], T], default: Any = _REQUIRED) -> list[T]:
        """A list, each entry read by `read(fields, field name, value)`."""
        found = self._typed(name, default, list, "a list")
        return [read(self, f"{name}[{i}]", entry) for i, entry in enumerate(found)]

    def mapping(
        self, name: str, read: Callable[[Fields, str, Any], T], default: Any = _REQUIRED
    ) -> dict[str, T]:
        """An object used as a map, each value read by `read(fields, field name, value)`.  Keys are ids, of which there
        are few in many records: each is kept once."""
        found = self._typed(name, default, dict, "an object")
        return {intern(key): read(self, f"{name}.{key}", entry) for key, entry in found.items()}

    def _typed(self, name: str, default: Any, kind: type[T], what: str) -> T:
        value = self.get(name, default)
        if not isinstance(value, kind):
            raise self.wrong(name, f"must be {what}, not {_kind(value)}")
        return value


def as_text(fields: Fields, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise fields.wrong(name, f"must be a text, not {_kind(value)}")
    return value


def as_integer(fields: Fields, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise fields.wrong(name, f"must be a whole number, not {_kind(value)}")
    return value


def as_number(fields: Fields, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise fields.wrong(name, f"must be a finite number, not {_kind(value)}")
    return float(value)


def as_object(fields: Fields, name: str, value: Any) -> Fields:
    return Fields(fields.path, f"{fields.where}.{name}", value)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
