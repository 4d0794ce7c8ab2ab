"""Frozen values as what JSON and YAML have: dicts, lists, texts, numbers, booleans, null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


def plain(value: Any) -> Any:
    """Names stay as they are; sets are sorted, so that the same state is the same text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(entry) for entry in value)
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
